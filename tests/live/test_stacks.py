"""Every situation on every interpreter: the stacks of dump equal those that the target reports."""
import ast

import pytest
from program import TARGETS
from stacks import VIEWS, compare

# Situations that need a newer Python than their file does.
SINCE = {"astral_names": (3, 8), "odd_names": (3, 8), "match_statement": (3, 10)}
# Names or files that are ambiguous in text: only JSON is compared.
ONLY_JSON = {"odd_names", "executed", "many_threads"}


def situations(name, since):
    tree = ast.parse((TARGETS / name).read_text())
    names = [node.name for node in tree.body if isinstance(node, ast.FunctionDef) and node.name != "run_text"]
    return [pytest.param(name, marks=pytest.mark.since(*SINCE.get(name, since))) for name in names]


def views_of(situation):
    return [view for view in VIEWS if "text" not in view or situation not in ONLY_JSON]


@pytest.mark.smoke
@pytest.mark.pairwise
@pytest.mark.parametrize("situation", situations("situations.py", (2, 7)))
def test_stack(spawn, python, situation, one_of):
    flags = ["-S"] if situation == "no_threading" else []  # without site, whose .pth files import modules
    target = spawn(python, "situations.py", situation, flags=flags)
    if situation == "no_threading":
        assert not target.truth["threading"]
    compare(target, one_of(views_of(situation)))


@pytest.mark.smoke
@pytest.mark.pairwise
@pytest.mark.parametrize("situation", situations("situations3.py", (3, 0)))
def test_stack_of_python_3(spawn, python, situation, one_of):
    compare(spawn(python, "situations3.py", situation), one_of(views_of(situation)))
