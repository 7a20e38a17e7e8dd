"""`dump --deadline`: what could be read in time, and by name what could not."""
import json
import re

import pytest
from processes import descendants
from program import WAIT, run, wait_until
from pythons import DEBIAN
from stacks import parse_json, parse_text

UNREAD = "[not read in time]"
NOTE = re.compile(r"^Note: (?:(\d+) thread\(s\))?(?: and )?(?:(\d+) process\(es\))? could not be read within [\d.e-]+ s", re.M)
SLEEPERS = 200
MANY_THREADS = """
import os, threading
def rests():
    threading.Event().wait()
for i in range(%d):
    threading.Thread(target=rests, daemon=True).start()
os.write(1, b'{}\\n')
rests()
""" % SLEEPERS


def dump_within(deadline, pid, *flags):
    """The threads that were read, and those that were not; None if there was no time to find the interpreter."""
    result = run("dump", "--pid", pid, "--json", "--deadline", "%.6f" % deadline, *flags)
    if result.status:
        assert result.status == 1 and "could not be read within" in result.err and "--deadline" in result.err, result
        return None
    threads = parse_json(result.out)
    unread = [t for t in threads if t["frames"] and t["frames"][0]["name"] == UNREAD]
    for thread in unread:
        assert len(thread["frames"]) == 1 and thread["frames"][0]["filename"] == "deadline passed", thread
    found = NOTE.search(result.err)
    assert sum(int(n or 0) for n in (found.groups() if found else ())) == len(unread), result
    return [t for t in threads if t not in unread], unread


def until_partial(look):
    """Looks with longer and longer deadlines, until some could be read and some could not."""
    deadlines = [0.002]

    def is_partial():
        deadlines.append(deadlines[-1] * 1.1 if deadlines[-1] < WAIT else 0.002)
        found = look(deadlines[-1])
        return found and found[0] and found[1]

    wait_until(is_partial, "a dump of a part")


@pytest.mark.parametrize("flags", [[], ["--native"], ["--native", "--nonblocking"]], ids=lambda f: "".join(f) or "plain")
def test_many_threads(launch, flags):
    """Each thread is listed once, with its whole stack or with the marker."""
    target = launch([*DEBIAN.command, "-c", MANY_THREADS])

    def look(deadline):
        found = dump_within(deadline, target.pid, *flags)
        for thread in found[0] if found else []:
            assert thread["frames"][-1]["name"] in ("Thread._bootstrap", "<module>", "_bootstrap"), thread
        assert not found or len({t["os_thread_id"] for threads in found for t in threads}) == SLEEPERS + 1
        return found

    until_partial(look)
    read, unread = dump_within(1000, target.pid, *flags)
    assert len(read) == SLEEPERS + 1 and not unread
    assert "unlimited" not in run("dump", "--pid", target.pid, "--deadline", "unlimited", *flags).check().err


def test_many_processes(spawn):
    """A process that there was no time for is listed by its PID and its command line or name, in text too."""
    target = spawn(DEBIAN, "many_children.py", "40")
    target.next_report()
    pids = {target.pid} | descendants(target.pid)

    def look(deadline):
        found = dump_within(deadline, target.pid, "--subprocesses")
        assert not found or {t["pid"] for threads in found for t in threads} == pids
        return found

    def look_at_text(deadline):
        result = run("dump", "--pid", target.pid, "--subprocesses", "--deadline", "%.6f" % deadline)
        processes = parse_text(result.out)
        assert not processes or {p["pid"] for p in processes} == pids, result
        unread = [p for p in processes if "version" not in p]
        for process in unread:
            assert "many_children.py" in process["command"] or process["command"].startswith("[python"), process
            assert process["threads"][0]["frames"][0]["name"] == UNREAD
        return [p for p in processes if "version" in p], unread

    until_partial(look)
    until_partial(look_at_text)


def test_source_and_locals(launch):
    """Lines and variables that there is no time for are left out."""
    target = launch([*DEBIAN.command, "-c", MANY_THREADS])

    def look(deadline):
        result = run("dump", "--pid", target.pid, "--json", "--source", "-lll", "--deadline", "%.6f" % deadline)
        frames = [f for t in (json.loads(result.out) if result.status == 0 else []) for f in t["frames"]]
        with_line = [f for f in frames if f.get("source")]
        return with_line, [f for f in frames if not f.get("source")]

    until_partial(look)
