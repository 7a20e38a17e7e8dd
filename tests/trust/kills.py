"""Rows 1 to 3: the profiler dies, the target dies, or the target becomes something else."""
import collections
import concurrent.futures
import contextlib
import os
import random
import re
import signal
import subprocess
import time

from common import CORES, DEBIAN, Figure, Target, WAIT, plural, process_state, quantile, run, start, threads_target
from profiles import EXTENSION, FORMATS, READ, catches

# How the profiler reads: from the thread's core, with ptrace (from another core), with native stacks, once.
WAYS = {
    "record": ["record", "-r", "1000", "-f", "raw"],
    "ptrace": ["record", "-r", "1000", "-f", "raw"],
    "native": ["record", "-r", "1000", "-f", "raw", "--native"],
    "native-all": ["record", "-r", "500", "-f", "raw", "--native-all", "--idle"],
    "dump": ["dump", "--native"],
}


def away_from(target):
    """For preexec_fn: keeps the target on the first core and the profiler off it, so that it needs ptrace."""
    if len(CORES) < 2:
        return None
    for tid in os.listdir("/proc/%d/task" % target.pid):
        os.sched_setaffinity(int(tid), CORES[:1])
    return lambda: os.sched_setaffinity(0, CORES[1:])


class Way:
    """A started profiler. Its events tell whether it samples."""

    def __init__(self, way, target, out):
        self.events, writer = os.pipe()
        os.set_blocking(self.events, False)
        args = [*WAYS[way], "--status-fd", writer, "--pid", target.pid, *(["-o", out] if "record" in WAYS[way] else [])]
        before = away_from(target) if way == "ptrace" else None
        self.process = start(*args, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, preexec_fn=before, pass_fds=[writer])
        os.close(writer)
        self.seen = b""

    def samples(self):
        """True if it has begun to read stacks and has not ended."""
        with contextlib.suppress(BlockingIOError):
            while True:
                data = os.read(self.events, 65536)
                self.seen += data
                if not data:
                    return False
        return b'"event":"ready"' in self.seen

    def wait_random(self, way, i, rng):
        """Waits for a random time: for every second recording from the first sample on, else from the start of the program."""
        end = time.monotonic() + WAIT
        while way != "dump" and i % 2 and self.process.poll() is None and not self.samples() and time.monotonic() < end:
            time.sleep(0.001)
        time.sleep(rng.uniform(0, 0.2) if way != "dump" else rng.uniform(0, 0.02))

    def end(self):
        self.process.kill()
        self.process.wait()
        os.close(self.events)


def wait_handlers(profiler):
    """Waits until a recording handles signals, or has ended."""
    end = time.monotonic() + WAIT
    while profiler.poll() is None and not catches(profiler.pid, signal.SIGUSR1) and time.monotonic() < end:
        time.sleep(0.001)


def scheduling(pid):
    """How the kernel schedules each thread. Nothing of that may change."""
    found = {}
    for tid in map(int, os.listdir("/proc/%d/task" % pid)):
        found[tid] = (os.sched_getaffinity(tid), os.sched_getscheduler(tid), os.getpriority(os.PRIO_PROCESS, tid))
    return found


Killed = collections.namedtuple("Killed", "kills sampling stopped changed dead")


def kill_profilers(way, count, out, seed):
    """Kills a profiler `count` times, each at another time."""
    rng, kills, sampling, stopped, changed = random.Random(seed), 0, 0, 0, 0
    with threads_target(1, 24, 24) as target:  # 50 threads
        if way == "ptrace":
            away_from(target)
        before = scheduling(target.pid)
        for i in range(count):
            profiler = Way(way, target, out)
            profiler.wait_random(way, i, rng)
            sampling += profiler.samples()
            profiler.end()
            kills += 1
            if target.process.poll() is not None:
                return Killed(kills, sampling, stopped, changed, 1)
            if target.stopped():
                time.sleep(0.1)
                stopped += target.stopped()
            changed += scheduling(target.pid) != before
        return Killed(kills, sampling, stopped, changed, int(not target.goes_on()))


def kill_target(way, out, i):
    """Kills a target while it is read. Returns (whether it was being sampled, what is wrong or None)."""
    if out.exists():
        out.unlink()
    with threads_target(1, 24, 24) as target:
        profiler = Way(way, target, out)
        profiler.wait_random(way, i, random.Random(i))
        sampling = profiler.samples()
        os.kill(target.pid, signal.SIGKILL)
        target.process.wait()
        try:
            status = profiler.process.wait(WAIT)
        except subprocess.TimeoutExpired:
            return sampling, "%s hangs" % way
        finally:
            profiler.end()
    if status not in (0, 1):
        return sampling, "%s ended with %d" % (way, status)
    if way != "dump" and status == 0 and not out.exists():
        return sampling, "%s ended with 0 and wrote no file" % way
    return sampling, None


def profiler_killed(ctx):
    """Row 1."""
    ways, ends = list(WAYS), ctx.count(500, 10)
    each = -(-ctx.count(1000, 20) // len(ways))
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        found = list(pool.map(lambda i: kill_profilers(ways[i], each, ctx.work / ("killed-" + ways[i]), i), range(len(ways))))
        ended = list(pool.map(lambda i: kill_target(ways[i // 2 % len(ways)], ctx.work / ("end-%d" % i), i), range(ends)))
    total = Killed(*map(sum, zip(*found)))
    problems = [problem for _, problem in ended if problem]
    text = "%s of the profiler with 50 threads, %s of them while it sampled: %s stopped, %d dead, %d scheduled differently; " % (
        plural(total.kills, "SIGKILL"), format(total.sampling, ","), plural(total.stopped, "target"), total.dead, total.changed)
    text += "%s of the target, %d while it was sampled: %s" % (
        format(ends, ","), sum(sampling for sampling, _ in ended),
        "every profiler ended cleanly" if not problems else "%d did not end cleanly: %s" % (len(problems), problems[0]))
    enough = total.kills >= each * len(ways) and total.sampling >= total.kills / 4
    return Figure(text, enough and not (total.stopped or total.dead or total.changed or problems))


# ---- row 2 ----

SIGNALS = [signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT]


def end_recording(number, format, target, out, delay):
    """Ends a recording with a signal. Returns (seconds until it ended, samples or None, what is wrong or None)."""
    if out.exists():
        out.unlink()
    profiler = start("record", "-p", target.pid, "-r", 1000, "-f", format, "-o", out, stdout=subprocess.DEVNULL)
    try:
        wait_handlers(profiler)
        time.sleep(delay)
        begin = time.monotonic()
        profiler.send_signal(number)
        _, err = profiler.communicate(timeout=WAIT)
    except subprocess.TimeoutExpired:
        return WAIT, None, "%s: it does not end" % number.name
    finally:
        profiler.kill()
    took, err = time.monotonic() - begin, err.decode(errors="replace")
    if profiler.returncode == 1 and not out.exists() and re.search("No (stack|sample)s|no samples", err):
        return took, None, None  # before the first sample
    if profiler.returncode != 0 or not out.exists():
        return took, None, "%s, %s: status %s, %s" % (number.name, format, profiler.returncode, err.strip()[-200:])
    try:
        return took, READ[format](out.read_text(encoding="utf-8"))[1], None
    except Exception as error:  # any error of a parser
        return took, None, "%s, %s: invalid output: %r" % (number.name, format, error)


def signals(ctx):
    """Row 2."""
    count, limit = ctx.count(200, 4), 2 * ctx.patience

    def series(number):
        rng = random.Random(int(number))
        with threads_target(0, 2, 2) as target:
            ends = [end_recording(number, FORMATS[i % 4], target, ctx.work / ("%s.%s" % (number.name, EXTENSION[FORMATS[i % 4]])),
                                  rng.uniform(0, 0.15)) for i in range(count)]
            return ends, target.goes_on()

    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        results = list(pool.map(series, SIGNALS))
    ends = [end for series_, _ in results for end in series_]
    problems = [problem for _, _, problem in ends if problem]
    times = [took for took, _, _ in ends]
    early = sum(samples is None and problem is None for _, samples, problem in ends)
    text = "%d of each signal: %d valid files%s, %d invalid; median %.0f ms, longest %.0f ms; %d of %d targets running%s" % (
        count, len(ends) - len(problems) - early, ", %d before the first sample" % early if early else "", len(problems),
        1000 * quantile(times, 0.5), 1000 * max(times), sum(runs for _, runs in results), len(results),
        ". " + problems[0] if problems else "")
    return Figure(text, not problems and max(times) <= limit and all(runs for _, runs in results))


# ---- row 3 ----

# Executes itself again and again.
EXEC = "import os, sys, time; os.write(1, b'.'); time.sleep(0.01); os.execv(sys.executable, [sys.executable, '-S', '-c', sys.argv[1], sys.argv[1]])"
# Forks as fast as it can; each child works for a moment and exits.
FORKS = ("import os\nos.write(1, b'ready\\n')\nwhile True:\n"
         "    for i in range(20):\n        if os.fork() == 0:\n            sum(range(20000)); os._exit(0)\n"
         "    for i in range(20): os.wait()\n")
EXITS = "import os; os.write(1, b'x'); [i for i in range(%d)]"


def judged(ended, times, problems, what):
    """Appends the time, and a problem unless it succeeded or failed with a message. Returns True if it succeeded."""
    times.append(ended.seconds)
    if ended.status not in (0, 1) or ended.status == 1 and not ended.err.strip():
        problems.append("%s: status %s: %s" % (what, ended.status, ended.err.decode(errors="replace").strip()[-200:]))
    return ended.status == 0


def stopped_targets(ctx, times, problems):
    with threads_target(0, 0, 10) as target:
        os.kill(target.pid, signal.SIGSTOP)
        while process_state(target.pid) != "T":
            time.sleep(0.001)
        for i in range(ctx.count(50, 4)):
            ended = run("dump", "--pid", target.pid, *(["--native"] if i % 2 else []))
            judged(ended, times, problems, "stopped")
            if ended.out.count(b"Thread ") != 11 or process_state(target.pid) != "T":
                problems.append("stopped: %d of 11 threads, state %s" % (ended.out.count(b"Thread "), process_state(target.pid)))
        os.kill(target.pid, signal.SIGCONT)
        if not target.goes_on():
            problems.append("stopped: it does not go on after SIGCONT")


def stopped_meanwhile(ctx, times, problems):
    """SIGSTOP and SIGCONT from someone else during a recording: the target ends up as they left it."""
    with threads_target(1, 4, 4) as target:
        for i in range(ctx.count(20, 2)):
            profiler = start("record", "-p", target.pid, "-r", 1000, "-f", "raw", "-o", ctx.work / "stopped", *(["--native"] if i % 2 else []))
            wait_handlers(profiler)
            time.sleep(ctx.random.uniform(0, 0.1))
            os.kill(target.pid, signal.SIGSTOP)
            time.sleep(ctx.random.uniform(0, 0.1))
            begin = time.monotonic()
            profiler.send_signal(signal.SIGINT)
            profiler.communicate(timeout=WAIT)
            times.append(time.monotonic() - begin)
            if process_state(target.pid) != "T":
                problems.append("stopped during a recording: state %s" % process_state(target.pid))
            os.kill(target.pid, signal.SIGCONT)
        if not target.goes_on():
            problems.append("stopped during a recording: it does not go on")


def changing_targets(ctx, times, problems):
    good = 0
    with Target([*DEBIAN.command, "-S", "-c", EXEC, EXEC]) as target:
        target.process.stdout.read(1)
        for i in range(ctx.count(100, 5)):
            good += judged(run("dump", "--pid", target.pid, *(["--native"] if i % 3 == 0 else [])), times, problems, "exec")
        if not good:
            problems.append("exec: no dump succeeded")
        ended = run("record", "-p", target.pid, "-d", 1, "-f", "raw", "-o", ctx.work / "exec")
        judged(ended._replace(seconds=ended.seconds - 1), times, problems, "record, exec")
    with Target([*DEBIAN.command, "-S", "-c", FORKS]) as target:
        target.line()
        for i in range(ctx.count(20, 2)):
            if not judged(run("dump", "--subprocesses", "--pid", target.pid), times, problems, "fork storm"):
                problems.append("fork storm: a dump failed")
        seconds = ctx.count(10)
        ended = run("record", "--subprocesses", "-p", target.pid, "-d", seconds, "-f", "raw", "-o", ctx.work / "forks")
        judged(ended._replace(seconds=ended.seconds - seconds), times, problems, "record, fork storm")
        if not target.goes_on():
            problems.append("fork storm: the target does not go on")


def ending_targets(ctx, times, problems):
    for i in range(ctx.count(200, 5)):
        with Target([*DEBIAN.command, "-S", "-c", EXITS % ctx.random.randrange(200000)]) as target:
            target.process.stdout.read(1)
            judged(run("dump", "--pid", target.pid), times, problems, "exit")


def changes(ctx):
    """Row 3."""
    times, problems = [], []
    for part in (stopped_targets, stopped_meanwhile, changing_targets, ending_targets):
        part(ctx, times, problems)
    text = "%s of targets that stop, exec, fork or exit: longest %.2f s beyond the duration, %s%s" % (
        plural(len(times), "reading"), max(times), plural(len(problems), "fault"), ": " + problems[0] if problems else "")
    return Figure(text, not problems and max(times) <= 2 * ctx.patience)
