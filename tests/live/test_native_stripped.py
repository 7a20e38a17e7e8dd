"""spyglass merges native and Python frames without the interpreter's symbols: stripped, or with the evaluation loop
renamed."""
import subprocess

import pytest
from native_stacks import check_native, directory, settle
from program import run
from pythons import PYTHONS

SITUATIONS = ["busy_with_gil", "alternate", "sort", "signal", "thread_with_python"]
LOOP = b"_PyEval_EvalFrameDefault\0"
LOOP_2 = b"PyEval_EvalFrameEx\0"


def dump(launch, one, script, python, situation):
    """Starts a copy of the interpreter and compares the dump with the target's report."""
    target = launch([*one.command, script(python, "native_c.py"), directory(python, "spy_c"), "spy_c", situation], env=one.env)
    assert one.uses_copies(target.pid)
    settle(target, situation)
    result = run("dump", "--pid", target.pid, "--native", "--json").check()
    check_native(target, result.out)
    assert result.err == "", result


def other_name(name):
    """Raises one letter by 1 and lowers the next by 33: the dynamic linker's hash stays the same, so the linker
    still finds the symbol."""
    at = name.index(b"al")
    return name[:at] + b"bK" + name[at + 2:]


def rename_loop(path, name):
    """Renames the symbol in the whole file: where it is defined and where it is referenced."""
    data = path.read_bytes()
    count = data.count(b"\0" + name)
    path.write_bytes(data.replace(b"\0" + name, b"\0" + other_name(name)))
    return count


@pytest.mark.parametrize("situation", SITUATIONS)
def test_stripped(launch, copy, script, python, situation):
    one = copy(python)
    subprocess.run(["strip", "--strip-all", *one.files], check=True)
    dump(launch, one, script, python, situation)


@pytest.mark.parametrize("situation", SITUATIONS)
@pytest.mark.parametrize("old", [p for p in PYTHONS if p.library_dir and p.version < (3, 11)], ids=repr)
def test_renamed_eval_loop(launch, copy, script, old, situation):
    """Up to 3.10, only the loop's own stack frame shows where it is."""
    one = copy(old)
    subprocess.run(["strip", "--strip-all", *one.files], check=True)
    assert sum(rename_loop(path, LOOP_2 if old.version < (3, 0) else LOOP) for path in one.files)
    dump(launch, one, script, old, situation)
