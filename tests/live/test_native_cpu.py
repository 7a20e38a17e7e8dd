"""The hint at the end of `record` that threads without Python used the CPU."""
import json
import os
import re

import pytest
from native_stacks import directory
from program import PY_SPY, SPYGLASS, WAIT, finish, run, start
from pythons import DEBIAN

HINT = re.compile(r"At least (\d+)% of the CPU time was in threads that run no Python\. (.*)")
# Computes in a thread without Python for that many seconds of CPU time, then exits.
PROGRAM = ("import os, sys, time\nsys.path.insert(0, %r)\nimport spy_c\nspy_c.busy_thread()\n"
           "while sum(os.times()[:2]) < %r: time.sleep(0.01)\nos._exit(0)\n")


def record(tmp_path, *args, program=SPYGLASS):
    """Records once. Returns the Result and the last event."""
    reader, writer = os.pipe()
    process = start("record", "--status-fd", writer, "-f", "raw", "-o", tmp_path / "out", *args, program=program, pass_fds=[writer])
    os.close(writer)
    with open(reader, encoding="utf-8") as events:
        *_, last = map(json.loads, events)
    return finish(process).check(), last


def hint(tmp_path, *args, seconds=0.5):
    """Records with a doubling duration until the hint appears. Returns the share in percent and the advice."""
    while True:
        result, last = record(tmp_path, *[arg(seconds) if callable(arg) else arg for arg in args])
        found = HINT.search(result.messages)
        if found:
            share = last["cpu_time_without_python"] / last["cpu_time"]
            assert last["event"] == "finished" and int(share * 100) == int(found.group(1)) >= 10, (last, result)
            return share, found.group(2)
        seconds *= 2
        assert seconds < WAIT, result


def duration(seconds):
    return "--duration=%g" % seconds


def test_hint(spawn, tmp_path, python):
    target = spawn(python, "native_c.py", directory(python, "spy_c"), "spy_c", "busy_thread")
    share, advice = hint(tmp_path, "--pid", target.pid, duration)
    assert share <= 1 and advice == "Add --native-all to include them."


def test_hint_nonblocking(spawn, tmp_path):
    target = spawn(DEBIAN, "native_c.py", directory(DEBIAN, "spy_c"), "spy_c", "two_busy_threads")
    share, advice = hint(tmp_path, "--pid", target.pid, "--nonblocking", duration)
    assert share < 1 and advice == "Replace --nonblocking with --native-all to include them."


def test_hint_subprocesses(launch, tmp_path, python, script):
    """The child computes; both it and its parent run Python."""
    command = [*python.command[-1:], script(python, "native_c.py"), directory(python, "spy_c"), "spy_c", "two_busy_threads"]
    target = launch([*python.command, "-c", "import subprocess\nsubprocess.call(%r)" % command])
    share, _ = hint(tmp_path, "--pid", target.pid, "--subprocesses", duration)
    assert share < 1


@pytest.mark.parametrize("flag", [[], ["--subprocesses"]], ids=["single", "subprocesses"])
def test_hint_after_exit(tmp_path, python, flag):
    """The process has exited when the recording ends."""
    where = directory(python, "spy_c")
    share, _ = hint(tmp_path, *flag, "--", *python.command, "-c", lambda seconds: PROGRAM % (where, seconds))
    assert share <= 1


@pytest.mark.parametrize("args", [["--native-all"], ["--gil"]], ids=lambda args: args[0])
def test_no_hint(spawn, tmp_path, args):
    target = spawn(DEBIAN, "native_c.py", directory(DEBIAN, "spy_c"), "spy_c", "two_busy_threads")
    hint(tmp_path, "--pid", target.pid, duration)  # enough for the hint without the flag
    result, _ = record(tmp_path, "--pid", target.pid, "--duration=1", *args)
    assert not HINT.search(result.messages), result


def test_no_hint_as_py_spy(spawn, tmp_path):
    target = spawn(DEBIAN, "native_c.py", directory(DEBIAN, "spy_c"), "spy_c", "two_busy_threads")
    hint(tmp_path, "--pid", target.pid, duration)
    result = run("record", "--pid", target.pid, "-d", "1", "-f", "raw", "-o", tmp_path / "out", program=PY_SPY).check()
    assert not HINT.search(result.messages), result


@pytest.mark.parametrize("kind", ["python", "foreign"])
@pytest.mark.parametrize("milliseconds", [3, 300])
def test_python_threads(spawn, tmp_path, python, kind, milliseconds):
    """The time of Python threads is never taken for that of others, however short they live."""
    target = spawn(python, "short_lived_threads.py", kind, str(milliseconds), "3")
    result, last = record(tmp_path, "--pid", target.pid, "--duration=2")
    assert last["cpu_time"] > 0 and last["cpu_time_without_python"] == 0 and not HINT.search(result.messages), (last, result)


def test_calls_of_python(spawn, tmp_path, python):
    """A thread that has a Python thread state now and then counts as a Python thread once it was seen with one."""
    target = spawn(python, "native_c.py", directory(python, "spy_c"), "spy_c", "by_turns")
    seconds = 1
    while record(tmp_path, "--pid", target.pid, duration(seconds))[1]["cpu_time_without_python"]:
        seconds *= 2
        assert seconds < WAIT
