"""Targets in every state: stopped, starting, exiting, with several interpreters; and what spyglass never does to
them."""
import os
import pathlib
import random
import re
import shutil
import signal
import subprocess
import time

import pytest
from processes import at_rest, process_state, run_seconds, task_states
from profiles import Recording, raw_stacks, record_enough, seen, some_samples
from program import SANITIZED, SPYGLASS, TARGETS, WAIT, clean_env, finish, run, wait_until
from pythons import DEBIAN
from stacks import check_json, compare, parse_json, parse_text

FEW_OR_MANY = 8 if SANITIZED else 20  # attempts to hit a critical moment
# What dump may say about a process that is not yet, or no longer, a readable Python.
FAIR = re.compile(
    r"has not finished starting|Failed to find python version|Check that the process is running|has exited"
    r"|contains invalid values|Failed to read the memory|changed while spyglass was reading it"
)


@pytest.mark.smoke
def test_stopped(spawn, python):
    """Stopped by another process: spyglass reads it, and it stays stopped."""
    target = spawn(python, "situations.py", "many_threads")
    at_rest(target.pid)
    os.kill(target.pid, signal.SIGSTOP)
    wait_until(lambda: set(task_states(target.pid)) == {"T"}, "all threads stopped")
    for flags in ([], ["--nonblocking"]):
        check_json(run("dump", "--pid", target.pid, "--json", *flags).check().out, target.truth)
        wait_until(lambda: set(task_states(target.pid)) == {"T"}, "still stopped after dump")
    os.kill(target.pid, signal.SIGCONT)
    wait_until(lambda: set(task_states(target.pid)) == {"S"}, "going on after SIGCONT")
    compare(target, ["json", "nonblocking"])


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
    """Dumps from the first instant on: frames or one clear line, never a hang or a crash."""
    for i in range(FEW_OR_MANY):
        target = subprocess.Popen([*python.command, "-c", "import json, time; time.sleep(100)"], env=clean_env(),
                                  stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
        try:
            time.sleep(i * 0.035 / FEW_OR_MANY)  # at another point of the startup each time
            result = run("dump", "--pid", target.pid)
            assert result.status == 0 or (result.status == 1 and FAIR.search(result.err)), result
        finally:
            target.kill()
            target.wait()


def test_ending(python):
    """Dumps while the process exits: status 0 or one clear line."""
    for i in range(FEW_OR_MANY):
        target = subprocess.Popen([*python.command, "-c", "import os; os.write(1, b'x'); [i for i in range(20000)]"],
                                  env=clean_env(), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)
        os.read(target.stdout.fileno(), 1)
        time.sleep(i * 0.009 / FEW_OR_MANY)
        result = run("dump", "--pid", target.pid)
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
    """A busy thread is active, and at some point is seen with the GIL."""
    target = spawn(python, "busy.py")

    def holds_gil():
        status = parse_text(run("dump", "--pid", target.pid).check().out)[0]["threads"][0]["status"]
        assert status in ("active", "active+gil")
        return status == "active+gil"

    wait_until(holds_gil, "active+gil")


def test_exec(launch, script, tmp_path):
    """The process executes another program between two dumps."""
    python = DEBIAN
    code = "import os, sys; os.write(1, b'{}\\n'); os.read(0, 1); os.execv('/bin/sleep', ['sleep', '1000'])"
    target = launch([*python.command, "-c", code])
    run("dump", "--pid", target.pid).check()
    target.process.stdin.write(b"x")
    target.process.stdin.flush()
    wait_until(lambda: pathlib.Path("/proc/%d/comm" % target.pid).read_text() == "sleep\n", "exec")
    at_rest(target.pid)
    result = run("dump", "--pid", target.pid)
    assert result.status == 1 and "Failed to find python version from target process" in result.err


NEVER = re.compile(
    r"process_vm_writev|PTRACE_POKE|PTRACE_SETREG|PTRACE_SETFPREG|PTRACE_ATTACH|PTRACE_KILL|PTRACE_SYSCALL|PTRACE_SINGLE"
    r"|SIGSTOP|O_(WRONLY|RDWR)[^)]*/mem|pwrite|/proc/\d+/mem\", O_(RDWR|WRONLY)"
)


@pytest.mark.parametrize("args", [("dump",), ("dump", "--nonblocking"), ("dump", "--subprocesses"),
                                  ("dump", "--native-all", "-ll"), ("record", "-o", "c.svg", "--native"),
                                  ("record", "-o", "out.svg"), ("record", "-o", "n.txt", "--nonblocking"),
                                  ("record", "-o", "s.json", "--subprocesses", "--idle")], ids=" ".join)
def test_never_writes(spawn, tmp_path, args):
    """strace shows that the profiler makes no call that changes the target, and sends no SIGSTOP."""
    target = spawn(DEBIAN, "busy.py", "3")
    log = tmp_path / "trace"
    env = clean_env(ASAN_OPTIONS="detect_leaks=0:exitcode=99")  # LeakSanitizer does not work under a tracer
    seconds, text = 1, ""
    while not re.search("process_vm_readv|/mem", text):  # under strace on a busy machine, one second may be too short
        assert seconds < WAIT, text[-3000:]
        duration = ["-d", seconds] if "record" in args else []
        run("-f", "-o", log, SPYGLASS, *args, *duration, "--pid", target.pid, program=shutil.which("strace"), cwd=tmp_path,
            env=env).check()
        text, seconds = log.read_text(), 4 * seconds
    bad = [line for line in text.splitlines() if NEVER.search(line)]
    assert not bad, bad[:5]
    signals = [line for line in text.splitlines() if re.search(r"\bt?g?kill\((\d+)", line)]
    assert not [line for line in signals if re.search(r"\((%d)\b" % target.pid, line)], signals
    if "--nonblocking" in args:
        assert "PTRACE_" not in text


@pytest.mark.parametrize("how", [[], ["--nonblocking"], ["--native"], ["--native-all", "--idle"]],
                         ids=["holding", "nonblocking", "native", "native-all"])
def test_killed_profiler(spawn, tmp_path, how):
    """SIGKILL during a recording, again and again: the target keeps running."""
    target = spawn(DEBIAN, "busy.py", "4")
    for i in range(FEW_OR_MANY // 2):
        recording = Recording(tmp_path / "out.txt", "--pid", target.pid, "-r", "2000", "-f", "raw", *how)
        recording.until(some_samples)
        time.sleep(i * 0.007)  # at another moment each time
        recording.process.kill()
        finish(recording.process)
        wait_until(lambda: not set(task_states(target.pid)) & set("TtZ"), "no thread stopped")
    run("dump", "--pid", target.pid).check()


@pytest.mark.smoke
def test_no_impossible_stacks(spawn, python, tmp_path):
    """Alternating call chains: each recorded stack is one that the program has."""
    target = spawn(python, "busy.py")
    good = {("<module>", "root"), ("<module>", "root", "chain_a"), ("<module>", "root", "chain_a", "leaf_a"),
            ("<module>", "root", "chain_b"), ("<module>", "root", "chain_b", "leaf_b")}
    text, _ = record_enough(seen("leaf_a", "leaf_b"), "--pid", target.pid, "-r", "500", "-f", "raw", "--function", out=tmp_path / "out.txt")
    chains = {chain for chain in raw_stacks(text) if "say" not in chain}  # it may not have returned from printing yet
    assert chains <= good, chains - good


@pytest.mark.since(3, 8)
def test_subinterpreters(spawn, tmp_path, python):
    """A thread that runs in a subinterpreter, without the GIL: its time counts once, for the frame that runs."""
    target = spawn(python, "subinterpreters.py")
    text, _ = record_enough(seen("sub_hashes"), "--pid", target.pid, "-f", "raw", out=tmp_path / "x")
    assert "main_waits" not in text, text
    active = [t for t in parse_json(run("dump", "--pid", target.pid, "--json").check().out) if t["active"]]
    assert [t["frames"][0]["name"] for t in active] == ["sub_hashes"], active


def test_forked_by_c(spawn, tmp_path, python):
    """A process that C code has forked, as uWSGI does: its thread is found, though Python has the wrong ID for it."""
    child = spawn(python, "forked_by_c.py").truth["pid"]
    record_enough(seen("hashes"), "--pid", child, "-f", "raw", out=tmp_path / "x")
    thread, = parse_json(run("dump", "--pid", child, "--json").check().out)
    assert thread["os_thread_id"] == child and "hashes" in [f["name"] for f in thread["frames"]], thread


MAIN_THREAD_EXITS = """
import ctypes, os, threading
told = []
def before():
    for _ in range(10000): pass
def after():
    for _ in range(10000): pass
def works():
    while not told: before()
    while True: after()
threading.Thread(target=works).start()
os.write(1, b"{}\\n")
os.read(0, 1)
threading.Thread(target=lambda: told.append(os.read(0, 1))).start()
ctypes.CDLL(None).pthread_exit(None)
"""


def test_main_thread_exited(launch, python, tmp_path):
    """The main thread calls pthread_exit during the recording, and the process goes on without it: /proc/PID/maps is empty,
    and the kernel calls the process a zombie."""
    target = launch([*python.command, "-c", MAIN_THREAD_EXITS])
    recording = Recording(tmp_path / "x", "--pid", target.pid, "-f", "raw")
    recording.until(seen("before"))
    target.resume()
    wait_until(lambda: process_state(target.pid) == "Z", "the main thread to exit")
    target.resume()
    recording.until(seen("after"))
    recording.stop()
    for flags in ([], ["--nonblocking"], ["--subprocesses"], ["--native"]):
        text = run("dump", "--pid", target.pid, *flags).check().out
        assert "works (" in text and str(target.pid) in text.split("\n")[0], text
    record_enough(seen("after"), "--pid", target.pid, "-f", "raw", out=tmp_path / "y")


def test_profiler_stopped(launch, tmp_path):
    """SIGSTOP for spyglass, at any moment, does not leave a thread of the target held by ptrace: it goes on."""
    subprocess.run(["gcc", "-O1", "-o", tmp_path / "deny", TARGETS / "deny.c"], check=True)
    target = launch([*DEBIAN.command, "-c", "import os\nos.write(1, b'{}\\n')\nwhile True: sum(range(1000))"])
    recording = Recording(tmp_path / "x", "--pid", target.pid, "-f", "raw", "-r", 2000, "--verbose",
                          wrapper=[tmp_path / "deny", "EPERM:sched_setaffinity", "--"])
    recording.until(some_samples)
    moments = random.Random(1)
    for _ in range(FEW_OR_MANY * 5):
        recording.send(signal.SIGSTOP)
        before = run_seconds(target.pid)
        wait_until(lambda: run_seconds(target.pid) > before + 0.001, "the target to go on")
        recording.send(signal.SIGCONT)
        time.sleep(moments.uniform(0, 0.003))
    recording.stop()
    assert int(re.search(r"ptrace (\d+)", recording.result.messages).group(1)) > 0, recording.result
    assert "t" not in task_states(target.pid)
