"""Words instead of flags: `spyglass PID`, `dump NAME`, `record PID`, `record script.py`, `record -m module`."""
import json
import os
import re
import shlex
import subprocess

import pytest
from profiles import WORK, record_enough, seen
from program import PY_SPY, SPYGLASS, clean_env, run
from pythons import DEBIAN, HOSTS

REPORT = "import json, os, sys\nprint(json.dumps([sys.executable, sys.argv, os.path.basename(sys.argv[0])]))\nsys.stdout.flush()\n"


def launched(tmp_path, *words, python="", path=(), **env):
    """Records in tmp_path; returns the line on what was launched, and what the script printed."""
    env = clean_env(PATH=os.pathsep.join([*map(str, path), "/usr/bin", "/bin"]), **env)
    result = run("record", "-f", "raw", "-o", "out", *words, cwd=str(tmp_path), env=env).check()
    line = re.search(r"^spyglass> Launched: (.*)$", result.err, re.M)
    return line and line.group(1), json.loads(result.out)


def put(path, text, executable=False):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755 if executable else 0o644)
    return path


@pytest.mark.parametrize("words", [[], ["dump"], ["d"]], ids=str)
def test_dump_pid(spawn, words):
    target = spawn(DEBIAN, "situations.py", "plain")
    expected = run("dump", "--pid", target.pid, "-l").check().out
    assert run(*words, target.pid, "-l").check().out == expected
    assert run(*words, hex(target.pid), "--locals").check().out == expected


def test_doctor_pid(spawn):
    target = spawn(DEBIAN, "situations.py", "plain")
    assert ("process: %d: " % target.pid) in run("doctor", target.pid).out


def test_record_pid(spawn, tmp_path):
    """A PID is a PID even if there is a file of that name, and flags may follow."""
    target = spawn(DEBIAN, "busy.py")
    put(tmp_path / str(target.pid), "", executable=True)
    record_enough(seen("root"), target.pid, "-f", "raw", out=tmp_path / "x", cwd=str(tmp_path))


def test_file_with_a_number(tmp_path):
    """No process has that PID, but there is such a file: the error says how to launch it."""
    put(tmp_path / "4194304", "#!/bin/sh\n", executable=True)
    result = run("record", 4194304, cwd=str(tmp_path)).check(1)
    assert "spyglass record ./4194304" in result.err, result


# --- scripts and modules ---

@pytest.mark.parametrize("host", HOSTS, ids=repr)
def test_script(tmp_path, host):
    """A script without an interpreter line runs with python3 from PATH, on each version. Its flags are its own."""
    python = tmp_path / "bin" / "python3"
    python.parent.mkdir()
    python.symlink_to(host.command[0])
    put(tmp_path / "script.py", REPORT + WORK % 0.3)
    line, (executable, argv, _) = launched(tmp_path, "script.py", "-d", "5", path=[python.parent])
    assert line == "%s script.py -d 5" % python
    assert executable == str(python) and argv == ["script.py", "-d", "5"]


def test_virtual_environment(tmp_path):
    """The active environment's Python comes first; a stale VIRTUAL_ENV does no harm."""
    python = tmp_path / "environment" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.symlink_to(DEBIAN.command[0])
    put(tmp_path / "it's one.py", REPORT + WORK % 0.3)
    line, (executable, _, _) = launched(tmp_path, "it's one.py", VIRTUAL_ENV=str(python.parents[1]))
    assert line == "%s 'it'\\''s one.py'" % python and executable == str(python)
    line, _ = launched(tmp_path, "./it's one.py", VIRTUAL_ENV=str(tmp_path / "gone"))
    assert line == "/usr/bin/python3 './it'\\''s one.py'"


@pytest.mark.parametrize("first, command", [("#!%s -B" % DEBIAN.command[0], DEBIAN.command[0] + " -B"),
                                            ("#! /usr/bin/env  python3", "/usr/bin/env python3"),
                                            ("#!/usr/bin/env -S X=1 python3 -u \r", "/usr/bin/env '-S X=1 python3 -u'")], ids=str)
def test_interpreter_line(tmp_path, first, command):
    """The script names its interpreter: with and without an ending, executable or not."""
    put(tmp_path / "tool", first + "\n" + REPORT + WORK % 0.3)
    assert launched(tmp_path, "tool", "x")[0] == command + " tool x"
    put(tmp_path / "tool", first.rstrip() + "\n" + REPORT + WORK % 0.3, executable=True)
    assert launched(tmp_path, "tool")[0] == command + " tool"  # it is not in PATH
    line, report = launched(tmp_path, "./tool")
    assert line is None and report[1] == ["./tool"]  # the kernel reads that line


def test_executable_script_without_interpreter_line(tmp_path):
    put(tmp_path / "script.py", REPORT + WORK % 0.3, executable=True)
    assert launched(tmp_path, "./script.py")[0] == "/usr/bin/python3 ./script.py"


@pytest.mark.parametrize("words", [["-m", "package.module"], ["-mpackage.module"], ["--module=package.module"]], ids=str)
def test_module(tmp_path, words):
    put(tmp_path / "package" / "module.py", REPORT + WORK % 0.3)
    line, (_, argv, name) = launched(tmp_path, "-t", *words, "-d", "5")
    assert line == "/usr/bin/python3 -m package.module -d 5" and argv[1:] == ["-d", "5"] and name == "module.py"


def test_default_name(tmp_path):
    """The file is named after the script, not after Python."""
    put(tmp_path / "script.py", WORK % 0.3)
    run("record", "-f", "raw", "script.py", cwd=str(tmp_path)).check()
    assert [p.name for p in tmp_path.glob("script.py-*.txt")]


def test_program_in_path(tmp_path):
    """A program in PATH is launched, although a script and a process have that name, too."""
    program = put(tmp_path / "bin" / "tool.py", "#!%s\n" % DEBIAN.command[0] + REPORT + WORK % 0.3, executable=True)
    put(tmp_path / "tool.py", "raise SystemExit(9)")
    line, (_, argv, _) = launched(tmp_path, "tool.py", "x", path=[program.parent])
    assert line is None and argv == [str(program), "x"]


def test_no_python(tmp_path):
    put(tmp_path / "script.py", "")
    for words in (["script.py"], ["-m", "script"]):
        result = run("record", *words, cwd=str(tmp_path), env=clean_env(PATH=str(tmp_path))).check(1)
        assert "there is no python3 in PATH" in result.err and " -- /path/to/python " in result.err, result


def test_missing_interpreter(tmp_path):
    put(tmp_path / "script.py", "#!/nowhere/python3\n")
    result = run("record", "script.py", cwd=str(tmp_path)).check(1)
    assert "'/nowhere/python3': No such file" in result.err and "record -- python3 script.py" in result.err, result


def test_exact_program(tmp_path):
    """After --, and as py-spy, a word is a program and nothing else."""
    put(tmp_path / "script.py", "")
    for program, words in ((SPYGLASS, ["--", "script.py"]), (PY_SPY, ["script.py"]), (PY_SPY, ["--", "script.py"])):
        result = run("record", *words, program=program, cwd=str(tmp_path)).check(1)
        assert "'script.py': No such file" in result.err and "record -- python3 script.py" in result.err, result


# --- names ---

def test_name(spawn, tmp_path):
    """A name shows the processes that match, with lines that work in a shell. Nothing is read, even if only one matches."""
    word = "name of %d" % os.getpid()
    targets = [spawn(DEBIAN, "situations.py", "plain", word) for _ in range(2)]
    result = run("dump", word, "--json").check(2)
    assert result.out == "" and "matches 2 Python processes" in result.err, result
    lines = re.findall(r"^  (spyglass .*)$", result.err, re.M)
    assert sorted(lines) == sorted("spyglass dump %d --json" % target.pid for target in targets)
    path = "%s:%s" % (SPYGLASS.parent, os.environ["PATH"])
    out = subprocess.check_output(lines[0], shell=True, env=clean_env(PATH=path))
    assert json.loads(out.decode())[0]["pid"] == int(lines[0].split()[2])

    targets[1].kill()
    out = tmp_path / "a b'c\x1b.txt"
    result = run("record", "-d", "0.5", "-o", out, "*%s*" % word).check(2)
    line = re.search(r"^  (spyglass .*)$", result.err, re.M).group(1)
    assert line == "spyglass record -d 0.5 -o '%s' %d" % (str(out).replace("'", "'\\''").replace("\x1b", "\\x1b"), targets[0].pid)
    assert shlex.split(line) and "\x1b" not in result.err and not out.exists() and "Run the line above." in result.err


def test_name_instead_of_command(spawn):
    """So does a name without a command, unless it resembles a command."""
    word = "name of %d" % os.getpid()
    target = spawn(DEBIAN, "situations.py", "plain", word, "dumpp")
    result = run(word, "-l").check(2)
    assert "'%s' is neither a command nor a process ID, but matches 1 Python process\n" % word in result.err, result
    assert re.findall(r"^  (spyglass .*)$", result.err, re.M) == ["spyglass %d -l" % target.pid] and not result.out
    for program, words in ((SPYGLASS, ["dumpp"]), (PY_SPY, [word]), (SPYGLASS, ["no " + word]), (SPYGLASS, ["help", word])):
        result = run(*words, program=program).check(2)
        assert "unknown command '%s'" % words[-1] in result.err and "matches" not in result.err, result


def test_unknown_name(tmp_path):
    result = run("dump", "no such process \x1b").check(2)
    assert "neither a process ID nor part of the command line" in result.err and "\x1b" not in result.err, result
    result = run("record", "-o", tmp_path / "x", "no-such-program").check(1)
    assert "'no-such-program': No such file" in result.err and "or Python process has this name" in result.err, result
    assert not (tmp_path / "x").exists(), result


def test_words_as_py_spy(spawn):
    """py-spy has no such words: a number or a name is an error that says what to write."""
    target = spawn(DEBIAN, "situations.py", "plain")
    for words in ([], ["dump"], ["record"]):
        result = run(*words, target.pid, program=PY_SPY).check(2)
        assert re.search(r"py-spy (dump|record) --pid %d" % target.pid, result.err), result
    assert "unexpected argument 'plain'" in run("dump", "plain", program=PY_SPY).check(2).err
