"""`record --async` shows a running task below the tasks that await it."""
import pytest
from profiles import raw_stacks, record_enough

pytestmark = pytest.mark.since(3, 7)
WAYS = {
    "awaits_task": "main awaits_task handler query burn",
    "awaits_gather": "main awaits_gather handler query burn",
    "awaits_wait": "main awaits_wait handler query burn",
    "awaits_shield": "main awaits_shield handler query burn",
    "awaits_wait_for": "main awaits_wait_for handler query burn",
    "awaits_generator": "main awaits_generator handler query burn",
    "awaits_chain": "main awaits_chain awaits_chain awaits_chain awaits_chain handler query burn",
    "awaits_nothing": "handler query burn",
    "awaits_group": "main awaits_group handler query burn",
}


def computing(text):
    """The stacks that compute in a query, without the functions of libraries."""
    stacks = {tuple(name for name in stack if name.startswith("awaits_") or name in ("main", "handler", "query", "burn"))
              for stack in raw_stacks(text)}
    return {stack for stack in stacks if "burn" in stack}


@pytest.mark.smoke
@pytest.mark.parametrize("flags", [[], ["--native"]], ids=lambda f: "".join(f) or "plain")
def test_ways(spawn, python, tmp_path, flags):
    target = spawn(python, "await_chains.py")
    wanted = {tuple(WAYS[way].split()) for way in target.truth["ways"]}
    text, _ = record_enough(lambda text: wanted <= computing(text), "--pid", target.pid, "--async", "-r", 500, "-F", *flags, out=tmp_path / "out.txt",
                            first=1)
    if not flags:  # nothing else computes, and no stack is one that never was
        assert computing(text) == wanted
