"""Fixtures of the tests against the real Ray, Dask and Dagster, as `tests/run platforms` runs them.

pytest runs on the Python of the environment that tools/platforms creates, so that the tests can import these
packages. $SPYGLASS is the program (default build/spyglass; `py-spy` must be in the same directory). Its directory
comes first in PATH. A test ends the processes that it started, by PID, and never sleeps for a fixed time.
"""
import contextlib
import os
import pathlib
import signal
import subprocess
import sys
import time

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
HERE = pathlib.Path(__file__).resolve().parent
PROGRAMS = HERE / "programs"
SPYGLASS = pathlib.Path(os.environ.get("SPYGLASS", ROOT / "build" / "spyglass")).resolve()
PACKAGE = ROOT / "python"
BIN = pathlib.Path(sys.executable).parent
WAIT = 600  # seconds; whatever takes longer counts as a hang, however busy the machine is

sys.path.insert(0, str(PACKAGE))
os.environ["PATH"] = os.pathsep.join([str(SPYGLASS.parent), str(BIN), os.environ["PATH"]])
os.environ["PYTHONPATH"] = os.pathsep.join([str(PACKAGE), str(PROGRAMS)])
os.environ["SPYGLASS_BINARY"] = str(SPYGLASS)
# Ray: no token of the user, no telemetry, no check for newer releases. Dagster: no telemetry.
os.environ.update(RAY_AUTH_MODE="disabled", RAY_USAGE_STATS_ENABLED="0", RAY_DISABLE_IMPORT_WARNING="1",
                  DAGSTER_DISABLE_TELEMETRY="1", PYTHONDONTWRITEBYTECODE="1")
sys.path.insert(0, str(PROGRAMS))


def pytest_configure(config):
    config.addinivalue_line("markers", "smoke: part of `make test`")


def wait_until(condition, what, timeout=WAIT):
    """Polls until the condition is true; returns its value."""
    end = time.monotonic() + timeout
    while True:
        found = condition()
        if found:
            return found
        assert time.monotonic() < end, "waited in vain for: " + what
        time.sleep(0.05)


def end_tree(process, patience=60):
    """Ends a process that we started as a session leader, with everything that it left behind in that session."""
    if process.poll() is None:
        process.terminate()
        try:
            process.wait(patience)
        except subprocess.TimeoutExpired:
            pass
    for pid in session_of(process.pid):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    process.wait()


def session_of(leader):
    found = []
    for entry in pathlib.Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError, ValueError, IndexError):
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
                if int(fields[3]) == leader:
                    found.append(int(entry.name))
    return found


def run(*args, status=0, **options):
    done = subprocess.run([str(a) for a in args], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, timeout=WAIT, **options)
    out, err = done.stdout.decode("utf-8"), done.stderr.decode("utf-8", "replace")
    assert done.returncode == status, "%s -> %d\n%s\n%s" % (args, done.returncode, out[-3000:], err[-3000:])
    return out, err


@pytest.fixture
def started():
    """Starts programs in their own sessions; ends all of them after the test."""
    processes = []

    def start(*args, **options):
        process = subprocess.Popen([str(a) for a in args], stdin=subprocess.DEVNULL, start_new_session=True, **options)
        processes.append(process)
        return process

    yield start
    for process in processes:
        end_tree(process)


def functions(profile):
    """{function name: samples whose stack contains it} of a spyglass.Profile."""
    counts = {}
    for frames, count in profile.stacks:
        for name in {frame.partition(" (")[0] for frame in frames}:
            counts[name] = counts.get(name, 0) + count
    return counts
