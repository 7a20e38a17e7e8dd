"""record --native: proportions of C functions in every format, libraries that are loaded and unloaded, sleeping
threads."""
import os
import shutil
import signal

import pytest
from native_stacks import directory
from processes import at_rest, task_states
from profiles import EXTENSION, STACKS, raw_stacks, record_native
from program import SPYGLASS, WAIT, clean_env, run, wait_until
from share_check import check_shares


def ours(stack, names):
    return [name for name in stack if name in names]


@pytest.mark.parametrize("format", STACKS)
def test_stacks(spawn, tmp_path, python, format):
    """Python and C frames in the order of the calls, with nothing of the interpreter in between."""
    target = spawn(python, "native_shares.py", directory(python, "spy_c"))
    wait_until(lambda: "S" in task_states(target.pid), "the sleeper asleep")
    true = [tuple(stack) for stack in target.truth["stacks"].values()]
    names = {name for stack in true for name in stack}

    def both_seen(stacks):
        return {tuple(ours(stack, names)) for stack in stacks} >= set(true)

    stacks, _ = record_native(target, tmp_path / ("out." + EXTENSION[format]), format, both_seen)
    assert not any("sleeper" in stack for stack in stacks)
    assert not any(name.startswith(("_PyEval", "PyEval", "[missing native frames")) for stack in stacks for name in stack), stacks


@pytest.mark.statistical
@pytest.mark.parametrize("format", STACKS)
def test_shares(spawn, tmp_path, python, format):
    """Python and C frames in the order of the calls, in the proportions that the target measured."""
    target = spawn(python, "native_shares.py", directory(python, "spy_c"))
    wait_until(lambda: "S" in task_states(target.pid), "the sleeper asleep")
    stacks, samples = record_native(target, tmp_path / ("out." + EXTENSION[format]), format, 500, "-r", "173")
    os.kill(target.pid, signal.SIGTERM)
    spent, true = target.read_line()["spent"], target.truth["stacks"]
    names = {name for stack in true.values() for name in stack}
    found = {name: sum(n for each, n in stacks.items() if ours(each, names) == stack) for name, stack in true.items()}
    check_shares(found, spent, samples)
    assert sum(found.values()) > 0.9 * sum(stacks.values()), stacks  # the rest is between the two


def test_dlopen(spawn, tmp_path, python):
    """Two libraries are loaded at the same address in turn, for some milliseconds each: no name of one while the
    other is loaded."""
    target = spawn(python, "native_load.py", directory(python, "spy_load"))
    assert target.truth["same"], "the libraries were not loaded at one address"

    def whole(stacks):
        """The libraries of which a complete stack was seen. One that was unloaded during the read has no names."""
        return {name for name in ("one", "two") for stack in stacks if "with_" + name in stack and name + "_inner" in stack}

    stacks, _ = record_native(target, tmp_path / "out.txt", "raw", lambda stacks: len(whole(stacks)) == 2, "-r", "500")
    for stack in stacks:
        native = [name for name in stack if name.startswith(("one_", "two_"))]
        name = "one" if "with_one" in stack else "two" if "with_two" in stack else None
        assert native == ["%s_%s" % (name, part) for part in ("run", "outer", "inner")][:len(native)], stack
        assert not native or stack.index("with_" + name) < stack.index(native[0]), stack


def test_sleeping_threads(spawn, tmp_path, python):
    """--idle: a thread that sleeps in two places is seen in both, and a thread that never wakes in its one place."""
    target = spawn(python, "native_sleeps.py", "1")

    def all_seen(stacks):
        return {name for stack in stacks for name in stack} >= {"short", "long", "parked"}

    record_native(target, tmp_path / "out.txt", "raw", all_seen, "-r", "73", "--idle")


@pytest.mark.statistical
def test_sleep_shares(spawn, tmp_path, python):
    """Each place gets its proportion of the time."""
    target = spawn(python, "native_sleeps.py", "1")
    stacks, samples = record_native(target, tmp_path / "out.txt", "raw", 300, "-r", "73", "--idle")
    os.kill(target.pid, signal.SIGTERM)
    spent = target.read_line()["spent"]
    found = {name: sum(n for stack, n in stacks.items() if name in stack) for name in spent}
    check_shares(found, spent, sum(found.values()))
    awake = sum(n for stack, n in stacks.items() if stack[-1] in ("short", "long", "parked"))  # between two sleeps
    assert awake <= samples / 50, stacks


@pytest.mark.skipif(not shutil.which("strace"), reason="strace is not installed")
@pytest.mark.parametrize("flag", ["--native", "--native-all"])
def test_sleeping_threads_are_not_stopped(spawn, tmp_path, python, flag):
    """spyglass does not stop a thread again that has not run since the last stop."""
    target = spawn(python, "native_sleeps.py", "2", "park")
    at_rest(target.pid)
    calls, out, samples, seconds = tmp_path / "calls", tmp_path / "out.txt", 0, 0.5
    while samples < 100:
        result = run("-f", "-e", "trace=ptrace", "-o", calls, SPYGLASS, "record", flag, "--idle", "-p", target.pid, "-d", seconds,
                     "-f", "raw", "-o", out, program=shutil.which("strace"),
                     env=clean_env(ASAN_OPTIONS="detect_leaks=0:exitcode=99")).check()
        samples = sum(n for stack, n in raw_stacks(out.read_text()).items() if "parked" in stack)
        seconds *= 2
        assert seconds < WAIT, result
    assert 3 <= calls.read_text().count("PTRACE_SEIZE") < samples / 3, (calls.read_text()[-3000:], samples)
