"""Several processes: lists of PIDs, --name and --all in dump and record."""
import json
import os
import re
import shutil
import signal
import subprocess
import tempfile

import pytest
from process_trees import functions_of, read_tree
from processes import at_rest, descendants
from profiles import STACKS, Recording, record_enough
from program import PY_SPY, SPYGLASS, clean_env, finish, run
from pythons import DEBIAN, NEWEST_HOST, ROOT
from stacks import parse_json, parse_text

NEVER = 2 ** 22 + 5  # a PID beyond the largest one
RESTS = "import sys, time\ndef {0}():\n    print(1)\n    sys.stdout.flush()\n    time.sleep(1000)\n{0}()\n"
WORKS = "import sys\nprint(1)\nsys.stdout.flush()\ndef {0}():\n    sum(range(1000))\nwhile True:\n    {0}()\n"
USER = 1000
FROM_SHELL = ["-c", '"$@"; exit $?', "sh"]  # arguments of a shell that waits for a command


@pytest.fixture
def tag(tmp_path):
    """A word that is in the command lines of this test only."""
    return "tag-%d-%s" % (os.getpid(), tmp_path.name)


@pytest.fixture
def start_tagged(launch, tag):
    """start_tagged("one", "two") -> targets whose command lines end in the tag and their names. `one_rests` runs in the first."""
    def go(*names, code=RESTS, function="%s_rests", python=DEBIAN, before=()):
        targets = [launch([*before, *python.command, "-c", code.format(function % name), tag, name]) for name in names]
        return [at_rest(t.pid) and t for t in targets] if code == RESTS else targets

    return go


def leaves(result):
    """pid -> innermost function of its main thread, in the order of the output."""
    return {process["pid"]: process["threads"][0]["frames"][0]["name"] for process in parse_text(result.out)}


def errors_in(result):
    """Standard error, without notes on the hung processes of tests that run at the same time: --name looks at every process."""
    return "".join(line for line in result.err.splitlines(True) if not re.match(r"Note: the .* does not answer", line))


def pids_in(result):
    return {process["pid"] for process in parse_text(result.out)}


def test_dump(start_tagged, tag):
    """One section for each, in the order given and each once; --name finds them in the order of their PIDs."""
    one, two = start_tagged("one", "two")
    three, = start_tagged("three", python=NEWEST_HOST)
    wanted = {three.pid: "three_rests", one.pid: "one_rests", two.pid: "two_rests"}
    result = run("dump", "--pid", "%d,0x%x" % (three.pid, one.pid), "-p", two.pid, "-p%d,%d" % (one.pid, two.pid)).check()
    assert list(leaves(result).items()) == list(wanted.items()) and not result.err, result
    assert result.out.count("\nPython v") == 3, result
    for flags in ([], ["--nonblocking"], ["--locals"], ["--native"], ["--subprocesses"]):
        assert pids_in(run("dump", "--name", tag, *flags).check()) == set(wanted)
    assert "        time.sleep(1000)" not in run("dump", "--name", tag, "--source").check().out  # <string>
    assert run("dump", "--pid", "%d,%d" % (one.pid, one.pid)).check().out == run("dump", "--pid", one.pid).check().out
    assert pids_in(run("dump", "-p", "%d,%d" % (one.pid, two.pid), program=PY_SPY).check()) == {one.pid, two.pid}


def test_dump_json(start_tagged, tag):
    """One document. Each process is described, since none of them was named."""
    targets = start_tagged("one", "two")
    text = run("dump", "--json", "--name", tag).check().out
    parse_json(text)  # checks the form
    for thread, target, name in zip(json.loads(text), targets, ("one", "two")):
        info = thread["process_info"]
        assert (thread["pid"], info["pid"], info["parent"]) == (target.pid, target.pid, None)
        assert info["command_line"].endswith("%s %s" % (tag, name))


def test_patterns(start_tagged, tag):
    one, two = (target.pid for target in start_tagged("one", "two"))

    def found(*patterns):
        result = run("dump", *("--name=" + pattern for pattern in patterns)).check()
        return pids_in(result), errors_in(result)

    assert found(tag) == ({one, two}, "")
    assert found(tag + " o") == ({one}, "")
    assert found("*%s one" % tag, "*%s t?o" % tag) == ({one, two}, "")
    assert found("*%s*" % tag, tag) == ({one, two}, "")
    assert found(tag, "no-such-" + tag) == ({one, two}, "Note: no Python process matches 'no-such-%s'\n" % tag)
    for pattern in (tag + "*", "no-such-" + tag):  # the first does not match the whole command line
        result = run("dump", "--name", pattern).check(1)
        assert "Found no process: no Python process matches '%s'\n" % pattern in result.err and not result.out, result
        assert "  PYTHON  " in result.err and errors_in(result).count("\n") <= 2 + 8 + 2, result  # some of what there is


def test_name_of_other_program(launch, tag):
    """The command line of a shell matches, but it runs no Python; nor does spyglass, whose command line matches, too."""
    launch(["sh", "-c", "echo 1; read line", tag])
    result = run("dump", "--name", tag).check(1)
    assert "1 other process matches, but runs no Python" in result.err, result
    result = run(*FROM_SHELL, SPYGLASS, "dump", "--name", "no-such-" + tag, program="sh").check(1)
    assert "runs no Python" not in result.err, result  # the shell that has started spyglass matches, too


def test_all(start_tagged):
    """--all has at least these, once; the processes of others come and go."""
    targets = start_tagged("one", "two")
    threads = json.loads(run("dump", "--all", "--nonblocking", "--json").check().out)
    for target, name in zip(targets, ("one_rests", "two_rests")):
        thread, = (thread for thread in threads if thread["pid"] == target.pid)
        assert thread["frames"][0]["name"] == name


def test_subprocesses(spawn):
    """A process that was given and descends from another one is below that one, and there once."""
    target = spawn(DEBIAN, "child_processes.py", "parent")
    below = sorted(descendants(target.pid), reverse=True)
    for pid in below:
        at_rest(pid)
    wanted = run("dump", "--subprocesses", "--pid", target.pid).check()
    given = ",".join(str(pid) for pid in [*below, target.pid])
    result = run("dump", "--subprocesses", "--pid", given).check()
    chains = {p["pid"]: p["parent"] for p in parse_text(wanted.out)}
    assert {p["pid"]: p["parent"] for p in parse_text(result.out)} == chains
    assert result.out.count("\nPython v") == len(chains) > 2
    alone = run("dump", "--pid", given).check(1)  # without --subprocesses, those that are not Python are errors
    assert pids_in(alone) == set(chains) and alone.err.count(": not Python\n") == len(below) + 1 - len(chains)
    depth = run("dump", "--subprocess-depth", 1, "--pid", given).check()
    assert pids_in(depth) == set(chains) and depth.out.count("\nPython v") == len(chains)


def test_record(start_tagged, tag, tmp_path):
    """Each process has its own root with its own functions. One that dies does not end the recording; the last one does."""
    one, two = start_tagged("one", "two", code=WORKS, function="%s_works")
    recording = Recording(tmp_path / "out.txt", "--name", tag, "-f", "raw", "--function")

    def samples(text, pid):
        return sum(count for chain, _, count in read_tree(text) if chain[-1][0] == pid)

    def workers(text):
        return {pid: {name for name in names if "works" in name} for pid, names in functions_of(read_tree(text)).items()}

    text = recording.until(lambda text: all(workers(text).get(pid) for pid in (one.pid, two.pid)))
    assert workers(text) == {one.pid: {"one_works"}, two.pid: {"two_works"}}
    assert all(len(chain) == 1 for chain, _, _ in read_tree(text))
    one.kill()
    more = samples(recording.until(lambda text: True), two.pid) + 10
    recording.until(lambda text: samples(text, two.pid) >= more)
    two.kill()
    result = finish(recording.process).check()
    assert "Sampling 2 processes" in result.err and "all processes have exited" in result.err, result
    assert samples(recording.out.read_text(), one.pid) and samples(recording.out.read_text(), two.pid) >= more


@pytest.mark.parametrize("format", ["flamegraph", "speedscope", "chrometrace"])
def test_record_formats(start_tagged, tmp_path, format):
    one, two = start_tagged("one", "two")
    text, result = record_enough(lambda text: len(STACKS[format](text)) >= 2 if text else False, "--pid",
                                 "%d,%d" % (one.pid, two.pid), "--mode", "wall", "--threads", "-f", format, out=tmp_path / "out")
    assert "one_rests" in text and "two_rests" in text and "2 processes" in result.err
    if format == "flamegraph":
        assert "<title>2 processes" in text and "process %d:" % one.pid in text and "process %d:" % two.pid in text
    if format == "speedscope":
        names = [profile["name"] for profile in json.loads(text)["profiles"]]
        assert sorted(name.split(" Thread ")[0] for name in names) == sorted("Process %d" % t.pid for t in (one, two))


@pytest.mark.skipif(os.getuid() != 0, reason="needs root, to become another user")
def test_left_out(start_tagged, launch, tag, tmp_path):
    """What cannot be read is reported once each. The status is 1 only if a PID was given for it."""
    place = tempfile.mkdtemp(prefix="spyglass-", dir="/tmp")
    os.chmod(place, 0o755)
    program = shutil.copy(SPYGLASS, place)
    become = ["setpriv", "--reuid", str(USER), "--regid", str(USER), "--clear-groups"]
    env = clean_env(ASAN_OPTIONS="detect_leaks=0:abort_on_error=0:exitcode=99")  # LeakSanitizer would trace

    def as_user(*args, status):
        return run(*become[1:], program, *args, program=become[0], env=env).check(status)

    try:
        mine, = start_tagged("mine", before=become)
        other, = start_tagged("other")
        sleep = launch([*become, "sh", "-c", "echo 1; exec sleep 1000"])
        at_rest(sleep.pid)
        given = "%d,%d,%d,%d" % (other.pid, sleep.pid, NEVER, mine.pid)
        result = as_user("dump", "--pid", given, status=1)
        assert pids_in(result) == {mine.pid}
        for line in ("Note: skipped process %d (" % other.pid, "Note: skipped process %d (sleep 1000): not Python\n" % sleep.pid,
                     "Note: skipped process %d: no such process\n" % NEVER, "doctor --pid %d\n" % other.pid):
            assert result.err.count(line) == 1, (line, result)
        assert result.err.count("): permission denied\n") == 1 and result.err.count("\n") == 4, result
        recorded = as_user("record", "--pid", given, "--mode", "wall", "-d", 0.3, "-f", "raw", "-o", "-", status=1)
        assert {chain[-1][0] for chain, _, _ in read_tree(recorded.out)} == {mine.pid}
        assert "Skipped process %d: no such process" % NEVER in recorded.err
        result = as_user("dump", "--name", tag, status=0)
        assert pids_in(result) == {mine.pid} and result.err.count("skipped process %d (" % other.pid) == 1, result
        result = run(*FROM_SHELL, *become, program, "dump", "--name", tag + " mine", program="sh", env=env).check(0)
        assert pids_in(result) == {mine.pid} and not errors_in(result), result  # as with sudo: no note on what has started spyglass
        result = as_user("dump", "--all", status=0)
        assert mine.pid in pids_in(result) and other.pid not in pids_in(result)
        assert "of other users cannot be read: run spyglass as root to include " in result.err, result
        for args in (("--name", tag + " other"), ("--pid", "%d,%d" % (other.pid, other.pid))):  # a single one: the whole error
            assert "belongs to another user (uid 0; you are uid %d)" % USER in as_user("dump", *args, status=1).err
        result = as_user("record", "--pid", "%d,%d" % (other.pid, sleep.pid), "-o", "-", status=1)
        assert result.err.count("Permission Denied: Cannot read the process: none of the 2 processes can be read\n") == 1
        assert not result.out and "doctor --pid %d\n" % other.pid in result.err, result
    finally:
        shutil.rmtree(place)


def test_status_fd(start_tagged, tmp_path):
    """An error that is not fatal for each PID that is left out, and `finished` at the end."""
    one, two = start_tagged("one", "two")
    given = "%d,%d,%d" % (one.pid, NEVER, two.pid)

    def events(*args):
        with open(tmp_path / "events", "w+") as file:
            done = subprocess.run([SPYGLASS, *map(str, args[:1]), "--status-fd", str(file.fileno()), "--pid", given,
                                   *map(str, args[1:])], pass_fds=[file.fileno()], capture_output=True, env=clean_env())
            file.seek(0)
            return done.returncode, [json.loads(line) for line in file if '"samples","version"' not in line]

    for command in (["dump", "--json"], ["record", "-d", 0.2, "--mode", "wall", "-o", tmp_path / "out.svg"]):
        status, found = events(*command)
        error = next(event for event in found if event["event"] == "error")
        assert status == 1 and found[0]["pid"] is None and found[-1]["event"] == "finished", found
        assert (error["code"], error["fatal"], error["pid"]) == ("no_process", False, NEVER)
        assert [event["processes"] for event in found if event["event"] == "ready"] in ([], [2])


def test_signal_while_several(start_tagged, tag, tmp_path):
    """Sleeping processes: SIGINT ends the recording, and the file says why it is empty."""
    start_tagged("one", "two")
    recording = Recording(tmp_path / "out.txt", "--name", tag, "-f", "raw")
    recording.until(lambda text: True)
    recording.stop(signal.SIGINT)
    assert "processes were sleeping" in recording.result.err or "before the first sample" in recording.result.err


def test_package(start_tagged):
    """dump() and record() accept a list."""
    one, two = start_tagged("one", "two")
    code = ("import spyglass\npids = [%d, %d, %d]\n"
            "threads = spyglass.dump(pids)\n"
            "assert [t.pid for t in threads] == pids[:2] and threads[0].process.command_line, threads\n"
            "with spyglass.record(pids, mode='wall') as recording:\n"
            "    while recording.snapshot().samples < 4: pass\n"
            "assert {stack[0].split(':')[0] for stack, _ in recording.profile.stacks} == {'process %%d' %% p for p in pids[:2]}\n"
            "try:\n    spyglass.dump(pids[2:] + [pids[2] + 1])\n"
            "except ProcessLookupError as error:\n    assert 'none of the 2' in str(error), error\n"
            "else:\n    assert False\n" % (one.pid, two.pid, NEVER))
    env = clean_env(PYTHONPATH=str(ROOT / "python"), SPYGLASS_BINARY=str(SPYGLASS))
    run(*DEBIAN.command[1:], "-c", code, program=DEBIAN.command[0], env=env).check()
