"""Provokes each error: one line says what happened, one says what to do, and the status is right."""
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

import pytest
from processes import at_rest
from profiles import record_enough, some_samples
from program import PY_SPY, SPYGLASS, WAIT, run
from pythons import DEBIAN, ROOT

BOTH = pytest.mark.parametrize("program", [SPYGLASS, PY_SPY], ids=["spyglass", "py-spy"])
FREE_PID = 2 ** 22 + 5  # beyond the largest PID


def dump_and_record(pid, tmp_path):
    return [["dump", "--pid", str(pid)], ["dump", "--json", "--pid", str(pid)],
            ["record", "--pid", str(pid), "-d", "1", "-o", str(tmp_path / "x.svg")]]


@BOTH
def test_no_such_pid(tmp_path, program):
    assert not os.path.exists("/proc/%d" % FREE_PID)
    for args in dump_and_record(FREE_PID, tmp_path):
        result = run(*args, program=program).check(1)
        assert "Failed to get process executable name. Check that the process is running." in result.err, result
        assert result.out == "" or "record" in args


@BOTH
def test_not_python(launch, tmp_path, program):
    target = launch(["sh", "-c", "echo 1; exec sleep 1000"])
    at_rest(target.pid)
    for args in dump_and_record(target.pid, tmp_path):
        result = run(*args, program=program).check(1)
        assert "Error: Failed to find python version from target process" in result.err, result
    assert not (tmp_path / "x.svg").exists()


@BOTH
def test_kernel_thread(tmp_path, program):
    try:
        command = pathlib.Path("/proc/2/comm").read_text()
    except OSError:
        command = ""
    if command != "kthreadd\n":
        pytest.skip("no kernel thread is visible in this PID namespace")
    for args in dump_and_record(2, tmp_path):
        result = run(*args, program=program).check(1)
        assert "process 2 is a kernel thread and runs no Python" in result.err, result


@BOTH
def test_permission(spawn, program):
    """Another user's process: the word Permission, the cause, and a command to paste."""
    if os.getuid() != 0:
        pytest.skip("needs root, to become another user")
    target = spawn(DEBIAN, "situations.py", "plain")
    copy = tempfile.mkdtemp(prefix="spyglass-", dir="/tmp")  # a directory that the user `nobody` may enter, unlike the tree
    os.chmod(copy, 0o777)
    shutil.copy(program, copy)
    try:
        for args in dump_and_record(target.pid, pathlib.Path(copy)):
            result = run("--reuid", "65534", "--regid", "65534", "--clear-groups", copy + "/" + os.path.basename(program),
                         *args, program="/usr/bin/setpriv").check(1)
            assert "Permission" in result.err, result
            assert re.search(r"user|uid", result.err), result
            assert re.search(r"sudo|setcap|SYS_PTRACE", result.err), result
    finally:
        shutil.rmtree(copy)


@BOTH
@pytest.mark.parametrize("args, near", [
    (["dump", "--pdi", "1"], "--pid"),
    (["record", "--durration", "1", "--pid", "1"], "--duration"),
    (["record", "--subproceses", "--pid", "1"], "--subprocesses"),
    (["recrod", "--pid", "1"], "record"),
    (["record", "-f", "flamegrph", "--pid", "1"], "flamegraph"),
], ids=lambda v: " ".join(v) if isinstance(v, list) else v)
def test_suggestion(program, args, near):
    result = run(*args, program=program).check(2)
    assert near in result.err and not result.out, result


@BOTH
@pytest.mark.parametrize("args", [
    ["dump", "--pid", "abc"], ["dump", "--pid", "-1"], ["dump", "--pid", "0"], ["dump", "--pid", "99999999999999"],
    ["record", "-r", "0", "-p", "1"], ["record", "-r", "-5", "-p", "1"], ["record", "-r", "nan", "-p", "1"],
    ["record", "-r", "fast", "-p", "1"], ["record", "-d", "-1", "-p", "1"], ["record", "-d", "x", "-p", "1"],
    ["record", "-p", "1", "-f"], ["completions", "tcsh"], ["nonsense"],
], ids=" ".join)
def test_bad_arguments(program, args):
    result = run(*args, program=program).check(2)
    assert result.err.strip() and not result.out, result


@BOTH
@pytest.mark.parametrize("command", ["dump", "record"])
def test_nothing_to_profile(program, command):
    """Neither a PID nor a program, and no terminal."""
    result = run(command, program=program)
    assert result.status == 2 and "no process given; use %sPID" % ("--pid " if program == PY_SPY else "") in result.err, result


def test_script_without_python(tmp_path):
    """The file exists, so "No such file or directory" alone would be no help. spyglass itself runs scripts of Python."""
    (tmp_path / "x.py").write_text("pass")
    (tmp_path / "tool").write_text("#!/bin/sh\n")
    for program, name, hint in ((PY_SPY, "x.py", "record -- python3 x.py"), (PY_SPY, "./x.py", "record -- python3 ./x.py"),
                                (SPYGLASS, "tool", "record -- ./tool")):
        result = run("record", name, cwd=tmp_path, program=program).check(1)
        assert hint in result.err, result


def test_unknown_extension(spawn, tmp_path):
    """It used to get a flame graph in a file that no program would open as such. For py-spy's callers, it still does."""
    for name in ("x.html", "x.pb.gz"):
        result = run("record", "-o", tmp_path / name, "--", *DEBIAN.command, "-c", "pass").check(2)
        assert ".svg (flamegraph)" in result.err and ".json (speedscope)" in result.err, result
    assert not list(tmp_path.iterdir())
    record_enough(some_samples, "--pid", spawn(DEBIAN, "busy.py").pid, "-f", "raw", out=tmp_path / "x.html")


def test_list(spawn):
    target = spawn(DEBIAN, "situations.py", "plain")
    row = re.search(r"^ *%d  3\.11\.\d+ +\S+ +\d+%% +\d+ +\S+ +.*situations.py plain" % target.pid, run("list").check().out, re.M)
    assert row, run("list")
    rows = {row["pid"]: row for row in json.loads(run("list", "--json").check().out)}
    row = rows[target.pid]
    assert row["python"].startswith("3.11.") and row["threads"] >= 1 and row["uid"] == os.getuid(), row
    assert row["cpu_percent"] >= 0 and row["command"].endswith("situations.py plain"), row


def test_list_of_another_user(spawn):
    """What cannot be read is counted."""
    if os.getuid() != 0:
        pytest.skip("needs root, to become another user")
    target = spawn(DEBIAN, "situations.py", "plain")
    with tempfile.TemporaryDirectory(prefix="spyglass-", dir="/tmp") as copy:
        os.chmod(copy, 0o755)
        shutil.copy(SPYGLASS, copy)
        result = run("--reuid", "65534", "--regid", "65534", "--clear-groups", copy + "/spyglass", "list",
                     program="/usr/bin/setpriv").check()
    assert str(target.pid) not in result.out.split(), result
    assert re.search(r"\d+ Python process(es)? of other users cannot be read: run spyglass list as root", result.err), result


@BOTH
@pytest.mark.parametrize("args", [["--version"], ["-V"], ["--help"], ["-h"], ["record", "--help"], ["dump", "-h"], ["help"]],
                         ids=" ".join)
def test_help(program, args):
    result = run(*args, program=program).check()
    assert result.out.strip() and not result.err
    if args[0] in ("--version", "-V"):
        assert re.match(r"%s \d+\.\d+\.\d+" % os.path.basename(program), result.out)


@BOTH
@pytest.mark.parametrize("shell", ["bash", "zsh", "fish", "elvish", "powershell"])
def test_completions(program, shell):
    result = run("completions", shell, program=program).check()
    assert "subprocesses" in result.out and os.path.basename(program) in result.out
    if shell == "bash":
        subprocess.run(["bash", "-n"], input=result.raw, check=True)


def test_completion_of_ray():
    """The Python package parses the flags of `ray`; the completion scripts have a copy of their names."""
    code = ("import json, sys\n"
            "from unittest import mock\n"
            "sys.modules['ray'] = mock.MagicMock(__path__=[])  # the parser does not need it\n"
            "import spyglass.ray as r\n"
            "commands = r._parser()._subparsers._group_actions[0].choices\n"
            "print(json.dumps({n: [f for a in c._actions for f in a.option_strings if f[1] == '-'] for n, c in commands.items()}))")
    done = subprocess.run([sys.executable, "-c", code], env={**os.environ, "PYTHONPATH": str(ROOT / "python")},
                          stdout=subprocess.PIPE, check=True)
    for command, flags in json.loads(done.stdout).items():
        words = re.search(r"%s\) words=\"(--address [^\"]*)\"" % command, run("completions", "bash").check().out).group(1)
        assert sorted(words.split()) == sorted(flags), command


def test_closed_pipe(spawn):
    """The reader closes the pipe: no crash, no hang."""
    target = spawn(DEBIAN, "situations.py", "deep")
    done = subprocess.run("%s dump --pid %d | head -c 10" % (SPYGLASS, target.pid), shell=True, timeout=WAIT,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert len(done.stdout) == 10
    assert b"Sanitizer" not in done.stderr


def test_dump_to_full_disk(spawn):
    target = spawn(DEBIAN, "situations.py", "plain")
    for flags in ([], ["--json"]):
        with open("/dev/full", "w") as full:
            done = subprocess.run([SPYGLASS, "dump", *flags, "--pid", str(target.pid)], stdout=full,
                                  stderr=subprocess.PIPE, timeout=WAIT)
        assert done.returncode == 1 and b"No space left" in done.stderr, done


HUGE_STACKS = {
    "deeper than 262144 frames": "def f(n):\n    f(n - 1) if n else stop()\nrun = lambda: f(270000)\n",
    "more than 32768 functions": "def f(i):\n    functions[i](i + 1)\n"
                                 "functions = [type(f)(f.__code__.replace(), globals()) for _ in range(33000)]\n"
                                 "functions.append(lambda i: stop())\nrun = lambda: f(0)\n"}


@pytest.mark.since(3, 11)  # before, each call of a Python function needs a part of the C stack
@pytest.mark.parametrize("reason", HUGE_STACKS)
def test_huge_stack(launch, python, reason):
    """spyglass names the limit. The other thread is shown."""
    code = ("import os, sys, threading\nsys.setrecursionlimit(10 ** 6)\n"
            "def stop():\n    os.write(1, b'{}\\n')\n    threading.Event().wait()\n"
            "%sthread = threading.Thread(target=run)\nthread.start()\nthread.join()\n")
    target = launch([*python.command, "-c", code % HUGE_STACKS[reason]])
    result = run("dump", "--pid", at_rest(target.pid)).check()
    assert "Note: could not read 1 thread(s): %s\n" % reason in result.err, result
    assert "MainThread" in result.out and "join" in result.out, result
