"""dump --group and group: equal stacks of many processes, who is elsewhere, and dumps from files."""
import json
import os
import re
import signal
import subprocess
import xml.etree.ElementTree

import pytest
from processes import at_rest, descendants
from program import PY_SPY, SPYGLASS, WAIT, clean_env, on_terminal, run, wait_until
from pythons import DEBIAN

ODD = 3
N = 8


def start(spawn, python, *args):
    """A job at rest: (target, its ranks)."""
    target = spawn(python, "ranks.py", *map(str, args))
    ranks = target.truth["ranks"]
    wait_until(lambda: len(descendants(target.pid)) >= int(args[0]) + 2 * (len(args) > 2), "the ranks")
    for pid in [target.pid, *descendants(target.pid)]:
        at_rest(pid)
    return target, ranks


def settle(target, pid, function):
    """Rank 0 goes on to `function`."""
    target.resume()
    wait_until(lambda: function in run("dump", "--pid", pid).out, function)
    at_rest(pid)


def test_outlier(python, spawn):
    """One of eight is named, with its place; the parent is not compared with them."""
    target, ranks = start(spawn, python, N, ODD)
    settle(target, ranks[0], "all_reduce")
    result = run("dump", "--group", "--subprocesses", "--pid", target.pid).check()
    lines = result.out.splitlines()
    assert lines[0] == "%d processes" % (N + 1) and not result.err, result
    assert re.fullmatch(r"rank 3 is elsewhere: in .*, called in load_batch \(ranks.py:\d+\)", lines[1]), result
    assert re.fullmatch(r"7 others are in .*, called in all_reduce \(ranks.py:\d+\)", lines[2]), result
    assert "MainThread of 8 ranks (RANK): ranks 0-7 (idle)" in lines, result
    assert result.out.index("    7: ranks 0-2,4-7 (idle)\n") < result.out.index("    1: rank 3 (idle)\n"), result
    assert "MainThread of 1 process: pid %d (idle)" % target.pid in lines, result
    assert "elsewhere" not in run("dump", "--group", "--pid", ",".join(map(str, ranks[4:]))).check().out


def test_files(spawn, tmp_path):
    """The same groups from files: our JSON has the ranks, the texts and the JSON of py-spy only the PIDs."""
    target, ranks = start(spawn, DEBIAN, N, ODD)
    settle(target, ranks[0], "all_reduce")
    job = ["--subprocesses", "--pid", target.pid]
    live = run("dump", "--group", *job).check().out
    (tmp_path / "a.json").write_text(run("dump", "--json", *job).check().out)
    assert run("group", "a.json", cwd=tmp_path).check().out == live
    for pid in ranks:
        (tmp_path / ("%d.json" % pid)).write_text(run("dump", "--json", "--pid", pid).check().out)
    one_each = run("group", *("%d.json" % pid for pid in ranks), cwd=tmp_path).check().out
    assert one_each.split("\n", 1)[1].strip() in live, one_each
    texts = {"spyglass": run("dump", *job).check().out, "py-spy": run("dump", *job, program=PY_SPY).check().out,
             "py-spy-json": run("dump", "--json", *job, program=PY_SPY).check().out}
    for name, text in texts.items():
        (tmp_path / name).write_text(text)
        with open(tmp_path / name) as file:
            piped = subprocess.run([str(SPYGLASS), "group", "-"], stdin=file, stdout=subprocess.PIPE, env=clean_env(), timeout=WAIT).stdout.decode()
        assert re.search(r"^pid %d is elsewhere: in " % ranks[ODD], piped, re.M) and "\n7 others are in " in piped, piped
        assert "MainThread of 8 child processes: pids " in piped, piped
        assert re.sub(" on .*?(?= |,|$)", "", run("group", tmp_path / name).check().out).splitlines()[:3] == piped.splitlines()[:3]


def test_inherited_rank(spawn, tmp_path):
    """A rank keeps its number if a shell below it runs Python: live, and from a dump that shows no ancestors."""
    target, ranks = start(spawn, DEBIAN, 3, -1, 1)
    settle(target, ranks[0], "all_reduce")
    helper = next(pid for pid in descendants(ranks[1]) if len(descendants(pid)) == 0)
    pids = ",".join(map(str, [helper, *ranks]))
    live = run("dump", "--group", "--pid", pids).check().out
    assert "MainThread of 3 ranks (RANK): ranks 0-2 (idle)\n" in live and "MainThread of 1 process below ranks: below rank 1" in live, live
    (tmp_path / "a.json").write_text(run("dump", "--json", "--pid", pids).check().out)
    assert run("group", tmp_path / "a.json").check().out == live


def test_json_and_picture(spawn, tmp_path):
    target, ranks = start(spawn, DEBIAN, N, ODD, 5)
    settle(target, ranks[0], "all_reduce")
    job = ["dump", "--group", "--subprocesses", "--pid", target.pid]
    shown = json.loads(run(*job, "--json").check().out)
    processes = shown["processes"]
    section = next(s for s in shown["sections"] if s["kind"] == "rank")
    members = [sorted(processes[t["process"]]["rank"] for t in group["threads"]) for group in section["groups"]]
    assert members == [[0, 1, 2, 4, 5, 6, 7], [3]] and [g["elsewhere"] for g in section["groups"]] == [False, True]
    assert [g["count"] for g in section["groups"]] == [7, 1] and section["processes"] == 8
    assert {p["pid"] for p in processes if p["kind"] == "rank"} == set(ranks)
    assert [p["rank"] for p in processes if p["kind"] == "child of a rank"] == [5]
    assert shown["rounds"] == 1 and shown["unread"] == {"count": 0, "first": []} and shown["cut"] == 0
    result = run(*job, "-o", tmp_path / "groups.svg").check()
    assert not result.out and "Wrote flamegraph data to '%s'" % (tmp_path / "groups.svg") in result.err, result
    titles = [e.text for e in xml.etree.ElementTree.parse(tmp_path / "groups.svg").iter("{http://www.w3.org/2000/svg}title")]
    assert "MainThread of 8 ranks (RANK) (8 samples, 80.00%)" in titles, titles
    assert "ranks 0-2,4-7 (7 samples, 70.00%)" in titles and "rank 3 (1 sample, 10.00%)" in titles, titles
    raw = run(*job, "--format", "raw", "-o", "-").check().out
    assert sum(int(line.rsplit(" ", 1)[1]) for line in raw.splitlines()) == 10


def test_rounds(spawn):
    """Between the rounds one rank goes on, and the others do not run."""
    target, ranks = start(spawn, DEBIAN, N, ODD)
    process = subprocess.Popen([str(SPYGLASS), "dump", "--group", "--subprocesses", "--pid", str(target.pid), "--rounds", "2", "--every", "5",
                                "--log-level", "info"],
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=clean_env())
    while b"round 1 of 2 " not in process.stderr.readline():
        assert process.poll() is None
    target.resume()  # whenever it arrives: the second round begins only when rank 0 has got on, or it has not moved
    out, err = process.communicate(timeout=WAIT)
    assert process.returncode == 0, err
    text = out.decode()
    assert "2 rounds, 5 s apart, MainThread of 8 ranks (RANK):\n" in text, text
    assert re.search(r"    1 elsewhere in each round: rank 3\n|    2 elsewhere in each round: ranks 0,3\n", text), text
    assert re.search(r"    7 did not run between the rounds: ranks 1-7\n|    8 did not run between the rounds: ranks 0-7\n", text), text


@pytest.mark.parametrize("several", [True, False])
def test_exit_between_rounds(spawn, several):
    """If a process exits, the others go on; if the last one does, the rounds before are shown."""
    target, ranks = start(spawn, DEBIAN, 3, -1)
    pids = ranks[1:] if several else ranks[1:2]
    process = subprocess.Popen([str(SPYGLASS), "dump", "--group", "--pid", ",".join(map(str, pids)), "--rounds", "1000", "--every", "0.05",
                                "--log-level", "info"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=clean_env())
    for pid in pids:
        for _ in range(2):
            while b" of 1000 has been read" not in process.stderr.readline():
                assert process.poll() is None
        os.kill(pid, signal.SIGKILL)
    out, err = process.communicate(timeout=WAIT)
    assert process.returncode == 0 and b"could not be read" not in out, (out, err)
    why = b"none of the processes" if several else b"process %d has exited" % ranks[1]
    assert re.search(rb"Note: stopped after \d+ rounds: %s" % why, err), err
    assert (b" 1 not seen in each round: rank 1\n" in out) == several, out


def test_unread(spawn):
    """A process that cannot be read is counted and named; so are files."""
    target, ranks = start(spawn, DEBIAN, 3, -1)
    shell = subprocess.Popen(["sh", "-c", "echo 1; read line"], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        shell.stdout.readline()
        result = run("dump", "--group", "--pid", "%d,%d,%d" % (shell.pid, *ranks[1:])).check(1)
        assert result.out.startswith("2 processes\n1 could not be read: pid %d (not Python)\n" % shell.pid), result
        shown = json.loads(run("dump", "--group", "--json", "--pid", "%d,%d" % (shell.pid, ranks[0])).check(1).out)
        assert shown["unread"] == {"count": 1, "first": [{"pid": shell.pid, "reason": "not Python"}]}
        result = run("dump", "--group", "--format", "raw", "-o", "-", "--pid", "%d,%d" % (shell.pid, ranks[0])).check(1)
        assert "Note: 1 could not be read: pid %d (not Python).\n" % shell.pid in result.err, result
    finally:
        shell.kill()
        shell.communicate()


def test_unread_rounds(spawn):
    """Each is counted once, however many rounds there are, and the first eight are named."""
    target, ranks = start(spawn, DEBIAN, 3, -1)
    shells = [subprocess.Popen(["sh", "-c", "echo 1; read line"], stdin=subprocess.PIPE, stdout=subprocess.PIPE) for _ in range(10)]
    try:
        for shell in shells:
            shell.stdout.readline()
        pids = ",".join(str(pid) for pid in [shell.pid for shell in shells] + ranks[1:])
        result = run("dump", "--group", "--pid", pids, "--rounds", "2", "--every", "0.01").check(1)
        assert result.out.startswith("2 processes\n10 could not be read: pid %d (not Python), " % shells[0].pid), result
        assert result.out.splitlines()[1].endswith("(not Python) and 2 more") and not result.err, result
    finally:
        for shell in shells:
            shell.kill()
            shell.communicate()


def test_note(spawn):
    """On a terminal, the walls of text of many processes end with a note; elsewhere, and under the name py-spy, not."""
    target, _ = start(spawn, DEBIAN, 10, -1)
    job = ["dump", "--subprocesses", "--pid", target.pid]
    note = "Note: to merge the equal stacks of these 11 processes, add --group.\n"
    assert note in on_terminal(*job) and "add --group" not in on_terminal(*job, program=PY_SPY)
    assert not run(*job).check().err


HOSTILE = {
    "empty": (b"", "the file is empty"), "binary": (bytes(range(256)) * 40, "no thread found"), "deep": (b"[" * 100000, "nested too deeply"),
    "half": (b'[{"pid": 1, "frames": [{"name": "f", "filename"', "line 1: the text ends too early"),
    "comma": (b'[\n{"frames": [],}]', "line 2: expected a key"), "other": (b'{"a": 1}', "no thread has frames"),
    "number": (b"[01]", "invalid number"), "latin": (b'[{"frames": "\xe9"}]', "no thread has frames"), "string": (b'["' + b"a" * 100000, "the text ends too early"),
}


@pytest.mark.parametrize("kind", HOSTILE)
def test_hostile_files(kind, tmp_path):
    content, why = HOSTILE[kind]
    (tmp_path / "bad").write_bytes(content)
    (tmp_path / "good").write_text("Process 7: python3\nThread 7 (idle)\n    f (a.py:3)\n")
    result = run("group", "bad", cwd=tmp_path).check(1)
    assert "Error: Failed to read the dump" in result.err and why in result.err and not result.out, result
    result = run("group", "bad", "good", cwd=tmp_path).check(1)
    assert result.out == "1 process\n\nMainThread of 1 process: pid 7 (idle)\n    f (a.py:3)\n" and "Note: bad" in result.err, result


def test_hostile_names(tmp_path):
    """Names of functions, threads, hosts and commands reach no terminal unescaped, and JSON stays valid."""
    nasty = "\x1b]0;x\x07\u202e</script>\n"
    thread = {"pid": 1, "os_thread_id": 1, "hostname": nasty, "rank": 1, "rank_from": nasty, "thread_name": nasty, "process_info": {"pid": 1,
              "command_line": nasty, "parent": None}, "frames": [{"name": nasty, "filename": nasty, "short_filename": nasty, "line": 1}]}
    other = dict(thread, pid=2, os_thread_id=7, rank=None)
    (tmp_path / "a.json").write_text(json.dumps([thread, other]))
    for flags in ([], ["--json"], ["--full-filenames"], ["--format", "raw", "-o", "-"], ["-o", "-"]):
        result = run("group", "a.json", *flags, cwd=tmp_path).check()
        assert not re.search("[\x00-\x09\x0b-\x1f\u202e]", result.out), result
        if "--json" in flags:
            assert json.loads(result.out)["processes"][0]["hostname"] == nasty
    xml.etree.ElementTree.fromstring(result.out)


def test_arguments(tmp_path):
    for args, message in [
        (["group"], "group requires at least one file"), (["group", tmp_path], "is a directory"), (["group", tmp_path / "no"], "No such file"),
        (["group", "-", "-"], "standard input (-) can only be read once"), (["dump", "--pid", 1, "--rounds", "3"], "--rounds requires --group"),
        (["dump", "--pid", 1, "-o", "x.svg"], "--output requires --group"), (["dump", "--pid", 1, "--group", "--rounds", "0"], "is not a number of rounds"),
        (["dump", "--pid", 1, "--group", "--every", "3"], "--every requires --rounds"), (["dump", "--pid", 1, "--group", "--every", "unlimited"], "is not a number of seconds"),
        (["dump", "--pid", 1, "--group", "--rounds", "2", "--every", "2e9"], "is not a number of seconds"), (["dump", "--pid", 1, "--group", "--locals"], "cannot be combined"),
        (["dump", "--pid", 1, "--group", "--json", "-o", "x.svg"], "--json and --output cannot be combined"),
    ]:
        if args == ["group", "-", "-"]:
            data = b"Process 7: python3\nThread 7 (idle)\n    f (a.py:3)\n"
            done = subprocess.run([str(SPYGLASS), *args], input=data, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=clean_env())
            assert done.returncode == 2 and message in done.stderr.decode(), done
        else:
            result = run(*args, cwd=tmp_path)
            assert result.status > 0 and message in result.err and not os.listdir(tmp_path), result


def test_full_disk(tmp_path):
    """Output that gets lost is an error."""
    (tmp_path / "a").write_text("Process 7: python3\nThread 7 (idle)\n    f (a.py:3)\n")
    with open("/dev/full", "w") as full:
        assert subprocess.run([str(SPYGLASS), "group", tmp_path / "a"], stdout=full, stderr=subprocess.PIPE, env=clean_env()).returncode == 1


def test_interrupted_rounds(spawn):
    """Ctrl-C during the wait ends it like any dump."""
    target, ranks = start(spawn, DEBIAN, 3, -1)
    process = subprocess.Popen([str(SPYGLASS), "dump", "--group", "--pid", str(ranks[1]), "--rounds", "2", "--every", "1000", "--log-level", "info"],
                               stderr=subprocess.PIPE, env=clean_env())
    while b"round 1 of 2 " not in process.stderr.readline():
        assert process.poll() is None
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=WAIT)
    assert process.returncode == -signal.SIGINT
