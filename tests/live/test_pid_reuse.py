"""Another process gets the PID of the target in the middle of a sample (tests/targets/reuse_pid.c): its stack is not
shown."""
import os
import shlex
import signal
import subprocess
import time

import pytest
from processes import cpu_seconds, parents
from profiles import Recording, profiler_in, seen
from program import SPYGLASS, TARGETS, clean_env, finish, start, wait_until
from pythons import DEBIAN

CODE = "import os\ndef %s():\n    for _ in range(1000): pass\nos.write(1, b'x\\n')\nwhile True: %s()\n"
NO_PIDFD = ["ENOSYS:pidfd_open"]
BY_PTRACE = ["EPERM:sched_setaffinity"]

pytestmark = pytest.mark.skipif(os.getuid() != 0, reason="needs root, to choose a PID")


def quote(*words):
    return " ".join(shlex.quote(str(word)) for word in words)


@pytest.fixture(scope="module")
def tools(tmp_path_factory):
    place = tmp_path_factory.mktemp("tools")
    for name in ("reuse_pid", "deny"):
        subprocess.run(["gcc", "-O1", "-o", place / name, TARGETS / (name + ".c")], check=True)
    return place


@pytest.mark.parametrize("flags, denied", [(["--nonblocking"], []), (["--nonblocking"], NO_PIDFD), ([], []), ([], BY_PTRACE),
                                           ([], NO_PIDFD + BY_PTRACE)],
                         ids=["unpaused", "unpaused, no pidfd", "same core", "ptrace", "ptrace, no pidfd"])
def test_other_process(tools, tmp_path, flags, denied):
    out = tmp_path / "out"
    # The names have the same length, and so have all objects of the two programs.
    first, second = (quote(*DEBIAN.command, "-c", CODE % (name, name)) for name in ("first_", "second"))
    profiler = quote(tools / "deny", *denied, "--", SPYGLASS) if denied else quote(SPYGLASS)
    command = "%s record -f raw -r 200 %s -o %s --pid" % (profiler, quote(*flags), quote(out))
    process = start("seize" if BY_PTRACE[0] in denied else "read", first, second, command, program=tools / "reuse_pid", stdin=subprocess.PIPE,
                    env=clean_env(ASAN_OPTIONS="detect_leaks=0"))
    recording = Recording(out, process=process)
    recording.pid = profiler_in(process)
    text = recording.until(seen("first_"))
    assert "second" not in text
    process.stdin.write(b"x")
    process.stdin.flush()
    result = finish(process)
    if result.status == 125:
        pytest.skip(result.err)
    assert "exited" in result.check().messages, result
    assert "second" not in out.read_text(), out.read_text()


def test_interrupted_ptrace(tools, tmp_path):
    """Where a seccomp filter passes ptrace to a supervisor, a signal can interrupt PTRACE_DETACH: the target used to stay
    stopped for the rest of the recording."""
    out = tmp_path / "out"
    first = quote(*DEBIAN.command, "-c", CODE % ("first_", "first_"))
    command = "%s record -f raw -r 1000 -o %s --pid" % (quote(tools / "deny", *BY_PTRACE, "--", SPYGLASS), quote(out))
    process = start("seize", first, first, command, program=tools / "reuse_pid", stdin=subprocess.PIPE,
                    env=clean_env(ASAN_OPTIONS="detect_leaks=0"))
    recording = Recording(out, process=process)
    recording.pid = profiler_in(process)
    recording.until(seen("first_"))
    target = next(p for p, parent in parents().items() if parent == process.pid and p != recording.pid)
    for _ in range(2000):
        recording.send(signal.SIGUSR1)
        time.sleep(0.0002)
    before = cpu_seconds(target)
    wait_until(lambda: cpu_seconds(target) > before + 0.05, "the target to run on")
    os.kill(target, signal.SIGKILL)
    finish(process)
