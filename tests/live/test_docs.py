"""Runs the console blocks of the documents as a reader would type them, in the root of a clone, and compares what they print."""
import collections
import html
import os
import re
import shutil
import signal
import subprocess

import pytest
from program import PY_SPY, SPYGLASS, WAIT, clean_env, wait_until
from pythons import PYTHONS, ROOT

DOCUMENTS = ["README.md", "CONTRIBUTING.md", *sorted("docs/" + path.name for path in (ROOT / "docs").glob("*.md"))]
# test_block runs a console block if all its commands begin with these words.
RUNNABLE = re.compile(r"(python3 examples/\S+\.py[^&]*&|(\S+=\S+ )*spyglass (\$!|dump (--json --locals )?--pid (\$!|99999999)|record|--)"
                      r"|spyglass completions|ln -s|~/.local/bin/py-spy)")
# Who runs the others: (document, how a block begins, the test or the reason why there is none). The first match counts.
ELSEWHERE = [
    ("README.md", r"\$ make install", "tests/live/test_wheel.py::test_make_install, after the build"),
    ("CONTRIBUTING.md", r"\$ (make|tests/run|cut|/usr/bin/python3 -m pytest|\$\(tools/venv)", "the gate itself; tests/lint/documents.py checks the names"),
    ("docs/add-a-format.md", r"", "test_add_a_format"),
    ("docs/add-a-python.md", r"\$ (make check|/usr/bin/python3 -m pytest)", "needs a Python that spyglass does not support yet"),
    ("docs/add-a-python.md", r"Error: ", "tests/lint/documents.py checks the message in docs/troubleshooting.md"),
    ("docs/add-a-python.md", r"", "test_add_a_python"),
    ("docs/asyncio.md", r"\$ spyglass dump --pid \$\(pgrep -f server", "needs gevent: tests/live/test_greenlets.py"),
    ("docs/asyncio.md", r"\$ spyglass dump --pid \$\(pgrep -f crawl", "needs trio: tests/live/test_trio.py"),
    ("docs/asyncio.md", r"\$ spyglass dump --pid \$\(pgrep -f uvicorn", "needs FastAPI: tests/live/test_fastapi.py"),
    ("docs/compilers.md", r"", "takes hours: tools/compilers, by hand"),
    ("docs/dagster.md", r"", "tests/integration/test_dagster.py"),
    ("docs/dask.md", r"", "tests/integration/test_dask.py"),
    ("docs/groups.md", r"", "tests/live/test_group.py; tests/integration/test_ray_cluster.py for Ray"),
    ("docs/hangs.md", r"", "tests/live/test_hangs.py plants the same causes"),
    ("docs/install.md", r"\$ make run", "tools/systems"),
    ("docs/install.md", r"\$ pip install", "tests/live/test_wheel.py"),
    ("docs/kubernetes", r"", "tests/live/test_deploy.py; those with kubectl need a cluster, kubernetes.md says which one ran them"),
    ("docs/machine-interface.md", r"import json", "test_reader"),
    ("docs/pytorch.md", r"", "needs PyTorch, several GB: tools/pytorch, by hand"),
    ("docs/python.md", r"\$ pip install", "tests/live/test_wheel.py"),
    ("docs/python.md", r"", "tests/live/test_python_package.py::test_examples"),
    ("docs/ray.md", r"\$ patch", "tests/integration/test_patches.py"),
    ("docs/ray.md", r"", "tests/integration/test_ray_cluster.py, test_ray_dashboard.py"),
    ("docs/troubleshooting.md", r"\$ spyglass dump --pid 21221", "another user's process: tests/live/test_permissions.py"),
    ("docs/troubleshooting.md", r"securityContext", "tests/live/test_deploy.py"),
    ("docs/troubleshooting.md", r"\$ sudo spyglass", "a container: tests/live/test_containers.py"),
    ("docs/usage.md", r"\$ spyglass list", "lists all processes of the machine: tests/live/test_errors.py::test_list"),
    ("docs/usage.md", r"\$ spyglass dump worker", "finds what runs on the machine: tests/live/test_words.py"),
    ("docs/usage.md", r"\$ spyglass dump --pid 1234,5678", "tests/live/test_selection.py"),
    ("docs/usage.md", r"\$ spyglass dump --pid 4180", "tests/live/test_deadline.py"),
    ("docs/usage.md", r"\$ spyglass record --pid 4242 --duration 60 --threads", "tests/live/test_filter.py"),
    ("docs/usage.md", r"Thread 4242", "tests/live/test_waits.py"),
    ("docs/usage.md", r"\$ spyglass record --async", "tests/live/test_record_async.py"),
    ("docs/usage.md", r"\$ spyglass dump --core", "a core file: tests/live/test_core.py, test_native_core.py"),
    ("docs/usage.md", r"\$ kubectl", "a cluster: tests/live/test_deploy.py"),
    ("docs/usage.md", r"\$ spyglass merge", "tests/live/test_merge.py"),
]
PATH_313 = os.path.dirname(next((python.command[0] for python in PYTHONS if python.label.startswith("pyenv-3.13")), "/usr/bin/python3"))
# Lines that depend on how busy the machine is.
BY_CHANCE = re.compile(r"spyglass> (Could not|N stack|At least N)|Note: |\{\"event\":\"samples\"")


def all_blocks():
    """(document, line, language, text) of each block of code."""
    for name in DOCUMENTS:
        text = (ROOT / name).read_text(encoding="utf-8")
        for found in re.finditer(r"^( *)```(\w*)\n(.*?)^ *```", text, re.M | re.S):
            indent, language, block = found.groups()
            yield name, text.count("\n", 0, found.start()) + 2, language, re.sub("^" + indent, "", block, flags=re.M)


def block_of(document, start):
    return next(text for name, _, _, text in all_blocks() if name == document and text.startswith(start))


def elsewhere(document, text):
    return next((row for row in ELSEWHERE if document.startswith(row[0]) and re.match(row[1], text)), None)


def blocks():
    for document, line, language, text in all_blocks():
        commands = re.findall(r"^\$ (.*)", text, re.M)
        if language == "console" and commands and all(map(RUNNABLE.match, commands)) and not elsewhere(document, text):
            yield pytest.param(text, id="%s:%d" % (document, line))


def general(text):
    """The text without what differs from run to run and from build to build: numbers, addresses, descriptors, waits for a core."""
    text = re.sub(r"; threads waited .*?bottleneck", "", text)
    text = re.sub(r"^.*\+0x[0-9a-f]+ \(.*\n", "", text, flags=re.M)  # functions without a symbol
    text = re.sub(r"^(linked|elfutils|compiler|libc): .*", r"\1: N", text, flags=re.M)  # of --version --verbose
    text = re.sub(r'"hostname": ".*"', '"hostname": "N"', text)
    text = re.sub(r'"parent_pid": \w+', '"parent_pid": N', text)
    text = re.sub(r"waits for events \(epoll_wait\): .*", "waits for events", text)  # the kernel lists the descriptors in any order
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
        (place / "build").symlink_to(SPYGLASS.parent)
        (place / ".local" / "bin").mkdir(parents=True)
        (place / ".local" / "share" / "bash-completion" / "completions").mkdir(parents=True)
        self.env = clean_env(PATH="%s:/usr/bin:/bin" % bin_, HOME=str(place))

    def run(self, command):
        if command.endswith("&"):
            self.started.append(subprocess.Popen("exec " + command[:-1], shell=True, cwd=self.place, env=self.env,
                                                 start_new_session=True, stdout=subprocess.DEVNULL))
            wait_until(lambda: "python" in os.path.basename(os.readlink("/proc/%d/exe" % self.started[-1].pid)), command)
            return ""
        command = command.replace("$!", str(self.started[-1].pid) if self.started else "")
        done = subprocess.run(command, shell=True, cwd=self.place, env=self.env, timeout=WAIT,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        return done.stdout.decode().replace(str(self.place), "/srv/app")  # where the documents put a clone

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

        if " record " not in command:  # the program may not have come to the point that the document shows
            try:
                wait_until(matches, command, timeout=60)
            except AssertionError:
                pass
            assert said == wanted
        else:
            assert matches(), (said, wanted)


def test_picture():
    """The README's picture of a dump shows what docs/usage.md says, which test_block checks. To renew it: tools/picture"""
    drawn = collections.defaultdict(str)
    svg = (ROOT / "docs/images/dump.svg").read_text(encoding="utf-8")
    for row, text in re.findall(r'<text x="[\d.]+" y="(\d+)"[^>]*>(.*?)</text>', svg):
        drawn[int(row)] += html.unescape(text)
    lines = [drawn[row] for row in sorted(drawn)]
    block = block_of("docs/usage.md", lines[0].replace("$", "$ ", 1))
    assert general("\n".join(lines).replace(" ", "")) == general(block.replace(" ", "")), "run: tools/picture"


def test_reader(shell):
    """The program in docs/machine-interface.md stops a recording after 100 samples."""
    shell.run("python3 examples/mix.py 600 &")
    (shell.place / "reader.py").write_text(block_of("docs/machine-interface.md", "import json"))
    said = shell.run("python3 reader.py $!")
    assert re.fullmatch(r"1\d\d samples, \d+ bytes in profile.svg\n", said), said


def test_add_a_format(tmp_path):
    """The example of docs/add-a-format.md compiles, and its changes fit the files."""
    blocks_ = [(language, text) for name, _, language, text in all_blocks() if name == "docs/add-a-format.md"]
    (tmp_path / "list.c").write_text(next(text for language, text in blocks_ if language == "c"))
    subprocess.run(["gcc", "-std=gnu17", "-Wall", "-Wextra", "-Werror", "-fsyntax-only", "-D_GNU_SOURCE", "-I", ROOT / "src",
                    tmp_path / "list.c"], check=True)
    for files, diff in zip(["src/out/format.c", "src/meson.build", "python/spyglass/_formats.py"],
                           [text for language, text in blocks_ if language == "diff"]):
        for hunk in diff.split("@@\n"):
            old = "".join(line[1:] or "\n" for line in hunk.splitlines(True) if not line.startswith("+"))
            assert old in (ROOT / files).read_text(), (files, old)


@pytest.mark.skipif(not shutil.which("gdb") or not shutil.which("python3.13-config", path=PATH_313), reason="needs gdb and a Python 3.13")
def test_add_a_python(tmp_path):
    """The commands of docs/add-a-python.md print the offsets that it shows."""
    env = clean_env(PATH="%s:/usr/bin:/bin" % PATH_313)
    (tmp_path / "probe.c").write_text(block_of("docs/add-a-python.md", "/* probe.c"))
    for start in ("$ gcc", "$ gdb -nx -batch -ex 'print &", "$ gdb -nx -batch -ex 'ptype /o struct _Py_Debug", "$ gdb -nx -batch -ex 'print sizeof"):
        for command, wanted in re.findall(r"^\$ (.*)\n((?:(?!\$ ).*\n)*)", block_of("docs/add-a-python.md", start), re.M):
            said = subprocess.run(command, shell=True, cwd=tmp_path, env=env, check=True, stdout=subprocess.PIPE).stdout.decode()
            for line in wanted.splitlines():
                assert line in ("…", "") or line.strip() in map(str.strip, said.splitlines()), (command, line, said)


def test_every_block_is_run_somewhere():
    """If this fails: let test_block run the new block, or name in ELSEWHERE the test that does."""
    run_here, used = [param.values[0] for param in blocks()], set()
    for document, line, _, text in all_blocks():
        row = elsewhere(document, text)
        assert row or text in run_here, "%s:%d" % (document, line)
        used.add(row)
    assert set(ELSEWHERE) <= used
    assert len(run_here) >= 12


def exists(name):
    """True if there is this file, with this function if one follows after `::`, or this function here."""
    path, _, function = name.partition("::")
    if not path.endswith(".py") and "/" not in path:
        return path in globals()
    text = (ROOT / path).read_text() if (ROOT / path).is_file() else None
    return text is not None and (not function or "def %s(" % function in text)


@pytest.mark.parametrize("row", ELSEWHERE, ids=lambda row: "%s: %s" % row[:2])
def test_elsewhere_exists(row):
    """Whoever is said to run a block is there."""
    if row[2].startswith("needs a Python"):
        return
    names, place = re.findall(r"(?:[\w-]+/)+[\w.-]*\w(?:::\w+)?|\btest_\w+(?:\.py)?", row[2]), ""
    names = [name for name in names if not name.startswith("docs/")]
    for name in names or [row[2]]:
        place = name.rpartition("/")[0] or place  # `tests/live/test_core.py, test_native_core.py`
        assert exists(name) or exists("%s/%s" % (place, name)), name
