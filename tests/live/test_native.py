"""Native stacks: what dump --native says against what the targets native_*.py know of themselves."""
import functools
import json

import native_build
import pytest
from conftest import run

C = ["busy", "busy_with_gil", "poll", "poll_with_gil", "nanosleep", "deep", "alternate", "frames", "cold", "sort", "signal",
     "thread", "thread_with_python"]
CALLS = [("spy_cpp",), ("spy_cython", "run"), ("spy_cython", "load_data"), ("spy_cython", "generate"),
         ("spy_cython_l", "run"), ("spy_rust",)]
build = functools.lru_cache(maxsize=None)(native_build.build)


def directory(python, module):
    built = build(python)
    if module in built.missing:
        pytest.skip(built.missing[module])
    return built.inside


def is_ours(frame, module):
    """Of the script or of the module: the names of libc and of the interpreter may be any."""
    return not frame["module"] or frame["module"].rpartition("/")[2].startswith(("spy_", "lib" + module))


def check(target, text):
    found = {t["os_thread_id"]: t["frames"][::-1] for t in json.loads(text)}
    for true in target.truth["threads"]:
        frames = found[true["os_id"]]
        ours = [f for f in frames if is_ours(f, target.truth["module"])]
        names = [name for name, _, _ in true["stack"]]
        mine = set(names)
        assert [f["name"] for f in ours if f["name"] in mine] == names, (names, [f["name"] for f in frames])
        for name, file, line in true["stack"]:
            if line:
                assert any(f["name"] == name and f["line"] == line and f["filename"].endswith(file.rsplit("/", 1)[-1])
                           for f in ours), (name, file, line)
    for before, name, after in target.truth.get("others", []):
        names = [f["name"] for f in found[target.pid]]
        # Where the compiler made it a jump, the function that was jumped to stands for it: qsort_r for qsort.
        assert any(n.startswith(name) for n in names[names.index(before):names.index(after)]), names


@pytest.mark.parametrize("situation", C)
@pytest.mark.parametrize("module", ["spy_c", "spy_c_fp"])
def test_c(spawn, python, module, situation):
    target = spawn(python, "native_c.py", directory(python, module), module, situation)
    flag = "--native-all" if situation == "thread" else "--native"
    check(target, run("dump", "--pid", target.pid, flag, "--json").check().out)


@pytest.mark.parametrize("call", CALLS, ids="-".join)
def test_calls(spawn, python, call):
    target = spawn(python, "native_calls.py", directory(python, call[0]), *call)
    check(target, run("dump", "--pid", target.pid, "--native", "--json").check().out)
