"""Native stacks through code that was generated at run time, with and without unwind tables."""
import json
import os

import pytest
from core_files import by_gcore, gcore, roots
from native_stacks import directory
from processes import at_rest
from program import run
from pythons import DEBIAN, PYTHONS

MISSING = "[missing native frames]"
UNNAMED = "[unnamed code]"
PYTHON = ["calls", "main", "<module>"]


@pytest.fixture
def stack_of(spawn):
    """stack_of(python, "bare") -> the frames from jit_wait outwards that are of the test."""
    def go(python, kind, library="spy_jit", flag="--native", **options):
        target = spawn(python, "native_jit.py", directory(python, "spy_jit"), library, kind, **options)
        at_rest(target.pid)
        frames, = [t["frames"] for t in json.loads(run("dump", "--pid", target.pid, flag, "--json").check().out)]
        names = [f["name"] for f in frames]
        ours = ("spy_jit", "[JIT]", "[memory]", "native stack")
        return [f for f in frames[names.index("jit_wait"):]
                if (f["module"] or f["short_filename"]).rpartition("/")[2].startswith(ours) or f["name"] in [*PYTHON, "loops"]]

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


@pytest.mark.parametrize("kind", ["registered", "hostile"])
@pytest.mark.parametrize("library", ["spy_jit", "spy_jit_local"])
def test_registered(stack_of, python, library, kind):
    """Names, lines and unwind tables come from the list for GDB, also if most of its entries are wrong and it never ends."""
    frames = stack_of(python, kind, library)
    assert names_of(frames) == ["jit_wait", "jit_inner", "jit_outer", "jit_run", *PYTHON]
    for frame in frames[1:3]:
        assert frame["module"] == "[JIT]" and frame["short_filename"] == "spy_jit_code.c" and frame["line"], frame


@pytest.mark.skipif(os.getuid() != 0, reason="needs root, to create files of other users")
@pytest.mark.parametrize("user", [0, 1000])
def test_perf_map_owner(spawn, inside, user):
    """A perf map that another user, not root, has put into /tmp is not believed; nor is a link, even to a file of the right
    user."""
    library = DEBIAN.root / directory(DEBIAN, "spy_jit").lstrip("/") / "spy_jit.so"
    public, seen = inside(DEBIAN)
    (public / "spy_jit.so").write_bytes(library.read_bytes())
    target = spawn(DEBIAN, "native_jit.py", seen, "spy_jit", "fp", user=user, group=user, extra_groups=[])
    path = DEBIAN.root / "tmp" / ("perf-%d.map" % target.pid)
    other = path.with_suffix(".other")

    def shown():
        thread, = json.loads(run("dump", "--pid", at_rest(target.pid), "--native", "--json").check().out)
        names = [frame["name"] for frame in thread["frames"]]
        return names[names.index("jit_wait") + 1]

    try:
        assert shown() == UNNAMED
        for owner, name in ((user, "from_map"), (0, "from_map"), (1001, UNNAMED)):
            path.write_text("1000 7fffffff0000 from_map\n")
            os.chown(path, owner, owner)
            assert shown() == name, owner
            path.unlink()
        other.write_text("1000 7fffffff0000 from_map\n")
        os.chown(other, user, user)
        path.symlink_to(other)
        assert shown() == UNNAMED
        path.unlink()
        os.mkfifo(path)
        assert shown() == UNNAMED
    finally:
        for left in (path, other):
            left.unlink(missing_ok=True)


@by_gcore
def test_registered_core(spawn, scratch, python):
    """The same in a core file, which contains the list."""
    target = spawn(python, "native_jit.py", directory(python, "spy_jit"), "spy_jit", "registered")
    core = gcore(target, scratch)
    target.kill()
    text = run("dump", "--core", core, "--native", "--json", *roots(python)).check().out
    names = [f["name"] for f in json.loads(text)[0]["frames"]]
    at = names.index("jit_wait")
    assert names[at:at + 4] == ["jit_wait", "jit_inner", "jit_outer", "jit_run"] and names[-3:] == PYTHON, names


@pytest.mark.parametrize("flag", ["--native", "--native-all"])
@pytest.mark.parametrize("new", [p for p in PYTHONS if p.version >= (3, 13)], ids=repr)
def test_python_jit(stack_of, new, flag):
    """CPython's own compiler, if the interpreter has it. It registers its code from 3.15 on."""
    names = names_of(stack_of(new, "python", flag=flag, env={"PYTHON_JIT": "1"}))
    python_names = [name for name in names if name in ("loops", *PYTHON)]
    assert names[:2] == ["jit_wait", "jit_step"] and python_names == ["loops", "main", "<module>"], names
    if new.version >= (3, 15):
        assert not {UNNAMED, MISSING} & set(names), names
