"""Targets in every state: stopped, starting, ending, in several interpreters; and what we never do to them."""
import os
import pathlib
import re
import shutil
import signal
import subprocess
import time

import pytest
from conftest import DEBIAN, PYTHONS, SPYGLASS, at_rest, clean_env, finish, process_state, run, start, task_states, wait_until
from stacks import check_json, parse_json, parse_text
from test_stacks import compare

# What dump may say of a process that is not (yet, or any more) a Python that can be read.
FAIR = re.compile(
    r"has not started yet|Failed to find python version|Check that the process is running|has exited|cannot be right"
    r"|Failed to read the memory|changed while it was read"
)


def test_stopped(spawn, python):
    """Stopped by somebody else: read all the same, and stopped it stays."""
    target = spawn(python, "situations.py", "many_threads")
    at_rest(target.pid)
    os.kill(target.pid, signal.SIGSTOP)
    wait_until(lambda: set(task_states(target.pid)) == {"T"}, "all threads stopped")
    for flags in ([], ["--nonblocking"]):
        check_json(run("dump", "--pid", target.pid, "--json", *flags).check().out, target.truth)
        wait_until(lambda: set(task_states(target.pid)) == {"T"}, "still stopped after dump")
    os.kill(target.pid, signal.SIGCONT)
    wait_until(lambda: set(task_states(target.pid)) == {"S"}, "going on after SIGCONT")
    compare(target, text=False)


def test_subinterpreters(spawn, python):
    target = spawn(python, "interpreters.py")
    if "module" in target.truth:
        pytest.skip("this Python has no module for subinterpreters")
    for flags in ([], ["--nonblocking"]):
        threads = parse_json(run("dump", "--pid", at_rest(target.pid), "--json", *flags).check().out)
        stacks = [[f["name"] for f in t["frames"]] for t in threads]
        assert ["park", "main_rests", "<module>"] in stacks, stacks
        assert any(s[:3] == ["sub_rests", "sub_calls", "<module>"] for s in stacks), stacks
        assert any("run_sub" in s for s in stacks), stacks


def test_starting(python):
    """Looked at from the first instant on: frames, or one clear line, never a hang or a crash."""
    for i in range(50):
        target = subprocess.Popen([*python.command, "-c", "import json, time; time.sleep(100)"], env=clean_env(),
                                  stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
        try:
            time.sleep(i * 0.0007)  # another point of the start-up each time
            result = run("dump", "--pid", target.pid, timeout=20)
            assert result.status == 0 or (result.status == 1 and FAIR.search(result.err)), result
        finally:
            target.kill()
            target.wait()


def test_ending(python):
    """Looked at around its end: 0 or one clear line."""
    for i in range(30):
        target = subprocess.Popen([*python.command, "-c", "import os; os.write(1, b'x'); [i for i in range(20000)]"],
                                  env=clean_env(), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)
        os.read(target.stdout.fileno(), 1)
        time.sleep(i * 0.0003)
        result = run("dump", "--pid", target.pid, timeout=20)
        assert result.status == 0 or (result.status == 1 and FAIR.search(result.err)), result
        target.wait()
        target.stdout.close()


def test_zombie(python):
    target = subprocess.Popen([*python.command, "-c", "pass"], env=clean_env())
    wait_until(lambda: process_state(target.pid) == "Z", "a zombie")
    result = run("dump", "--pid", target.pid)
    assert result.status == 1 and result.err.strip(), result
    target.wait()


def test_active_and_gil(spawn, python):
    """A busy thread reads active, and with the GIL most of the time."""
    target = spawn(python, "busy.py")
    seen = {parse_text(run("dump", "--pid", target.pid).check().out)[0]["threads"][0]["status"] for _ in range(20)}
    assert "active+gil" in seen and seen <= {"active", "active+gil"}, seen


def test_exec(launch, script, tmp_path):
    """The process becomes another program between two dumps."""
    python = DEBIAN
    code = "import os, sys; os.write(1, b'{}\\n'); os.read(0, 1); os.execv('/bin/sleep', ['sleep', '1000'])"
    target = launch([*python.command, "-c", code])
    run("dump", "--pid", target.pid).check()
    target.process.stdin.write(b"x")
    target.process.stdin.flush()
    wait_until(lambda: pathlib.Path("/proc/%d/comm" % target.pid).read_text() == "sleep\n", "exec")
    result = run("dump", "--pid", target.pid)
    assert result.status == 1 and "Failed to find python version from target process" in result.err


NEVER = re.compile(
    r"process_vm_writev|PTRACE_POKE|PTRACE_SETREG|PTRACE_SETFPREG|PTRACE_ATTACH|PTRACE_KILL|PTRACE_SYSCALL|PTRACE_SINGLE"
    r"|SIGSTOP|O_(WRONLY|RDWR)[^)]*/mem|pwrite|/proc/\d+/mem\", O_(RDWR|WRONLY)"
)


@pytest.mark.parametrize("args", [("dump",), ("dump", "--nonblocking"), ("dump", "--subprocesses"),
                                  ("dump", "--native-all", "-ll"), ("record", "-d", "1", "-o", "c.svg", "--native"),
                                  ("record", "-d", "1", "-o", "out.svg"), ("record", "-d", "1", "-o", "n.txt", "--nonblocking"),
                                  ("record", "-d", "1", "-o", "s.json", "--subprocesses", "--idle")], ids=" ".join)
def test_never_writes(spawn, tmp_path, args):
    """strace of the profiler: nothing that changes the target, and no SIGSTOP."""
    target = spawn(DEBIAN, "busy.py", "3")
    log = tmp_path / "trace"
    env = clean_env(ASAN_OPTIONS="detect_leaks=0:exitcode=99")  # the leak checker does not work under a tracer
    run("-f", "-o", log, SPYGLASS, *args, "--pid", target.pid, program=shutil.which("strace"), cwd=tmp_path, env=env).check()
    text = log.read_text()
    assert "process_vm_readv" in text or "/mem" in text
    bad = [line for line in text.splitlines() if NEVER.search(line)]
    assert not bad, bad[:5]
    signals = [line for line in text.splitlines() if re.search(r"\bt?g?kill\((\d+)", line)]
    assert not [line for line in signals if re.search(r"\((%d)\b" % target.pid, line)], signals
    if "--nonblocking" in args:
        assert "PTRACE_" not in text


@pytest.mark.parametrize("how", [[], ["--nonblocking"], ["--native"], ["--native-all", "--idle"]],
                         ids=["holding", "nonblocking", "native", "native-all"])
def test_killed_profiler(spawn, tmp_path, how):
    """SIGKILL in the middle of recording, 30 times: the target goes on."""
    target = spawn(DEBIAN, "busy.py", "4")
    for i in range(30):
        process = start("record", "--pid", target.pid, "-r", "2000", "-d", "60", "-o", tmp_path / "out.svg", *how)
        time.sleep(0.05 + i * 0.007)
        process.kill()
        finish(process)
        time.sleep(0.1)
        assert not set(task_states(target.pid)) & set("TtZ"), (i, task_states(target.pid))
    run("dump", "--pid", target.pid).check()


@pytest.mark.parametrize("path", [p.label for p in PYTHONS], ids=str)
def test_no_impossible_stacks(spawn, path, tmp_path):
    """Alternating chains: each recorded stack is one that the program has."""
    target = spawn(next(p for p in PYTHONS if p.label == path), "busy.py")
    out = tmp_path / "out.txt"
    run("record", "--pid", target.pid, "-d", "2", "-r", "500", "-f", "raw", "--function", "-o", out).check()
    chains = set()
    for line in out.read_text().splitlines():
        chains.add(tuple(part.partition(" (")[0] for part in line.rpartition(" ")[0].split(";")))
    good = {("<module>", "root"), ("<module>", "root", "chain_a"), ("<module>", "root", "chain_a", "leaf_a"),
            ("<module>", "root", "chain_b"), ("<module>", "root", "chain_b", "leaf_b")}
    chains = {chain for chain in chains if "say" not in chain}  # it had not yet come back from its line
    assert chains <= good, chains - good
    assert ("<module>", "root", "chain_a", "leaf_a") in chains and ("<module>", "root", "chain_b", "leaf_b") in chains
