"""The package spyglass: its objects against what the process itself knows, on every interpreter that it supports.

tests/targets/package.py uses it from inside; this file runs that target and tests what needs no process.
"""
import json
import os
import pathlib
import pickle
import re
import shutil
import signal
import subprocess
import sys
import typing
import xml.etree.ElementTree

import pytest

from processes import at_rest, process_state
from program import SANITIZED, SPYGLASS, WAIT, clean_env, run, wait_until
from pythons import DEBIAN, PYTHONS, ROOT

sys.path.insert(0, str(ROOT / "python"))
import spyglass  # noqa: E402
from spyglass import _formats, _ptracer, _wait  # noqa: E402

SUPPORTED = [p for p in PYTHONS if p.version >= (3, 8) and not (SANITIZED and p.kind == "chroot")]
CASES = ["dump", "dump_subprocesses", "record", "thread", "fork", "dropped", "duration", "formats", "flags", "session"]


@pytest.fixture(autouse=True)
def the_program(monkeypatch):
    monkeypatch.setenv("SPYGLASS_BINARY", str(SPYGLASS))


@pytest.fixture
def inside(places):
    """inside(python) -> (script, environment, scratch directory), as that interpreter sees them."""
    def go(python):
        place = places(python.root)
        lib = place.parent / "lib"
        if not lib.exists():
            lib.mkdir()
            shutil.copytree(ROOT / "python" / "spyglass", lib / "spyglass", ignore=shutil.ignore_patterns("__pycache__"))
            shutil.copy(SPYGLASS, lib / "program")
        scratch = place.parent / "scratch"
        scratch.mkdir(exist_ok=True)
        seen = lambda path: "/" + str(path.relative_to(python.root))
        env = clean_env(PYTHONPATH=seen(lib), SPYGLASS_BINARY=seen(lib / "program"), TMPDIR="/tmp")
        return seen(place / "package.py"), env, seen(scratch)

    return go


def command_of(python):
    """The command to start it. A chroot has no /proc, which the profiler needs: mounts one in a private mount
    namespace."""
    if python.kind != "chroot":
        return python.command
    script = 'mount --rbind /proc "$0/proc" && exec chroot "$0" "$@"'
    return ["unshare", "--mount", "--propagation", "private", "sh", "-c", script, *python.command[1:]]


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("host", SUPPORTED, ids=repr)
def test_in_interpreter(host, case, inside):
    script, env, scratch = inside(host)
    done = subprocess.run([*command_of(host), script, case, scratch], env=env, stdin=subprocess.DEVNULL,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=4 * WAIT)
    assert done.returncode == 0, done.stderr.decode()
    assert json.loads(done.stdout) == {}
    assert b"Sanitizer" not in done.stderr, done.stderr.decode()


@pytest.mark.parametrize("way", ["exit", "raise", "_exit", "kill"])
@pytest.mark.parametrize("host", SUPPORTED, ids=repr)
def test_no_process_is_left(host, way, inside):
    """However the interpreter exits, it leaves no profiler and no zombie."""
    script, env, _ = inside(host)
    process = subprocess.Popen([*command_of(host), script, "leaves", way], env=env, stdin=subprocess.PIPE,
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    try:
        own, other, sleeper = json.loads(process.stdout.readline())
        assert process_state(own) and process_state(other)
        process.stdin.write(b"\n")
        process.stdin.close()
        process.wait(WAIT)
        if way in ("exit", "raise"):  # an interpreter that exits normally has waited for them
            assert process_state(own) is None and process_state(other) is None
        # Otherwise they exit by themselves, and init reaps the orphans in its own time.
        wait_until(lambda: process_state(own) in (None, "Z") and process_state(other) in (None, "Z"), "both to end")
    finally:
        process.kill()
        process.wait()
        process.stdout.close()
        process.stderr.close()
        os.kill(sleeper, signal.SIGKILL)


def test_waits_for_gil(spawn):
    """The status is the one that the command line shows."""
    target = spawn(DEBIAN, "gil_waiters.py")
    at_rest(target.pid)
    target.resume()

    def reached():
        threads = spyglass.dump(target.pid)
        assert all(t.waits_for_gil == (t.status == "waiting for the GIL") for t in threads), threads
        return {t.name for t in threads if t.waits_for_gil} == {"MainThread", "waits"}

    wait_until(reached, "two threads that wait for the GIL")


HOSTILE = """
import json, os, sys, threading
name = "\\x1b[2J\\n\\u202e|"
def wait(argument, **more):
    value = {argument: more}
    no_locals()
def no_locals():
    print(json.dumps({"pid": os.getpid()}), flush=True)
    threading.Event().wait()
for thread_name in (name, ""):
    threading.Thread(target=lambda *rest: threading.Event().wait(), args=(name, 1), name=thread_name, daemon=True).start()
threading.current_thread().name = name
wait(name, **{name: name})
"""


SOURCE = """
# coding: utf-8
import os
def wait(fd):
\tnames = ["gr\xf6\xdfe", "\u6f22\x1b\u202e", os.read	(fd, 1), "e\u0301"]; return names
def several(fd): return list(
    wait(fd) for _ in "x")
print(1, flush=True)
result = [several(0), 1]
"""


def test_source(launch, tmp_path):
    """str(thread) is what the program prints; the fields have what is underlined there."""
    (tmp_path / "app.py").write_text(SOURCE, encoding="utf-8")
    target = launch([DEBIAN.command[0], tmp_path / "app.py"])
    printed = run("dump", "--source", "--no-waits", "--pid", at_rest(target.pid)).check().out.partition("\n\n")[2]
    thread, = spyglass.dump(target.pid, source=True, waits=False)
    assert "%s\n" % thread == printed and printed.count("^\n") == 4, printed
    frame = thread.frames[0]
    assert frame.source is not None and frame.source.encode()[frame.column:frame.end_column] == b"os.read\t(fd, 1)"
    assert frame.end_line == frame.line
    plain = spyglass.dump(target.pid)[0].frames[0]
    assert plain.source is plain.end_line is plain.column is plain.end_column is None


@pytest.mark.parametrize("waits", [True, False])
@pytest.mark.parametrize("level", [0, 1, 2])
def test_text_of_a_thread(launch, level, waits):
    """str(thread) and str(verdict) are what the program prints, also with variables, and as well escaped."""
    target = launch([DEBIAN.command[0], "-c", HOSTILE])
    at_rest(target.pid)
    flags = ["--no-waits"] * (not waits) + ["--locals"] * level
    printed = run("dump", "--pid", target.pid, *flags).check().out.partition("\n\n")[2]
    threads = spyglass.dump(target.pid, locals=level, waits=waits)
    verdict = "\n%s\n" % threads[0].verdict if waits else ""
    assert "".join("%s\n" % thread for thread in threads) + verdict == printed
    assert printed.count("\n  waits in Event.wait\n") == 3 * waits, printed
    assert ("        Arguments:\n            " in printed) == ("        Locals:\n            " in printed) == bool(level)
    assert "\x1b" not in printed and ("\\x1b" in printed)


def test_waits(spawn):
    """What each thread waits for, as the target knows it and as the program prints it."""
    target = spawn(DEBIAN, "hangs.py", "cycle2,dead,empty_queue,file_lock", "1")
    at_rest(target.pid)
    threads = spyglass.dump(target.pid)
    by_name = {thread.name: thread for thread in threads}
    for name, wanted in target.truth["waits"].items():
        found = by_name[name].waits_for.object
        assert (found.kind, found.name, found.certain) == (wanted["kind"], wanted["name"], True), found
        assert found.operation == wanted.get("operation"), found
        assert (found.owner is None) == ("owner" not in wanted), found
        if found.owner is not None:
            assert (found.owner.thread_name, found.owner.exited) == (wanted["owner"], wanted.get("exited", False)), found
            assert found.owner.certain == wanted.get("owner_certain", True), found
    for name, wanted in target.truth["others"].items():
        found = by_name[name].waits_for
        assert (found.system_call, [p.pid for p in found.processes]) == (wanted["system_call"], wanted["processes"]), found
        assert found.object is None and found.files[0].kind == "file" and found.n_files == 1, found
    (members, certain), = target.truth["cycles"]
    verdict = threads[0].verdict
    assert (verdict.kind, verdict.certain, verdict.others) == ("deadlock", certain, 0), verdict
    assert sorted(verdict.threads) == sorted(by_name[name].thread_id for name in members), verdict
    assert all(thread.verdict is None for thread in threads[1:])
    printed = run("dump", "--no-tasks", "--pid", target.pid).check().out
    assert printed.endswith("\n\n%s\n" % verdict) and all("\n%s\n" % thread in printed for thread in threads[1:]), printed
    assert pickle.loads(pickle.dumps(threads)) == threads
    bare = spyglass.dump(target.pid, waits=False)
    assert all(thread.waits_for is thread.verdict is None for thread in bare) and "waits" not in str(bare[1]).partition("\n")[2]
    assert {thread.hostname for thread in bare} == {os.uname().nodename}


THREAD = {"pid": 7, "thread_id": 8, "active": False, "owns_gil": False, "frames": []}
CHILD = {"pid": 9, "state": "S", "command_line": "make"}
LOCK = {"kind": "RLock", "name": "self._lock", "certain": True}
OWNER = {"thread_id": 255, "certain": True}
WAITS = [
    ({"system_call": "poll"}, "waits (poll)"),
    ({"kernel_function": "nfs_wait"}, "waits in nfs_wait"),
    ({"seconds_left": 9.96}, "waits, for another 10.0 s"),
    ({"seconds_left": 59.9}, "waits, for another 59 s"),
    ({"seconds_at_most": 200.5}, "waits, for at most 3 min 20 s"),
    ({"seconds_at_most": 7500}, "waits, for at most 2 h 5 min"),
    ({"files": [{"fd": 5}, {"fd": 6, "kind": "file", "name": "/\x1b"}, {"fd": 7, "kind": "pipe"}, {"fd": 8}], "n_files": 9},
     "waits: fd 5; fd 6 /\\x1b; fd 7 pipe; and 6 more"),
    ({"files": [{"fd": 5, "kind": "TCP", "local": "[::1]:2", "peer": "[::1]:3", "state": "ESTABLISHED", "other_end": [
        dict(CHILD, pid=7), CHILD]}]}, "waits: fd 5 TCP [::1]:2 -> [::1]:3 ESTABLISHED, other end in this process and process 9 (make)"),
    ({"files": [{"fd": 5, "kind": "file", "name": "/x"}], "processes": [CHILD]}, "waits: fd 5 /x, held by process 9 (make)"),
    ({"processes": [dict(CHILD, state="T")]}, "waits: process 9 (make), which is stopped by a signal"),
    ({"processes": [dict(CHILD, state="t", traced_by={"pid": 3, "command_line": "gdb"})]},
     "waits: process 9 (make), which is stopped, traced by process 3 (gdb)"),
    ({"what": "is stopped"}, "is stopped by a signal"),
    ({"what": "is stopped", "processes": [{"pid": 3, "command_line": "gdb"}]}, "is stopped, traced by process 3 (gdb)"),
    ({"processes": [dict(CHILD, state="Z")]}, "waits: process 9 (make), which has exited"),
    ({"processes": [dict(CHILD, system_call="read", waits_for_this_process=True)]},
     "waits: process 9 (make), which waits in read for this process"),
    ({"processes": [dict(CHILD, command_line="x" * 76), dict(CHILD, command_line="\u202e" + "x" * 70 + "\xe9")]},
     "waits: process 9 (%s) and process 9 (\\u202e%s...)" % ("x" * 76, "x" * 70)),
    ({"object": LOCK}, "waits for RLock self._lock"),
    ({"object": dict(LOCK, name=None, address="0x7f"), "seconds_at_most": 1}, "waits for RLock at 0x7f, for at most 1.0 s"),
    ({"object": dict(LOCK, owner=dict(OWNER, certain=False, thread_name="\n"))}, "waits for RLock self._lock, likely held by \\n"),
    ({"object": dict(LOCK, owner=dict(OWNER, exited=True))}, "waits for RLock self._lock, held by thread 0xFF, which no longer exists"),
    ({"object": {"kind": "import lock", "name": "json"}}, "waits for the import lock of module json"),
    ({"object": {"kind": "import lock"}}, "waits for the import lock"),
    ({"object": {"kind": "multiprocessing lock", "name": "x"}}, "waits for the multiprocessing lock x"),
    ({"object": {"kind": "thread", "name": "x", "owner": dict(OWNER, os_thread_id=12)}}, "waits for the end of thread thread 12"),
    ({"object": {"kind": "operation", "operation": "Queue.get", "name": "jobs"}}, "waits in Queue.get (jobs)"),
    ({"object": {"kind": "GPU", "operation": "cudaDeviceSynchronize"}}, "waits for the GPU: cudaDeviceSynchronize"),
    ({"object": {"kind": "collective", "operation": "all_reduce"}}, "waits for other ranks: all_reduce"),
    ({"object": {"kind": "of a later release", "name": "x"}}, "waits for of a later release x"),
]


def dump_with(tmp_path, threads, **options):
    """What dump() makes of this JSON, and the flags that it passed to the program."""
    program, answer, flags = tmp_path / "program", tmp_path / "answer", tmp_path / "flags"
    answer.write_text(json.dumps(threads))
    program.write_text("#!/bin/sh\necho \"$@\" > '%s'\ncat '%s'\n" % (flags, answer))
    program.chmod(0o755)
    return spyglass.dump(7, binary=str(program), **options), flags.read_text().split()


def test_text_of_waits(tmp_path):
    """The line of src/out/dump_wait.c, for each thing to wait for."""
    threads, _ = dump_with(tmp_path, [dict(THREAD, waits_for=dict({"what": "waits"}, **fields)) for fields, _ in WAITS])
    assert [str(thread).partition("\n  ")[2] for thread in threads] == [line for _, line in WAITS]
    assert str(threads[0].waits_for) == "waits (poll)" and len(set(threads)) == len(WAITS)
    source = (ROOT / "src" / "out" / "dump_wait.c").read_text()
    for words in (_wait._OPERATIONS, _wait._KINDS, _wait._STOPPED):
        assert [word for word in words.values() if '"%s"' % word not in source] == []


def test_dumps_of_other_programs(tmp_path):
    """An older spyglass and py-spy have none of it and know no flag for it; a later release may have more."""
    (thread,), flags = dump_with(tmp_path, [THREAD])
    assert (thread.waits_for, thread.verdict, thread.hostname, thread.rank, thread.rank_from) == (None,) * 5
    assert not [flag for flag in flags if "waits" in flag]
    job = {"hostname": "node7", "rank": 3, "rank_from": "RANK"}
    verdict = {"kind": "new", "certain": True, "text": "\x1b", "threads": [8], "others": 1, "more": 2}
    (thread,), flags = dump_with(tmp_path, [dict(THREAD, waits_for=None, verdict=verdict, **job)], waits=False)
    assert (thread.hostname, thread.rank, thread.rank_from) == ("node7", 3, "RANK") and "--no-waits" in flags
    assert thread.verdict == spyglass.Verdict("new", True, "\x1b", (8,), 1) and str(thread.verdict) == "\\x1b"
    for odd in ({"waits_for": "x"}, {"waits_for": {}}, {"verdict": {"kind": "GIL"}}, {"verdict": [1]}):
        with pytest.raises(spyglass.SpyglassError, match="cannot be parsed"):
            dump_with(tmp_path, [dict(THREAD, **odd)])


# ---- errors ----

def test_missing_program(tmp_path, monkeypatch):
    """The message says what to do, and the test imports nothing from the tree."""
    shutil.copytree(ROOT / "python" / "spyglass", tmp_path / "spyglass", ignore=shutil.ignore_patterns("__pycache__"))
    code = ("import pickle, spyglass\n"
            "for call in (spyglass.binary, spyglass.dump, spyglass.record, lambda: spyglass.Profile([(('f',), 1)]).render()):\n"
            "    try: call()\n"
            "    except FileNotFoundError as error: assert 'SPYGLASS_BINARY=' in str(error) and 'pip' in str(error), error\n"
            "    try: call()\n"
            "    except spyglass.SpyglassError as error: assert pickle.loads(pickle.dumps(error)).args == error.args\n"
            "    else: raise SystemExit('found')\n")
    env = clean_env(PYTHONPATH=str(tmp_path), PATH=str(tmp_path))
    subprocess.run([DEBIAN.command[0], "-I", "-c", "import sys; sys.path.insert(0, %r)\n%s" % (str(tmp_path), code)], env=env,
                   check=True, timeout=WAIT)
    done = subprocess.run([DEBIAN.command[0], "-m", "spyglass"], env=env, stderr=subprocess.PIPE, timeout=WAIT)
    assert done.returncode == 1 and b"SPYGLASS_BINARY=" in done.stderr
    for path in (str(tmp_path / "nothing"), str(tmp_path), "no-such-program"):
        monkeypatch.setenv("SPYGLASS_BINARY", path)
        with pytest.raises(FileNotFoundError, match="SPYGLASS_BINARY"):
            spyglass.binary()
    with pytest.raises(FileNotFoundError, match="binary names"):
        spyglass.record(binary=str(tmp_path / "nothing"))


def test_program_lookup(tmp_path, monkeypatch):
    assert spyglass.binary() == str(SPYGLASS)
    monkeypatch.delenv("SPYGLASS_BINARY")
    assert spyglass.binary() == str(ROOT / "build" / "spyglass")  # of a working copy
    assert spyglass.binary(str(SPYGLASS)) == str(SPYGLASS)
    done = subprocess.run([DEBIAN.command[0], "-m", "spyglass", "--version"], stdout=subprocess.PIPE, timeout=WAIT,
                          env=clean_env(PYTHONPATH=str(ROOT / "python"), SPYGLASS_BINARY=str(SPYGLASS)))
    assert done.returncode == 0 and done.stdout.decode().split() == ["spyglass", spyglass.__version__]


def test_untrusted_program_is_not_run(tmp_path):
    """A copy of the package elsewhere does not run a program from a `bin` directory above it, where anyone could
    have put one."""
    lib = tmp_path / "x" / "y" / "lib"
    shutil.copytree(ROOT / "python" / "spyglass", lib / "spyglass", ignore=shutil.ignore_patterns("__pycache__"))
    (tmp_path / "bin").mkdir()
    shutil.copy(SPYGLASS, tmp_path / "bin" / "spyglass")
    code = "import sys; sys.path.insert(0, %r); import spyglass; spyglass.binary()" % str(lib)
    done = subprocess.run([DEBIAN.command[0], "-c", code], env=clean_env(PATH=str(lib)), stderr=subprocess.PIPE, timeout=WAIT)
    assert done.returncode == 1 and b"ProgramNotFound" in done.stderr


def test_no_such_process():
    for call in (lambda: spyglass.dump(2**22 + 5), lambda: spyglass.record(2**22 + 5).start()):
        with pytest.raises(ProcessLookupError, match="Check that the process is running"):
            call()
        with pytest.raises(spyglass.SpyglassError) as caught:
            call()
        check_error(caught.value, ProcessLookupError, "no_process")
        assert caught.value.advice == "To list the Python processes, run: spyglass list"


def check_error(error, kind, code):
    """An error of the package: of both types, also after it was pickled; a line without advice for the command line."""
    copy = pickle.loads(pickle.dumps(error))
    for one in (error, copy):
        assert isinstance(one, kind) and isinstance(one, spyglass.SpyglassError)
        assert one.code == code and (one.status, one.command, one.advice) == (error.status, error.command, error.advice)
        assert str(one) == str(error) and "\n" not in str(one) and "--" not in str(one) and "sudo" not in str(one), str(one)


def test_not_python(launch):
    target = launch(["sleep", "1000"], ready=False)
    at_rest(target.pid)
    for call in (lambda: spyglass.dump(target.pid), lambda: spyglass.record(target.pid).start()):
        with pytest.raises(spyglass.SpyglassError, match="Failed to find python version") as caught:
            call()
        assert caught.value.status == 1 and caught.value.command[0] == str(SPYGLASS) and caught.value.code == "not_python"
        copy = pickle.loads(pickle.dumps(caught.value))
        assert str(copy) == str(caught.value) and copy.status == 1 and copy.command == caught.value.command
        assert copy.code == "not_python"
        check_error(caught.value, RuntimeError, "not_python")
        assert "add --subprocesses" in caught.value.advice


def test_bad_values(tmp_path):
    with pytest.raises(spyglass.SpyglassError, match="the rate must be") as caught:
        spyglass.record(rate=-1).start()
    assert caught.value.status == 2 and caught.value.code == "usage"
    for call in (lambda: spyglass.record(format="pdf"), lambda: spyglass.Profile(STACKS).render("pdf"),
                 lambda: spyglass.Profile(STACKS).save(tmp_path / "x.svg", "pdf")):
        with pytest.raises(ValueError, match="one of flamegraph, raw, speedscope, chrometrace, not 'pdf'"):
            call()
    for call in (lambda: spyglass.record(output="x.2.Pdf"), lambda: spyglass.Profile(STACKS).save(tmp_path / "x.2.Pdf")):
        with pytest.raises(ValueError, match=r"no format has the extension '.Pdf': use one of .svg \(flamegraph\), .trace.json"):
            call()
    assert list(tmp_path.iterdir()) == []
    check_error(caught.value, RuntimeError, "usage")
    with pytest.raises(spyglass.SpyglassError, match="does not exist"):
        spyglass.record(output=tmp_path / "nowhere" / "x.svg").start()
    for call in (spyglass.Recording.stop, spyglass.Recording.snapshot, spyglass.Recording.wait):
        with pytest.raises(RuntimeError, match="not been started"):
            call(spyglass.record())
    recording = spyglass.record()
    with pytest.raises(RuntimeError, match="has not stopped"):
        recording.profile
    recording.start()
    with pytest.raises(RuntimeError, match="only once"):
        recording.start()
    recording.stop()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody else")
def test_permission(spawn, inside, places):
    """An unprivileged user and a process of root: the error has the program's own message."""
    target = spawn(DEBIAN, "situations.py", "plain")
    _, env, _ = inside(DEBIAN)
    code = ("import sys, spyglass\n"
            "for call in (lambda pid: spyglass.dump(pid), lambda pid: spyglass.record(pid).start()):\n"
            "    try: call(int(sys.argv[1]))\n"
            "    except PermissionError as error: assert 'Permission Denied' in str(error) and 'belongs to another user' in str(error), error\n"
            "    else: raise SystemExit('allowed')\n"
            "    try: call(int(sys.argv[1]))\n"
            "    except spyglass.SpyglassError as error:\n"
            "        assert error.code == 'permission' and error.status == 1 and 'sudo' not in str(error), error\n"
            "        assert 'sudo' in error.advice or 'SYS_PTRACE' in error.advice, error.advice\n")
    subprocess.run(["setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups", DEBIAN.command[0], "-c", code,
                    str(target.pid)], env=env, check=True, timeout=WAIT)


def test_program_hangs_or_crashes(tmp_path, monkeypatch):
    """Whatever the child does, the package raises an error and ends the child."""
    program = tmp_path / "program"

    def say(script):
        program.write_text("#!/bin/sh\n" + script)
        program.chmod(0o755)

    say("kill -SEGV $$\n")
    with pytest.raises(spyglass.SpyglassError, match="killed by signal 11"):
        spyglass.dump(1, binary=str(program))
    with pytest.raises(spyglass.SpyglassError, match="killed by signal 11"):
        spyglass.record(1, binary=str(program)).start()
    say("echo '[{]'\n")
    with pytest.raises(spyglass.SpyglassError, match="cannot be parsed"):
        spyglass.dump(1, binary=str(program))
    say("exec sleep 1000\n")
    with pytest.raises(TimeoutError, match="within 0.5 seconds"):
        spyglass.dump(1, binary=str(program), timeout=0.5)
    with pytest.raises(spyglass.SpyglassError, match="within 0.5 seconds") as caught:
        spyglass.dump(1, binary=str(program), timeout=0.5)
    check_error(caught.value, TimeoutError, None)
    monkeypatch.setattr("spyglass._record.START_PATIENCE", 0.5)
    recording = spyglass.record(1, binary=str(program))
    with pytest.raises(TimeoutError, match="did not start within") as caught:
        recording.start()
    check_error(caught.value, TimeoutError, None)
    assert recording._process.returncode == -9
    program.write_text("not a program")
    for call in (lambda: spyglass.dump(1, binary=str(program)), lambda: spyglass.record(1, binary=str(program)).start(),
                 lambda: spyglass.Profile(STACKS).render(binary=str(program))):
        with pytest.raises(spyglass.SpyglassError, match="cannot start .*program: Exec format error") as caught:
            call()
        check_error(caught.value, OSError, None)


def test_errors_of_clusters():
    """The modules for clusters cannot be imported without theirs; their errors can."""
    from spyglass import _cluster, _errors
    error = _cluster.error_of("it failed", {"tcp://1": "Error: one", "tcp://2": "two", "tcp://3": "three"},
                              {"tcp://1": "add --x", "tcp://2": "add --x", "other": "not this"})
    for one in (error, pickle.loads(pickle.dumps(error))):
        assert isinstance(one, spyglass.SpyglassError) and one.advice == "add --x" and len(one.problems) == 3
        assert str(one) == "it failed\ntcp://1: Error: one\ntcp://2: two\ntcp://3: three"
    assert _cluster.error_of("it failed", {"a": "b"}).advice is None
    assert _cluster.failure(KeyError()) == {"error": "KeyError", "advice": None}
    assert _cluster.failure(error) == {"error": str(error), "advice": "add --x"}
    check_error(_errors.NotReachable("no cluster"), ConnectionError, None)
    check_error(_errors.OutputNotWritable("cannot write"), OSError, None)


@pytest.mark.parametrize("name", ["ray", "dask"])
def test_errors_of_cluster_modules(name):
    """One `except` is enough for them too."""
    code = ("import sys\nfrom unittest import mock\n"
            "sys.modules.update({name: mock.MagicMock(__path__=[], WorkerPlugin=object) for name in ('ray', 'distributed')})\n"
            "import spyglass, spyglass.%s as module\n"
            "assert issubclass(module.ClusterError, spyglass.SpyglassError)\n" % name)
    if name == "ray":  # the command prints the advice; the Python functions return it
        code += ("try: module._check_place('/nonexistent/x.svg')\n"
                 "except spyglass.SpyglassError as error: assert isinstance(error, OSError), error\n"
                 "try: module._check_reachable('127.0.0.1:1', 5)\n"
                 "except spyglass.SpyglassError as error: assert isinstance(error, ConnectionError), error\n"
                 "module.dump = lambda **options: module.ClusterDump([], {'a': 'denied', 'b': 'late'}, {'a': 'Run as root'})\n"
                 "assert module.main(['dump']) == 1\n")
    done = subprocess.run([DEBIAN.command[0], "-c", code], env=clean_env(PYTHONPATH=str(ROOT / "python")), stderr=subprocess.PIPE)
    assert done.returncode == 0, done.stderr.decode()
    if name == "ray":
        assert done.stderr.decode().splitlines() == ["Skipped: a: denied", "Run as root", "Skipped: b: late",
                                                     "Error: no worker could be read"]


def test_errors_without_events():
    """`merge` reports errors on standard error only: a message, then advice."""
    with pytest.raises(spyglass.SpyglassError, match="rate") as caught:
        spyglass.Profile(STACKS, rate=-1).render()
    check_error(caught.value, RuntimeError, None)
    assert "--help" in caught.value.advice and caught.value.status == 2


def test_killed_profiler(spawn):
    """The messages that are no errors do not hide why the recording failed."""
    recording = spyglass.record(spawn(DEBIAN, "busy.py").pid).start()
    recording._process.kill()
    with pytest.raises(spyglass.SpyglassError, match="killed by signal 9"):
        recording.stop()


def test_another_program(tmp_path):
    """An older spyglass, or py-spy itself, has no --status-fd."""
    program = tmp_path / "program"
    program.write_text("#!/bin/sh\necho \"error: unknown flag '--status-fd'\" >&2; exit 2\n")
    program.chmod(0o755)
    for call in (lambda: spyglass.dump(1, binary=str(program)), lambda: spyglass.record(1, binary=str(program)).start()):
        with pytest.raises(spyglass.SpyglassError, match="older spyglass") as caught:
            call()
        assert caught.value.code == "incompatible" and caught.value.status == 2 and str(program) in str(caught.value)


def test_events_that_are_odd(tmp_path):
    """Lines that are no events, events of a later version, and an end without one."""
    program = tmp_path / "program"
    program.write_text("#!/bin/bash\ntrap '' INT TERM\nfd=$3\n"
                       "printf '%s\\n' nonsense '[1]' '{\"event\":\"new\",\"version\":2}' >&$fd\n"
                       "printf '{\"event\":\"rea' >&$fd; sleep 0.3; printf 'dy\",\"version\":1}\\n' >&$fd\nexit 7\n")
    program.chmod(0o755)
    recording = spyglass.record(1, binary=str(program)).start()
    with pytest.raises(spyglass.SpyglassError, match="exited with status 7"):
        recording.stop()


def test_snapshot_that_fails(spawn, tmp_path):
    """The recording goes on; the next snapshot is a new one."""
    target = spawn(DEBIAN, "busy.py")
    place = tmp_path / "place"
    place.mkdir()
    recording = spyglass.record(target.pid, output=place / "out.txt").start()
    place.rename(tmp_path / "other")
    with pytest.raises(spyglass.SpyglassError) as caught:
        recording.snapshot()
    assert caught.value.code == "output" and recording.running
    (tmp_path / "other").rename(place)
    wait_until(lambda: recording.snapshot().samples > 0, "samples")
    assert recording.stop().samples > 0


def test_closed_streams():
    """In a daemon the numbers 0 to 2 may be free: the pipe must not get them."""
    code = ("import os, sys\nsys.path.insert(0, %r)\nimport spyglass\nout = os.dup(1)\n"
            "for fd in (0, 1, 2): os.close(fd)\n"
            "names = [frame.name for frame in spyglass.dump()[0].frames]\n"
            "try: spyglass.dump(2**22 + 5)\n"
            "except ProcessLookupError: os.write(out, names[-1].encode())\n" % str(ROOT / "python"))
    done = subprocess.run([DEBIAN.command[0], "-c", code], env=clean_env(SPYGLASS_BINARY=str(SPYGLASS)),
                          stdout=subprocess.PIPE, timeout=WAIT)
    assert done.stdout == b"<module>", done


def test_ptracer(tmp_path, monkeypatch):
    """Calls prctl only where Yama requires it, with the PID of the caller."""
    calls = []

    class Libc:
        def __init__(self, *args, **options):
            self.prctl = lambda *args: calls.append([getattr(a, "value", a) for a in args])

    monkeypatch.setattr(_ptracer.ctypes, "CDLL", Libc)
    for text, wanted in (("0\n", False), ("1\n", True), ("2\n", False), (None, False)):
        scope = tmp_path / "scope"
        if text is None:
            scope.unlink()
        else:
            scope.write_text(text)
        monkeypatch.setattr(_ptracer, "SCOPE", str(scope))
        calls.clear()
        _ptracer.allow_children()
        assert calls == ([[0x59616D61, os.getpid(), 0, 0, 0]] if wanted else []), text


def test_asyncio(spawn):
    """True: a running task is below those that await it. "all": waiting tasks, too."""
    def has(name):
        stacks = [";".join(frames) for frames, _ in recording.snapshot().stacks]
        return any(";" + name in stack and "run_forever" not in stack for stack in stacks)

    with spyglass.record(spawn(DEBIAN, "await_chains.py").pid, rate=500, asyncio=True) as recording:
        wait_until(lambda: has("query (await_chains.py:"), "a running task")
    with spyglass.record(spawn(DEBIAN, "await_all.py").pid, asyncio="all") as recording:
        wait_until(lambda: has("[waiting for a lock]"), "a waiting task")
    with pytest.raises(ValueError, match="asyncio is False, True or 'all', not 'none'"):
        spyglass.record(asyncio="none")


# ---- profiles ----

STACKS = [(("<module> (a.py:6)", "f (a.py:3)"), 99), (("<module> (a.py:6)",), 2), (("g (lib/b.py:7)",), 40)]


def test_profile(tmp_path):
    profile = spyglass.Profile(STACKS + STACKS[:1])
    assert profile.samples == 240 and dict(profile.stacks)[STACKS[0][0]] == 198
    assert profile.to_raw().splitlines()[0] == "<module> (a.py:6);f (a.py:3) 198"
    profile.save(tmp_path / "p.txt")
    assert spyglass.Profile.load(tmp_path / "p.txt").stacks == profile.stacks
    assert spyglass.Profile.from_raw("").stacks == [] and spyglass.Profile.from_raw("a;b 3\r\n\n").stacks == [(("a", "b"), 3)]
    copy = pickle.loads(pickle.dumps(profile))
    assert copy.stacks == profile.stacks and repr(copy) == "<spyglass.Profile: 240 samples in 3 stacks>"
    # Characters that would break a line are replaced.
    odd = spyglass.Profile([(("a;b\n", "", "c\r\u2028d"), 1), ((), 2), (("\udc80",), 3)])
    assert odd.to_raw() == "a:b ;?;c  d 1\n? 2\n\udc80 3\n"
    assert spyglass.Profile.from_raw(odd.data.decode()).samples == 6


@pytest.mark.parametrize("text", ["a", "a b", "a 1\nb", "12", " 12", "a -1", "a 1.0", "a 1111111111111111111"])
def test_invalid_profile(text, tmp_path):
    (tmp_path / "x.txt").write_text(text)
    with pytest.raises(ValueError, match="x.txt: line %d is not a line" % (text.count("\n") + 1)):
        spyglass.Profile.load(tmp_path / "x.txt")


def test_profile_formats(tmp_path):
    profile = spyglass.Profile(STACKS, rate=50)
    profile.save(tmp_path / "p.svg", title="a <title>")
    texts = [e.text for e in xml.etree.ElementTree.parse(tmp_path / "p.svg").iter("{http://www.w3.org/2000/svg}title")]
    assert texts[0] == "a <title>" and "f (a.py:3) (99 samples, 70.21%)" in texts
    profile.save(tmp_path / "p.json")
    shown = json.loads((tmp_path / "p.json").read_text())
    assert [p["endValue"] for p in shown["profiles"]] == [141 / 50]
    profile.save(tmp_path / "p.trace.json")
    assert {e["name"] for e in json.loads((tmp_path / "p.trace.json").read_text()) if e["ph"] == "B"} == {"<module>", "f", "g"}
    profile.save(tmp_path / "p.bin", format="SPEEDSCOPE")
    assert json.loads((tmp_path / "p.bin").read_text()) == shown
    for name in ("p.2", "python3.11", ".hidden", "plain"):
        profile.save(tmp_path / name)
        assert b"<!DOCTYPE svg" in (tmp_path / name).read_bytes()
        (tmp_path / name).unlink()
    umask = os.umask(0o027)
    try:
        profile.save(tmp_path / "mode.txt")
    finally:
        os.umask(umask)
    assert (tmp_path / "mode.txt").stat().st_mode & 0o777 == 0o640
    spyglass.Profile([]).save(tmp_path / "none.svg")
    assert b"No stack counts found" in (tmp_path / "none.svg").read_bytes()
    with pytest.raises(FileNotFoundError):
        profile.save(tmp_path / "nowhere" / "p.txt")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["mode.txt", "none.svg", "p.bin", "p.json", "p.svg", "p.trace.json"]


SVG = "{http://www.w3.org/2000/svg}"


def test_picture_in_a_notebook():
    """A flame graph without script, as an element of its own; its style applies to nothing else in the page."""
    picture = spyglass.Profile(STACKS + [(("</script>", "<script>alert(1)"), 50)], title="a <title>")._repr_svg_()
    top = xml.etree.ElementTree.fromstring(picture)
    assert picture.startswith("<svg ") and top.tag == SVG + "svg" and "script" not in {e.tag.replace(SVG, "") for e in top.iter()}
    assert (top.get("width"), top.get("viewBox").split()[:3]) == ("1000", ["0", "0", "1200"])
    texts = [e.text for e in top.iter(SVG + "text")]
    assert "f (a.py:3)" in texts and "a <title>" in texts and "<script>alert(1)" in texts
    style = next(top.iter(SVG + "style")).text
    selectors = [s.strip() for group in re.findall(r"([^{}/]+)\{", style) for s in group.split(",")]
    assert len(selectors) > 10
    assert all(s.startswith((".spyglass-flamegraph", "@media")) for s in selectors), selectors


def test_large_picture_in_a_notebook():
    """Omits the narrowest frames and says so. What it shows hangs together and fits."""
    wide = [(("root (r.py:1)",) + tuple("f%d_%s (x.py:%d)" % (i, "n" * 200, k) for k in range(30)), 1) for i in range(200)]
    deep = [(tuple("d_%s (y.py:%d)" % ("n" * 300, k) for k in range(3000)), 100)]
    for stacks in (wide, deep):
        profile = spyglass.Profile(stacks)
        picture = profile._repr_svg_()
        assert len(profile.render()) > 1_000_000 and len(picture.encode()) < 610_000
        top = xml.etree.ElementTree.fromstring(picture)
        frames = top.find(SVG + "svg")
        rows = [int(rect.get("y")) for rect in frames.iter(SVG + "rect")]
        assert set(range(0, max(rows) + 1, 18)) == set(rows) and int(frames.get("height")) == max(rows) + 18
        assert int(top.get("viewBox").split()[3]) == max(rows) + 18 + 94
        assert re.search(r"· \d+ smallest or deepest frames not shown here", picture)


def test_no_picture(tmp_path, monkeypatch):
    """Without the program, and for a file of another format, a notebook shows repr()."""
    assert spyglass.Profile([])._repr_svg_().count("No stack counts found") == 1
    assert spyglass.Profile(STACKS, rate=-1)._repr_svg_() is None
    assert spyglass.Profile._finished(b"{}", "speedscope", 3)._repr_svg_() is None
    picture = spyglass.Profile._finished(spyglass.Profile(STACKS).render(), "flamegraph", 3)._repr_svg_()
    assert picture == spyglass.Profile(STACKS)._repr_svg_()
    for path in (tmp_path / "none", tmp_path):
        monkeypatch.setenv("SPYGLASS_BINARY", str(path))
        assert spyglass.Profile(STACKS)._repr_svg_() is None


def test_formats_of_the_program(tmp_path):
    """The package has the formats of the program, and each extension selects the same one."""
    listed = re.search(r"--format FORMAT +Output format: ([\w, ]*\w)", run("record", "--help").check().out).group(1).split(", ")
    assert list(typing.get_args(spyglass.Format)) == listed == list(_formats.FORMATS)
    raw = tmp_path / "raw.txt"
    raw.write_text(spyglass.Profile(STACKS).to_raw())
    hint = run("merge", "-o", tmp_path / "x.pdf", raw).err
    assert re.findall(r"(\.[\w.]+) \((\w+)\)", hint) == list(_formats.ENDINGS), hint
    for ending, format in _formats.ENDINGS:
        place = tmp_path / ("out" + ending.upper())
        run("merge", "-o", place, raw).check()
        data = place.read_bytes()
        spyglass.Profile(STACKS, title="raw.txt").save(place)
        assert format == _formats.format_of(place) and place.read_bytes()[:8] == data[:8], ending


def test_merge(tmp_path):
    one, two = spyglass.Profile(STACKS, rate=50, errors=1), spyglass.Profile(STACKS[:1], rate=50, errors=2)
    profile = spyglass.merge([("node 1", one), (["node 2", "worker 7"], two), ("node 1", two)], title="both")
    assert profile.samples == one.samples + 2 * two.samples and profile.errors == 5 and profile.rate == 50
    stacks = dict(profile.stacks)
    assert stacks[("node 1",) + STACKS[0][0]] == 198 and stacks[("node 2", "worker 7") + STACKS[0][0]] == 99
    shown = json.loads(profile.render("speedscope"))
    assert [(p["name"], p["endValue"]) for p in shown["profiles"]] == [("node 1", 240 / 50), ("node 2 / worker 7", 99 / 50)]
    assert shown["name"] == "both"
    assert spyglass.merge([]).stacks == []
    with pytest.raises(ValueError, match="format='raw'"):
        spyglass.merge([("x", spyglass.Profile._finished(b"", "speedscope", 0))])


# ---- types and examples ----

@pytest.mark.skipif(SANITIZED, reason="nothing of it depends on the program")
@pytest.mark.parametrize("version", ["3.8", "3.13"])
@pytest.mark.parametrize("checker, package, flags", [
    ("mypy", "mypy==1.13.0", ["--cache-dir", os.devnull, "--python-version"]),
    pytest.param("pyright", "pyright[nodejs]==1.1.390", ["--warnings", "--pythonversion"], marks=pytest.mark.full),
], ids=["mypy", "pyright"])
def test_types(checker, package, flags, version):
    """Both are strict: see pyproject.toml. pyright loads more from the network when it first runs."""
    made = subprocess.run([ROOT / "tools" / "venv", checker, package], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert made.returncode == 0, made.stderr.decode()
    command = pathlib.Path(made.stdout.decode().strip(), "bin", checker)
    done = subprocess.run([command, *flags, version], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          env=clean_env(PYRIGHT_PYTHON_IGNORE_WARNINGS="1"))
    assert done.returncode == 0, done.stdout.decode()


def python_blocks():
    text = (ROOT / "docs" / "python.md").read_text()
    return [part.split("```")[0] for part in text.split("```python\n")[1:]]


# Works for a second, and until each profiler that this process started has woken twenty times.
WORK = """
import os, time
def wakes():
    found = {}
    for entry in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open("/proc/%s/status" % entry, errors="replace") as status, open("/proc/%s/cmdline" % entry) as command:
                fields = dict(line.split(":", 1) for line in status.read().split("\\n") if ":" in line)
                if int(fields["PPid"]) == os.getpid() and "record" in command.read().split("\\0"):
                    found[entry] = int(fields["voluntary_ctxt_switches"])
        except (OSError, KeyError):
            pass
    return found
def work():
    before, end = wakes(), time.monotonic() + 1
    while time.monotonic() < end or any(n < before.get(pid, 0) + 20 for pid, n in wakes().items()): sum(range(100))
"""


@pytest.mark.parametrize("number", range(len(python_blocks())))
def test_examples(number, spawn, tmp_path):
    """Each example of docs/python.md runs as written; `pid` and `work` are what the text says they are."""
    target = spawn(DEBIAN, "busy.py")
    code = "pid = %d\n%swork_for_a_while = work\n%s" % (target.pid, WORK, python_blocks()[number])
    env = clean_env(PYTHONPATH=str(ROOT / "python"), SPYGLASS_BINARY=str(SPYGLASS))
    done = subprocess.run([DEBIAN.command[0], "-c", code], cwd=tmp_path, env=env, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, timeout=WAIT)
    assert done.returncode == 0, done.stdout.decode()
