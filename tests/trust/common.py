"""Shared by the rows: the context of a run, targets, profilers, figures."""
import collections
import contextlib
import os
import pathlib
import random
import re
import signal
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests" / "live"), str(ROOT / "tests" / "fuzz")]
from processes import cpu_seconds, process_state, task_states  # noqa: E402
from program import SPYGLASS, WAIT, clean_env  # noqa: E402
from pythons import DEBIAN, PYTHONS  # noqa: E402

# What a row found: one line of text, and True (passed), False (failed) or None (not judged).
Figure = collections.namedtuple("Figure", "text ok")
Ended = collections.namedtuple("Ended", "status out err seconds")
CORES = sorted(os.sched_getaffinity(0))

# Threads that work in turn, sleep briefly, and sleep for long. Arguments: working, napping, sleeping.
THREADS = """
import os, sys, threading, time
def work():
    while True:
        sum(range(300))
def nap():
    while True:
        sum(range(300))
        time.sleep(0.003)
def rest():
    time.sleep(1e6)
for function, count in zip((work, nap, rest), map(int, sys.argv[1:4])):
    for i in range(count):
        thread = threading.Thread(target=function)
        thread.daemon = True
        thread.start()
os.write(1, b"ready\\n")
work()
"""


class Context:
    def __init__(self, scale, fuzz_minutes, work):
        self.scale, self.fuzz_minutes, self.work = scale, fuzz_minutes, work
        self.random = random.Random(1)
        self.widest = 1.0  # the widest limit on a duration that was used, as a factor

    def count(self, full, least=1):
        """The number of repetitions at this scale."""
        return max(least, round(full * self.scale))

    @property
    def patience(self):
        """Limits on durations are wider, up to five times, if other programs compete for the cores."""
        factor = min(5.0, max(1.0, 2 * os.getloadavg()[0] / len(CORES)))
        self.widest = max(self.widest, factor)
        return factor


def plural(n, what):
    return "%s %s%s" % (format(n, ","), what, "" if n == 1 else "s")


class Target:
    """A started program, killed with all that it started."""

    def __init__(self, command, **options):
        options.setdefault("stdout", subprocess.PIPE)
        self.process = subprocess.Popen([str(part) for part in command], stdin=subprocess.PIPE, env=clean_env(),
                                        start_new_session=True, **options)
        self.pid = self.process.pid

    def line(self):
        return self.process.stdout.readline()

    def kill(self):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)
        self.process.communicate()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.kill()

    def stopped(self):
        """True if a thread is stopped, by a signal or a tracer."""
        return bool(set(task_states(self.pid)) & set("Tt"))

    def goes_on(self):
        """True if the process is there, no thread is stopped, and it gets CPU time."""
        if self.process.poll() is not None or self.stopped():
            return False
        before, end = cpu_seconds(self.pid), time.monotonic() + WAIT
        while cpu_seconds(self.pid) == before and time.monotonic() < end:
            time.sleep(0.01)
        return cpu_seconds(self.pid) > before


def threads_target(working, napping, sleeping, python=DEBIAN, **options):
    """A program with so many threads besides a working main thread, ready to be sampled."""
    target = Target([*python.command, "-S", "-c", THREADS, working, napping, sleeping], **options)
    target.line()
    return target


def start(*args, **options):
    options.setdefault("stdout", subprocess.PIPE)
    options.setdefault("stderr", subprocess.PIPE)
    return subprocess.Popen([str(SPYGLASS), *map(str, args)], stdin=subprocess.DEVNULL, env=clean_env(), **options)


def run(*args, program=SPYGLASS, timeout=WAIT, **options):
    """Runs the program. A status of None: it did not end."""
    begin = time.monotonic()
    try:
        done = subprocess.run([str(program), *map(str, args)], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, env=clean_env(), timeout=timeout, **options)
    except subprocess.TimeoutExpired as late:
        return Ended(None, late.stdout or b"", late.stderr or b"", time.monotonic() - begin)
    return Ended(done.returncode, done.stdout, done.stderr, time.monotonic() - begin)


def pytest(where, select=None, tier="test"):
    """Runs live tests. Returns (passed, failed, skipped, output)."""
    command = ["/usr/bin/python3", "-m", "pytest", "-q", "--tb=short", "-p", "no:cacheprovider", "-n", str(len(CORES)),
               "--tier=" + tier, "-m", "not statistical", *where, *(["-k", select] if select else [])]
    done = subprocess.run(command, cwd=str(ROOT), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          env=dict(os.environ, PYTHONDONTWRITEBYTECODE="1"))
    output = done.stdout.decode(errors="replace")
    counts = {word: int(n) for n, word in re.findall(r"(\d+) (passed|failed|skipped|errors?)", output.splitlines()[-1])}
    failed = counts.get("failed", 0) + counts.get("error", 0) + counts.get("errors", 0)
    return counts.get("passed", 0), failed or int(done.returncode != 0), counts.get("skipped", 0), output


def by_pytest(where, select=None):
    """A row that live tests judge. If all are skipped, there is no verdict."""
    def row(ctx):
        passed, failed, skipped, output = pytest(where, select)
        if failed:
            print(output)
        text = "%s, %d failed" % (plural(passed, "live test"), failed)
        return Figure(text + (", %d skipped" % skipped if skipped else ""), None if not passed and not failed else failed == 0)

    return row


def quantile(values, share):
    values = sorted(values)
    return values[min(len(values) - 1, int(share * len(values)))] if values else 0.0


__all__ = ["CORES", "DEBIAN", "Context", "Ended", "Figure", "PYTHONS", "ROOT", "SPYGLASS", "Target", "WAIT", "by_pytest", "clean_env",
           "cpu_seconds", "plural", "process_state", "pytest", "quantile", "run", "start", "task_states", "threads_target"]
