"""Native stacks of greenlets, which share the C stack of their thread."""
import re
import shutil

import pytest
from native_build import CACHE, Locked, call, tool
from profiles import raw_stacks, read_raw, record_enough
from pythons import DEBIAN, NEWEST_HOST

SOME = list({python.label: python for python in (DEBIAN, NEWEST_HOST)}.values())


@pytest.fixture
def package():
    """package(python, "stripped") -> a directory with the package greenlet. The first call needs PyPI."""
    def make(python, kind):
        place = CACHE / "greenlet" / python.label
        with Locked(CACHE / "greenlet.lock"):
            if not (place / "done").exists():
                shutil.rmtree(place, ignore_errors=True)
                call([*python.command, "-m", "pip", "install", "--quiet", "--target", place / "plain", "greenlet"])
                shutil.copytree(place / "plain", place / "stripped")
                call([tool("strip"), *place.glob("stripped/greenlet/_greenlet*.so")])
                (place / "done").touch()
        return place / kind

    return make


@pytest.mark.parametrize("kind", ["plain", "stripped"])
@pytest.mark.parametrize("interpreter", SOME, ids=repr)
def test_end_of_stack(spawn, package, tmp_path, interpreter, kind):
    """The stack of a greenlet ends where greenlet called its function, and is complete there."""
    target = spawn(interpreter, "greenlets.py", env={"PYTHONPATH": str(package(interpreter, kind))})
    text, result = record_enough(lambda text: read_raw(text)[0]["works"] >= 50, "--native", "-f", "raw", "--pid", target.pid,
                                 out=tmp_path / "out")
    stacks = {stack: n for stack, n in raw_stacks(text).items() if "works" in stack}
    roots = {stack[0] for stack in stacks}
    if kind == "plain":
        assert roots == {"greenlet::UserGreenlet::g_initialstub"}, stacks
    # A few stacks are in the middle of a switch.
    cut = re.search(r"Native stacks: (\d+) of (\d+)", result.messages)
    assert not cut or int(cut.group(1)) < int(cut.group(2)) / 4, result
