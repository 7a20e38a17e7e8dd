"""Core files with --native, with -l, and with both: compares dump with what the target reported before it died."""
import json
import signal

import pytest
from core_files import by_gcore, by_kernel, found_core, gcore, roots, wants_core
from native_stacks import check_native, directory, python_only
from processes import at_rest
from program import run


def dump(core, python, *flags):
    result = run("dump", "--core", core, "--json", *roots(python), *flags).check()
    return result.out, json.loads(result.out), result


def check_variables(core, python, woven):
    """With -l, the Python frames equal those of a dump without native frames."""
    both, plain = dump(core, python, "--native", "-l")[1], dump(core, python, "-l")[1]
    assert [[f["name"] for f in t["frames"]] for t in both] == [[f["name"] for f in t["frames"]] for t in woven]
    assert [python_only(t["frames"]) for t in both] == [t["frames"] for t in plain]
    assert any(f["locals"] for t in plain for f in t["frames"])


@by_gcore
@pytest.mark.parametrize("module, situation", [("spy_c", "alternate"), ("spy_c", "signal"), ("spy_c", "deep"), ("spy_c_fp", "sort")])
def test_gcore(spawn, scratch, python, module, situation):
    target = spawn(python, "native_c.py", directory(python, module), module, situation)
    core = gcore(target, scratch)
    live = json.loads(run("dump", "--pid", at_rest(target.pid), "--native", "--json").check().out)
    target.kill()
    text, threads, result = dump(core, python, "--native")
    check_native(target, text)
    assert result.err == "", result
    assert [f["name"] for f in threads[0]["frames"]] == [f["name"] for f in live[0]["frames"]]
    if situation == "alternate":
        check_variables(core, python, threads)


@by_gcore
def test_gcore_all(spawn, scratch, python):
    """--native-all also shows the thread without Python frames, unless gdb lost its stack."""
    target = spawn(python, "native_c.py", directory(python, "spy_c"), "spy_c", "thread")
    core = gcore(target, scratch)
    text, threads, _ = dump(core, python, "--native-all")
    worker = next(t for t in target.truth["threads"] if not t["main"])
    assert {t["os_thread_id"] for t in threads} == {target.pid, worker["os_id"]}
    main = next(t for t in threads if t["os_thread_id"] == target.pid)
    assert main["frames"][-1]["name"] == "_start", main
    if not target.lossy:
        check_native(target, text)


@by_kernel
@pytest.mark.parametrize("situation", ["crash", "crash_with_gil", "crash_in_thread"])
def test_crash(spawn, inside, python, situation):
    """The thread that crashed in C comes first, from the crashing function on."""
    place, name = inside(python)
    target = spawn(python, "native_c.py", directory(python, "spy_c"), "spy_c", situation, name, preexec_fn=wants_core)
    assert target.process.wait() == -signal.SIGSEGV
    core = found_core(place)
    text, threads, result = dump(core, python, "--native")
    check_native(target, text)
    first, true = threads[0], target.truth["threads"][0]
    assert first["os_thread_id"] == true["os_id"] and first["signal"]["name"] == "SIGSEGV"
    assert int(first["signal"]["address"], 16) == 16 and first["active"]
    assert first["frames"][0]["name"] == "level_two" and first["frames"][0]["module"].endswith("/spy_c.so"), first
    assert first["frames"][0]["filename"].endswith("spy_c.c") and first["frames"][0]["line"], first["frames"][0]
    assert result.err == "", result
    check_variables(core, python, threads)
