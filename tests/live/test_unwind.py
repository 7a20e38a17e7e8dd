"""Native stacks with unwind tables in unusual places, and native stacks of core files."""
import json

import pytest
from core_files import by_gcore, by_kernel, found_core, gcore, roots, wants_core
from native_stacks import check_native, directory
from program import run
from pythons import PYTHONS

SITUATIONS = ["busy", "deep", "alternate", "frames", "cold", "signal"]
MODULES = ["spy_c_no_header", "spy_c_debug", "spy_c_split"]


@pytest.mark.parametrize("situation", SITUATIONS)
@pytest.mark.parametrize("module", MODULES)
def test_tables(spawn, python, module, situation):
    """.eh_frame without a header, .debug_frame in the file, .debug_frame in the debug file."""
    target = spawn(python, "native_c.py", directory(python, module), module, situation)
    check_native(target, run("dump", "--pid", target.pid, "--native", "--json").check().out)


@by_gcore
@pytest.mark.parametrize("module", ["spy_c", "spy_c_fp", *MODULES])
def test_core(spawn, scratch, python, module):
    """A core file from gdb, which leaves out what the files contain, including the tables."""
    target = spawn(python, "native_c.py", directory(python, module), module, "deep", env={"MALLOC_ARENA_MAX": "1"})
    core = gcore(target, scratch)
    target.kill()
    check_native(target, run("dump", "--core", core, "--native", "--json", *roots(python)).check().out)


@by_kernel
def test_crash(spawn, inside, python):
    """The kernel's core file: the stack of the crash, from the C function to the start of the thread."""
    place, name = inside(python)
    target = spawn(python, "crash.py", "abrt", "main", name, preexec_fn=wants_core)
    target.process.wait()
    result = run("dump", "--core", found_core(place), "--native", "--json", *roots(python)).check()
    frames = json.loads(result.out)[0]["frames"]
    true = next(t for t in target.truth["threads"] if t["name"] == "MainThread")["frames"]
    python_frames = [f["name"].rsplit(".", 1)[-1] for f in frames if not f["module"]]
    assert python_frames == [f["name"].rsplit(".", 1)[-1] for f in true], frames
    # The caller of abort() is above all Python frames, and no frames are reported missing.
    assert frames[0]["module"] and any(f["name"].startswith(("abort", "__GI_abort", "raise", "os_abort", "posix_abort"))
                                       for f in frames[:8]), frames[:8]
    assert not any("missing" in f["name"] for f in frames), frames
    assert result.err == "", result


@by_kernel
@pytest.mark.parametrize("share", [0.9, 0.7, 0.5, 0.3])
def test_truncated_core(spawn, inside, share):
    """A truncated core file: dump shows what is left, and does not crash."""
    host = next(p for p in PYTHONS if p.kind == "host")
    place, name = inside(host)
    target = spawn(host, "crash.py", "abrt", "main", name, preexec_fn=wants_core)
    target.process.wait()
    core = found_core(place)
    with open(core, "r+b") as file:
        file.truncate(int(core.stat().st_size * share))
    for flag in ("--native", "--native-all"):
        result = run("dump", "--core", core, flag, "--json")
        assert result.status in (0, 1) and "truncated" in result.err, result
