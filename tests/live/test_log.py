"""--log-level and SPYGLASS_LOG: what the log says, where it goes, and that it costs nothing while it is off."""
import collections
import json
import os
import pathlib
import re
import shutil
import subprocess

import pytest
from processes import at_rest
from program import PY_SPY, SANITIZED, SPYGLASS, WAIT, clean_env, run, wait_until
from pythons import DEBIAN

BOTH = pytest.mark.parametrize("program", [SPYGLASS, PY_SPY], ids=["spyglass", "py-spy"])
LINE = re.compile(r"\d\d:\d\d:\d\d\.\d{3} (ERROR|WARN|INFO|DEBUG) [a-z]+: .+")
FREE_PID = 2 ** 22 + 5  # beyond the largest PID


def log_of(result):
    """The lines of the log, all of them well-formed. The messages of record are there, too."""
    lines = [line for line in result.err.splitlines() if not line.startswith("spyglass> ")]
    assert lines and all(LINE.fullmatch(line) for line in lines), result
    return lines


def levels(result):
    return {line.split()[1] for line in result.err.splitlines() if LINE.fullmatch(line)}


@pytest.mark.smoke
def test_dump(spawn, python):
    """Everything that leads to the stacks is there, and standard output is what it is without a log."""
    target = spawn(python, "situations.py", "many_threads")
    at_rest(target.pid)
    plain = run("dump", "--json", "--no-waits", "--pid", target.pid).check()  # the state of other processes changes
    at_rest(target.pid)
    result = run("dump", "--json", "--no-waits", "--pid", target.pid, "--log-level", "debug").check()
    log = "\n".join(log_of(result))
    assert result.out == plain.out and plain.err == ""
    major, minor = python.version[:2]
    for wanted in (
            r"INFO start: spyglass \d", r"INFO start: linked: ", r"INFO start: Linux \d",
            r"INFO start: command line: \S+ dump --json --no-waits --pid %d " % target.pid,
            r"DEBUG maps: pid %d: \d+ mappings" % target.pid,
            r"INFO python: pid %d: found by (the dynamic symbols|a search in the data|the symbols in the file) of /" % target.pid,
            r"INFO python: pid %d: version %d\.%d\." % (target.pid, major, minor),
            r"DEBUG layout: row for %d\.%d: built in" % (major, minor),
            r"INFO process: pid %d: attached, executable /" % target.pid,
            r"INFO end: \d+ stacks", r"INFO end: exit status 0"):
        assert re.search(wanted, log), (wanted, result)
    assert bool(re.search("INFO layout: debug offsets at 0x[0-9a-f]+: used", log)) == (python.version >= (3, 13)), result
    for thread in json.loads(result.out):
        tid = thread["os_thread_id"]
        assert re.search(r"DEBUG threads: tid %d: thread state 0x" % tid, log), (tid, result)
        assert re.search(r"DEBUG pause: tid %d: state S, CPU \d+: read while asleep" % tid, log), (tid, result)
        assert thread["thread_name"] is None or "tid %d: named %s" % (tid, thread["thread_name"]) in log, (tid, result)


@pytest.mark.smoke
def test_record_native(spawn, tmp_path):
    target = spawn(DEBIAN, "busy.py", "2")
    all_wanted = (
            r"DEBUG unwind: module /\S+ at 0x[0-9a-f]+-0x[0-9a-f]+, build ID [0-9a-f]+, has \.eh_frame_hdr",
            r"DEBUG unwind: /\S+: \.eh_frame by its header in memory, \d+ entries",
            r"DEBUG symbols: /\S+: (has|no) debug info, debug file ",
            r"DEBUG pause: tid \d+: perf_event_open: ",
            r"DEBUG pause: tid \d+: state R, CPU \d+: read (from the same core|paused by ptrace)",
            r"INFO output: raw to /\S+", r"INFO output: /\S+: written",
            r"INFO end: \d+ ticks in \d+\.\d+ s, \d+ late, \d+ skipped: the duration is over",
            r"INFO end: native stacks: ")
    seconds = 1
    while True:  # a thousand samples, and each may have been retried; fewer on a busy machine
        args = ["record", "--native", "-d", seconds, "-r", "1000", "-f", "raw", "-o", tmp_path / "x.txt", "--pid", target.pid]
        result = run(*args, "--log-level", "debug").check()
        lines = log_of(result)
        assert len(lines) < 400 * seconds, result
        missing = [wanted for wanted in all_wanted if not re.search(wanted, "\n".join(lines))]
        if not missing:
            break
        seconds *= 2
        assert seconds < WAIT, (missing, result)
    assert not any(LINE.match(line) for line in result.out.splitlines()), result


def test_refused(spawn, tmp_path):
    """Of a failure the log has the facts that lead to it."""
    if os.getuid() != 0:
        pytest.skip("needs root, to become another user")
    target = spawn(DEBIAN, "situations.py", "plain")
    program = shutil.copy(SPYGLASS, "/tmp/spyglass-log-%d" % os.getpid())  # the tree may be closed to other users
    try:
        result = run("--reuid", "65534", "--regid", "65534", "--clear-groups", program, "dump", "--pid", target.pid,
                     "--log-level", "debug", program="/usr/bin/setpriv").check(1)
    finally:
        os.unlink(program)
    for wanted in ("INFO start: pid %s, uid 65534, gid 65534, capabilities 0+ " % r"\d+",
                   "INFO access: pid %d: uid 0 0 0, gid 0 0 0 " % target.pid,
                   "INFO access: pid %d: our user namespace, dumpable" % target.pid,
                   "ERROR dump: pid %d: permission: " % target.pid, "ERROR end: exit status 1"):
        assert re.search(wanted, result.err), (wanted, result)


def test_subprocesses(spawn, tmp_path):
    """Children are found, attached and lost."""
    code = ("import os, subprocess, sys\n"
            "subprocess.run([sys.executable, '-c', 'import os; os.read(0, 1)'])\n"
            "pid = os.fork()\n"
            "if not pid: os.read(0, 1); os.execvp('cat', ['cat'])\n"
            "os.waitpid(pid, 0)")
    errors = tmp_path / "errors"
    with open(errors, "w") as log:
        process = subprocess.Popen([SPYGLASS, "record", "--subprocesses", "--idle", "-f", "raw", "-o", tmp_path / "x.txt", "--log-level",
                                    "debug", "--", *DEBIAN.command, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL,
                                   stderr=log, env=clean_env())

    def logs(wanted):
        wait_until(lambda: re.search(wanted, errors.read_text()) or process.poll() is not None, wanted)
        return re.search(wanted, errors.read_text()).groups()

    launched, = logs(r"INFO launch: started pid (\d+)")
    logs(r"DEBUG tree: children are found by ")
    child, = logs(r"DEBUG tree: pid (\d+): found, child of (?:pid )?%s\b" % launched)
    logs(r"INFO process: pid %s: attached, executable /" % child)
    process.stdin.write(b"x")
    process.stdin.flush()
    logs(r"DEBUG tree: pid %s: exited" % child)
    forked, = logs(r"DEBUG process: pid (?!%s:)(\d+): attach as a fork of pid %s: done" % (child, launched))
    process.stdin.write(b"x")
    process.stdin.flush()
    logs(r"INFO tree: pid %s: has executed another program" % forked)
    process.stdin.close()
    assert process.wait(WAIT) == 0, errors.read_text()
    logs(r"INFO end: .*: the target exited")


@pytest.mark.smoke
def test_levels(spawn):
    target = spawn(DEBIAN, "situations.py", "plain")
    for level, wanted in (("error", set()), ("warning", set()), ("info", {"INFO"}), ("debug", {"INFO", "DEBUG"})):
        assert levels(run("dump", "--pid", target.pid, "--log-level", level).check()) == wanted, level
    assert levels(run("dump", "--pid", FREE_PID, "--log-level", "error").check(1)) == {"ERROR"}


@pytest.mark.smoke
@BOTH
def test_unknown_level(program):
    for flag in ("--log-level=verbose", "--log-level=DEBUG", "--log-level=5"):
        result = run("dump", "--pid", "1", flag, program=program).check(2)
        assert not result.out and result.err.startswith("error: Bad arguments: unknown log level '%s'\n" % flag[12:]), result
        assert "Available log levels: error, warning, info, debug." in result.err, result
    assert "'debug'" in run("dump", "--pid", "1", "--log-level", "debgu", program=program).check(2).err
    result = run("completions", "bash", "--log-level", "debug", program=program).check(2)
    assert "completions does not accept the flag '--log-level'" in result.err, result


@pytest.mark.smoke
@BOTH
def test_environment(spawn, tmp_path, program):
    target = spawn(DEBIAN, "situations.py", "plain")

    def with_log(value, *args, status=0):
        return run(*args, program=program, env=clean_env(SPYGLASS_LOG=value)).check(status)

    assert levels(with_log("debug", "dump", "--pid", target.pid)) == {"INFO", "DEBUG"}
    assert levels(with_log("debug", "dump", "--pid", target.pid, "--log-level", "info")) == {"INFO"}
    assert with_log("", "dump", "--pid", target.pid).err == ""
    assert with_log("debug", "completions", "bash").err == ""
    assert "dump: works\n" in with_log("info", "doctor", "--pid", target.pid).out
    result = with_log("nonsense", "dump", "--pid", target.pid, status=2)
    assert not result.out and "SPYGLASS_LOG" in result.err and "error, warning, info, debug" in result.err, result
    raw = tmp_path / "x.txt"
    raw.write_text("main (a.py:1);f (a.py:2) 3\n")
    result = with_log("info", "merge", "-o", tmp_path / "x.svg", raw)
    assert "INFO merge: %s: 1 lines: read\n" % raw in result.err, result


def test_no_secrets(launch):
    """Neither values of variables nor the environment, though dump shows the former here."""
    code = "import os, time\ndef f(x):\n    print(1, flush=True)\n    time.sleep(1000)\nf(os.environ['MARK'] * 2)"
    target = launch([*DEBIAN.command, "-c", code], env={"MARK": "Xyzzy"})
    at_rest(target.pid)
    result = run("dump", "-ll", "--pid", target.pid, "--log-level", "debug", env=clean_env(MARK="Xyzzy")).check()
    assert "XyzzyXyzzy" in result.out and "Xyzzy" not in result.err, result


def test_hostile_text(launch):
    """What the target chooses cannot steer a terminal, nor look like a line of the log."""
    name = "n\x1b[31m\n00:00:00.000 INFO end: x\u202e"
    code = ("import threading, time\nthread = threading.Thread(target=time.sleep, args=(1000,), name=%a, daemon=True)\n"
            "thread.start()\nprint(1, flush=True)\ntime.sleep(1000)" % name)
    target = launch([*DEBIAN.command, "-c", code])
    at_rest(target.pid)
    result = run("dump", "--pid", target.pid, "--log-level", "debug").check()
    assert "\x1b" not in result.err and "named n\\x1b[31m\\n00:00:00.000 INFO end: x\\u202e\n" in result.err, result
    log_of(result)


def test_nobody_reads(spawn, tmp_path):
    """Standard error is a full pipe, or a closed one: the recording ends all the same."""
    target = spawn(DEBIAN, "busy.py", "2")
    args = [SPYGLASS, "record", "-d", "1", "-f", "raw", "-o", tmp_path / "x.txt", "--native", "--log-level", "debug", "--pid",
            str(target.pid)]
    for closed in (False, True):
        read_end, write_end = os.pipe()
        os.set_blocking(write_end, False)
        with pytest.raises(BlockingIOError):
            while True:
                os.write(write_end, b"x" * 4096)
        os.set_blocking(write_end, True)
        if closed:
            os.close(read_end)
        done = subprocess.run(args, stderr=write_end, stdout=subprocess.PIPE, timeout=WAIT, env=clean_env())
        os.close(write_end)
        if not closed:
            os.close(read_end)
        assert done.returncode == 0 and done.stdout == b"" and (tmp_path / "x.txt").read_text()
        (tmp_path / "x.txt").unlink()


def system_calls(tmp_path, target, *flags):
    """How often each system call is made by a dump, and the text that strace writes."""
    at_rest(target.pid)
    path = tmp_path / "strace.txt"
    run("-f", "-o", path, SPYGLASS, "dump", *flags, "--pid", target.pid, program=shutil.which("strace")).check()
    text = pathlib.Path(path).read_text()
    return collections.Counter(re.findall(r"^\d+ +(\w+)\(", text, re.M)), text


@pytest.mark.skipif(not shutil.which("strace"), reason="strace is not installed")
@pytest.mark.skipif(SANITIZED, reason="sanitizers make system calls of their own")
def test_costs_nothing(spawn, tmp_path):
    """A log that is off makes no system call; one that has nothing to say asks once whether it writes to a terminal."""
    target = spawn(DEBIAN, "situations.py", "plain")

    def is_same():
        off, text = system_calls(tmp_path, target)
        assert "write(2," not in text and "localtime" not in text and "ioctl(2, TCGETS" not in text, text
        quiet, _ = system_calls(tmp_path, target, "--log-level", "error")
        quiet["ioctl"] -= 1
        return +quiet == off

    wait_until(is_same, "the same system calls with a log that is off")  # a dump that is preempted reads again
