"""--status-fd: the events of a run against what the run did, and readers that are slow, full or gone.

docs/machine-interface.md describes the events.
"""
import fcntl
import json
import os
import pathlib
import pty
import re
import select
import signal
import subprocess
import termios
import time

import pytest
from processes import at_rest
from profiles import WORK_UNTIL_INPUT, Recording, read_raw, some_samples, wait_samples
from program import PY_SPY, SPYGLASS, WAIT, clean_env, finish, run, start
from pythons import DEBIAN, ROOT

NEVER = 2 ** 22 + 5  # a pid beyond the largest one


class Reader:
    """The reading end of a pipe, whose other end is passed on as a descriptor of that number."""

    def __init__(self):
        self.fd, self.writer = os.pipe()
        self.data = b""
        self.events = []

    def close_writer(self):
        if self.writer is not None:
            os.close(self.writer)
            self.writer = None

    def _read(self):
        data = os.read(self.fd, 1 << 16)
        *lines, self.data = (self.data + data).split(b"\n")
        for line in lines:
            assert len(line) < select.PIPE_BUF
            event = json.loads(line.decode("utf-8"))  # strict: each line is one whole object
            assert event["version"] == 1
            self.events.append(event)
        return bool(data)

    def wait_for(self, name):
        """The next event of that name that has not been returned yet."""
        known = sum(event["event"] == name for event in self.events)
        end = time.monotonic() + WAIT
        while sum(event["event"] == name for event in self.events) == known:
            ready, _, _ = select.select([self.fd], [], [], max(0, end - time.monotonic()))
            assert ready and self._read(), "no event %s: %r" % (name, self.events)
        return self.events[-1]

    def rest(self):
        """All events, once every writer has gone."""
        self.close_writer()
        while self._read():
            pass
        assert self.data == b"", "half a line: %r" % self.data
        return self.events


@pytest.fixture
def reader():
    made = Reader()
    yield made
    made.close_writer()
    os.close(made.fd)


def run_with(reader, command, *args, **options):
    """Runs it to its end; returns the Result and all events."""
    result = run(command, "--status-fd", reader.writer, *args, pass_fds=[reader.writer], **options)
    return result, reader.rest()


def start_with(reader, command, *args, **options):
    process = start(command, "--status-fd", reader.writer, *args, pass_fds=[reader.writer], **options)
    reader.close_writer()
    return process


def names(events):
    return [event["event"] for event in events]


# ---- what is reported ----

@pytest.mark.smoke
def test_record(reader, spawn, tmp_path):
    target = spawn(DEBIAN, "busy.py")
    out = tmp_path / "out.txt"
    process = start_with(reader, "record", "--pid", target.pid, "-d", "2", "-o", out)
    result, events = finish(process).check(), reader.rest()
    assert names(events)[:2] == ["started", "ready"] and names(events)[-1] == "finished"
    assert set(names(events)[2:-1]) <= {"samples"}, names(events)
    started, ready, *samples, finished = events
    assert started["program"] == run("--version").out.strip() and started["command"] == "record"
    assert started["profiler_pid"] == process.pid and started["pid"] == ready["pid"] == target.pid
    assert (started["format"], started["output"]) == ("raw", str(out))
    assert ready["processes"] == 1 and "busy.py" in ready["command_line"]
    # Twice a second at most; the counts rise. Single intervals may look shorter: an event has the time of its tick.
    assert len(samples) <= 2 * finished["elapsed"] + 1 and [e["elapsed"] for e in samples] == sorted(e["elapsed"] for e in samples)
    assert all(e["processes"] == 1 and e["samples"] <= finished["samples"] for e in samples)
    assert finished["reason"] == "duration" and finished["elapsed"] >= 2 and "signal" not in finished
    assert finished["output"] == str(out) and finished["bytes"] == out.stat().st_size
    said = re.search(r"Samples: (\d+) Errors: (\d+)", result.messages)
    assert (finished["samples"], finished["errors"]) == tuple(map(int, said.groups()))


@pytest.mark.smoke
def test_ends(reader, spawn, tmp_path):
    """A snapshot, and why it ended: a signal."""
    target = spawn(DEBIAN, "busy.py")
    out = tmp_path / "out.txt"
    process = start_with(reader, "record", "--pid", target.pid, "-o", out)
    reader.wait_for("ready")
    process.send_signal(signal.SIGUSR1)
    snapshot = reader.wait_for("snapshot")
    assert snapshot["output"] == str(out) and snapshot["bytes"] == out.stat().st_size
    process.send_signal(signal.SIGTERM)
    finish(process).check()
    finished = reader.rest()[-1]
    assert (finished["event"], finished["reason"], finished["signal"]) == ("finished", "signal", "SIGTERM")
    assert finished["samples"] >= snapshot["samples"]


def test_target_exits(reader, tmp_path):
    out = tmp_path / "out.txt"
    process = start_with(reader, "record", "-o", out, "--", *DEBIAN.command, "-c", WORK_UNTIL_INPUT, stdin=subprocess.PIPE)
    wait_samples(process, out)
    finish(process).check()
    events = reader.rest()
    assert events[0]["pid"] is None and events[1]["pid"] > 0 and "works" in events[1]["command_line"]
    assert events[-1]["reason"] == "exited" and events[-1]["samples"] > 0


def test_parent_ends(reader, spawn, tmp_path):
    """With --with-parent: `sh` starts it and is killed."""
    target = spawn(DEBIAN, "busy.py")
    command = "%s record --status-fd %d --pid %d -o %s --with-parent $$ & wait" % (SPYGLASS, reader.writer, target.pid,
                                                                                   tmp_path / "x.txt")
    shell = subprocess.Popen(["sh", "-c", command], pass_fds=[reader.writer], stdout=subprocess.DEVNULL, env=clean_env())
    reader.close_writer()
    reader.wait_for("ready")
    shell.kill()
    shell.wait()
    assert reader.rest()[-1]["reason"] == "parent"


def test_subprocesses(reader, tmp_path):
    code = "import subprocess, sys\nsubprocess.call([sys.executable, '-c', %r])" % WORK_UNTIL_INPUT
    process = start_with(reader, "record", "--subprocesses", "-o", tmp_path / "x.txt", "--", *DEBIAN.command, "-c", code,
                         stdin=subprocess.PIPE)
    while not any(event["event"] == "samples" and event["processes"] == 2 for event in reader.events):
        reader.wait_for("samples")
    finish(process).check()
    assert max(event["processes"] for event in reader.rest() if event["event"] == "samples") == 2, reader.events


def test_nothing_to_show(reader, spawn, tmp_path):
    """Only idle threads: it is no error, and the reason is there."""
    target = spawn(DEBIAN, "situations.py", "plain")
    at_rest(target.pid)
    result, events = run_with(reader, "record", "--pid", target.pid, "-d", "0.5", "-o", tmp_path / "x.svg")
    result.check()
    assert events[-1]["samples"] == 0 and "idle" in events[-1]["message"] and "--mode wait" in events[-1]["advice"], events


@pytest.mark.parametrize("program", [SPYGLASS, PY_SPY], ids=lambda path: path.name)
def test_stopped_before_first_sample(reader, spawn, tmp_path, program):
    """A signal that comes before the first sample: spyglass does not claim that the process has exited. It waits for its
    terminal, whose output is stopped, before it samples."""
    target = spawn(DEBIAN, "situations.py", "plain")
    ours, theirs = pty.openpty()
    termios.tcflow(theirs, termios.TCOOFF)
    process = subprocess.Popen([program, "record", "--status-fd", str(reader.writer), "--pid", str(target.pid), "-o",
                                tmp_path / "x.txt"], pass_fds=[reader.writer], stdin=subprocess.DEVNULL, stdout=theirs,
                               stderr=theirs, env=clean_env())
    reader.close_writer()
    reader.wait_for("ready")
    process.send_signal(signal.SIGTERM)
    termios.tcflow(theirs, termios.TCOON)
    finished = reader.rest()[-1]
    assert process.wait(WAIT) == 0
    for fd in (ours, theirs):
        os.close(fd)
    assert (finished["event"], finished["reason"], finished["samples"]) == ("finished", "signal", 0)
    assert finished["message"].endswith("the recording was stopped before the first sample"), finished


@pytest.mark.smoke
def test_dump(reader, spawn):
    target = spawn(DEBIAN, "situations.py", "plain")
    result, events = run_with(reader, "dump", "--pid", target.pid, "--json")
    assert names(events) == ["started", "finished"]
    assert (events[0]["command"], events[0]["pid"], events[0]["format"]) == ("dump", target.pid, "json")
    assert result.check().out == run("dump", "--pid", target.pid, "--json").check().out


@pytest.mark.smoke
@pytest.mark.parametrize("command", ["dump", "record"])
def test_no_process(reader, command, tmp_path):
    result, events = run_with(reader, command, "--pid", NEVER, cwd=tmp_path)
    assert result.status == 1 and names(events) == ["started", "error"]
    error = events[-1]
    assert error["code"] == "no_process" and error["fatal"] is True
    assert result.err == "%s\n%s\n" % (error["message"], error["advice"])  # the very words


def test_codes(reader, launch, tmp_path):
    """One of each kind that can be had without a special machine."""
    target = launch(["sleep", "1000"], ready=False)
    at_rest(target.pid)
    # Stop the profiler until the program has exited. Otherwise it may find the shell still running, and report not_python.
    soon = ("kill -STOP $PPID; profiler=$PPID; (while grep -q '^State:.[^Z]' /proc/$$/status; do sleep 0.01; done; "
            "kill -CONT $profiler) 2>/dev/null & exit 3")
    cases = [("not_python", 1, ("dump", "--pid", target.pid)), ("not_python", 1, ("record", "--pid", target.pid)),
             ("output", 1, ("record", "--pid", target.pid, "-o", tmp_path / "nowhere" / "x.svg")),
             ("launch", 1, ("record", "-o", tmp_path / "x.svg", "--", "/nowhere/program")),
             ("gone", 3, ("record", "-o", tmp_path / "x.svg", "--", "sh", "-c", soon)),
             ("core", 1, ("dump", "--core", "/etc/passwd")),
             ("usage", 2, ("record", "--rate", "-1")), ("usage", 2, ("record",)), ("usage", 2, ("dump", "--bogus")),
             ("usage", 2, ("dump", "--deadline", "x", "--pid", target.pid))]
    for code, status, (command, *args) in cases:
        one = Reader()
        result, events = run_with(one, command, *args)
        os.close(one.fd)
        assert result.status == status, result
        assert events[-1]["event"] == "error" and events[-1]["code"] == code and events[-1]["message"], (args, events)
        assert names(events).count("error") == 1 and "finished" not in names(events)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody else")
def test_permission(reader, spawn):
    """The pipe belongs to root, so it cannot be opened again: it works all the same."""
    target = spawn(DEBIAN, "situations.py", "plain")
    command = ["setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups"]
    place = pathlib.Path("/tmp/spyglass-status-%d" % os.getpid())
    try:
        place.write_bytes(SPYGLASS.read_bytes())
        place.chmod(0o755)
        done = subprocess.run([*command, place, "dump", "--status-fd", str(reader.writer), "--pid", str(target.pid)],
                              pass_fds=[reader.writer], stderr=subprocess.PIPE, env=clean_env(), timeout=WAIT)
    finally:
        place.unlink()
    assert done.returncode == 1 and reader.rest()[-1]["code"] == "permission", reader.events


def test_snapshot_that_fails(reader, spawn, tmp_path):
    """It is an error that is not fatal; the recording goes on."""
    target = spawn(DEBIAN, "busy.py")
    place = tmp_path / "place"
    place.mkdir()
    process = start_with(reader, "record", "--pid", target.pid, "-o", place / "out.txt")
    reader.wait_for("ready")
    place.rename(tmp_path / "other")
    process.send_signal(signal.SIGUSR1)
    error = reader.wait_for("error")
    assert error["code"] == "output" and error["fatal"] is False
    (tmp_path / "other").rename(place)
    process.send_signal(signal.SIGINT)
    finish(process).check()
    assert reader.rest()[-1]["event"] == "finished" and (place / "out.txt").is_file()


def test_full_disk(reader, spawn):
    target = spawn(DEBIAN, "situations.py", "plain")
    with open("/dev/full", "w") as full:
        done = subprocess.run([SPYGLASS, "dump", "--status-fd", str(reader.writer), "--pid", str(target.pid)], stdout=full,
                              stderr=subprocess.PIPE, pass_fds=[reader.writer], env=clean_env(), timeout=WAIT)
    assert done.returncode == 1
    assert names(reader.rest()) == ["started", "error"] and reader.events[-1]["code"] == "disk"


# ---- the descriptor ----

@pytest.mark.smoke
@pytest.mark.parametrize("program", [SPYGLASS, PY_SPY], ids=["spyglass", "py-spy"])
def test_not_open(program, tmp_path):
    """A usage error, before anything is started."""
    mark = tmp_path / "mark"
    with open("/dev/null") as unwritable:
        for fd, words in ((199, "not open"), (unwritable.fileno(), "not open for writing")):
            result = run("record", "--status-fd", fd, "--", "touch", mark, program=program, pass_fds=[unwritable.fileno()],
                         cwd=tmp_path)
            assert result.status == 2 and words in result.err, result
    assert list(tmp_path.iterdir()) == []


@pytest.mark.smoke
def test_not_inherited(reader, tmp_path):
    """A launched program has the descriptors that it would have without us."""
    code = "import os, sys\nopen(sys.argv[1], 'w').write(repr(sorted(os.listdir('/proc/self/fd'))))\n" + WORK_UNTIL_INPUT
    out = tmp_path / "x.txt"
    process = start_with(reader, "record", "-o", out, "--", *DEBIAN.command, "-c", code, tmp_path / "fds", stdin=subprocess.PIPE)
    wait_samples(process, out)
    finish(process).check()
    alone = subprocess.run([*DEBIAN.command, "-c", code, tmp_path / "alone"], stdin=subprocess.DEVNULL, env=clean_env())
    assert alone.returncode == 0
    assert (tmp_path / "fds").read_text() == (tmp_path / "alone").read_text()


def test_standard_streams(spawn, tmp_path):
    """Events may share standard error; a program that is launched keeps it."""
    out = tmp_path / "x.txt"
    process = start("record", "--status-fd", "2", "-o", out, "--", *DEBIAN.command, "-c",
                    "import sys; sys.stderr.write('here\\n'); sys.stderr.flush()\n" + WORK_UNTIL_INPUT, stdin=subprocess.PIPE)
    wait_samples(process, out)
    result = finish(process).check()
    lines = result.err.splitlines()
    events = [json.loads(line)["event"] for line in lines if line.startswith("{")]
    assert "here" in lines and (events[0], events[-1]) == ("started", "finished"), result


@pytest.mark.smoke
@pytest.mark.parametrize("how", ["full", "gone", "goes"])
def test_bad_readers(how, reader, spawn, tmp_path):
    """A recording is whole whatever its reader does."""
    target = spawn(DEBIAN, "busy.py")
    out = tmp_path / "out.txt"
    fcntl.fcntl(reader.fd, getattr(fcntl, "F_SETPIPE_SZ", 1031), 4096)
    if how == "full":
        os.set_blocking(reader.writer, False)
        with pytest.raises(BlockingIOError):
            while True:
                os.write(reader.writer, b"#" * 1024)
        os.set_blocking(reader.writer, True)
    elif how == "gone":
        os.dup2(os.open("/dev/null", os.O_RDONLY), reader.fd)
    process = start_with(reader, "record", "--pid", target.pid, "-r", "50", "-o", out)
    if how == "goes":
        reader.wait_for("ready")
        os.dup2(os.open("/dev/null", os.O_RDONLY), reader.fd)
    recording = Recording(out, process=process)
    recording.until(some_samples)
    out.unlink()
    assert read_raw(recording.stop())[1] > 0 and "Wrote raw" in recording.result.messages, recording.result
    if how == "full":
        assert set(os.read(reader.fd, 1 << 16)) == {ord("#")}


def test_slow_reader(reader, spawn, tmp_path):
    """Nobody reads until the end: samples are left out rather than the end."""
    target = spawn(DEBIAN, "busy.py")
    fcntl.fcntl(reader.fd, getattr(fcntl, "F_SETPIPE_SZ", 1031), 4096)
    process = start_with(reader, "record", "--pid", target.pid, "-d", "12", "-r", "20", "-o", tmp_path / "out.txt")
    finish(process).check()
    events = reader.rest()
    assert names(events)[:2] == ["started", "ready"] and names(events)[-1] == "finished"
    assert names(events).count("samples") < 22, "a pipe of one page is half full before"


# ---- the document ----

def test_document(reader, spawn, tmp_path):
    """Every event and every code is described, with every member that it has."""
    text = (ROOT / "docs" / "machine-interface.md").read_text()
    source = (ROOT / "src" / "cmd" / "status.c").read_text()
    for code in re.findall(r'NAME\(ERR_\w+\) = "(\w+)"', source):
        assert "`%s`" % code in text, code
    for name in re.findall(r'send_event\(s, "(\w+)"', source):
        assert "## `%s`" % name in text, name
    for member in re.findall(r'(?:TEXT|NUMBER|SECONDS|BOOL)\("(\w+)"', source):
        assert "`%s`" % member in text, member
    shown = [json.loads(line) for line in text.splitlines() if line.startswith('{"event"')]
    assert {"started", "ready", "samples", "finished", "error"} <= {event["event"] for event in shown}
