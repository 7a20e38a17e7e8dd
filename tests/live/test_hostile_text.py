"""No control character and no invisible one reaches the terminal, wherever the text comes from: names in the target, paths,
arguments, the environment, files that are read. Files that spyglass writes keep the names, and stay valid."""
import json
import os
import shutil
import subprocess
import sys
import unicodedata

import pytest
from core_files import by_gcore
from profiles import FORMATS, READ, WORK
from program import PY_SPY, SANITIZED, SPYGLASS, TARGETS, WAIT, clean_env, on_terminal
from pythons import DEBIAN, ROOT

# Everything that may not be shown as it is. No slash and no NUL, so it can be the name of a file.
TEXT = ("\x1b]0;x\x07\r\n\t\x7f\x9b31m\xad\u034f\u061c\u115f\u180e\u200b\u200c\u200d\u200e\u200f\u2028\u2029\u202a\u202e"
        "\u2060\u2064\u2066\u2069\u206f\u3164\ufeff\ufffb\U000e0001\U000e0041\U000e007f\U000e0100|")
NASTY = os.fsdecode(TEXT.encode() + b"\xff\xc3|")  # also bytes that are not UTF-8; as an argument of a process
BLANK = "\u034f\u115f\u1160\u17b4\u17b5\u180b\u180c\u180d\u180f\u3164\uffa0"  # not in these categories, but invisible
HIDDEN = ("Cc", "Cf", "Cs", "Zl", "Zp")


def check_shown(*streams):
    """The streams of a terminal: valid UTF-8, in which only newlines control anything."""
    for data in streams:
        text = data.decode("utf-8")
        bad = {hex(ord(c)) for c in text if c != "\n" and (unicodedata.category(c) in HIDDEN or c in BLANK
                                                           or 0xe0000 <= ord(c) <= 0xe0fff)}
        assert not bad, (sorted(bad), text)


def show(*args, program=SPYGLASS, **options):
    """Runs it, checks both streams, and returns them."""
    options.setdefault("env", clean_env())
    done = subprocess.run([str(program), *map(str, args)], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                          timeout=WAIT, **options)
    assert done.returncode >= 0 and done.returncode != 99, done
    check_shown(done.stdout, done.stderr)
    return done


@pytest.fixture
def nasty_place(tmp_path):
    place = tmp_path / NASTY
    place.mkdir()
    return place


@pytest.fixture
def nasty_target(launch, nasty_place):
    """Everything about it is hostile: also its executable, its script and its arguments."""
    exe, script = nasty_place / ("python" + NASTY), nasty_place / (NASTY + ".py")
    shutil.copy(os.path.realpath(DEBIAN.command[0]), exe)
    shutil.copy(TARGETS / "hostile_names.py", script)
    return launch([exe, script, TEXT, NASTY], env={"NASTY": NASTY, "PYTHONHOME": "/usr"})


@pytest.mark.parametrize("flags", [
    [], ["--full-filenames"], ["--locals"], ["-ll", "--show-secrets"], ["--json", "-l"], ["--subprocesses"], ["--native"],
    ["--source"], ["--nonblocking"], ["--log-level", "debug"]], ids=" ".join)
@pytest.mark.parametrize("program", [SPYGLASS, PY_SPY], ids=["spyglass", "py-spy"])
def test_dump(nasty_target, flags, program):
    done = show("dump", "--pid", nasty_target.pid, *flags, program=program)
    assert done.returncode == 0 and b"wait\\" in done.stdout, done
    if "--json" in flags:  # the data is what it was
        thread = next(t for t in json.loads(done.stdout) if any(f["name"].startswith("wait") for f in t["frames"]))
        assert thread["thread_name"] == TEXT and thread["frames"][-2]["name"] == "wait" + TEXT, thread


@pytest.mark.parametrize("format", FORMATS)
def test_record(nasty_target, nasty_place, format):
    flags = ["--pid", nasty_target.pid, "--idle", "--threads", "--subprocesses", "--format", format]
    out = nasty_place / ("out" + NASTY)
    seconds = 1
    while True:  # until it has the stack
        done = show("record", *flags, "--duration", seconds, "--output", out, "--log-level", "debug")
        counts = READ[format](out.read_text(encoding="utf-8"))[0] if done.returncode == 0 else {}
        if any(name.startswith("wait") for name in counts):
            break
        seconds *= 2
    if format in ("speedscope", "chrometrace"):
        assert counts["wait" + TEXT] > 0, counts
    show("record", *flags, "--duration", seconds, "--output", "-")


def test_doctor(nasty_target):
    for flags in ([], ["--json"]):
        assert b"dump" in show("doctor", "--pid", nasty_target.pid, *flags).stdout


def test_list_of_processes(nasty_target):
    """dump without a PID lists them."""
    written = on_terminal("dump")
    check_shown(written.encode())
    assert "%d  3." % nasty_target.pid in written, written


@by_gcore
def test_core(nasty_target, nasty_place):
    subprocess.run(["gcore", "-o", str(nasty_place / "core"), str(nasty_target.pid)], stdin=subprocess.DEVNULL,
                   stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=True, timeout=WAIT)
    core, = nasty_place.glob("core.*")
    moved = core.rename(nasty_place / ("core" + NASTY))
    for flags in ([], ["--locals", "--full-filenames"], ["--json"], ["--log-level", "debug"]):
        done = show("dump", "--core", moved, *flags)
        assert done.returncode == 0 and b"wait" in done.stdout, done
    nasty_target.kill()
    (nasty_place / ("python" + NASTY)).unlink()
    for flags in ([], ["--root", nasty_place], ["--exe", nasty_place / NASTY], ["--exe", "/bin/sh"]):
        show("dump", "--core", moved, *flags)


def test_core_errors(nasty_place):
    empty, text, packed = (nasty_place / (name + NASTY) for name in ("empty", "text", "packed"))
    empty.write_bytes(b"")
    text.write_bytes(b"no core file" * 1000)
    packed.write_bytes(b"\x28\xb5\x2f\xfd" + b"x" * 5000)
    for core in (nasty_place, nasty_place / "none", empty, text, packed):
        done = show("dump", "--core", core, env=clean_env(TMPDIR=str(nasty_place / "tmp")))
        assert done.returncode == 1 and b"Error: " in done.stderr, done


# NASTY stands for the text, PLACE for a directory with that name.
ERRORS = [
    ["NASTY"], ["NASTY", "--pid", "1"], ["--NASTY"], ["-NASTY"], ["dump", "NASTY"], ["dump", "--NASTY"], ["dump", "-NASTY"],
    ["dump", "--pid", "NASTY"], ["dump", "--pid=1NASTY"], ["dump", "--json=NASTY", "--pid", "1"],
    ["dump", "--pid", "--NASTY"], ["dump", "--log-level", "NASTY", "--pid", "1"], ["dump", "--status-fd", "NASTY"],
    ["dump", "--core", "NASTY", "--exe", "NASTY"], ["dump", "--core", "NASTY", "--root", "NASTY"],
    ["record", "--pid", "1NASTY"], ["record", "--rate", "NASTY"], ["record", "--rate", "1e99NASTY"], ["record", "--duration", "NASTY"],
    ["record", "--format", "NASTY", "--pid", "1"], ["record", "--mode", "NASTY", "--pid", "1"], ["record", "--pid", "1", "--", "NASTY"],
    ["record", "-o", "NASTY/x.svg", "--pid", "1"], ["record", "-o", "PLACE", "--pid", "1"], ["record", "-o", "PLACE/x/y", "--pid", "1"],
    ["record", "-o", "/proc/NASTY", "--pid", "1"], ["record", "--", "NASTY"], ["record", "--", "./NASTY"], ["record", "--", "PLACE"],
    ["record", "-o", "/dev/full", "--", "PLACE/shell", "-c", ":"], ["record", "--", "PLACE/shell", "-c", "exit 3"],
    ["record", "-d", "0.01", "--kill", "--", "PLACE/shell", "-c", "read x; exit 3"],
    ["merge", "NASTY"], ["merge", "-o", "PLACE", "NASTY"], ["merge", "PLACE"], ["merge", "NASTY=PLACE/bad", "-o", "PLACE/m.svg"],
    ["merge", "NASTY;NASTY=PLACE/raw", "-o", "PLACE/m.txt", "--title", "NASTY"], ["merge", "PLACE/raw", "-o", "-", "-f", "raw"],
    ["merge", "PLACE/raw", "--format", "NASTY"], ["completions", "NASTY"], ["completions", "bash", "NASTY"],
    ["doctor", "NASTY"], ["doctor", "--pid", "NASTY"], ["help", "NASTY"], ["top", "NASTY"]]


@pytest.mark.parametrize("program", [SPYGLASS, PY_SPY], ids=["spyglass", "py-spy"])
@pytest.mark.parametrize("args", ERRORS, ids=" ".join)
def test_arguments(nasty_place, args, program):
    (nasty_place / "bad").write_bytes(b"no count" + NASTY.encode("utf-8", "surrogateescape") + b"\n" + b"a;b 12\n")
    (nasty_place / "raw").write_bytes(b"a\x1b[31m\xe2\x80\x8b;b\xff\xf3\xa0\x81\x81 12\n")
    os.symlink("/bin/sh", nasty_place / "shell")
    args = [arg.replace("NASTY", NASTY).replace("PLACE", str(nasty_place)) for arg in args]
    for more in ([], ["--log-level", "debug"]) if args[0] in ("dump", "record", "merge", "doctor") else ([],):
        show(args[0], *more, *args[1:], program=program, cwd=nasty_place)


@pytest.mark.parametrize("variable", ["SPYGLASS_LOG", "TMPDIR", "TERM", "COLUMNS", "LANG", "PATH", "SUDO_USER", "SUDO_UID", "HOME"])
def test_environment(variable):
    for args in (["dump", "--pid", "NASTY"], ["record", "--", "no-such-program"], ["dump", "--core", "/no/core"], ["doctor"]):
        show(*args, env=clean_env(**{variable: NASTY}))


@pytest.mark.skipif(SANITIZED, reason="reports name the program, too")
def test_name_of_program(nasty_place):
    link = nasty_place / NASTY
    link.symlink_to(SPYGLASS)
    for args in (["--help"], [], ["dump"], ["dump", "--pid", "1", "--log-level", "debug"], ["doctor", "--pid", os.getpid()]):
        show(*args, program=link)


def test_wrapper(nasty_place):
    """A program with a hostile name that starts Python: `Following ..., started by ...`."""
    exe, script = nasty_place / ("python" + NASTY), nasty_place / ("start" + NASTY)
    shutil.copy(os.path.realpath(DEBIAN.command[0]), exe)
    script.write_text("#!/bin/sh\n\"$@\"\nexit 0\n")
    script.chmod(0o755)
    done = show("record", "-f", "raw", "-o", nasty_place / "out", "--", script, exe, "-c", WORK % 1,
                env=clean_env(PYTHONHOME="/usr"))
    assert b"start\\x1b]0;x" in done.stderr, done


# ---- the Python package ----

def in_package(code, **env):
    return show("-c", code, program=sys.executable, env=clean_env(PYTHONPATH=str(ROOT / "python"), **env))


def test_package_dump(nasty_target):
    done = in_package("import spyglass\nfor thread in spyglass.dump(%d): print(thread)" % nasty_target.pid,
                      SPYGLASS_BINARY=str(SPYGLASS))
    assert done.stdout.count(b"wait\\x1b]0;x") == 1, done


@pytest.mark.parametrize("call", ["spyglass.dump(1, extra_args=[NASTY])", "spyglass.record(1, extra_args=['--' + NASTY]).start()",
                                  "spyglass.dump(1, binary=NASTY)", "spyglass.dump(1, binary='/bin/echo' + NASTY)"])
def test_package_errors(call):
    code = "import spyglass\nNASTY = %r\ntry:\n    %s\nexcept Exception as error:\n    print('Error:', error)" % (NASTY, call)
    assert b"Error:" in in_package(code, SPYGLASS_BINARY=str(SPYGLASS)).stdout


def test_package_command(nasty_place):
    (nasty_place / "ray.py").write_text("")
    env = clean_env(PYTHONPATH=str(ROOT / "python"), SPYGLASS_BINARY=str(nasty_place / "none"))
    assert b"Error: " in show("-m", "spyglass", "dump", program=sys.executable, env=env).stderr
    show("-m", "spyglass", "ray", "dump", NASTY, program=sys.executable, env=env)
