"""Native stacks through code that was generated at run time, with and without unwind tables."""
import json

import pytest
from native_stacks import directory
from processes import at_rest
from program import run

MISSING = "[missing native frames]"
UNNAMED = "[unnamed code]"
PYTHON = ["calls", "main", "<module>"]


@pytest.fixture
def stack_of(spawn):
    """stack_of(python, "bare") -> the frames from jit_wait outwards that are of the test."""
    def go(python, kind, library="spy_jit", flag="--native"):
        target = spawn(python, "native_jit.py", directory(python, "spy_jit"), library, kind)
        at_rest(target.pid)
        frames, = [t["frames"] for t in json.loads(run("dump", "--pid", target.pid, flag, "--json").check().out)]
        names = [f["name"] for f in frames]
        ours = ("spy_jit", "[JIT]", "[memory]", "native stack")
        return [f for f in frames[names.index("jit_wait"):]
                if (f["module"] or f["short_filename"]).rpartition("/")[2].startswith(ours) or f["name"] in PYTHON]

    return go


def names_of(frames):
    return [f["name"] for f in frames]


@pytest.mark.parametrize("kind", ["bare", "unregistered"])
def test_no_tables(stack_of, python, kind):
    """Neither tables nor a frame pointer: the native stack ends there, and no old return address is taken for a caller."""
    assert names_of(stack_of(python, kind)) == ["jit_wait", UNNAMED, MISSING, *PYTHON]


@pytest.mark.parametrize("kind", ["fp", "trampoline"])
def test_no_tables_needed(stack_of, python, kind):
    """The code itself shows where the return address is."""
    assert names_of(stack_of(python, kind)) == ["jit_wait", UNNAMED, "jit_run", *PYTHON]
