"""dump: the tasks of trio, compared with what trio reports about them, and those of anyio on both."""
import re

import pytest
from core_files import by_gcore, gcore, roots
from processes import at_rest
from program import run
from pypi import installed
from pythons import NEWEST_HOST
from stacks import event_loops

VERSIONS = [((3, 10), ("trio==0.35.0", "anyio==4.16.0")), ((3, 9), ("trio==0.31.0", "anyio==4.12.1")),
            ((3, 8), ("trio==0.27.0", "anyio==4.5.2")), ((3, 7), ("trio==0.22.2", "anyio==3.7.1"))]


@pytest.fixture
def target(spawn):
    """target(python, "trio_tasks.py"): runs it with the last trio for this interpreter. The first call needs PyPI."""
    def make(python, *command):
        packages = next(packages for version, packages in VERSIONS if python.version >= version)
        return spawn(python, *command, env={"PYTHONPATH": installed(python, "trio", *packages), "MALLOC_ARENA_MAX": "1"})

    return make


def compare(loops, truth):
    loop, = loops
    assert loop["kind"] == "trio" and loop["complete"], loop
    found, true = {task["address"]: task for task in loop["tasks"]}, {task["address"]: task for task in truth["tasks"]}
    assert set(found) == set(true) and len(found) == len(loop["tasks"])
    for address, want in true.items():
        got = found[address]
        assert got["name"] == want["name"] and got["state"] == "waiting" and got["sure"], want
        assert [[f["name"], f["line"]] for f in got["frames"]] == want["frames"], want
        assert set(got["awaits"]) == set(want["children"]), want
        assert got["awaited_by"] == [a for a, other in true.items() if address in other["children"]], want
        wait = got["waits_for"] or {"kind": None, "what": None}
        assert not want["expected"] or (wait["kind"], wait["what"]) == (want["kind"], want["what"]), want
    return {task["name"]: task for task in loop["tasks"]}


@pytest.mark.since(3, 7)
def test_trio(target, python):
    process = target(python, "trio_tasks.py")
    loops = event_loops(run("dump", "--json", "--pid", at_rest(process.pid)).check().out)
    tasks = compare(loops, process.truth)
    assert loops[0]["running"]
    assert 0 < tasks["sleeper"]["waits_for"]["seconds_left"] <= 3600 and "seconds" not in tasks["forever"]["waits_for"]
    assert 0 < tasks["deadline"]["seconds_to_cancel"] <= 3600 and "seconds_to_cancel" not in tasks["sleeper"]
    assert [name for name, task in tasks.items() if task.get("cancelled")] == ["cancelled"]
    assert tasks["socket"]["waits_for"]["fd"] == process.truth["fd"]
    for i in range(20):
        wait = tasks["request-%d" % i]["waits_for"]
        assert wait["held_by"] == [tasks["holder"]["address"]] and wait["is_owner"]
    assert tasks["second"]["waits_for"]["held_by"] == [tasks["first"]["address"]] and not tasks["second"]["waits_for"]["is_owner"]


@by_gcore
def test_trio_core(target, scratch):
    process = target(NEWEST_HOST, "trio_tasks.py")
    core = gcore(process, scratch)
    process.kill()
    compare(event_loops(run("dump", "--json", "--core", core, *roots(NEWEST_HOST)).check().out), process.truth)


TEXT = r'''
Event loop of thread {pid} \(\d+ tasks\): trio
Task "<init>" \(waiting for 2 tasks in Nursery\)
    Runner.init \(.*\)
(    .*\n)+?    Task "__main__.main" \(waiting for \d+ tasks in Nursery\)
        main \(trio_tasks.py:\d+\)
(        .*\n)+?        20 tasks like this \(waiting for Lock.acquire, all at 0x[0-9a-f]+, held by "holder"\): "request-0", .*
            with_lock \(trio_tasks.py:\d+\)
'''


def test_text(target):
    process = target(NEWEST_HOST, "trio_tasks.py")
    out = run("dump", "--locals", "--pid", at_rest(process.pid)).check().out
    assert "\n            with_lock (trio_tasks.py:" in out and "lock: <Lock at 0x" in out, out
    out = run("dump", "--pid", process.pid).check().out
    assert re.search(TEXT.format(pid=process.pid), out), out
    for text in ('Task "sleeper" (sleeping, 60 min left)', "; cancelled in 60 min)", 'Task "thread" (waiting for a worker thread, job())',
                 'Task "socket" (waiting for a socket, fd %d Unix)' % process.truth["fd"], "; cancelled)", 'likely held by "first")'):
        assert text in out, (text, out)
    parent = out[out.index('Task "parent" (sleeping, 30 min left)'):]
    assert re.match(r'.*\n(            .*\n)+?            Task "sibling" \(waiting for Event.wait', parent), parent


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_anyio(target, backend):
    """The same program on both: what its tasks wait for has the same names."""
    process = target(NEWEST_HOST, "anyio_tasks.py", backend)
    loop, = event_loops(run("dump", "--json", "--pid", at_rest(process.pid)).check().out)
    tasks = {task["name"]: task for task in loop["tasks"]}
    assert loop["kind"] == backend
    waits = {name: (tasks[name]["waits_for"]["kind"], tasks[name]["waits_for"]["what"]) for name in process.truth["waits"]}
    assert waits == {name: tuple(wait) for name, wait in process.truth["waits"].items()}
    wait = tasks["waiter"]["waits_for"]
    assert wait["held_by"] == [tasks["holder"]["address"]] and wait["is_owner"]
