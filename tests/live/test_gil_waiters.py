"""`dump` tells threads that wait for the GIL from threads that wait for something else."""
import subprocess

import pytest
from core_files import by_gcore, dump_core_json, roots
from processes import at_rest, descendants, is_python
from program import PY_SPY, run, wait_until
from pythons import DEBIAN
from stacks import parse_json, parse_text

WAITS = "waiting for the GIL"
OTHERS = [("holds", "idle"), ("locked", "idle"), ("sleeps", "idle")]
RESTING = OTHERS + [("MainThread", "idle"), ("waits", "idle")]
HELD = OTHERS + [("MainThread", WAITS), ("waits", WAITS)]


def hold_gil(target, pid=None):
    """Makes the thread "holds" take the GIL for good, once the others wait for what they are named after."""
    at_rest(pid or target.pid)
    target.resume()
    return target


def json_states(*args):
    threads = parse_json(run("dump", "--json", *args).check().out)
    for t in threads:
        assert t["active"] == (t["state"] == "active"), t
        assert t["state"] != WAITS or not t["owns_gil"], t
    return sorted((t["thread_name"], t["state"]) for t in threads)


def text_states(*args, **options):
    threads = [t for p in parse_text(run("dump", *args, **options).check().out) for t in p["threads"]]
    return sorted((t["name"], t["status"]) for t in threads)


def wait_for_states(look, wanted):
    """Dumps until each thread has its state. A thread that waits for the GIL wakes up every few milliseconds, and is
    active on a busy machine until it gets a CPU. A thread that waits for something else never waits for the GIL."""
    def reached():
        found = look()
        assert not {("locked", WAITS), ("sleeps", WAITS)} & set(found), found
        return found == sorted(wanted)

    wait_until(reached, "%r" % wanted)


@pytest.mark.smoke
@pytest.mark.parametrize("flags", [[], ["--nonblocking"], ["--native"]], ids=lambda f: "".join(f) or "plain")
def test_json(spawn, python, flags):
    target = spawn(python, "gil_waiters.py")
    wait_for_states(lambda: json_states("--pid", at_rest(target.pid), *flags), RESTING)
    hold_gil(target)
    wait_for_states(lambda: json_states("--pid", target.pid, *flags), HELD)


def test_text(spawn, python):
    """Callers of py-spy know the states idle, active and active+gil only."""
    target = hold_gil(spawn(python, "gil_waiters.py"))
    wait_for_states(lambda: text_states("--pid", target.pid), HELD)
    wait_for_states(lambda: text_states("--pid", target.pid, program=PY_SPY), RESTING)


def test_subprocesses(launch, script):
    target = launch(["sh", "-c", '"$@"; exit', "sh", *DEBIAN.command, script(DEBIAN, "gil_waiters.py")])
    python, = [pid for pid in descendants(target.pid) if is_python(pid)]
    hold_gil(target, python)
    wait_for_states(lambda: json_states("--subprocesses", "--pid", target.pid), HELD)
    wait_for_states(lambda: text_states("--subprocesses", "--pid", target.pid), HELD)


@pytest.mark.since(3, 13)
@pytest.mark.parametrize("kind", ["isolated", "legacy"])
def test_subinterpreters(spawn, python, kind):
    """An isolated interpreter has a GIL of its own; a legacy one shares the GIL of the main interpreter. The main thread
    has a state in both, and waits in the one that it has entered last."""
    target = hold_gil(spawn(python, "gil_waiters.py", kind))
    others = [("spins", "active" if kind == "isolated" else WAITS), ("MainThread", "idle")]
    wait_for_states(lambda: json_states("--pid", target.pid), HELD + others)


@by_gcore
def test_core(spawn, python, scratch):
    """A core file does not contain what the kernel knows about a thread."""
    target = hold_gil(spawn(python, "gil_waiters.py"))
    wait_for_states(lambda: json_states("--pid", target.pid), HELD)
    done = subprocess.run(["gcore", "-o", str(scratch / "core"), str(target.pid)], stdin=subprocess.DEVNULL,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, universal_newlines=True)
    assert "Saved corefile" in done.stdout, done.stdout
    threads, _ = dump_core_json(scratch / ("core.%d" % target.pid), *roots(python))
    assert len(threads) == 5 and {t["state"] for t in threads} <= {"idle", "active"}, threads
