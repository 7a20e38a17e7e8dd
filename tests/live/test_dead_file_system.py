"""Files and mappings of the target on a file system that has stopped answering: every command answers, and says what it left out."""
import json
import pathlib
import re
import signal
import subprocess

import pytest
from core_files import by_gcore, gcore
from processes import descendants, process_state, task_states
from profiles import Recording, seen
from program import start, wait_until
from pythons import DEBIAN
from remote_files import Remote

CLOCK_NANOSLEEP = "230"
STACK = r"remote_work \(package/work\.py:\d+\)"


@pytest.fixture(params=["stopped", "silent"])
def how(request):
    return request.param


@pytest.fixture
def remote(inside):
    """remote(python) -> Remote, alive so far."""
    made = []

    def make(python):
        made.append(Remote(*inside(python)))
        return made[-1]

    yield make
    for one in made:
        one.end()


def wait_for_library(pid):
    """Waits until a thread is in read(2), called by the remote library. If the file system died before that, the thread would
    wait for the page of the library, and nobody could end the program."""
    def blocks():
        return any((task / "syscall").read_text().startswith("0 ") for task in pathlib.Path("/proc/%d/task" % pid).iterdir())

    wait_until(blocks, "the thread in the library")


@pytest.fixture
def dead(spawn, remote, how):
    """dead(python) -> a target that works, and the file system of its files, which is dead."""
    def go(python, *args):
        files = remote(python)
        target = spawn(python, "remote_files.py", files.path, *args)
        wait_for_library(target.truth["pid"])
        files.die(how)
        return target, files

    return go


def check_note(files, err, options=("--native",)):
    """One line, which names the file system and a file of it, if an option needs files. Stacks and file names need none."""
    lines = [line for line in err.splitlines() if "does not answer" in line]
    if "--native" not in options and "--source" not in options:
        assert not lines, err
        return
    assert len(lines) == 1 and re.search(r"%s .*%s/\S+" % (files.path, files.path), lines[0]), err


@pytest.mark.parametrize("options", [[], ["--native"], ["--locals"], ["--source"], ["--json"]], ids=lambda o: "".join(o) or "plain")
def test_dump(dead, python, options):
    target, files = dead(python)
    result = files.run("dump", "--pid", target.pid, *options).check()
    assert "remote_work" in result.out and "remote_block" in result.out and "work.py" in result.out, result
    if options != ["--json"]:
        assert re.search(STACK, result.out), result
    check_note(files, result.err, options)


@by_gcore
@pytest.mark.parametrize("options", [[], ["--native"], ["--source"]], ids=lambda o: "".join(o) or "plain")
def test_core(spawn, remote, how, scratch, options):
    """The core file of a process with such files."""
    files = remote(DEBIAN)
    core = gcore(spawn(DEBIAN, "remote_files.py", files.path, "rests"), scratch)
    files.die(how)
    result = files.run("dump", "--core", core, *options).check()
    assert re.search(r"remote_block \(package/work\.py:\d+\)", result.out), result
    check_note(files, result.err, options)


@pytest.mark.parametrize("options", [[], ["--native"]], ids=lambda o: "".join(o) or "plain")
def test_record(dead, python, tmp_path, options):
    """It keeps its duration, and writes the profile."""
    target, files = dead(python)
    out = tmp_path / "profile.txt"
    recording = start("record", "--pid", target.pid, "-f", "raw", "-o", out, "-d", 5, *options)
    result = files.finish(recording).check()
    assert seen("remote_work")(out.read_text()), result
    check_note(files, result.err, options)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=["SIGINT", "SIGTERM"])
def test_signal(dead, tmp_path, number):
    target, files = dead(DEBIAN)
    recording = Recording(tmp_path / "profile.txt", "--pid", target.pid, "-f", "raw", "--native")
    recording.until(seen("remote_work"))
    recording.send(number)
    files.finish(recording.process).check()


def test_dies_during_recording(spawn, remote, python, how, tmp_path):
    """A function that is first seen after the file system has died is in the profile."""
    files = remote(python)
    target = spawn(python, "remote_files.py", files.path)
    recording = Recording(tmp_path / "profile.txt", "--pid", target.pid, "-f", "raw", "--native")
    recording.until(seen("remote_work"))
    wait_for_library(target.pid)
    files.die(how)
    target.resume(b"\n")
    recording.until(seen("remote_rest"))
    recording.send(signal.SIGINT)
    files.finish(recording.process).check()


def test_family(dead, tmp_path):
    """One of three children has dead files: the others are sampled, and so is this one."""
    target, files = dead(DEBIAN, "family")
    result = files.run("dump", "--subprocesses", "--pid", target.pid).check()
    assert result.out.count("local_work") == 2 and result.out.count("remote_work") == 1, result
    recording = Recording(tmp_path / "profile.txt", "--subprocesses", "--pid", target.pid, "-f", "raw")
    text = recording.until(lambda text: seen("local_work", "remote_work")(text) and
                           len({line.split(";")[1] for line in text.splitlines() if "local_work" in line}) == 2)
    assert "remote_work" in text
    recording.send(signal.SIGINT)
    check_note(files, files.finish(recording.process).check().err, [])


def test_launched(remote, script, how, tmp_path):
    """The exit status is that of the program."""
    files, out = remote(DEBIAN), tmp_path / "profile.txt"
    process = start("record", "-f", "raw", "-o", out, "--", *DEBIAN.command, script(DEBIAN, "remote_files.py"), files.path,
                    stdin=subprocess.PIPE)
    wait_for_library(json.loads(process.stdout.readline())["pid"])
    files.die(how)
    process.stdin.write(b"\n")
    process.stdin.flush()
    Recording(out, process=process).until(seen("remote_rest"))
    result = files.finish(process).check()  # closes standard input, which ends the program
    assert seen("remote_rest")(out.read_text()), result


def is_locked(pid):
    """True if two threads wait: one for the file system, one for the lock that the first one holds."""
    return task_states(pid).count("D") == 2


@pytest.mark.parametrize("command", [["dump"], ["dump", "--native"], ["record", "-d", "1"]], ids=" ".join)
def test_locked_memory(spawn, remote, how, tmp_path, command):
    """A process that nobody can read is an error, not a hang."""
    files = remote(DEBIAN)
    target = spawn(DEBIAN, "locks_memory.py", files.path + "/data")
    files.die(how, forget=False)
    target.resume(b"\n")
    wait_until(lambda: is_locked(target.pid), "the lock")
    options = ["-o", tmp_path / "profile.svg"] if command[0] == "record" else []
    result = files.run(*command, *options, "--pid", target.pid).check(1)
    assert "process %d keeps its memory locked" % target.pid in result.err, result


def stop_between_samples(recording):
    """Stops spyglass while it waits for its next sample."""
    def stops():
        recording.send(signal.SIGSTOP)
        wait_until(lambda: process_state(recording.pid) == "T", "the stop")
        waits = pathlib.Path("/proc/%d/syscall" % recording.pid).read_text().split()[0] == CLOCK_NANOSLEEP
        if not waits:
            recording.send(signal.SIGCONT)
        return waits

    wait_until(stops, "a pause between samples")


def test_locked_memory_during_recording(spawn, remote, how, tmp_path):
    """The recording ends when it is told to, with what it has."""
    files = remote(DEBIAN)
    target = spawn(DEBIAN, "locks_memory.py", files.path + "/data")
    recording = Recording(tmp_path / "profile.txt", "--pid", target.pid, "-f", "raw", "--idle")
    recording.until(seen("<module>"))
    stop_between_samples(recording)
    files.die(how, forget=False)
    target.resume(b"\n")
    wait_until(lambda: is_locked(target.pid), "the lock")
    recording.send(signal.SIGCONT)
    wait_until(lambda: "D" in map(process_state, [recording.pid, *descendants(recording.pid)]), "a read of the locked memory")
    recording.send(signal.SIGINT)
    result = files.finish(recording.process).check()
    assert "The memory of process %d does not answer" % target.pid in result.err, result
    assert seen("<module>")((tmp_path / "profile.txt").read_text()), result


PARENT = """
import subprocess, sys
child = subprocess.Popen([sys.executable] + sys.argv[1:])
def parent_works():
    while True:
        sum(range(300))
parent_works()
"""


def test_locked_memory_of_child(launch, script, remote, how, tmp_path):
    """The parent is sampled."""
    files = remote(DEBIAN)
    target = launch([*DEBIAN.command, "-c", PARENT, script(DEBIAN, "locks_memory.py"), files.path + "/data"])
    files.die(how, forget=False)
    target.resume(b"\n")
    wait_until(lambda: is_locked(target.truth["pid"]), "the lock")
    result = files.run("dump", "--subprocesses", "--pid", target.pid).check()
    assert "parent_works" in result.out and "process %d" % target.truth["pid"] in result.err, result
    recording = Recording(tmp_path / "profile.txt", "--subprocesses", "--pid", target.pid, "-f", "raw")
    recording.until(seen("parent_works"))
    recording.send(signal.SIGINT)
    files.finish(recording.process).check()
