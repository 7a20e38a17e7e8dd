"""Where the output goes: readers that do not read, closed descriptors, files and FIFOs of other users."""
import fcntl
import json
import os
import pathlib
import signal
import stat
import subprocess
import threading

import pytest
from processes import process_state
from profiles import WORK_UNTIL_INPUT, wait_samples
from program import PY_SPY, SPYGLASS, WAIT, Result, clean_env, finish, run, start, wait_until
from pythons import DEBIAN

ROOT_ONLY = pytest.mark.skipif(os.getuid() != 0, reason="needs files of other users, or /proc/PID/syscall")
NOBODY = 65534


# --- a reader that does not read ---

def fill_pipe(fd):
    """Writes until there is no room. Leaves the descriptor in blocking mode."""
    flags = fcntl.fcntl(fd, fcntl.F_GETFL)
    fcntl.fcntl(fd, fcntl.F_SETFL, flags | os.O_NONBLOCK)
    for size in (4096, 1):
        try:
            while True:
                os.write(fd, b"x" * size)
        except BlockingIOError:
            pass
    fcntl.fcntl(fd, fcntl.F_SETFL, flags & ~os.O_NONBLOCK)


@pytest.fixture
def full_pipe():
    """The two ends of a pipe that is full."""
    reader, writer = os.pipe()
    fill_pipe(writer)
    yield reader, writer
    os.close(reader)
    os.close(writer)


@pytest.fixture
def full_fifo(tmp_path):
    path = tmp_path / "fifo"
    os.mkfifo(path)
    fd = os.open(path, os.O_RDWR)
    fill_pipe(fd)
    yield path
    os.close(fd)


def begin(*args, stdout=subprocess.PIPE, program=SPYGLASS, **options):
    """Starts it. If it hangs, it is killed after WAIT, so that reading its standard error ends."""
    process = subprocess.Popen([str(program), *map(str, args)], stdin=subprocess.DEVNULL, stdout=stdout, stderr=subprocess.PIPE,
                               env=clean_env(), **options)
    guard = threading.Timer(WAIT, process.kill)
    guard.daemon = True
    guard.start()
    return process


def begin_recording(pid, out, *args, pass_fds=(), **options):
    """Starts a recording and waits until it has samples."""
    reader, writer = os.pipe()
    process = begin("record", "-p", pid, "-o", out, "--status-fd", writer, *args, pass_fds=[writer, *pass_fds], **options)
    os.close(writer)
    with os.fdopen(reader) as events:
        assert any(event.get("samples", 0) > 0 for event in map(json.loads, events)), process.stderr.read()
    return process


def expect_line(process, text):
    """Reads standard error up to a line that contains the text."""
    for line in iter(process.stderr.readline, b""):
        if text in line:
            return
    raise AssertionError("no %r" % text)


def is_writing(pid):
    """True if the process sleeps in write(2) or poll(2)."""
    return process_state(pid) == "S" and pathlib.Path("/proc/%d/syscall" % pid).read_text().startswith(("1 ", "7 "))


def give_up(process):
    """Ends a recording whose output nobody reads: the first signal ends the recording, the second one the wait."""
    process.send_signal(signal.SIGINT)
    expect_line(process, b"Press Ctrl-C again to give up")
    process.send_signal(signal.SIGINT)
    rest = process.stderr.read().decode()
    assert process.wait(WAIT) == 1, rest
    assert "Error: Gave up writing the output: the reader of '" in rest and rest.count("\n") == 2, rest


def test_record_to_a_fifo_that_nobody_reads(spawn, full_fifo):
    target = spawn(DEBIAN, "busy.py")
    give_up(begin_recording(target.pid, full_fifo, "-f", "raw"))


@pytest.mark.parametrize("program", [SPYGLASS, PY_SPY], ids=["spyglass", "py-spy"])
def test_record_to_a_pipe_that_nobody_reads(spawn, full_pipe, program):
    target = spawn(DEBIAN, "busy.py")
    give_up(begin_recording(target.pid, "-", "-f", "raw", stdout=full_pipe[1], program=program))
    assert not fcntl.fcntl(full_pipe[1], fcntl.F_GETFL) & os.O_NONBLOCK  # it is the shell's, too


@ROOT_ONLY
def test_snapshot_to_a_pipe_that_nobody_reads(spawn, full_pipe):
    target = spawn(DEBIAN, "busy.py")
    process = begin_recording(target.pid, "/dev/fd/%d" % full_pipe[1], "-f", "raw", pass_fds=[full_pipe[1]])
    process.send_signal(signal.SIGUSR1)
    wait_until(lambda: is_writing(process.pid), "it waits")
    process.send_signal(signal.SIGINT)
    expect_line(process, b"Press Ctrl-C again to give up")
    process.send_signal(signal.SIGINT)
    assert process.wait(WAIT) == 1
    assert b"Gave up writing the output" in process.stderr.read()


def test_slow_reader_gets_everything(spawn, full_pipe):
    """One signal does not cut the profile."""
    target = spawn(DEBIAN, "busy.py")
    process = begin_recording(target.pid, "-", "-f", "flamegraph", stdout=full_pipe[1])
    process.send_signal(signal.SIGINT)
    expect_line(process, b"Press Ctrl-C again to give up")
    data = b""
    while b"</svg>" not in data:
        data += os.read(full_pipe[0], 1000)
    assert process.wait(WAIT) == 0
    assert b"Wrote" in process.stderr.read()


@ROOT_ONLY
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=lambda n: n.name)
@pytest.mark.parametrize("command", ["dump", "merge"])
def test_one_signal_ends_other_commands(spawn, tmp_path, full_pipe, command, number):
    """Also in the background of a shell without job control, which ignores SIGINT there."""
    profile = tmp_path / "raw"
    profile.write_text("main (x.py:1) 1\n")
    args = ["dump", "--pid", spawn(DEBIAN, "busy.py").pid] if command == "dump" else ["merge", profile, "-o", "-"]
    process = begin(*args, stdout=full_pipe[1], preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_IGN))
    wait_until(lambda: is_writing(process.pid), "it waits")
    process.send_signal(number)
    assert process.wait(WAIT) == -number
    process.stderr.close()


# --- closed descriptors, full disks ---

def run_without_stdout(*args, program=SPYGLASS):
    """Runs it with `>&-`."""
    done = subprocess.run(["sh", "-c", 'exec "$@" >&-', "sh", str(program), *map(str, args)], stdin=subprocess.DEVNULL,
                          stderr=subprocess.PIPE, timeout=WAIT, env=clean_env())
    return Result(done.args, done.returncode, b"", done.stderr, 0)


@pytest.mark.parametrize("program", [SPYGLASS, PY_SPY], ids=["spyglass", "py-spy"])
def test_closed_standard_output(spawn, tmp_path, program):
    pid = spawn(DEBIAN, "situations.py", "deep").pid
    raw = tmp_path / "raw"
    raw.write_text("main (x.py:1) 1\n")
    commands = [["dump", "--pid", pid], ["dump", "--json", "--pid", pid], ["--version"], ["--help"], ["completions", "bash"],
                ["record", "-p", pid, "-d", "0.1", "-o", "-"], ["record", "-p", pid, "-d", "0.1", "-o", "/dev/stdout"]]
    for command in commands + ([["doctor"], ["merge", raw, "-o", "-"]] if program is SPYGLASS else []):
        result = run_without_stdout(*command, program=program)
        assert result.status == 1 and "not open" in result.err, result
    run_without_stdout("record", "-p", pid, "-d", "0.1", "-o", tmp_path / "x", program=program).check()


def test_program_gets_closed_descriptors(tmp_path):
    """As if spyglass were not there."""
    out = tmp_path / "out"
    code = "import os, sys\nopen(%r, 'w').write(repr(sys.stdout))\n" % str(tmp_path / "seen") + WORK_UNTIL_INPUT
    process = start("-c", 'exec "$@" >&-', "sh", SPYGLASS, "record", "-f", "raw", "-o", out, "--", *DEBIAN.command, "-c", code,
                    program="sh", stdin=subprocess.PIPE)
    wait_samples(process, out)
    finish(process).check()
    assert (tmp_path / "seen").read_text() == "None"


def test_merge_to_full_disk(tmp_path):
    raw = tmp_path / "raw"
    raw.write_text("main (x.py:1) 1\n")
    result = run("merge", raw, "-o", "/dev/full").check(1)
    assert "No space left" in result.err, result


# --- other users ---

@ROOT_ONLY
def test_fifo_of_another_user(spawn, tmp_path):
    """Anyone can put a FIFO into /tmp under the name that root will use."""
    target = spawn(DEBIAN, "busy.py")
    tmp_path.chmod(0o1777)
    path = tmp_path / "x.svg"
    os.mkfifo(path)
    os.chown(path, NOBODY, NOBODY)
    reader = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    result = run("record", "-p", target.pid, "-d", "0.1", "-o", path).check(1)
    assert "belongs to another user" in result.err and "Sampling" not in result.messages, result
    assert os.read(reader, 1) == b""
    os.close(reader)


def test_private_file_stays_private(spawn, tmp_path):
    target = spawn(DEBIAN, "busy.py")
    path = tmp_path / "x.svg"
    path.write_text("old")
    path.chmod(0o600)
    run("record", "-p", target.pid, "-d", "0.1", "-o", path).check()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600 and "</svg>" in path.read_text()
