"""Runs the console blocks of the documents as a reader would type them, in the root of a clone, and compares what they print."""
import os
import re
import shutil
import signal
import subprocess

import pytest
from program import PY_SPY, SPYGLASS, WAIT, clean_env, wait_until
from pythons import ROOT

DOCUMENTS = ["README.md", "docs/usage.md"]
# A block is run if all its commands begin with these words. Others need a cluster, a core file or another program.
RUNNABLE = re.compile(r"(python3 examples/\S+\.py[^&]*&|(\S+=\S+ )*spyglass (dump --pid \$!|record|--))")
# Lines that depend on how busy the machine is.
BY_CHANCE = re.compile(r"spyglass> (Could not|N stack|At least N)|Note: ")


def blocks():
    for name in DOCUMENTS:
        text = (ROOT / name).read_text(encoding="utf-8")
        for found in re.finditer(r"^```console\n(.*?)^```", text, re.M | re.S):
            commands = re.findall(r"^\$ (.*)", found.group(1), re.M)
            if all(RUNNABLE.match(command) for command in commands):
                yield pytest.param(found.group(1), id="%s:%d" % (name, text.count("\n", 0, found.start()) + 2))


def general(text):
    """The text without what differs from run to run: numbers, addresses, and how long threads waited for a core."""
    text = re.sub(r"; threads waited .*?bottleneck", "", text)
    text = re.sub(r"^.*\+0x[0-9a-f]+ \(.*\n", "", text, flags=re.M)  # functions without a symbol
    text = re.sub(r"0x[0-9a-f]+|\d+(\.\d+)*", "N", text)
    return [line.rstrip() for line in text.splitlines() if line.strip() and not BY_CHANCE.match(line)]


class Shell:
    """Runs the commands of one block. $! is the PID of the last program in the background."""

    def __init__(self, place):
        self.place, self.started = place, []
        bin_ = place / "bin"
        bin_.mkdir()
        for program in (SPYGLASS, PY_SPY):
            (bin_ / os.path.basename(program)).symlink_to(program)
        (place / "examples").symlink_to(ROOT / "examples")
        self.env = clean_env(PATH="%s:/usr/bin:/bin" % bin_)

    def run(self, command):
        if command.endswith("&"):
            self.started.append(subprocess.Popen("exec " + command[:-1], shell=True, cwd=self.place, env=self.env,
                                                 start_new_session=True, stdout=subprocess.DEVNULL))
            wait_until(lambda: "python" in os.path.basename(os.readlink("/proc/%d/exe" % self.started[-1].pid)), command)
            return ""
        command = command.replace("$!", str(self.started[-1].pid) if self.started else "")
        return subprocess.run(command, shell=True, cwd=self.place, env=self.env, timeout=WAIT,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT).stdout.decode()

    def close(self):
        for process in self.started:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


@pytest.fixture
def shell(tmp_path):
    one = Shell(tmp_path)
    yield one
    one.close()


@pytest.mark.skipif(shutil.which("/usr/bin/python3") is None, reason="the documents show Debian's Python")
@pytest.mark.parametrize("block", blocks())
def test_block(shell, block):
    for step in re.findall(r"^\$ (.*)\n((?:(?!\$ ).*\n)*)", block, re.M):
        command, wanted = step[0], general(step[1])
        said = []

        def matches():
            said[:] = general(shell.run(command))
            return said == wanted

        if " dump " in command:  # the program may not have come to the point that the document shows
            try:
                wait_until(matches, command, timeout=60)
            except AssertionError:
                pass
            assert said == wanted
        else:
            assert matches(), (said, wanted)


def test_enough_blocks():
    """The rule that selects them has not become too strict."""
    assert len(list(blocks())) >= 8
