"""Native stacks: what dump --native says against what the targets native_*.py know of themselves."""
import functools

import native_build
import pytest
from conftest import run
from stacks import parse_text

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


def is_in_order(wanted, found):
    """All of `wanted` in `found`, in order, and nothing of their names more often."""
    return [name for name in found if name in set(wanted)] == wanted


def check(target, text):
    process, = parse_text(text)
    found = {t["os_id"]: t["frames"][::-1] for t in process["threads"]}
    for true in target.truth["threads"]:
        names = [f["name"] for f in found[true["os_id"]]]
        assert is_in_order([name for name, _, _ in true["stack"]], names), (true["stack"], names)
        for name, file, line in true["stack"]:
            if line:
                assert any(f["name"] == name and f["line"] == line and f["filename"].endswith(file.rsplit("/", 1)[-1])
                           for f in found[true["os_id"]]), (name, file, line)
    for before, name, after in target.truth.get("others", []):
        names = [f["name"] for f in found[target.pid]]
        assert name in names[names.index(before):names.index(after)]


@pytest.mark.parametrize("situation", C)
@pytest.mark.parametrize("module", ["spy_c", "spy_c_fp"])
def test_c(spawn, python, module, situation):
    target = spawn(python, "native_c.py", directory(python, module), module, situation)
    flag = "--native-all" if situation == "thread" else "--native"
    check(target, run("dump", "--pid", target.pid, flag, "--full-filenames").check().out)


@pytest.mark.parametrize("call", CALLS, ids="-".join)
def test_calls(spawn, python, call):
    target = spawn(python, "native_calls.py", directory(python, call[0]), *call)
    check(target, run("dump", "--pid", target.pid, "--native", "--full-filenames").check().out)
