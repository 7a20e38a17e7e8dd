"""The extensions of tests/native, and the comparison of `dump --native` with what the targets native_*.py report."""
import functools
import json

import native_build
import pytest
from processes import at_rest

build = functools.lru_cache(maxsize=None)(native_build.build)


def directory(python, module):
    """The extension's directory as the interpreter sees it. Skips the test if the extension cannot be built here."""
    built = build(python, module)
    if built.missing:
        pytest.skip(built.missing)
    return built.inside


def is_ours(frame, module):
    """True for frames of the script or of the module. Those of libc and the interpreter can have any name."""
    return not frame["module"] or frame["module"].rpartition("/")[2].startswith(("spy_", "lib" + module))


def python_only(frames):
    return [f for f in frames if f["module"] is None]


def settle(target, situation):
    """In these situations one thread reports, and another may not have reached its poll(2) yet."""
    if situation in ("thread", "thread_with_python"):
        at_rest(target.pid)


def check_native(target, text):
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
        # After a tail call the callee's name appears instead of the caller's: qsort_r for qsort.
        assert any(n.startswith(name) for n in names[names.index(before):names.index(after)]), names
