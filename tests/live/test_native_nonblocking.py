"""`dump --native --nonblocking`: the native stacks of sleeping threads without ptrace, compared with what ptrace gives."""
import json
import pathlib
import shutil
import subprocess

import pytest
from native_stacks import check_native, directory, python_only
from processes import at_rest, descendants
from program import PY_SPY, SPYGLASS, run, wait_until
from pythons import DEBIAN
from stacks import rows

MISSING = "[missing native frames]"
WITHOUT_SYSCALL = 'pid=$1; shift; for f in /proc/$pid/task/*/syscall; do mount --bind /dev/null "$f" || exit 99; done; exec "$@"'


def dump(pid, *flags):
    """Of processes whose threads all sleep: after ptrace, and at first, they need a moment for that. --no-waits, because ptrace
    restarts the system call."""
    for process in {pid} | descendants(pid):
        at_rest(process)
    return json.loads(run("dump", "--pid", pid, "--json", "--no-waits", *flags).check().out)


def dump_by_ptrace(pid, *flags):
    """The same with the registers from ptrace: /proc does not show them."""
    command = ["unshare", "-m", "sh", "-c", WITHOUT_SYSCALL, "sh", str(pid)]
    if not shutil.which("unshare") or subprocess.call([*command, "true"], stderr=subprocess.DEVNULL):
        pytest.skip("needs unshare and the right to mount")
    at_rest(pid)
    return json.loads(run(*command[1:], SPYGLASS, "dump", "--pid", pid, "--json", "--no-waits", *flags, program=command[0]).check().out)


def check_same_or_shorter(found, true):
    """The frames are those that ptrace gives, or those up to a marker and then the Python frames alone."""
    if found == true:
        return
    names = [f["name"] for f in found]
    end = names.index(MISSING)
    assert found[:end] == true[:end], (names, [f["name"] for f in true])
    assert found[end + 1:] == python_only(true[end:])


@pytest.mark.parametrize("situation", ["alternate", "frames", "thread", "thread_with_python", "signal", "poll_with_gil"])
def test_as_with_ptrace(spawn, python, situation):
    """Each thread, with the interpreter's own functions, is as ptrace shows it; so it is without --nonblocking."""
    target = spawn(python, "native_c.py", directory(python, "spy_c"), "spy_c", situation)
    found, plain, true = dump(target.pid, "--native-all", "--nonblocking"), dump(target.pid, "--native-all"), dump_by_ptrace(
        target.pid, "--native-all")
    assert found == plain == true
    assert not any(f["name"] == MISSING for t in found for f in t["frames"]), found
    check_native(target, json.dumps(found))


@pytest.mark.parametrize("situation", ["alternate", "frames", "deep"])
def test_unknown_frame_pointer(spawn, python, situation):
    """Code that needs a register that nothing has saved: the stack ends there with a marker. Without --nonblocking, ptrace reads
    that register."""
    target = spawn(python, "native_c.py", directory(python, "spy_c_fp"), "spy_c_fp", situation)
    found, plain, true = dump(target.pid, "--native", "--nonblocking"), dump(target.pid, "--native"), dump_by_ptrace(
        target.pid, "--native")
    assert plain == true
    check_same_or_shorter(found[0]["frames"], true[0]["frames"])
    assert rows(python_only(found[0]["frames"])[-1:]) == rows(python_only(true[0]["frames"])[-1:])


def test_other_flags(spawn, python):
    """--locals, --subprocesses and --nonblocking under the name py-spy."""
    target = spawn(python, "child_processes.py", "parent")
    plain = dump(target.pid, "--subprocesses", "--locals", "--nonblocking")
    result = run("dump", "--pid", target.pid, "--subprocesses", "--json", "-l", "--native", "--nonblocking", program=PY_SPY).check()
    found = json.loads(result.out)
    assert "thread(s)" not in result.err, result
    assert {t["pid"] for t in found} == {t["pid"] for t in plain}
    for one, other in zip(found, plain):
        assert python_only(one["frames"]) == other["frames"] and one["frames"][0]["module"], one


def test_running(spawn):
    """A running thread is there, without native frames: a note says so, and the status is 0."""
    target = spawn(DEBIAN, "native_c.py", directory(DEBIAN, "spy_c"), "spy_c", "two_busy_threads")
    found = {}

    def both_run():
        result = run("dump", "--pid", target.pid, "--json", "--native-all", "--nonblocking").check()
        found.update({t["os_thread_id"]: t["frames"] for t in json.loads(result.out)})
        return "2 thread(s) are shown without native frames: they were running" in result.err

    wait_until(both_run, "both threads run")
    worker, = set(found) - {target.pid}
    assert [f["name"] for f in found[worker]] == [MISSING]
    assert found[target.pid][-1]["name"] == "<module>" and not any(f["module"] for f in found[target.pid]), found


@pytest.mark.skipif(not shutil.which("strace"), reason="strace is not installed")
@pytest.mark.parametrize("flags", [["--native"], ["--native", "--nonblocking"], ["--native-all", "--nonblocking", "-l"]], ids=" ".join)
def test_no_ptrace(spawn, tmp_path, flags):
    """The kernel sees no ptrace call; so it is without --nonblocking, if the stacks of the sleeping threads are complete."""
    target, log = spawn(DEBIAN, "situations.py", "plain"), tmp_path / "calls"
    run("-f", "-o", log, SPYGLASS, "dump", "--pid", target.pid, *flags, program=shutil.which("strace"),
        env={"ASAN_OPTIONS": "detect_leaks=0:exitcode=99"}).check()
    calls = pathlib.Path(log).read_text()
    assert "process_vm_readv" in calls and "ptrace(" not in calls, calls
