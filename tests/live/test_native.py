"""Native stacks: compares dump --native with what the targets native_*.py report."""
import pytest
from native_stacks import check_native, directory, settle
from program import run

C = ["busy", "busy_with_gil", "poll", "poll_with_gil", "nanosleep", "deep", "alternate", "frames", "cold", "sort", "signal",
     "thread", "thread_with_python"]
CALLS = [("spy_cpp",), ("spy_cython", "run"), ("spy_cython", "load_data"), ("spy_cython", "generate"),
         ("spy_cython_l", "run"), ("spy_rust",)]


@pytest.mark.parametrize("situation", C)
@pytest.mark.parametrize("module", ["spy_c", "spy_c_fp"])
def test_c(spawn, python, module, situation):
    target = spawn(python, "native_c.py", directory(python, module), module, situation)
    settle(target, situation)
    flag = "--native-all" if situation == "thread" else "--native"
    check_native(target, run("dump", "--pid", target.pid, flag, "--json").check().out)


@pytest.mark.parametrize("call", CALLS, ids="-".join)
def test_calls(spawn, python, call):
    target = spawn(python, "native_calls.py", directory(python, call[0]), *call)
    check_native(target, run("dump", "--pid", target.pid, "--native", "--json").check().out)
