"""dump --source: the source line of each frame, and where in it the code runs. Colors."""
import json
import os
import pathlib
import re
import stat
import subprocess
import time
import zipfile

import pytest
from core_files import by_gcore, gcore
from processes import at_rest, descendants
from program import PY_SPY, SPYGLASS, WAIT, clean_env, on_terminal, run
from pythons import DEBIAN

BLOCK = "import os, sys\nprint(1, flush=True)\nos.read(0, 1)\n"
SGR = re.compile(r"\x1b\[[\d;]*m")


def frames_of(pid, *flags):
    """The frames of the main thread."""
    return json.loads(run("dump", "--json", "--source", "--pid", at_rest(pid), *flags).check().out)[0]["frames"]


def by_name(frames):
    return {frame["name"].rsplit(".", 1)[-1]: frame for frame in frames}


def source_of(frame):
    return frame["source"] and frame["source"].encode()[frame["column"]:frame["end_column"]].decode()


def test_positions(spawn, script, python):
    """Lines as in the file, positions as in co_positions()."""
    target = spawn(python, "source_lines.py")
    lines = (python.root / script(python, "source_lines.py").lstrip("/")).read_text(encoding="utf-8").split("\n")
    frames = frames_of(target.pid)
    found = [[f["name"], f["line"], f["end_line"], f["column"], f["end_column"]] for f in frames]
    assert found == target.truth["frames"]
    assert [f["source"] for f in frames] == [lines[f["line"] - 1] for f in frames]
    if python.version >= (3, 11):
        assert source_of(by_name(frames)["wide"]) == "block(fd, 1)" and source_of(by_name(frames)["far"]) == "several(fd)"


TEXT = """\
    block (source_lines.py:18)
        return b"" or (os.read(fd, n) + b"x")[0:1]
                       ^^^^^^^^^^^^^^
    wide (source_lines.py:22)
        names = {"größe": "漢字", "漢": [block(fd, 1)]}["größe"]; return names, block (fd, 2)
                                         ^^^^^^^^^^^^
    generator (source_lines.py:26)
        for i in (0, 1): yield i or wide(fd)
                                    ^^^^^^^^
    several (source_lines.py:30)
        return [None, list(
                      ^^^^^
    far (source_lines.py:36)
        return (                                                                                                   """ + \
    """                                                several(fd), 1)
""" + " " * 8 + " " * 155 + """^^^^^^^^^^^
    <module> (source_lines.py:64)
        result = [far(os.pipe()[0])]; print("never")
                  ^^^^^^^^^^^^^^^^^
"""


def test_text(spawn, python):
    """Under each line, what is being executed. Before 3.11, the line alone. Without --source, nothing changes."""
    target = spawn(python, "source_lines.py")
    out = run("dump", "--pid", at_rest(target.pid), "--source").check().out
    wanted = TEXT if python.version >= (3, 11) else re.sub(r"^ *\^+\n", "", TEXT, flags=re.M)
    if python.version < (3, 8):  # the line of a call was that of its last argument
        wanted = wanted.replace("30)\n        return [None, list(\n", "31)\n        generator(fd))][0 + sum(\n")
    assert wanted in out, out
    plain = run("dump", "--pid", target.pid).check().out
    assert [line for line in out.split("\n") if not line.startswith("        ")] == plain.split("\n")
    assert "source" not in run("dump", "--json", "--pid", target.pid).check().out.replace("source_lines", "")


@pytest.mark.since(3, 11)
def test_no_debug_ranges(spawn, python):
    target = spawn(python, "source_lines.py", flags=["-X", "no_debug_ranges"])
    frames = frames_of(target.pid)
    assert all(f["source"] and f["column"] is f["end_column"] is f["end_line"] is None for f in frames), frames
    out = run("dump", "--pid", target.pid, "--source").check().out
    assert "os.read(fd, n)" in out and "^" not in out


@pytest.fixture
def block_in(launch, tmp_path):
    """block_in(name, bytes) -> a target that blocks in a file with this content, which has BLOCK's last line at the end."""
    def go(name, data=BLOCK.encode(), python=DEBIAN, **options):
        path = tmp_path / name
        path.write_bytes(data)
        target = launch([*python.command, path], **options)
        return target, path

    return go


def test_changed(block_in):
    """Nobody can tell what was in the file: one note, and no line."""
    target, path = block_in("changed.py")
    assert frames_of(target.pid)[0]["source"] == "os.read(0, 1)"
    os.utime(path, (time.time() + 60,) * 2)
    result = run("dump", "--pid", target.pid, "--source").check()
    assert "os.read" not in result.out
    assert result.err == "Note: left out the source lines of %s (file changed since the process started)\n" % path
    frame = frames_of(target.pid)[0]
    assert frame["source"] is None and frame["line"] == 3 and frame["column"] == 0


def test_many_changed(launch, tmp_path):
    """The notes are bounded."""
    for i in range(20):
        (tmp_path / ("m%d.py" % i)).write_text("import %s\n" % ("m%d" % (i + 1) if i < 19 else "last"))
    (tmp_path / "last.py").write_text(BLOCK)
    target = launch([*DEBIAN.command, tmp_path / "m0.py"])
    for path in tmp_path.glob("*.py"):
        os.utime(path, (time.time() + 60,) * 2)
    lines = run("dump", "--pid", at_rest(target.pid), "--source").check().err.splitlines()
    assert len(lines) == 9 and lines[-1].endswith(" 13 more files, which have changed since the process started"), lines


def test_no_file(launch, tmp_path, block_in):
    """No line of code that has no file, or of a file that is gone, is no regular file, or is too short."""
    target = launch([*DEBIAN.command, "-c", BLOCK])
    assert frames_of(target.pid)[0]["source"] is None
    with zipfile.ZipFile(tmp_path / "app.zip", "w") as archive:
        archive.writestr("__main__.py", BLOCK)
    assert frames_of(launch([*DEBIAN.command, tmp_path / "app.zip"]).pid)[0]["source"] is None
    target, path = block_in("gone.py")
    before = path.stat()

    def source(make):
        path.unlink()
        make()
        if path.exists() and stat.S_ISREG(path.stat().st_mode):
            os.utime(path, ns=(before.st_mtime_ns,) * 2)
        return frames_of(target.pid)[0]["source"]

    assert source(lambda: path.write_text("1\n2\n")) is None
    assert source(lambda: path.write_bytes(b"1\n2\nthree")) == "three"
    assert source(lambda: path.write_bytes(b"")) is None
    assert source(lambda: path.write_bytes(b"1\n2\n3\n" + b"x" * (16 << 20))) is None
    assert source(lambda: os.mkfifo(path)) is None
    assert source(lambda: path.symlink_to("/dev/zero")) is None
    assert source(lambda: path.symlink_to("/proc/kmsg")) is None
    assert source(lambda: path.symlink_to(path)) is None
    path.unlink()
    assert frames_of(target.pid)[0]["source"] is None


def test_subprocesses(launch, tmp_path):
    """Each process has its own files."""
    parent, child = tmp_path / "parent.py", tmp_path / "child.py"
    parent.write_text("import subprocess, sys\nsubprocess.call([sys.executable, sys.argv[1]])\n")
    child.write_text(BLOCK)
    target = launch([*DEBIAN.command, parent, child])
    for pid in descendants(target.pid):
        at_rest(pid)
    threads = json.loads(run("dump", "--json", "--source", "--subprocesses", "--pid", at_rest(target.pid)).check().out)
    assert [thread["frames"][-1]["source"] for thread in threads] == [
        "subprocess.call([sys.executable, sys.argv[1]])", "os.read(0, 1)"]
    out = run("dump", "--source", "--subprocesses", "--pid", target.pid).check().out
    assert out.index("subprocess.call(") < out.index("Parent Process") < out.index("        os.read(0, 1)\n")


@pytest.mark.parametrize("newline", [b"\n", b"\r\n", b"\r"], ids=["lf", "crlf", "cr"])
def test_line_ends(block_in, newline):
    target, _ = block_in("ends.py", BLOCK.encode().replace(b"\n", newline))
    assert frames_of(target.pid)[0]["source"] == "os.read(0, 1)"


def test_encodings(block_in):
    """A byte order mark does not count. A line that is not UTF-8 is shown without carets: the columns count other bytes."""
    target, _ = block_in("bom.py", b"\xef\xbb\xbfimport os; print(1, flush=True); os.read(0, 1); 'x'\n")
    assert source_of(frames_of(target.pid)[0]) == "os.read(0, 1)"
    target, _ = block_in("latin.py", b"# coding: latin-1\nimport os; print(1, flush=True); '\xe4'; os.read(0, 1)\n")
    out = run("dump", "--pid", at_rest(target.pid), "--source").check().out
    assert "'\ufffd'; os.read(0, 1)\n" in out and "^" not in out, out


def test_long_line(block_in):
    line = "import os; print(1, flush=True); os.read(0, 1); x = '%s'\n" % ("漢" * 5000)
    target, _ = block_in("long.py", line.encode())
    frame = frames_of(target.pid)[0]
    assert frame["source"].endswith("漢...") and len(frame["source"].encode()) <= 515 and source_of(frame) == "os.read(0, 1)"
    target, _ = block_in("far.py", line.replace("os.read(0, 1); ", "").replace("\n", "; os.read(0, 1)\n").encode())
    out = run("dump", "--pid", at_rest(target.pid), "--source").check().out
    assert "漢...\n" in out and "^" not in out


def test_hostile_line(block_in):
    target, _ = block_in("hostile.py", "import os; print(1, flush=True); x = '\x1b]0;x\x07\u202e\u200b', os.read(0, 1)\n".encode())
    lines = run("dump", "--pid", at_rest(target.pid), "--source").check().out.split("\n")
    shown = next(i for i, line in enumerate(lines) if "\\x1b]0;x\\x07\\u202e\\u200b'" in line)
    assert lines[shown].index("os.read") == lines[shown + 1].index("^") and lines[shown + 1].count("^") == len("os.read(0, 1)")


def test_relative_path(launch, inside, python):
    """Relative to the working directory of the target."""
    place, path = inside(python)
    (place / "deep").mkdir()
    (place / "app.py").write_text("import os, sys\nos.chdir(sys.argv[1])\n"
                                  "exec(compile(open('deep/app2.py').read(), 'deep/app2.py', 'exec'))\n")
    (place / "deep" / "app2.py").write_text("sys.stdout.write('1\\n'); sys.stdout.flush()\nos.read(0, 1)  # here\n")
    frame = frames_of(launch([*python.command, path + "/app.py", path]).pid)[0]
    assert (frame["filename"], frame["source"]) == ("deep/app2.py", "os.read(0, 1)  # here"), frame


@by_gcore
def test_core(spawn, python, scratch):
    """The same lines, from the files on this machine, or those below --root."""
    target = spawn(python, "source_lines.py")
    core = gcore(target, scratch)
    root = ["--root", python.root] if python.root != pathlib.Path("/") else []
    frames = json.loads(run("dump", "--json", "--source", "--core", core, *root).check().out)
    main = next(t["frames"] for t in frames if any(f["name"] == "far" for f in t["frames"]))
    wanted = frames_of(target.pid)
    keys = ("name", "line", "source", "end_line", "column", "end_column")
    assert [[f[k] for k in keys] for f in main] == [[f[k] for k in keys] for f in wanted]
    empty = scratch / "empty"
    empty.mkdir()
    result = run("dump", "--json", "--source", "--core", core, "--root", empty)
    assert '"source": "' not in result.out


def test_native(launch, tmp_path):
    """The line of a C function with debug info."""
    (tmp_path / "lib.c").write_text("#include <unistd.h>\nint waits(int fd)\n{\n    char c;\n    return (int)read(fd, &c, 1) + 1;\n}\n")
    subprocess.run(["gcc", "-g", "-O1", "-shared", "-fPIC", "-o", tmp_path / "lib.so", tmp_path / "lib.c"], check=True)
    target = launch([*DEBIAN.command, "-c", "import ctypes; lib = ctypes.CDLL(%r); print(1, flush=True); lib.waits(0)"
                     % str(tmp_path / "lib.so")])
    frame = by_name(frames_of(target.pid, "--native"))["waits"]
    assert frame["source"] == "    return (int)read(fd, &c, 1) + 1;" and frame["column"] is None
    out = run("dump", "--pid", target.pid, "--native", "--source").check().out
    assert "    waits (lib.c:5)\n        return (int)read(fd, &c, 1) + 1;\n" in out


# ---- colors

@pytest.fixture
def dumped(spawn):
    return ["dump", "--pid", at_rest(spawn(DEBIAN, "source_lines.py").pid)]


@pytest.mark.parametrize("flags", [[], ["--source"], ["--locals"]], ids=lambda f: "".join(f) or "plain")
def test_color(dumped, flags):
    """On a terminal. Without the color codes, the text is the same as in a file. Without waits, which name what we do, too."""
    flags = [*flags, "--no-waits"]
    plain = run(*dumped, *flags).check().out
    shown = on_terminal(*dumped, *flags, TERM="xterm")
    assert "\x1b" not in plain and SGR.sub("", shown) == plain
    assert "(\x1b[2midle\x1b[0m)" in shown and "\x1b[1mblock\x1b[0m (\x1b[36msource_lines.py:18\x1b[0m)" in shown
    assert ("\x1b[1mos.read(fd, n)\x1b[0m" in shown) == ("\x1b[1;31m^" in shown) == ("--source" in flags)


def test_no_color(dumped):
    dumped = [*dumped, "--source", "--no-waits"]
    plain = run(*dumped).check().out
    for env in ({"NO_COLOR": "1"}, {"NO_COLOR": "1", "FORCE_COLOR": "1"}, {"TERM": "dumb"}, {"TERM": ""}):
        assert on_terminal(*dumped, **{"TERM": "xterm", **env}) == plain, env
    assert SGR.search(on_terminal(*dumped, TERM="xterm", NO_COLOR=""))
    assert "\x1b" not in on_terminal(*dumped, "--json", TERM="xterm")
    assert "\x1b" not in on_terminal(*dumped, program=PY_SPY, TERM="xterm")


@pytest.mark.parametrize("variable", ["FORCE_COLOR", "CLICOLOR_FORCE"])
def test_forced_color(dumped, variable):
    assert SGR.search(run(*dumped, env=clean_env(**{variable: "1"})).check().out)
    assert not SGR.search(run(*dumped, env=clean_env(**{variable: "0"})).check().out)
    assert not SGR.search(run(*dumped, program=PY_SPY, env=clean_env(**{variable: "1"})).check().out)
