"""Fixtures of the live tests: targets on each interpreter and the directories they need.

A target is ready when the kernel reports that it blocks, not when it prints: see at_rest() in processes.py.
"""
import json
import os
import pathlib
import select
import shutil
import signal
import subprocess
import tempfile
import time

import pytest
from interpreter_copy import Copy
from processes import at_rest, descendants, is_known_as
from program import SANITIZED, TARGETS, WAIT, clean_env
from pythons import ONE_PER_LAYOUT, PYTHONS
from selection import one_of, pytest_addoption, pytest_collection_modifyitems, pytest_configure  # noqa: F401
from process_trees import environments  # noqa: F401

# The sanitizer build is several times slower: even test-all runs these files on one interpreter per layout kind only.
SLOW_WITH_SANITIZERS = ("test_native", "test_native_core", "test_native_stripped", "test_native_record", "test_native_states", "test_core",
        "test_locals", "test_process_trees", "test_unwind")


if not PYTHONS:
    raise pytest.UsageError("build/pythons.txt is missing: run `make pythons`, or `tools/pythons host` for those of this machine")


def pytest_generate_tests(metafunc):
    if "python" in metafunc.fixturenames:
        few = SANITIZED and metafunc.module.__name__ in SLOW_WITH_SANITIZERS
        metafunc.parametrize("python", [p for p in PYTHONS if not few or p in ONE_PER_LAYOUT], ids=repr)


class Target:
    """A started target. .truth is the line of JSON that it printed: what it knows about its own stacks."""

    def __init__(self, process):
        self.process = process
        self.pid = process.pid
        self.truth = None

    def read_line(self):
        """The next line of its standard output, as JSON."""
        data = b""
        end = time.monotonic() + WAIT
        fd = self.process.stdout.fileno()
        while not data.endswith(b"\n"):
            ready, _, _ = select.select([fd], [], [], max(0, end - time.monotonic()))
            assert ready, "the target printed nothing"
            chunk = os.read(fd, 1 << 20)
            assert chunk, "the target exited: %r" % self.stderr()
            data += chunk
        return json.loads(data.decode())

    def next_report(self):
        """Sends a byte so that the target continues; returns the next line that it prints."""
        self.resume()
        return self.read_line()

    def refresh_truth(self, pid):
        """Makes the target report its stacks again once all its threads are blocked."""
        if pid:
            at_rest(pid)
            self.truth = self.next_report()
            at_rest(pid)

    def python_pid(self):
        """The process that reported its PID: the one that was started, or a descendant. None if it is in a
        container."""
        if is_known_as(self.pid, self.truth["pid"]):
            return self.pid
        return next((pid for pid in descendants(self.pid) if is_known_as(pid, self.truth["pid"])), None)

    def resume(self, data=b"x"):
        self.process.stdin.write(data)
        self.process.stdin.flush()

    def stderr(self):
        self.errors.seek(0)
        return self.errors.read()[-2000:]

    def kill(self):
        """Kills the target and everything it started: each target is a session of its own."""
        try:
            os.killpg(self.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self.process.wait()
        for stream in (self.process.stdin, self.process.stdout):
            stream.close()
        self.errors.close()


@pytest.fixture(scope="session")
def places():
    """A copy of the targets for each root directory that an interpreter uses."""
    made = {}

    def place(root):
        if root not in made:
            base = root / "tmp"
            made[root] = pathlib.Path(tempfile.mkdtemp(prefix="spyglass-", dir=base))
            made[root].chmod(0o755)
            shutil.copytree(TARGETS, made[root] / "targets", ignore=shutil.ignore_patterns("__pycache__"))
        return made[root] / "targets"

    yield place
    for path in made.values():
        shutil.rmtree(path, ignore_errors=True)


@pytest.fixture
def script(places):
    """The path of a target as the interpreter sees it."""
    def path(python, name):
        inside = places(python.root).relative_to(python.root)
        return "/" + str(inside / name)

    return path


@pytest.fixture
def launch():
    """launch(command, ...) -> Target, after it has printed its first line and, if it can report again, blocks.
    Killed after the test."""
    targets = []

    def go(command, ready=True, **options):
        errors = tempfile.TemporaryFile()
        env = clean_env(**options.pop("env", {}))
        process = subprocess.Popen([str(part) for part in command], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                   stderr=errors, env=env, start_new_session=True, **options)
        target = Target(process)
        target.errors = errors
        targets.append(target)
        if ready:
            target.truth = target.read_line()
            if isinstance(target.truth, dict) and target.truth.get("repeats_on_input"):
                target.refresh_truth(target.python_pid())
        return target

    yield go
    for target in targets:
        target.kill()


@pytest.fixture
def spawn(launch, script):
    """spawn(python, "situations.py", "plain") -> Target."""
    def go(python, name, *args, flags=(), **options):
        return launch([*python.command, *flags, script(python, name), *args], **options)

    return go


@pytest.fixture
def copy(places):
    """copy(python) -> Copy: the interpreter's files, for a test to strip, rename or delete."""
    made = []

    def make(python):
        made.append(Copy(python, places))
        return made[-1]

    yield make
    for one in made:
        shutil.rmtree(one.dir)


@pytest.fixture
def scratch(tmp_path):
    """Like tmp_path, and removed after the test: core files are large."""
    yield tmp_path
    shutil.rmtree(tmp_path, ignore_errors=True)


@pytest.fixture
def inside(places):
    """inside(python) -> a directory that the target may write to: the path that we use and the path that the target
    uses."""
    made = []

    def make(python):
        path = places(python.root) / ("core-%d-%d" % (os.getpid(), len(made)))
        path.mkdir()
        made.append(path)
        return path, "/" + str(path.relative_to(python.root))

    yield make
    for path in made:
        shutil.rmtree(path, ignore_errors=True)
