"""--native with other flags and in other states: locals, all threads, child processes, stopped, traced, perf
trampolines."""
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys

import pytest
from native_stacks import check_native, directory, python_only, settle
from processes import at_rest, task_states
from profiles import raw_stacks, record_enough, record_native
from program import PY_SPY, SPYGLASS, WAIT, run, start, wait_until
from pythons import DEBIAN, NEWEST_HOST, PYTHONS, ROOT
from stacks import parse_text, rows

BOTH = pytest.mark.parametrize("program", [SPYGLASS, PY_SPY], ids=["spyglass", "py-spy"])


@pytest.fixture
def spawn_c(spawn):
    """spawn_c(python, "alternate") -> Target in that situation of native_c.py."""
    def go(python, situation, **options):
        target = spawn(python, "native_c.py", directory(python, "spy_c"), "spy_c", situation, **options)
        settle(target, situation)
        return target

    return go


def dump(pid, *flags):
    return json.loads(run("dump", "--pid", pid, "--json", *flags).check().out)


# ---- flags ----

@BOTH
@pytest.mark.parametrize("flag", ["--native", "--native-all"])
def test_record_nonblocking(program, flag):
    result = run("record", "-o", "never", flag, "--nonblocking", "--pid", "1", program=program).check(2)
    assert "--native and --nonblocking" in result.err and not result.out and not os.path.exists("never"), result


def test_locals(spawn_c, python):
    """The locals of the Python frames equal those of a dump without native frames."""
    target = spawn_c(python, "alternate")
    both, plain = dump(target.pid, "--native", "-l"), dump(target.pid, "-l")
    check_native(target, json.dumps(both))
    kept = python_only(both[0]["frames"])
    assert kept == plain[0]["frames"]
    rest = next(f for f in kept if f["name"] == "rest")
    found = {v["name"]: v["repr"] for v in rest["locals"]}
    assert found["mode"] in ("'poll'", '"poll"') and found["depth"] == "1", found
    assert all(not f["locals"] for f in both[0]["frames"] if f["module"])
    text = run("dump", "--pid", target.pid, "--native", "-l").check().out
    lines = text.splitlines()
    at = next(i for i, line in enumerate(lines) if line.strip().startswith("rest ("))
    assert lines[at - 1].strip().startswith("spy_c_spin (") and any("depth: 1" in line for line in lines[at:at + 8]), text


def test_modules(spawn_c, python):
    """Each native frame names its file."""
    target = spawn_c(python, "sort")
    frames = dump(target.pid, "--native")[0]["frames"]
    by_name = {f["name"]: f["module"] for f in frames}
    assert by_name["sort_outer"].endswith("/spy_c.so") and by_name["rest"] is None, by_name
    assert any("/libc" in (f["module"] or "") for f in frames), by_name


def test_all(spawn_c, python):
    """--native-all shows the interpreter's own functions, and a thread without Python frames."""
    target = spawn_c(python, "thread")
    few, all_ = dump(target.pid, "--native"), dump(target.pid, "--native-all")
    check_native(target, json.dumps(all_))
    worker = next(t for t in target.truth["threads"] if not t["main"])
    assert [t["os_thread_id"] for t in few] == [target.pid]
    other = next(t for t in all_ if t["os_thread_id"] == worker["os_id"])
    assert other["thread_name"] == "native-worker" and not other["active"] and not python_only(other["frames"])
    main = next(t for t in all_ if t["os_thread_id"] == target.pid)["frames"]
    assert main[-1]["name"] == "_start", main
    assert len(main) > len(few[0]["frames"]) + 4
    text, = parse_text(run("dump", "--pid", target.pid, "--native-all").check().out)
    assert {t["os_id"]: t["name"] for t in text["threads"]}[worker["os_id"]] == "native-worker"


def test_record_all(spawn_c, tmp_path, python):
    target = spawn_c(python, "thread")
    stacks, _ = record_native(target, tmp_path / "out", "raw", 20, "--native-all", "--idle", "--threads")
    names = {stack[0].rpartition(": ")[2]: stack for stack in stacks}
    assert len(names) == 2, names
    worker = names.pop("native-worker")
    main, = names.values()  # without the module threading, the main thread has no name
    assert [n for n in worker if n.startswith("worker_")] == ["worker_main", "worker_loop", "worker_wait"], worker
    assert "_start" in main and "spin_here" in main, main


@pytest.mark.parametrize("situation, name, function", [("by_turns", "by-turns", "in_turn"),
                                                       ("named_by_turns", "named-in-python", "in_named_turn")])
def test_one_root(spawn_c, tmp_path, python, situation, name, function):
    """A thread that has a Python thread state now and then has one root: under Python's name, else the kernel's."""
    target = spawn_c(python, situation)

    def both(text):
        stacks = raw_stacks(text)
        return (any(part.endswith(function) for stack in stacks for part in stack) and
                any("worker_by_turns" in stack and "call_outer" not in stack for stack in stacks))

    text, _ = record_enough(both, "--pid", target.pid, "--native-all", "--threads", "-f", "raw", out=tmp_path / "out")
    stacks = raw_stacks(text)
    workers = {stack[0] for stack in stacks if not stack[0].startswith("thread (%d)" % target.pid)}
    assert len(workers) == 1 and workers.pop().endswith("): " + name), stacks


def test_native_on_busy_core(spawn_c, tmp_path):
    """A thread without Python that competes for its core: its CPU time used to belong to no stack."""
    target, out = spawn_c(DEBIAN, "busy_thread"), tmp_path / "out"
    core = {min(os.sched_getaffinity(0))}
    for tid in os.listdir("/proc/%d/task" % target.pid):
        os.sched_setaffinity(int(tid), core)
    others = [subprocess.Popen([sys.executable, "-c", "import os; os.sched_setaffinity(0, %r)\nwhile 1: pass" % core])
              for _ in range(2)]
    try:
        result = run("record", "--pid", target.pid, "--native-all", "-f", "raw", "-d", 4, "-o", out).check()
    finally:
        for other in others:
            other.kill()
            other.wait()
    assert float(re.search(r"([\d.]+)% attributed", result.messages).group(1)) > 50, result


def test_kernel_name(spawn_c, tmp_path, python):
    """A thread without a name in Python has the kernel's name; under the name py-spy it has none."""
    target = spawn_c(python, "thread_with_python")
    worker = next(t["os_id"] for t in target.truth["threads"] if not t["main"])
    comm = pathlib.Path("/proc/%d/task/%d/comm" % (target.pid, worker)).read_text().rstrip("\n")
    assert {t["os_thread_id"]: t["thread_name"] for t in dump(target.pid)}[worker] == comm
    stacks, _ = record_native(target, tmp_path / "out", "raw", 10, "--idle", "--threads")
    assert "thread (%d): %s" % (worker, comm) in {stack[0] for stack in stacks}
    shown = json.loads(run("dump", "--pid", target.pid, "--json", program=PY_SPY).check().out)
    assert {t["os_thread_id"]: t["thread_name"] for t in shown}[worker] is None


def test_gil(spawn_c, tmp_path, python):
    """--gil counts the thread that computes in C with the GIL, but not the one that released it."""
    stacks, _ = record_native(spawn_c(python, "busy_with_gil"), tmp_path / "out", "raw", 20, "--gil")
    assert all("spin_here" in stack and stack[:2] == ("<module>", "main") for stack in stacks), stacks
    result = run("record", "--native", "--gil", "-d", "0.5", "-f", "raw", "-o", tmp_path / "none", "--pid",
                 spawn_c(python, "busy").pid)
    assert "no thread held the GIL" in result.messages, result


@pytest.mark.parametrize("flag", ["--native", "--native-all"])
def test_subprocesses(spawn, tmp_path, python, flag):
    """Child processes have native frames too."""
    target = spawn(python, "child_processes.py", "parent")
    for pid in {t["pid"] for t in dump(target.pid, "--subprocesses")}:
        at_rest(pid)
    plain = {t["os_thread_id"]: rows(t["frames"]) for t in dump(target.pid, "--subprocesses")}
    found = {t["os_thread_id"]: t["frames"] for t in dump(target.pid, "--subprocesses", flag)}
    assert len(plain) >= 4 and set(plain) <= set(found)
    for thread, frames in plain.items():
        assert rows(python_only(found[thread])) == frames
        assert found[thread][0]["module"], found[thread]  # they wait in the C library
    if flag == "--native-all":
        return
    record_native(target, tmp_path / "out", "raw", lambda stacks: len(
        {part for stack in stacks for part in stack if part.startswith("process ")}) >= 4, "--subprocesses", "--idle")


# ---- states ----

def test_stopped(spawn_c, tmp_path, python):
    """Stopped by another process: spyglass reads it, and it stays stopped."""
    target = spawn_c(python, "alternate")
    os.kill(at_rest(target.pid), signal.SIGSTOP)
    wait_until(lambda: set(task_states(target.pid)) == {"T"}, "stopped")
    for _ in range(3):
        check_native(target, run("dump", "--pid", target.pid, "--native", "--json").check().out)
        wait_until(lambda: set(task_states(target.pid)) == {"T"}, "still stopped")
    stacks, _ = record_native(target, tmp_path / "out", "raw", 10, "--idle")
    assert all("spin_here" in stack for stack in stacks), stacks
    os.kill(target.pid, signal.SIGCONT)
    wait_until(lambda: set(task_states(target.pid)) == {"S"}, "going on")
    check_native(target, run("dump", "--pid", target.pid, "--native", "--json").check().out)


@pytest.mark.skipif(not shutil.which("strace"), reason="strace is not installed")
@pytest.mark.parametrize("situation", ["alternate", "busy"])
def test_traced(spawn_c, tmp_path, python, situation):
    """Another process traces the target: dump shows the Python frames, and says why if there are no native ones. There are if the
    thread sleeps."""
    target = spawn_c(python, situation)
    tracer = start("-q", "-o", "/dev/null", "-p", target.pid, program=shutil.which("strace"))
    status = pathlib.Path("/proc/%d/status" % target.pid)
    wait_until(lambda: "TracerPid:\t%d\n" % tracer.pid in status.read_text(), "traced")
    try:
        if situation != "busy":
            at_rest(target.pid)
        result = run("dump", "--pid", target.pid, "--native", "--json").check()
        frames = json.loads(result.out)[0]["frames"][::-1]
        true = [name for name, file, _ in target.truth["threads"][0]["stack"] if file]
        if situation == "busy" and not any(f["module"] for f in frames):
            assert [f["name"] for f in frames] == true
            assert "shown without native frames" in result.err and "could not pause the process" in result.err, result
        else:  # if the busy thread happens to be in a tracing stop, dump reads its registers
            check_native(target, result.out)
            assert "shown without native frames" not in result.err, result
        result = run("record", "--native", "--idle", "-d", "0.5", "-f", "raw", "-o", tmp_path / "out", "--pid", target.pid).check()
        stacks = raw_stacks((tmp_path / "out").read_text())
        assert all([name for name in stack if name in true] == true for stack in stacks), (stacks, result)
        # A running thread need not be stopped if perf provides its registers.
        assert ("have no native frames" in result.messages) == (tuple(true) in stacks), (stacks, result)
    finally:
        tracer.terminate()
        tracer.communicate()
    check_native(target, run("dump", "--pid", target.pid, "--native", "--json").check().out)


# ---- an unknown stack ----

def test_handler_stack(launch, tmp_path):
    """A signal handler on its own stack is shown, although nothing says where that stack ends."""
    library = tmp_path / "handler.so"
    subprocess.run(["gcc", "-g", "-O1", "-shared", "-fPIC", "-o", library, ROOT / "tests/native/handler_stack.c"], check=True)
    target = launch([*DEBIAN.command, "-c", "import ctypes, os\nlibrary = ctypes.PyDLL(%r)\ndef calls():\n    os.write(1, b'{}\\n')\n"
                                            "    library.handler_run()\ncalls()" % str(library)])
    wait_until(lambda: "handler_spins" in run("dump", "--pid", target.pid, "--native").check().out, "the handler")
    stacks, _ = record_native(target, tmp_path / "out", "raw", 10)
    assert all(stack[-2:] == ("handler_outer", "handler_spins") and "calls" in stack for stack in stacks), stacks


# ---- -X perf trampolines ----

NEW = [p for p in PYTHONS if p.version >= (3, 12)]
TRAMPOLINE = ("py::", "py_trampoline", "[unnamed code")


@pytest.fixture
def no_maps_left():
    """Removes the perf maps, which Python leaves behind when it is killed."""
    pids = []
    yield pids.append
    for python in PYTHONS:
        for pid in pids:
            for name in ("perf-%d.map", "jit-%d.dump"):
                try:
                    (python.root / "tmp" / (name % pid)).unlink()
                except FileNotFoundError:
                    pass


@pytest.mark.parametrize("situation", ["alternate", "busy_with_gil", "thread_with_python"])
@pytest.mark.parametrize("mode", ["perf", "perf_jit"])
@pytest.mark.parametrize("new", NEW, ids=repr)
def test_perf(spawn_c, no_maps_left, new, mode, situation):
    if mode == "perf_jit" and new.version < (3, 13):
        pytest.skip("3.12 has no perf_jit")
    target = spawn_c(new, situation, flags=["-X", mode])
    no_maps_left(target.pid)
    text = run("dump", "--pid", target.pid, "--native", "--json").check().out
    check_native(target, text)
    assert not [f["name"] for t in json.loads(text) for f in t["frames"] if f["name"].startswith(TRAMPOLINE)]
    text = run("dump", "--pid", target.pid, "--native-all", "--json").check().out
    names = [f["name"] for f in json.loads(text)[0]["frames"]]
    if mode == "perf":
        assert sum(name.startswith("py::main:") for name in names) == 1, names
    else:
        assert any(name.startswith("[unnamed code") for name in names), names


@pytest.mark.skipif(NEWEST_HOST is None or NEWEST_HOST.version < (3, 12), reason="no Python on this machine has -X perf")
def test_perf_in_namespace(launch, script, no_maps_left):
    """The name of the perf map has the PID in the target's PID namespace."""
    python = NEWEST_HOST
    try:
        subprocess.run(["unshare", "-pf", "true"], check=True, stderr=subprocess.DEVNULL)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("needs unshare and the right to make namespaces")
    outer = launch(["unshare", "-pf", "--kill-child", *python.command, "-X", "perf", script(python, "native_c.py"),
                    directory(python, "spy_c"), "spy_c", "alternate"])
    pid = int(pathlib.Path("/proc/%d/task/%d/children" % (outer.pid, outer.pid)).read_text())
    no_maps_left(outer.truth["pid"])
    assert outer.truth["pid"] != pid
    names = [f["name"] for f in dump(pid, "--native-all")[0]["frames"]]
    assert sum(name.startswith("py::main:") for name in names) == 1, names


def traced_calls(target, seconds, tmp_path):
    """The system calls of a recording, as strace shows them."""
    log = tmp_path / "calls"
    run("-f", "-o", log, SPYGLASS, "record", "--native-all", "--idle", "-d", seconds, "-f", "raw", "-o", tmp_path / "out", "--pid",
        target.pid, program=shutil.which("strace"), env={"ASAN_OPTIONS": "detect_leaks=0:exitcode=99"}).check()
    return log.read_text()


def test_never_writes(spawn, tmp_path):
    """spyglass changes nothing in the target: no byte, no register."""
    target = spawn(DEBIAN, "busy.py", "2")
    wanted, used, seconds = {"PTRACE_SEIZE", "PTRACE_INTERRUPT", "PTRACE_GETREGSET", "PTRACE_DETACH"}, set(), 1
    while not used >= wanted:  # on a busy machine strace may slow it down so much that it never stops a thread
        assert seconds < WAIT, used
        calls = traced_calls(target, seconds, tmp_path)
        used = set(re.findall(r"ptrace\((\w+)", calls))
        seconds *= 4
    assert used == wanted, used
    assert "process_vm_writev" not in calls
