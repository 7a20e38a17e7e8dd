"""merge, with files as record writes them and with broken files; and record --with-parent, which the Python package
uses."""
import json
import os
import re
import resource
import signal
import subprocess
import threading
import xml.etree.ElementTree

import pytest

from processes import at_rest, process_state
from profiles import read_raw, record_enough
from program import PY_SPY, SANITIZED, SPYGLASS, WAIT, clean_env, run, wait_until
from pythons import DEBIAN

LINES = "<module> (a.py:6) 2\n<module> (a.py:6);f (a.py:3) 99\n"


@pytest.fixture
def files(tmp_path):
    (tmp_path / "a.txt").write_text(LINES)
    (tmp_path / "b.txt").write_text("g (b.py:1) 7\n")
    return tmp_path


def merge(files, *args, **options):
    return run("merge", *args, cwd=files, **options)


def parse_raw(text):
    return {tuple(line.rsplit(" ", 1)[0].split(";")): int(line.rsplit(" ", 1)[1]) for line in text.splitlines()}


@pytest.mark.parametrize("flags", [[], ["--threads"], ["--threads", "--subprocesses"], ["--function", "--native"]], ids=" ".join)
def test_round_trip(flags, spawn, tmp_path):
    """merge leaves a raw profile unchanged, and each format has all of its stacks."""
    target = spawn(DEBIAN, "busy.py", "2")
    text, _ = record_enough(lambda text: len(parse_raw(text)) > 1, "--pid", target.pid, *flags, out=tmp_path / "a.txt")
    stacks = parse_raw(text)
    assert merge(tmp_path, "-f", "raw", "-o", "-", "a.txt").check().out == text
    samples = sum(stacks.values())
    below = merge(tmp_path, "-f", "raw", "-o", "-", "node 1;worker=a.txt", "node 2=a.txt").check().out
    assert parse_raw(below) == {root + stack: n for stack, n in stacks.items() for root in (("node 1", "worker"), ("node 2",))}

    merge(tmp_path, "-o", "all.svg", "node 1=a.txt", "node 2=a.txt").check()
    titles = [e.text for e in xml.etree.ElementTree.parse(tmp_path / "all.svg").iter("{http://www.w3.org/2000/svg}title")]
    assert "node 1 (%s samples, 50.00%%)" % format(samples, ",") in titles and titles[0] == "2 profiles"

    shown = json.loads(merge(tmp_path, "-f", "speedscope", "-o", "-", "node 1=a.txt", "node 2=a.txt").check().out)
    assert all(p["name"].split(" / ")[0] in ("node 1", "node 2") for p in shown["profiles"])
    assert sum(len(p["samples"]) for p in shown["profiles"]) == 2 * len(stacks)
    assert sum(round(w * 100) for p in shown["profiles"] for w in p["weights"]) == 2 * samples
    assert all(abs(sum(p["weights"]) - p["endValue"]) < 1e-6 for p in shown["profiles"])

    events = json.loads(merge(tmp_path, "-f", "chrometrace", "-o", "-", "a.txt").check().out)
    depth = {}
    for event in events:
        if event["ph"] in "BE":
            depth[event["pid"]] = depth.get(event["pid"], 0) + (1 if event["ph"] == "B" else -1)
            assert depth[event["pid"]] >= 0
    assert set(depth.values()) == {0}


def test_arguments(files):
    (files / "x=y.txt").write_text("h (c.py:1) 1\n")
    raw = lambda *args: parse_raw(merge(files, "-f", "raw", "-o", "-", *args).check().out)
    assert raw("x=y.txt") == {("h (c.py:1)",): 1}  # a file name with '='
    assert raw("r=x=b.txt") == {("r=x", "g (b.py:1)"): 7}  # the last '=' separates
    assert raw("=b.txt") == {("g (b.py:1)",): 7}
    assert raw("b.txt", "b.txt") == {("g (b.py:1)",): 14}
    assert raw("ä;б=b.txt") == {("ä", "б", "g (b.py:1)"): 7}
    assert raw(";=b.txt") == {("?", "?", "g (b.py:1)"): 7}
    assert raw("\udcff\n=b.txt") == {("\ufffd\\n", "g (b.py:1)"): 7}
    assert parse_raw(merge(files, "-f", "raw", "-o", "-", "in=-", "b.txt").check().out) == {
        ("g (b.py:1)",): 7}  # nothing on standard input


def test_standard_input(files):
    done = subprocess.run([SPYGLASS, "merge", "-f", "raw", "-o", "-", "in=-"], input=b"f (a.py:3) 5", env=clean_env(),
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=WAIT)
    assert done.returncode == 0 and done.stdout == b"in;f (a.py:3) 5\n", done
    assert b"Wrote raw flamegraph data to '-'. Samples: 5" in done.stderr


def test_partial_reads(files):
    """Input arrives in pieces of any size, through a FIFO that is closed in the middle of a line."""
    os.mkfifo(files / "pipe")

    def write():
        with open(files / "pipe", "wb", buffering=0) as pipe:
            for piece in (b"f (a.p", b"y:1) 3\nlong", b"x" * 300000, b" (b.py:2) 4\n", b"\r\nh (c.py:9) 5"):
                pipe.write(piece)

    writer = threading.Thread(target=write)
    writer.start()
    out = merge(files, "-f", "raw", "-o", "-", "pipe").check().out
    writer.join()
    assert sorted(parse_raw(out).values()) == [3, 4, 5]


def test_messages(files):
    result = merge(files, "-o", "all.svg", "a.txt", "b.txt").check()
    assert not result.out and result.err == "spyglass> Wrote flamegraph data to 'all.svg'. Samples: 108\nspyglass> Open it in a browser: all.svg\n"
    result = merge(files, "-o", "all.svg", "--title", "<b>", "a.txt", program=PY_SPY).check()
    assert result.out.startswith("py-spy> Wrote ") and "<title>&lt;b&gt;</title>" in (files / "all.svg").read_text()
    result = merge(files, "a.txt").check()
    assert re.search(r"Wrote flamegraph data to 'merged-\d{4}-\d\d-\d\dT\d{6}.svg'", result.err), result
    shown = json.loads(merge(files, "-o", "-", "-f", "speedscope", "-r", "50", "b.txt").check().out)
    assert shown["profiles"][0]["endValue"] == 7 / 50 and shown["name"] == "1 profile"


@pytest.mark.parametrize("args, words", [
    (["missing.txt"], "missing.txt: No such file or directory"),
    (["r=missing.txt"], "missing.txt: No such file or directory"),
    (["."], "is a directory"),
    (["a.txt", "bad.txt"], "bad.txt, line 2: expected a stack, a space and a count"),
    (["big.txt"], "big.txt, line 1: the count is too large"),
    (["-o", "nowhere/x.svg", "a.txt"], "the directory 'nowhere' does not exist"),
    (["esc\x1b[31m.txt"], "esc\\x1b[31m.txt"),
])
def test_errors(args, words, files):
    (files / "bad.txt").write_text("f 1\nno count\nf 2\n")
    (files / "big.txt").write_text("f 99999999999999999\n")
    out = [] if "-o" in args else ["-o", "out.svg"]
    (files / "out.svg").write_text("as it was")
    result = merge(files, *out, *args).check(1)
    assert words in result.err and result.out == ""
    assert (files / "out.svg").read_text() == "as it was"


def test_usage(files):
    for args, words in ((["-o", "x.svg"], "at least one raw profile"), (["-", "-"], "only be read once"), (["--pid", "5", "a.txt"], "does not accept the flag"),
                        ([";" * 64 + "=a.txt"], "at most 64 levels")):
        assert words in merge(files, *args).check(2).err


def test_empty_profile(files):
    (files / "empty.txt").write_text("\n\n")
    assert merge(files, "-f", "raw", "-o", "-", "empty.txt").check().out == ""
    assert json.loads(merge(files, "-f", "speedscope", "-o", "-", "empty.txt").check().out)["profiles"] == []
    assert json.loads(merge(files, "-f", "chrometrace", "-o", "-", "empty.txt").check().out) == []
    result = merge(files, "-o", "x.svg", "empty.txt").check()
    assert "No stack counts found: the input contains no stacks" in result.err, result
    assert "No stack counts found: the input contains no stacks" in (files / "x.svg").read_text()


@pytest.mark.parametrize("program", [SPYGLASS, PY_SPY], ids=["spyglass", "py-spy"])
def test_empty_recording(spawn, tmp_path, program):
    """merge accepts a recording without samples, and passes on why it is empty."""
    target = spawn(DEBIAN, "situations.py", "plain")
    run("record", "-d", "0.5", "--pid", at_rest(target.pid), "-o", tmp_path / "a.txt", program=program).check()
    text = (tmp_path / "a.txt").read_text()
    assert re.fullmatch(r"\[No stack counts found: all \d+ stacks were idle.*\] 0\n", text), text
    assert merge(tmp_path, "-f", "raw", "-o", "-", "a.txt", program=program).check().out == text
    for word in ("a.txt", "node 1=a.txt"):
        result = merge(tmp_path, "-o", "all.svg", word, program=program).check()
        assert "stacks were idle" in (tmp_path / "all.svg").read_text() and "stacks were idle" in result.messages, result
        shown = json.loads(merge(tmp_path, "-f", "speedscope", "-o", "-", word, program=program).check().out)
        assert shown["profiles"] == [] and "stacks were idle" in shown["name"]
        assert json.loads(merge(tmp_path, "-f", "chrometrace", "-o", "-", word, program=program).check().out) == []
    (tmp_path / "b.txt").write_text("f (a.py:1) 3\n")
    assert merge(tmp_path, "-f", "raw", "-o", "-", "a.txt", "b.txt").check().out == "f (a.py:1) 3\n"


def limited():
    resource.setrlimit(resource.RLIMIT_AS, (1 << 30, 1 << 30))


def test_huge_line(files):
    """merge rejects a file without a newline instead of reading all of it."""
    with open(files / "huge.txt", "wb") as file:
        file.truncate(3 << 30)  # all zeros; a sparse file
    result = merge(files, "-o", "x.svg", "huge.txt", preexec_fn=None if SANITIZED else limited).check(1)
    assert "huge.txt, line 1: the line is too long" in result.err


def test_many_lines(files):
    """A hundred thousand different stacks, in bounded memory."""
    with open(files / "many.txt", "w") as file:
        for i in range(100000):
            file.write("root %d;f%d (a%d.py:%d);g%d (b.py:%d) %d\n" % (i % 20000, i, i % 99, i + 1, i % 1000, i % 7, i % 3 + 1))
    result = merge(files, "-o", "x.svg", "many.txt", preexec_fn=None if SANITIZED else limited).check()
    assert "Samples: %d" % sum(i % 3 + 1 for i in range(100000)) in result.err
    assert (files / "x.svg").stat().st_size < 4 << 20


# ---- record --with-parent ----

def test_ends_with_its_parent(spawn, tmp_path):
    """However the parent ends, also if it is not the target."""
    target = spawn(DEBIAN, "busy.py")
    out = tmp_path / "out.txt"
    code = ("import os, subprocess, sys\n"
            "child = subprocess.Popen([sys.argv[1], 'record', '--pid', sys.argv[2], '-o', sys.argv[3], '--with-parent',"
            " str(os.getpid())], stderr=subprocess.PIPE)\n"
            "child.stderr.readline()\n"
            "print(child.pid, flush=True)\n"
            "sys.stdin.readline()\n")
    parent = subprocess.Popen([DEBIAN.command[0], "-c", code, SPYGLASS, str(target.pid), out], stdin=subprocess.PIPE,
                              stdout=subprocess.PIPE, env=clean_env())
    profiler = int(parent.stdout.readline())
    # at least two samples: a later snapshot may omit a single one
    wait_until(lambda: os.kill(profiler, signal.SIGUSR1) or (out.exists() and read_raw(out.read_text())[0]["root"] > 1), "samples")
    assert process_state(profiler) not in (None, "Z")
    out.unlink()
    parent.send_signal(signal.SIGKILL)
    parent.wait()
    wait_until(lambda: process_state(profiler) in (None, "Z"), "the profiler to end")
    assert "root" in out.read_text()
    parent.stdin.close()
    parent.stdout.close()


def test_parent_already_gone(spawn, tmp_path):
    target = spawn(DEBIAN, "busy.py")
    result = run("record", "--pid", target.pid, "-o", tmp_path / "x.txt", "--with-parent", "1").check()
    assert "because the parent process exited" in result.err
    _, result = record_enough(lambda text: "root" in text, "--pid", target.pid, "--with-parent", os.getpid(), out=tmp_path / "y.txt")
    assert "because" not in result.err
