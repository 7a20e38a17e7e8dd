"""The stack is right after each machine instruction of the interpreter, or is rejected."""
import pytest
from chain_stacks import KINDS, impossible, jumps, run_steps
from program import SPYGLASS

STEPS = SPYGLASS.parent / "tests" / "steps"
SINCE = {"generator": (3, 5), "coroutine": (3, 5)}


def test_jumps():
    """Tests the check itself."""
    assert not jumps("m (a);f (a) 1\nm (a);f (a);g (a) 1\nm (a);f (a) 1\nm (a) 1\n")
    assert len(jumps("m (a);f (a);g (a) 1\nm (a) 1\nm (a);f (a);g (a) 1\n")) == 2
    assert len(jumps("m (a);f (a) 1\nm (a);g (a) 1\n")) == 1


@pytest.mark.parametrize("kind", [pytest.param(kind, marks=pytest.mark.since(*SINCE.get(kind, (2, 7)))) for kind in KINDS])
def test_steps(spawn, python, kind):
    target = spawn(python, "chains.py", kind)
    text, rejected = run_steps(STEPS, target.pid, 30000)
    wrong = impossible(text) + jumps(text)
    assert not wrong, wrong[:5]
    assert rejected < 3000, "the rest of the samples would be biased"
