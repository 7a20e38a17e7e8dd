"""A process and its children: dump and record with --subprocesses."""
import json

import pytest
from processes import at_rest
from profiles import Recording, record_enough
from program import PY_SPY, UNATTRIBUTED, run
from pythons import DEBIAN, NEWEST_HOST
from stacks import parse_json, parse_text
from process_trees import functions_of, read_tree

SOME = [DEBIAN, NEWEST_HOST]


def parents_of(target):
    """pid -> parent's pid of the Python processes, from the report of each."""
    def walk(truth, parent):
        found = {truth["pid"]: parent}
        for child in (truth["extra"] or {}).get("children", []):
            found.update(walk(json.loads(child), truth["pid"]))
        return found

    found = walk(target.truth, None)
    for pid in found:
        at_rest(pid)
    return found


def test_dump_text(spawn, python):
    target = spawn(python, "child_processes.py", "parent")
    parents = parents_of(target)
    result = run("dump", "--subprocesses", "--pid", target.pid).check()
    processes = parse_text(result.out)
    assert {p["pid"]: p["parent"] for p in processes} == parents
    assert processes[0]["pid"] == target.pid
    for process in processes:
        leaf = "parent_rests" if process["pid"] == target.pid else "child_rests"
        assert [f["name"] for f in process["threads"][0]["frames"]][:2] == ["park", leaf]
    for other in target.truth["extra"]["others"]:
        assert str(other) in result.err, result  # skipped, with a note


def test_dump_json(spawn, python):
    target = spawn(python, "child_processes.py", "parent")
    threads = parse_json(run("dump", "--subprocesses", "--json", "--pid", target.pid).check().out)
    assert {t["pid"] for t in threads} == set(parents_of(target))
    assert threads[0]["pid"] == target.pid


def test_dump_without_flag(spawn):
    target = spawn(DEBIAN, "child_processes.py", "parent")
    process, = parse_text(run("dump", "--pid", target.pid).check().out)
    assert process["pid"] == target.pid


def test_parent_is_not_python(launch, script):
    """A shell that runs Python: --subprocesses shows the child."""
    path = script(DEBIAN, "situations.py")
    target = launch(["sh", "-c", "%s %s plain; true" % (DEBIAN.command[0], path)])
    assert run("dump", "--pid", target.pid).status == 1
    processes = parse_text(run("dump", "--subprocesses", "--pid", target.pid).check().out)
    assert [p["pid"] for p in processes] == [target.truth["pid"]]


def test_multiprocessing(launch):
    code = ("import multiprocessing as m, os, time\n"
            "def job(q):\n    q.put(os.getpid()); time.sleep(1000)\n"
            "if __name__ == '__main__':\n"
            "    c = m.get_context('fork'); q = c.Queue()\n"
            "    ps = [c.Process(target=job, args=(q,)) for _ in range(4)]\n"
            "    [p.start() for p in ps]\n"
            "    print([q.get() for p in ps], flush=True)\n    time.sleep(1000)\n")
    target = launch([*DEBIAN.command, "-c", code])
    threads = parse_json(run("dump", "-s", "-j", "-p", target.pid).check().out)
    assert {t["pid"] for t in threads} == set(target.truth) | {target.pid}
    assert sum("job" in [f["name"] for f in t["frames"]] for t in threads) == 4


@pytest.mark.parametrize("host", SOME, ids=repr)
def test_record_finds_children(spawn, tmp_path, host):
    """Children that start during the recording: each stack is under its own process."""
    target = spawn(host, "forks.py", "2")
    recording = Recording(tmp_path / "out.txt", "--pid", target.pid, "--subprocesses", "-r", "100", "-f", "raw", "--function",
                          "--threads")
    *children, sleep = target.next_report()["children"]

    def all_at_work(text):
        found = functions_of(read_tree(text))
        return all(any(name.endswith("_works") for name in found.get(pid, ())) for pid in [target.pid, *children])

    recording.until(all_at_work)
    text = recording.stop()
    works = {}
    for line in text.splitlines():
        parts = line.rpartition(" ")[0].split(";")
        if parts == [UNATTRIBUTED]:
            continue
        roots = [part for part in parts if part.startswith("process ")]
        pids = [int(root[len("process "):].partition(":")[0]) for root in roots]
        assert pids[0] == target.pid and parts[: len(roots)] == roots, line  # the ancestors, oldest first
        assert parts[len(roots)].startswith("thread ("), line
        works.setdefault(pids[-1], set()).update(part.partition(" (")[0] for part in parts[len(roots) + 1:])
    # `sleep` is Python too, from its fork to its exec. Seen or not, it never works.
    assert set(works) - {sleep} == {target.pid, *children}, works
    assert not any("works" in name for name in works.get(sleep, ()))
    assert "parent_works" in works[target.pid]
    assert all("forked_works" in works[pid] for pid in children[:-1])
    assert "started_works" in works[children[-1]]


def test_record_speedscope_of_children(spawn, tmp_path):
    target = spawn(DEBIAN, "forks.py", "1")
    forked, started, _ = target.next_report()["children"]

    def each_has_a_profile(text):
        names = [p["name"] for p in json.loads(text)["profiles"]]
        return all(any(name.startswith("Process %d Thread " % pid) for name in names) for pid in (target.pid, forked, started))

    record_enough(each_has_a_profile, "--pid", target.pid, "-s", "-f", "speedscope", out=tmp_path / "out.json")


def test_profiler_child_of_target(launch, tmp_path):
    """Like dask-pyspy: the profiler is a child of its target, and --subprocesses leaves it out."""
    out = tmp_path / "out.json"
    code = ("import subprocess, sys, time, ctypes, os\n"
            "ctypes.CDLL(None).prctl(0x59616d61, os.getpid(), 0, 0, 0)\n"
            "def works():\n    while p.poll() is None: sum(range(300))\n"
            "import json\nseconds, text = 1, ''\n"
            "while 'works' not in text:\n"  # on a busy machine the first second may not be enough
            "    p = subprocess.Popen([%r, 'record', '--pid', str(os.getpid()), '--output', %r, '--format', 'speedscope',"
            " '--rate', '100', '--subprocesses', '-d', str(seconds)], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)\n"
            "    works()\n"
            "    if p.returncode or seconds > 300: break\n"
            "    text, seconds = open(%r).read(), 2 * seconds\n"
            "print(json.dumps([p.returncode, p.stderr.read().decode()]), flush=True)\ntime.sleep(1000)\n")
    target = launch([*DEBIAN.command, "-c", code % (str(PY_SPY), str(out), str(out))])
    assert target.truth[0] == 0, target.truth
    profile = json.loads(out.read_text())
    assert len(profile["profiles"]) == 1
    assert "works" in [f["name"] for f in profile["shared"]["frames"]]
