"""Programs with a planted cause: `dump` names what each thread waits for and who holds it, and the cycle."""
import json
import os
import re
import signal

import pytest
from native_stacks import directory
from processes import at_rest, task_runs, task_states
from program import PY_SPY, run, wait_until
from pythons import DEBIAN, NEWEST_HOST

CAUSES = ["cycle2", "cycle3", "itself", "dead", "empty_queue", "full_queue", "semaphore", "condition", "join", "own_join", "imports"]
OTHERS = ["child_reads", "full_pipe", "file_lock", "dead_peer"]
SEEDS = 100
RESTART_SYSCALL = 219


def dump(target):
    threads = json.loads(run("dump", "--pid", at_rest(target.pid), "--json", "--no-tasks").check().out)
    return {t["thread_name"]: t for t in threads}


def check_thread(name, wanted, thread):
    found = thread["waits_for"]["object"]
    assert found and found["kind"] == wanted["kind"] and found["certain"], (name, found)
    for key in "operation", "name":
        assert key not in wanted or found[key] == wanted[key], (name, found)
    owner = found["owner"]
    if "owner" not in wanted:
        assert owner is None, (name, found)
        return
    assert owner and owner["thread_name"] == wanted["owner"], (name, found)
    assert owner["exited"] == wanted.get("exited", False), (name, found)
    assert owner["certain"] == wanted.get("owner_certain", True), (name, found)


def check_call(name, wanted, thread):
    found = thread["waits_for"]
    assert found["system_call"] == wanted["system_call"], (name, found)
    assert "processes" not in wanted or [p["pid"] for p in found["processes"]] == wanted["processes"], (name, found)
    for key, value in wanted.items():
        if key == "peer":
            assert found["files"][0]["peer"] == value, (name, found)
        if key == "other_end":
            assert [p["pid"] for p in found["files"][0]["other_end"]] == value, (name, found)


def check(target):
    threads = dump(target)
    truth = target.truth
    for name, wanted in truth["others"].items():
        check_call(name, wanted, threads[name])
    for name, wanted in truth["waits"].items():
        check_thread(name, wanted, threads[name])
    verdicts = [t["verdict"] for t in threads.values() if "verdict" in t]
    by_id = {t["thread_id"]: name for name, t in threads.items()}
    if not truth["cycles"]:
        assert all(v["kind"] != "deadlock" for v in verdicts), verdicts
        return
    verdict, = verdicts
    members = {by_id[t] for t in verdict["threads"]}
    certain, = {sure for who, sure in truth["cycles"] if set(who) == members}
    assert verdict["kind"] == "deadlock" and verdict["certain"] == certain, verdict
    assert certain or not any(sure for _, sure in truth["cycles"]), "a certain deadlock comes first"


def test_all_causes(spawn, python):
    check(spawn(python, "hangs.py", ",".join(CAUSES + OTHERS), "1"))


@pytest.mark.parametrize("cause", CAUSES + OTHERS)
def test_one_cause(spawn, python, cause):
    check(spawn(python, "hangs.py", cause, "2"))


def test_many_waiters(spawn):
    check(spawn(NEWEST_HOST, "hangs.py", "crowd", "1"))


@pytest.mark.full
@pytest.mark.parametrize("seed", range(SEEDS))
def test_seeds(spawn, python, seed):
    check(spawn(python, "hangs.py", ",".join(CAUSES + OTHERS), str(seed)))


def check_no_deadlock(target, dumps):
    for _ in range(dumps):
        out = run("dump", "--pid", target.pid, "--no-tasks").check().out
        assert "eadlock" not in out, out


def test_contention(spawn, python):
    check_no_deadlock(spawn(python, "contention.py", "1"), 10)


@pytest.mark.full
@pytest.mark.parametrize("seed", range(10))
def test_contention_seeds(spawn, python, seed):
    check_no_deadlock(spawn(python, "contention.py", str(seed)), 100)


def test_child_that_waits_for_its_parent(spawn, python):
    target = spawn(python, "hangs.py", "child_reads", "1")
    at_rest(target.truth["child"])
    out = run("dump", "--pid", at_rest(target.pid), "--no-tasks").check().out
    assert re.search(r"eadlock: .* process %d \(.*\), which waits in read for this process\.$" % target.truth["child"], last_line(out)), out


def at_rest_together(*pids):
    """Of processes that wake each other: at_rest() of one after the other is not enough."""
    before = []

    def is_same():
        now = [task_runs(pid) for pid in pids]
        same = now == before and all(state == "S" for runs in now for state, _ in runs.values())
        before[:] = now
        return same
    wait_until(is_same, "the processes at rest")


def test_full_pipes(spawn):
    """Certain only if neither process has another thread."""
    for seed in "1", "2", "3":
        target = spawn(DEBIAN, "hangs.py", "full_pipes", seed)
        at_rest_together(target.pid, target.truth["child"])
        out = run("dump", "--pid", target.pid, "--no-tasks").check().out
        kind = "Likely deadlock" if "pipes-" in out else "Deadlock"
        assert re.search(r"^%s: .* \(write\): fd \d+ pipe, other end in process %d \(cat\), which waits in write for this process\.$"
                         % (kind, target.truth["child"]), last_line(out)), out


def test_stopped(spawn):
    target = spawn(DEBIAN, "hangs.py", "stopped_child", "1")
    out = run("dump", "--pid", at_rest(target.pid), "--no-tasks").check().out
    child = "process %d (sleep 100000)" % target.truth["child"]
    assert last_line(out) == "Everything waits for %s, which is stopped by a signal." % child, out
    os.kill(target.pid, signal.SIGSTOP)
    wait_until(lambda: set(task_states(target.pid)) == {"T"}, "stopped")
    out = run("dump", "--pid", target.pid, "--no-tasks").check().out
    assert last_line(out) == "The process is stopped by a signal.", out


@pytest.mark.skipif(os.uname().machine != "x86_64", reason="elsewhere poll() is ppoll(), which is not restarted like this")
def test_call_before_ptrace(spawn):
    """ptrace has to stop the thread, and the kernel restarts its poll() as another call."""
    found = []

    def is_back():
        """Without a core, the thread may not have gone back to its call in time; then spyglass shows no wait."""
        target = spawn(DEBIAN, "native_c.py", directory(DEBIAN, "spy_c_fp"), "spy_c_fp", "alternate")
        thread, = json.loads(run("dump", "--pid", at_rest(target.pid), "--native", "--json").check().out)
        with open("/proc/%d/syscall" % at_rest(target.pid)) as file:
            assert int(file.read().split()[0]) == RESTART_SYSCALL
        found[:] = [thread.get("waits_for")]
        return found[0]
    wait_until(is_back, "a dump of the thread in its call")
    assert found[0]["system_call"] == "poll" and found[0]["what"] == "waits for events", found


def test_lock_of_multiprocessing_after_fork(spawn, python):
    """The copy in the child names its main thread, which waits for the lock itself."""
    child = spawn(python, "hangs.py", "forked", "1").truth["child"]
    out = run("dump", "--pid", at_rest(child), "--no-tasks").check().out
    assert re.search(r"\n  waits for the multiprocessing lock .*\n", out) and "held by" not in out and "eadlock" not in out, out


def test_gil(spawn, python):
    """The waiting thread wakes up now and then to ask for the GIL, so one dump may see it awake."""
    target = spawn(python, "hangs.py", "gil", "1")
    found = []

    def is_named():
        found[:] = [last_line(run("dump", "--pid", target.pid, "--no-tasks").check().out)]
        return re.search(r"for the GIL, held by %s in .*hang \(.*, which sleeps \(\w+\)" % target.truth["keeper"], found[0])
    wait_until(is_named, "the holder of the GIL")


def last_line(out):
    return out.rstrip("\n").rpartition("\n")[2]


def test_text(spawn):
    target = spawn(DEBIAN, "hangs.py", "imports", "3")
    out = run("dump", "--pid", at_rest(target.pid)).check().out
    who = target.truth["cycles"][0][0][0]
    assert "\n  waits for the end of thread importer\n" in out, out
    assert re.search(r"\n  waits for the import lock of module slow\d+, held by %s\n" % who, out), out
    first, second = sorted([who, "importer"], key=lambda name: name != "MainThread")
    assert last_line(out).startswith("Deadlock: %s waits for " % first), out
    assert second in last_line(out), out


def test_flags(spawn):
    """Under the name py-spy, only with --waits."""
    target = spawn(NEWEST_HOST, "hangs.py", "cycle2", "4")
    at_rest(target.pid)
    silent = [run("dump", "--pid", target.pid, "--no-waits"), run("dump", "--pid", target.pid, program=PY_SPY)]
    for out in [r.check().out for r in silent]:
        assert "waits" not in out and "eadlock" not in out, out
    for out in [run("dump", "--pid", target.pid, "--waits", program=PY_SPY).check().out, run("dump", "--pid", target.pid).check().out]:
        assert "eadlock: " in last_line(out), out
    for flag in "--thread=*", "--include=*", "--exclude=nothing":  # a filter may hide a part of the cycle
        out = run("dump", "--pid", target.pid, flag).check().out
        assert "\n  waits for " in out and "eadlock" not in out, out
    for key in "waits_for", "verdict":
        assert key not in run("dump", "--pid", target.pid, "--json", program=PY_SPY).check().out
