"""dump: the tasks of asyncio, compared with what the program reports about itself."""
import re

import pytest
from core_files import by_gcore, gcore, roots
from processes import at_rest
from program import PY_SPY, run
from pythons import NEWEST_HOST, PYTHONS
from stacks import event_loops


def found_tasks(loops):
    return {task["address"]: task for loop in loops for task in loop["tasks"]}


def compare(loops, truth):
    found, true = found_tasks(loops), {task["address"]: task for task in truth["tasks"]}
    awaited_by = {address: {other for other, task in true.items() if address in task["awaits"]} for address in true}
    assert {t["name"] for t in true.values()} - {true[a]["name"] for a in found if a in true} == set() == set(found) - set(true)
    assert all(loop["complete"] for loop in loops)
    for address, want in true.items():
        got = found[address]
        assert got["name"] == (want["name"] if want["named"] else None)
        assert [[f["name"], f["line"]] for f in got["frames"]] == want["frames"], want["name"]
        assert got["state"] == want["state"] and got["sure"], want["name"]
        assert set(got["awaits"]) == set(want["awaits"]) and set(got["awaited_by"]) == awaited_by[address], want["name"]
        wait = got["waits_for"] or {"kind": None, "what": None}
        assert (wait["kind"], wait["what"]) == (want["kind"], want["what"]), want["name"]
    return {want["name"]: found[address] for address, want in true.items()}


@pytest.mark.since(3, 7)
@pytest.mark.parametrize("kind", ["plain", "threads", "python", "stopped"])
def test_tasks(spawn, python, kind):
    target = spawn(python, "tasks.py", kind)
    loops = event_loops(run("dump", "--json", "--pid", at_rest(target.pid)).check().out)
    by_name = compare(loops, target.truth)
    assert 0 < by_name["sleeper"]["waits_for"]["seconds_left"] <= 3600 < by_name["cell"]["waits_for"]["seconds_left"] <= 7200.5
    assert by_name["socket"]["waits_for"]["fd"] == target.truth["fd"]
    holders = {"held": ["holder"], "pool": ["pool-1", "pool-2"], "busy": ["condition holder"], "request-1": [], "semaphore": []}
    for name, tasks in holders.items():  # this program acquires "request-1" and "semaphore" without `async with`
        assert by_name[name]["waits_for"]["held_by"] == [by_name[task]["address"] for task in tasks], name
        assert not by_name[name]["waits_for"]["is_owner"]
    assert [by_name[name]["waits_for"]["started"] for name in ("started job", "queued job")] == [True, False]
    assert len({by_name["request-%d" % i]["waits_for"]["address"] for i in range(30)}) == 1
    assert [loop["running"] for loop in loops] == {"threads": [True, True], "stopped": [False]}.get(kind, [True])


@by_gcore
@pytest.mark.since(3, 7)
def test_core(spawn, scratch, python):
    target = spawn(python, "tasks.py", env={"MALLOC_ARENA_MAX": "1"})
    core = gcore(target, scratch)
    target.kill()
    by_name = compare(event_loops(run("dump", "--json", "--core", core, *roots(python)).check().out), target.truth)
    assert by_name["sleeper"]["waits_for"]["seconds"] == 3600


TEXT = r'''
These 3 tasks wait for each other: "cycle-1" -> "cycle-2" -> "cycle-3" -> "cycle-1"
(?:
These 2 tasks .*
)?
Event loop of thread {pid} \({n} tasks\): _UnixSelectorEventLoop
30 tasks like this \(waiting for Lock.acquire, all at 0x[0-9a-f]+\): "request-0", "request-1", "request-2", ..., "request-29"
    acquire \(tasks.py:\d+\)
'''


def test_text(spawn):
    target = spawn(NEWEST_HOST, "tasks.py")
    out = run("dump", "--pid", at_rest(target.pid)).check().out
    assert re.search(TEXT.format(pid=target.pid, n=len(target.truth["tasks"])), out), out
    gather = out[out.index('Task "gather"'):]
    assert re.match(r'Task "gather" \(waiting for 3 tasks in gather\)\n    through \(.*\)\n(    \[awaits "sleeper", shown above\]\n)?'
                    r'    2 tasks like this \(waiting for Event.wait, all at \w+\): "one", "two"\n        Event.wait \(', gather), out
    assert 'Task "sleeper" (sleeping, 60 min left; 3 tasks wait for it)' in out
    assert re.search('\nThese 2 tasks probably wait for each other: "deadlock-[01]" -> "deadlock-[01]" -> "deadlock-[01]"\n', out), out
    assert 'Task "queued job" (waiting for a job in an executor, which has not started)' in out
    for name, holders in (("held", '"holder"'), ("pool", '2 tasks: "pool-1", "pool-2"')):
        assert re.search('Task "%s" [(]waiting for [a-zA-Z.]+, at 0x[0-9a-f]+, likely held by %s[)]' % (name, holders), out), out
    for task in target.truth["tasks"]:
        assert '"%s"' % task["name"] in out or task["name"].startswith("request-")


def test_flags(spawn):
    target = spawn(NEWEST_HOST, "tasks.py")
    pid = at_rest(target.pid)
    assert "Event loop" not in run("dump", "--no-tasks", "--pid", pid).check().out
    assert "event_loops" not in run("dump", "--no-tasks", "--json", "--pid", pid).check().out
    assert "Event loop" not in run("dump", "--pid", pid, program=PY_SPY).check().out
    assert "event_loops" not in run("dump", "--json", "--pid", pid, program=PY_SPY).check().out
    assert "Event loop" in run("dump", "--tasks", "--pid", pid, program=PY_SPY).check().out
    both = run("dump", "--tasks", "--no-tasks", "--pid", pid).check(2)
    assert "--tasks and --no-tasks cannot be combined" in both.err


def test_variables_and_source(spawn):
    """Each task shows its own variables, so tasks are no longer folded."""
    target = spawn(NEWEST_HOST, "tasks.py")
    out = run("dump", "-l", "--source", "--pid", at_rest(target.pid)).check().out
    at = out.index('Task "cell"')
    assert "\n    argument_in_cell (tasks.py:" in out[at:] and "\n        await asyncio.sleep(delay)\n" in out[at:], out[at:]
    assert "\n        Arguments:\n            delay: 7200.5\n" in out[at:], out[at:]


PATHS = [["worker"] + end[:n] for end in (["left", "end_left", "sleep", "__sleep0"], ["right", "end_right", "sleep", "__sleep0"])
         for n in range(5)]


@pytest.mark.statistical
@pytest.mark.since(3, 7)
@pytest.mark.parametrize("flags", [(), ("--nonblocking",)], ids=["paused", "nonblocking"])
def test_busy(spawn, python, flags):
    """Each stack is one that existed: no part of it comes from another path."""
    target = spawn(python, "tasks_busy.py")
    for _ in range(3):
        loop, = event_loops(run("dump", "--json", "--pid", target.pid, *flags).check().out)
        tasks = [task for task in loop["tasks"] if task["frames"] and task["frames"][0]["name"] == "worker"]
        stacks = [[frame["name"] for frame in task["frames"]] for task in tasks if task["sure"]]
        assert all(stack in PATHS for stack in stacks), stacks
        assert len(tasks) == 50 or (flags and len(tasks) > 40), len(tasks)  # read while it runs, a task may make no sense
        assert flags or stacks


CHURN = [["worker", "step"] + end[:n] for end in (["end", "Event.wait", "wait"], ["sleep", "__sleep0"]) for n in range(3)]
CHURN += [["worker"], ["churn"], ["churn", "sleep"], ["main"], ["main", "churn"], ["worker", "step", "end", "wait"]]


@pytest.mark.statistical
@pytest.mark.since(3, 7)
def test_churn(spawn, python):
    """Thousands of tasks a second start and are cancelled, while it is dumped 200 times: each task that is shown for sure existed."""
    target = spawn(python, "tasks_churn.py")
    shown = 0
    for _ in range(200):
        loop, = event_loops(run("dump", "--json", "--pid", target.pid).check().out)
        assert len({task["address"] for task in loop["tasks"]}) == len(loop["tasks"])
        for task in loop["tasks"]:
            stack = [frame["name"] for frame in task["frames"]]
            shown += task["sure"]
            assert not task["sure"] or stack in CHURN or (not stack and task["state"] in ("new", "running")), task
            assert task["name"] is None or re.fullmatch(r"Task-\d+", task["name"]), task
    assert shown > 20000, shown


def test_subprocesses(spawn):
    target = spawn(NEWEST_HOST, "tasks_busy.py", "child")
    out = run("dump", "--subprocesses", "--pid", target.pid).check().out
    assert out.count("Event loop of thread") == 1 and "(51 tasks)" in out.partition("Parent Process")[2], out


@pytest.mark.parametrize("old", [p for p in PYTHONS if p.version < (3, 7)], ids=repr)
def test_older(spawn, old):
    """2.7 has no asyncio, and 3.6 keeps its list where spyglass does not find it."""
    target = spawn(old, "situations.py", "plain")
    assert "Event loop" not in run("dump", "--tasks", "--pid", at_rest(target.pid)).check().out
