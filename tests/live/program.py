"""Runs the program under test: $SPYGLASS (default: build/spyglass; `py-spy` must be in the same directory)."""
import os
import pathlib
import pty
import signal
import subprocess
import time
import tty

from pythons import ROOT

TARGETS = ROOT / "tests" / "targets"
SPYGLASS = pathlib.Path(os.environ.get("SPYGLASS", ROOT / "build" / "spyglass")).resolve()
PY_SPY = SPYGLASS.parent / "py-spy"
SANITIZED = b"__asan_init" in SPYGLASS.read_bytes() if SPYGLASS.exists() else False
UNATTRIBUTED = "[unattributed CPU time]"  # a line of a raw profile for CPU time that belongs to no stack
WAIT = 300  # seconds; whatever takes longer counts as a hang, however busy the machine is

# nohup and background jobs of a shell ignore these signals, and every process started here would inherit that.
for ignored, default in ((signal.SIGHUP, signal.SIG_DFL), (signal.SIGINT, signal.default_int_handler),
                         (signal.SIGQUIT, signal.SIG_DFL)):
    if signal.getsignal(ignored) == signal.SIG_IGN:
        signal.signal(ignored, default)


def clean_env(**more):
    keep = {key: os.environ[key] for key in ("PATH", "HOME", "TMPDIR") if key in os.environ}
    keep.update(LANG="C.UTF-8", PYTHONDONTWRITEBYTECODE="1", ASAN_OPTIONS="detect_leaks=1:abort_on_error=0:exitcode=99",
                UBSAN_OPTIONS="halt_on_error=1:exitcode=99:print_stacktrace=1")
    keep.update(more)
    return keep


class Result(str):
    """The outcome of a run: exit status, both streams, duration. A str, because pytest shortens the repr of anything
    else when a test fails."""

    def __new__(cls, args, status, out, err, seconds):
        return super().__new__(cls, "%s -> %d\n%s\n%s" % (" ".join(map(str, args)), status, *(
            text.decode("utf-8", "replace")[-3000:] for text in (out, err))))

    def __init__(self, args, status, out, err, seconds):
        self.args, self.status, self.raw, self.err, self.seconds = args, status, out, err.decode("utf-8", "replace"), seconds
        self.out = out.decode("utf-8")  # strict: callers fail on a byte that is not UTF-8

    @property
    def messages(self):
        return self.out + self.err

    def check(self, status=0):
        assert self.status == status, self
        assert "Sanitizer" not in self.err and "runtime error" not in self.err, self
        return self


def on_terminal(*args, program=SPYGLASS, **env):
    """What it writes to a terminal, standard error too."""
    leader, follower = pty.openpty()
    tty.setraw(follower)  # a newline stays a newline
    process = subprocess.Popen([str(program), *map(str, args)], stdin=follower, stdout=follower, stderr=follower, env=clean_env(**env))
    os.close(follower)
    written = b""
    try:
        while True:
            written += os.read(leader, 65536)
    except OSError:  # EIO: it has exited
        pass
    finally:
        os.close(leader)
    assert process.wait(WAIT) >= 0, written
    return written.decode()


def run(*args, program=SPYGLASS, timeout=WAIT, **options):
    command = [str(program)] + [str(arg) for arg in args]
    begin = time.monotonic()
    done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                          timeout=timeout, env=options.pop("env", clean_env()), **options)
    result = Result(command, done.returncode, done.stdout, done.stderr, time.monotonic() - begin)
    assert result.status >= 0 and result.status != 99, result  # no test may crash it or cause a sanitizer report
    return result


def start(*args, program=SPYGLASS, **options):
    """Starts the program in the background, for tests that send it signals; finish() returns the Result."""
    command = [str(program)] + [str(arg) for arg in args]
    options.setdefault("stdin", subprocess.DEVNULL)
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                               env=options.pop("env", clean_env()), **options)
    process.begin = time.monotonic()
    return process


def finish(process, timeout=WAIT):
    out, err = process.communicate(timeout=timeout)
    return Result(process.args, process.returncode, out, err, time.monotonic() - process.begin)


def wait_until(condition, what, timeout=WAIT):
    """Polls until the condition is true. A timeout fails the test."""
    end = time.monotonic() + timeout
    while not condition():
        assert time.monotonic() < end, "timed out waiting for: " + what
        time.sleep(0.005)
