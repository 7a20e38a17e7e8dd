"""Real-time priority: only while stacks are read, and never without the kernel's watchdog."""
import os
import re
import resource
import signal

import pytest
from profiles import profiler_in
from program import SPYGLASS, clean_env, finish, run, start, wait_until
from pythons import DEBIAN

RATE = 5000  # high enough for real-time priority


def may_use_realtime():
    child = os.fork()
    if child == 0:
        try:
            os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))
            os._exit(0)
        finally:
            os._exit(1)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


pytestmark = pytest.mark.skipif(not may_use_realtime(), reason="this machine refuses real-time priority")


def is_realtime(pid):
    return os.sched_getscheduler(pid) & ~os.SCHED_RESET_ON_FORK == os.SCHED_FIFO


def stop(process):
    os.kill(process, signal.SIGINT)


def test_snapshot(spawn, tmp_path):
    """A snapshot used to be written with real-time priority on the target's core, which stood still meanwhile."""
    target, out, log = spawn(DEBIAN, "busy.py"), tmp_path / "out.txt", tmp_path / "strace.txt"
    process = start("-o", log, "-e", "trace=sched_setscheduler,fsync", SPYGLASS, "record", "-r", RATE, "-f", "raw", "-o", out, "--pid",
                    target.pid, program="/usr/bin/strace", env=clean_env(ASAN_OPTIONS="detect_leaks=0"))
    wait_until(lambda: "[1]" in (log.read_text() if log.exists() else ""), "real-time priority")
    recorder = profiler_in(process)
    os.kill(recorder, signal.SIGUSR1)
    wait_until(out.exists, "the snapshot")
    stop(recorder)
    finish(process).check()
    calls = re.findall(r"sched_setscheduler\(.*\[\d\]|fsync", log.read_text())
    assert "fsync" in calls
    for i, call in enumerate(calls):
        if call == "fsync":
            assert next(c for c in reversed(calls[:i]) if c != "fsync").endswith("[0]"), calls[:i + 1]


def test_watchdog_is_not_blocked(spawn, tmp_path):
    """A parent that blocks SIGXCPU would switch off the watchdog."""
    target = spawn(DEBIAN, "busy.py")
    process = start("record", "-r", RATE, "-f", "raw", "-o", tmp_path / "out.txt", "--pid", target.pid,
                    preexec_fn=lambda: signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGXCPU]))
    wait_until(lambda: is_realtime(process.pid), "real-time priority")
    with open("/proc/%d/status" % process.pid) as status:
        blocked = int(re.search(r"SigBlk:\s+(\w+)", status.read()).group(1), 16)
    stop(process.pid)
    finish(process).check()
    assert not blocked & 1 << signal.SIGXCPU - 1


def test_no_priority_without_watchdog(spawn, tmp_path):
    """Where the limit cannot be set, spyglass must do without the priority."""
    target = spawn(DEBIAN, "busy.py")
    result = run("record", "-r", RATE, "-d", 1, "-f", "raw", "-o", tmp_path / "out.txt", "--log-level", "debug", "--pid", target.pid,
                 preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_RTTIME, (10000, 10000))).check()
    assert re.search(r"SCHED_FIFO on: (?!done)", result.err), result
    assert "SCHED_FIFO on: done" not in result.err, result
