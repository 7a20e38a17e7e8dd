"""Every situation on every interpreter: what dump says against what the target knows of itself, frame by frame."""
import ast

import pytest
from conftest import TARGETS, at_rest, run
from stacks import check_json, check_text

# Situations that need a newer Python than their file does.
SINCE = {"astral_names": (3, 8), "odd_names": (3, 8), "match_statement": (3, 10)}
# Names or files that text cannot hold unambiguously: JSON alone is compared.
ONLY_JSON = {"odd_names", "executed", "many_threads"}


def situations(name):
    tree = ast.parse((TARGETS / name).read_text())
    return [node.name for node in tree.body if isinstance(node, ast.FunctionDef) and node.name != "run_text"]


def compare(target, text=True):
    pid, truth = target.pid, target.truth
    assert truth["pid"] == pid
    check_json(run("dump", "--pid", at_rest(pid), "--json").check().out, truth)
    check_json(run("dump", "--pid", at_rest(pid), "--json", "--nonblocking").check().out, truth)
    if text:
        check_text(run("dump", "--pid", at_rest(pid), "--full-filenames").check().out, truth, full=True)
        check_text(run("dump", "--pid", at_rest(pid)).check().out, truth, full=False)


@pytest.mark.parametrize("situation", situations("situations.py"))
def test_stack(spawn, python, situation):
    flags = ["-S"] if situation == "no_threading" else []  # without site, whose .pth files import things
    target = spawn(python, "situations.py", situation, flags=flags)
    if situation == "no_threading":
        assert not target.truth["threading"]
    compare(target, text=situation not in ONLY_JSON)


@pytest.mark.parametrize("situation", situations("situations3.py"))
def test_stack_of_python_3(spawn, python, situation):
    if python.version < SINCE.get(situation, (3, 0)):
        pytest.skip("%s needs Python %d.%d" % (situation, *SINCE.get(situation, (3, 0))))
    target = spawn(python, "situations3.py", situation)
    compare(target, text=situation not in ONLY_JSON)
