"""Rows 4 to 9: what the profiler costs the target, and itself."""
import concurrent.futures
import os
import re
import signal
import sys
import time

from common import CORES, DEBIAN, Figure, PYTHONS, ROOT, SPYGLASS, Target, WAIT, by_pytest, plural, run, start, threads_target
from kills import away_from
from processes import descriptors, resident

sys.path.insert(0, str(ROOT / "bench"))
from harness import common as bench  # noqa: E402
from harness import env, growth, pace, procs, tools  # noqa: E402

PAUSES = re.compile(r"(\d+) pauses, median ([\d.]+) us, 99th percentile ([\d.]+) us, longest ([\d.]+) us")


# ---- row 4 ----

def pauses(ctx):
    """Pauses of a program with 10 threads, from its own core and with ptrace from another one."""
    texts, ok = [], True
    with threads_target(3, 3, 3) as target:
        for name in ("same core", "ptrace"):
            before = away_from(target) if name == "ptrace" else None
            if name == "ptrace" and not before:
                continue
            ended = run("record", "--pid", target.pid, "-r", 500, "-d", ctx.count(20, 2), "-f", "raw", "-o", ctx.work / "pauses",
                        "--log-level", "info", preexec_fn=before)
            found = PAUSES.search(ended.err.decode(errors="replace"))
            if not found or found.group(1) == "0":
                return Figure("%s: no pauses counted (status %s)" % (name, ended.status), False)
            count, median, late, longest = map(float, found.groups())
            texts.append("%s: %s, median %.0f µs, 99th percentile %.0f µs, longest %.0f µs" % (
                name, plural(int(count), "pause"), median, late, longest))
            ok = ok and median <= 300 * ctx.patience and late <= 2000 * ctx.patience
    return Figure("; ".join(texts), ok)


# ---- row 5, with bench/harness ----

class OwnEnv(env.Env):
    """Without the other profilers."""

    def install_tools(self):
        pass


class SpyglassPtrace(tools.Spyglass):
    """Kept off the core of the target, so that it has to use ptrace."""

    key = "spyglass-ptrace"

    def command(self, target, rate, out, threads, form):
        os.sched_setaffinity(target.pid, CORES[:1])
        return ["taskset", "-c", CORES[-1], *super().command(target, rate, out, threads, form)]


class Bench:
    """The benchmark's context, with spyglass only."""

    def __enter__(self):
        self.env = OwnEnv()
        self.ctx = bench.Context(self.env, False)
        self.ctx.tools = {key: self.ctx.tools[key] for key in ("spyglass", "spyglass-nb")}
        if len(CORES) > 1:
            self.ctx.tools["spyglass-ptrace"] = SpyglassPtrace(self.env)
        self.ctx.say = lambda text: None
        return self.ctx

    def __exit__(self, *_):
        procs.kill_all()
        self.env.close()


def slowdown(ctx):
    data, rounds = {}, ctx.count(31, 3)
    with Bench() as b:
        with b.targets({"it": (b.env.python("3.11"), "pace", "1", "busy")}) as targets:
            if not targets:
                return Figure("it needs Python 3.11", None)
            for _ in range(rounds):
                pace.one_round(b, data, targets["it"], 1, 0, rates={"100 Hz": 100})
    found = {key: by["1 100 Hz"] for key, by in pace.summary(data).items() if "1 100 Hz" in by and by["1 100 Hz"]["kept"]}
    if not {"spyglass", "spyglass-nb"} <= set(found):
        return Figure("spyglass failed: measured only %s" % sorted(found), False)
    texts, too_slow, noisy = [], False, False
    for key, name, limit in (("spyglass-nb", "--nonblocking", 0.5), ("spyglass", "default", 2.0), ("spyglass-ptrace", "ptrace", 2.0)):
        if key in found:
            lost, error = 100 - found[key]["kept"], found[key]["error"] or 0
            texts.append("%s: %.2f%% ±%.2f slower" % (name, lost, error))
            noisy = noisy or error > limit
            too_slow = too_slow or error <= limit and lost > limit + 3 * error
    text = "; ".join(texts) + "; %s at 100 Hz" % plural(rounds, "paired run")
    return Figure(text + ("; too noisy to judge" if noisy else ""), False if too_slow else None if noisy else True)


# ---- row 6 ----

never_writes = by_pytest(["tests/live/test_states.py"], "test_never_writes")


# ---- row 7 ----

# Threads and child processes that come and go; few distinct stacks. Prints a dot for each child.
CHURN = """
import os, threading, time
def come():
    end = time.time() + 0.02
    while time.time() < end:
        sum(range(200))
os.write(1, b"ready\\n")
while True:
    threads = [threading.Thread(target=come) for i in range(3)]
    for thread in threads: thread.start()
    for thread in threads: thread.join()
    child = os.fork()
    if child == 0:
        come()
        os._exit(0)
    os.waitpid(child, 0)
    os.write(1, b".")
    time.sleep(0.3)
"""
SOAKS = {"default": [], "--native": ["--native"], "--native --subprocesses": ["--native", "--subprocesses"]}
GROWTH = 5  # MB
PER_PROCESS = 2 / 1024  # MB: a profile with --subprocesses keeps each process, up to PROFILE_MAX_THREADS


def soak_one(ctx, name, flags):
    """Returns (text, whether memory and descriptors stayed within their limits)."""
    warm, whole = ctx.count(60, 10), ctx.count(600, 60)
    children = 0
    with Target([*DEBIAN.command, "-S", "-c", CHURN]) as target:
        target.line()
        os.set_blocking(target.process.stdout.fileno(), False)
        profiler = start("record", "-p", target.pid, "-r", 100, "-f", "raw", "-o", ctx.work / ("soak%d" % len(flags)), *flags)
        try:
            begin, memory, files = time.monotonic(), [], []
            while profiler.poll() is None and time.monotonic() - begin < whole:
                time.sleep(0.5)
                came = len(target.process.stdout.read() or b"")
                if time.monotonic() - begin > warm:
                    memory.append(resident(profiler.pid) / 2**20)
                    files.append(descriptors(profiler.pid))
                    children += came
            if profiler.poll() is not None:
                return "%s: it ended with %d" % (name, profiler.returncode), False
            profiler.send_signal(signal.SIGINT)
            profiler.communicate(timeout=WAIT)
        finally:
            profiler.kill()
    half = len(files) // 2
    grown, more = memory[-1] - memory[0], min(files[half:]) - min(files[:half])  # the minimum: threads come and go
    text = "%s: %+.1f MB of %.1f, %+d descriptors, %s" % (name, grown, memory[-1], more, plural(children, "fork"))
    allowed = GROWTH + (PER_PROCESS * children if "--subprocesses" in flags else 0)
    return text, grown <= allowed and more <= 0


def soak(ctx):
    with concurrent.futures.ThreadPoolExecutor(len(SOAKS)) as pool:
        found = list(pool.map(lambda item: soak_one(ctx, *item), SOAKS.items()))
    return Figure("%d s at 100 Hz with threads and processes that come and go; %s" % (
        ctx.count(600, 60), "; ".join(text for text, _ in found)), all(ok for _, ok in found))


# ---- row 8 ----

def measured(b, *args):
    """Runs spyglass; its status, output and peak memory in MB are .status, .text and .peak_mb of the result."""
    ended = procs.Measured(b.env, [SPYGLASS, *args]).end(WAIT)
    ended.peak_mb = ended.peak / 1024
    return ended


def merge_distinct(ctx, b, count):
    """Merges a profile with so many distinct stacks."""
    profile = ctx.work / "distinct.txt"
    with open(str(profile), "w") as file:
        for i in range(count):
            n = i * 0x9E3779B1 & 0xffffffff  # an odd factor: every number once
            file.write("main;a%d;b%d;c%d;d%d 1\n" % (n >> 24, n >> 16 & 255, n >> 8 & 255, n & 255))
    merged = ctx.work / "merged.txt"
    ended = measured(b, "merge", "-f", "raw", "-o", merged, profile)
    ended.lines = merged.read_bytes().count(b"\n") if merged.exists() else 0
    for file in (profile, merged):
        file.unlink(missing_ok=True)
    return ended


def distinct_stacks(ctx):
    """One profile of 1,000,000 stacks from a file, and as many as come in ten seconds from a live program."""
    count = ctx.count(1000000, 20000)
    with Bench() as b:
        merged = merge_distinct(ctx, b, count)
        more = merge_distinct(ctx, b, 4 * count)
        with b.targets({"it": (b.env.python("3.11"), "distinct", "24")}) as targets:
            live = targets and growth.pass_by(b, b.tools["spyglass"], targets["it"], "raw", ctx.count(10, 2))
    texts = ["merge of %s: %.0f MB%s" % (plural(n, "distinct stack"), ended.peak_mb, ", announces pruning" if "pruned" in ended.text else "")
             for n, ended in ((count, merged), (4 * count, more))]
    if live:
        texts.append("record, %s samples of new stacks: %.0f MB%s" % (
            format(live["samples"], ","), live["mb"], ", announces pruning" if live["pruned"] else ""))
    peaks = [merged.peak_mb, more.peak_mb, *([live["mb"]] if live else [])]
    said = ctx.scale < 1 or "pruned" in more.text
    is_whole = merged.status == 0 and more.status == 0 and min(merged.lines, more.lines) >= ctx.count(10000, 1000)
    return Figure("; ".join(texts) + ("" if is_whole else "; the merged profile lacks stacks"), is_whole and max(peaks) <= 256 and said)


# ---- row 9 ----

DEEP = "import sys, time\nsys.setrecursionlimit(20000)\ndef f(n):\n    if n: f(n - 1)\n    else:\n        print('ready', flush=True); time.sleep(1e6)\nf(5000)\n"


DUMP_LEAST = 10000  # bytes for 200 threads or 5,000 frames: a dump that says nothing needs no memory
RESTS = "import json, ssl, time\nprint('ready')\n__import__('sys').stdout.flush()\ntime.sleep(1e6)\n"


def native_memory(b, python):
    """The peak memory of `dump --native`. What it needs is debug info, of which each interpreter has another amount."""
    with Target([*python.command, "-c", RESTS]) as target:
        if target.line() != b"ready\n":
            return None  # built without ssl
        ended = measured(b, "dump", "--pid", target.pid, "--native")
    native = len(ended.text.splitlines()) > 5  # the process, its Python, an empty line, the thread, <module>
    return ended.peak_mb if ended.status == 0 and native else None


def dump_memory(ctx):
    found = {}
    with Bench() as b, threads_target(1, 4, 195) as many, Target([*DEBIAN.command, "-c", DEEP]) as deep:
        deep.line()
        for name, target in (("200 threads", many), ("5,000 frames", deep)):
            for flags in ([], ["--locals"], ["--json"], ["--native"]):
                ended = measured(b, "dump", "--pid", target.pid, *flags)
                if ended.status != 0 or len(ended.text) < DUMP_LEAST:
                    return Figure("%s %s: status %s, %d bytes" % (name, flags, ended.status, len(ended.text)), False)
                found[" ".join([name, *flags])] = ended.peak_mb
        native = {str(python): native_memory(b, python) for python in PYTHONS}
    worst = max(found, key=found.get)
    native = {name: mb for name, mb in native.items() if mb is not None}
    if not native:
        return Figure("no dump --native worked", False)
    most = max(native, key=native.get)
    return Figure("%s: at most %.1f MB (%s); --native on %d Pythons: at most %.1f MB (%s)" % (
        plural(len(found), "dump"), found[worst], worst, len(native), native[most], most), found[worst] <= 30 and native[most] <= 20)
