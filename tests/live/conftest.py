"""Fixtures of the live tests: the interpreters found, targets started on them, the program under test.

SPYGLASS names the program (default build/spyglass; `py-spy` must lie beside it), build/pythons.txt holds the
interpreters. A target is ready when it has written its line of JSON: nothing here sleeps and hopes.
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

ROOT = pathlib.Path(__file__).resolve().parents[2]
TARGETS = ROOT / "tests" / "targets"
SPYGLASS = pathlib.Path(os.environ.get("SPYGLASS", ROOT / "build" / "spyglass")).resolve()
PY_SPY = SPYGLASS.parent / "py-spy"
SANITIZED = b"__asan_init" in SPYGLASS.read_bytes() if SPYGLASS.exists() else False
# Under nohup, or in the background of a shell, these are ignored; all that is started here would ignore them too.
for ignored, otherwise in ((signal.SIGHUP, signal.SIG_DFL), (signal.SIGINT, signal.default_int_handler),
                           (signal.SIGQUIT, signal.SIG_DFL)):
    if signal.getsignal(ignored) == signal.SIG_IGN:
        signal.signal(ignored, otherwise)
WAIT = 120  # seconds until a thing that must happen counts as hanging


class Python:
    """One line of build/pythons.txt."""

    def __init__(self, line):
        self.label, version, self.kind, *self.command = line.split()
        self.version = tuple(int(part) for part in version.split(".")[:2])
        self.patch = version
        self.root = pathlib.Path(self.command[1]) if self.kind == "chroot" else pathlib.Path("/")

    def __repr__(self):
        return self.label

    @property
    def library_dir(self):
        """Where its libpython lies, or None for one without."""
        lib = pathlib.Path(self.command[0]).resolve().parent.parent / "lib"
        return lib if self.kind == "host" and list(lib.glob("libpython%d.%d*.so.*" % self.version)) else None


def read_pythons():
    path = ROOT / "build" / "pythons.txt"
    return [Python(line) for line in path.read_text().splitlines()] if path.exists() else []


PYTHONS = read_pythons()
NEWEST_HOST = max((p for p in PYTHONS if p.kind == "host"), key=lambda p: p.version, default=None)
DEBIAN = next((p for p in PYTHONS if p.label.startswith("usr-bin-3")), NEWEST_HOST)


def pytest_configure(config):
    config.addinivalue_line("markers", "quiet: measures time, so that no other test may run beside it")


# With sanitizers these go over one interpreter of each kind of layout: there the program takes several times as long.
LONG = ("test_native", "test_native_core", "test_native_found", "test_native_record", "test_native_states", "test_core",
        "test_locals", "test_trees", "test_unwind")
KINDS = {(2, 7), (3, 8), (3, 10), (3, 11), (3, 12), (3, 15)}


def pytest_generate_tests(metafunc):
    if "python" in metafunc.fixturenames:
        few = SANITIZED and metafunc.module.__name__ in LONG
        metafunc.parametrize("python", [p for p in PYTHONS if not few or p.version in KINDS], ids=repr)


def clean_env(**more):
    keep = {key: os.environ[key] for key in ("PATH", "HOME", "TMPDIR") if key in os.environ}
    keep.update(LANG="C.UTF-8", PYTHONDONTWRITEBYTECODE="1", ASAN_OPTIONS="detect_leaks=1:abort_on_error=0:exitcode=99",
                UBSAN_OPTIONS="halt_on_error=1:exitcode=99:print_stacktrace=1")
    keep.update(more)
    return keep


class Result(str):
    """What a run of the program gave: status, text of both streams, seconds it took. As a string it is all of that:
    what is not a string is shortened by pytest where a test fails."""

    def __new__(cls, args, status, out, err, seconds):
        return super().__new__(cls, "%s -> %d\n%s\n%s" % (" ".join(map(str, args)), status, *(
            text.decode("utf-8", "replace")[-3000:] for text in (out, err))))

    def __init__(self, args, status, out, err, seconds):
        self.args, self.status, self.raw, self.err, self.seconds = args, status, out, err.decode("utf-8", "replace"), seconds
        self.out = out.decode("utf-8")  # strict: callers fail on a byte that is not UTF-8

    def check(self, status=0):
        assert self.status == status, self
        assert "Sanitizer" not in self.err and "runtime error" not in self.err, self
        return self


def run(*args, program=SPYGLASS, timeout=WAIT, **options):
    command = [str(program)] + [str(arg) for arg in args]
    begin = time.monotonic()
    done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                          timeout=timeout, env=options.pop("env", clean_env()), **options)
    result = Result(command, done.returncode, done.stdout, done.stderr, time.monotonic() - begin)
    assert result.status >= 0 and result.status != 99, result  # no crash, no sanitizer report, ever
    return result


def start(*args, program=SPYGLASS, **options):
    """The program in the background, for tests that send it signals; finish() gives the Result."""
    command = [str(program)] + [str(arg) for arg in args]
    options.setdefault("stdin", subprocess.DEVNULL)
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                               env=options.pop("env", clean_env()), **options)
    process.begin = time.monotonic()
    return process


def finish(process, timeout=WAIT):
    out, err = process.communicate(timeout=timeout)
    return Result(process.args, process.returncode, out, err, time.monotonic() - process.begin)


def process_state(pid):
    """The letter of /proc/PID/stat: R, S, T, t, Z; None when there is no such process."""
    try:
        text = pathlib.Path("/proc/%d/stat" % pid).read_text()
    except (FileNotFoundError, ProcessLookupError):
        return None
    return text.rsplit(")", 1)[1].split()[0]


def task_states(pid):
    """The letters of all threads, as one string."""
    states = ""
    for task in pathlib.Path("/proc/%d/task" % pid).iterdir():
        try:
            states += (task / "stat").read_text().rsplit(")", 1)[1].split()[0]
        except (FileNotFoundError, ProcessLookupError):
            pass
    return states


def at_rest(pid):
    """Waits until no thread runs: one that was held by the last dump goes back to its call when it is released."""
    wait_until(lambda: set(task_states(pid)) <= set("STZ"), "all threads of %d at rest" % pid)
    return pid


def wait_until(condition, what, timeout=WAIT):
    """Polls a condition that must come true; failing is an error, not a retry."""
    end = time.monotonic() + timeout
    while not condition():
        assert time.monotonic() < end, "waited in vain for: " + what
        time.sleep(0.005)


class Target:
    """A started target; .truth is the line of JSON it wrote when it was ready."""

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
            assert ready, "the target said nothing"
            chunk = os.read(fd, 1 << 20)
            assert chunk, "the target ended: %r" % self.stderr()
            data += chunk
        return json.loads(data.decode())

    def stderr(self):
        self.errors.seek(0)
        return self.errors.read()[-2000:]

    def kill(self):
        """Ends it and what it started: each target is a session of its own."""
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
    """A copy of the targets for each root that interpreters see."""
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
    """launch(command, ...) -> Target, once it has spoken. Killed when the test is over."""
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
