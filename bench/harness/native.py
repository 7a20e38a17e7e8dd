"""Section native: what native stacks cost, how many of them are complete, and how long one dump takes."""
import contextlib
import os
import re
import signal
import subprocess
import time

from . import env as environment
from . import procs, tools
from .common import median, show, table

NAME = "native"
TITLE = "Native: C, C++ and Rust frames between the Python ones"
NOTES = ["The target compresses (zlib), hashes (hashlib), encodes (json, base64) and sorts, a few milliseconds each "
         "in turn. `record --native` at 1 kHz. CPU is the CPU time of the whole profiler process divided by its "
         "samples, including reading symbols at the start; the next column leaves out the first second. The pause "
         "is the median time that the thread was paused, as spyglass reports it; py-spy does not report it. Pace is "
         "what the target kept of its own.",
         "A stack is complete if its outermost frame is where a thread begins: `_start`, or `clone`, which has no "
         "name in a stripped C library. For spyglass this is counted in the output of `--native-all`, with the work "
         "in the main thread and in another one, and compared with what it reports for `--native`; the minimum of "
         "all rounds. py-spy hides the frames of the interpreter: its stack counts as complete if its outermost "
         "frame is in the C library. Samples that it counts as errors are not complete.",
         "One dump: wall time of the whole run of the tool, on the same program and on a Ray worker (an actor that "
         "waits; 20 threads or more, two of them with Python)."]
PYTHONS = ("3.9", "3.11", "3.12", "3.14")
RATE = 1000
ROOTS = re.compile(r"(_start|_dl_start_user|clone|clone3|__clone|__clone3|start_thread|__restore_rt)$|libc\.so\.6\+0x")
PACKAGE = "ray"
RAY = environment.CACHE / "bench/ray"


class Spyglass(tools.Spyglass):
    flags = ("--native",)


class SpyglassAll(tools.Spyglass):
    flags = ("--native-all",)


class PySpy(tools.PySpy):
    flags = ("--native",)


def roots(out):
    """{(name, file) of the outermost frame: samples} of a raw profile."""
    counts = {}
    for line in out.read_text(errors="replace").splitlines():
        stack, _, count = line.rpartition(" ")
        name, _, file = stack.split(";", 1)[0].rpartition(" (")
        counts[name, file.rstrip(")")] = counts.get((name, file.rstrip(")")), 0) + int(count)
    return counts


def whole_share(tool, out, run):
    """Returns the percentage of samples whose stack is complete."""
    counts = roots(out)
    if tool.family == "spyglass":
        good = sum(n for (name, _), n in counts.items() if ROOTS.match(name))
    else:
        good = sum(n for (name, file), n in counts.items() if ROOTS.match(name) or file.startswith("libc.so"))
    total = sum(counts.values()) + run.errors
    return 100 * good / total if total else None


def reported_share(text, samples):
    """The percentage that spyglass itself reports."""
    cut = re.search(r"Native stacks: (\d+) of (\d+) could not be (?:followed|unwound)", text)
    return 100 - 100 * int(cut[1]) / int(cut[2]) if cut else 100.0 if samples else None


def reported_pause(text):
    pause = re.search(r"(?:stood still \d+ times for it|paused running threads \d+ times), median ([\d.]+) (?:us|µs)", text)
    return float(pause[1]) if pause else None


def run(ctx):
    data = {}
    for minor in ctx.pick(PYTHONS, ("3.9", "3.12")):
        python = ctx.env.python(minor)
        if not python:
            continue
        ctx.say(f"native: {python.label}")
        with ctx.targets({"it": (python, "native", "main")}) as targets:
            for _ in range(ctx.pick(3, 1)):
                record_round(ctx, data, targets["it"])
            look_round(ctx, data, targets["it"].pid, minor)
        for thread in ("main", "thread"):
            with ctx.targets({"it": (python, "native", thread)}) as targets:
                whole_round(ctx, data, targets["it"])
    with ray_worker(ctx) as (pid, failure):
        if pid:
            look_round(ctx, data, pid, "Ray")
    result = summary(data)
    return {"data": {"tools": result, "ray_failure": failure}, "tables": tables(result, failure)}


def entry(data, key, what):
    return data.setdefault(key, {}).setdefault(what, {})


def pace_alone(ctx, target):
    first, start = target.slot(1), time.monotonic()
    time.sleep(ctx.pick(0.8, 0.3))
    return (target.slot(1) - first) / (time.monotonic() - start)


def record_round(ctx, data, target):
    before = pace_alone(ctx, target)
    for tool in (Spyglass(ctx.env), PySpy(ctx.env)):
        if not tool.usable(target.python):
            continue
        out = ctx.env.work / "native.raw"
        run = tools.run_tool(tool, target, RATE, ctx.pick(8.0, 2.0), out=out, settle=1.0, watch=lambda: target.slot(1),
                             patience=60)
        after = pace_alone(ctx, target)
        if run.failure:
            ctx.say(f"native: {tool.key} on {target.python.minor}: {run.failure}")
        else:
            note_record(entry(data, tool.key, target.python.minor), tool, out, run, (before + after) / 2)
        before = after


def note_record(e, tool, out, run, alone):
    first, last, span = run.window
    rate = run.samples / run.seconds
    figures = {"cpu_us": run.cpu * 1e6 / max(run.samples, 1), "later_us": run.share and run.share * 1e6 / rate,
               "hold_us": reported_pause(run.said), "rate": run.rate_held or rate, "mb": run.peak / 1024,
               "kept": 100 * (last - first) / span / alone if alone else None}
    figures["told"] = reported_share(run.said, run.samples) if tool.family == "spyglass" else None
    figures["whole"] = whole_share(tool, out, run) if tool.family != "spyglass" else None
    for name, value in figures.items():
        e.setdefault(name, []).append(value)


def whole_round(ctx, data, target):
    tool = SpyglassAll(ctx.env)
    out = ctx.env.work / "native.raw"
    run = tools.run_tool(tool, target, RATE, ctx.pick(4.0, 1.5), out=out, patience=60)
    if run.failure:
        ctx.say(f"native: --native-all on {target.python.minor}: {run.failure}")
    else:
        entry(data, tool.key, target.python.minor).setdefault("whole", []).append(whole_share(tool, out, run))


def look_commands(pid):
    spy, stack = environment.VENV / "bin/py-spy", environment.VENV / "bin/pystack"
    commands = {"spyglass": [environment.SPYGLASS, "dump", "--native", "--pid", pid],
                "py-spy": [spy, "dump", "--native", "--pid", pid], "pystack": [stack, "remote", "--native", pid]}
    return {key: command for key, command in commands.items() if command[0].exists()}


def look_round(ctx, data, pid, what):
    failed = set()
    for _ in range(ctx.pick(9, 3)):
        for key, command in look_commands(pid).items():
            run = procs.Measured(ctx.env, command).end(60)
            if run.status and key not in failed:
                failed.add(key)
                ctx.say(f"native: {key} on {what}: {tools.failed(run, 'failed').failure}")
            if not run.status:
                entry(data, key, what).setdefault("look_ms", []).append(run.wall * 1e3)
                entry(data, key, what).setdefault("look_mb", []).append(run.peak / 1024)


def install_ray(ctx):
    """Installs Ray in its own environment, because it has many dependencies. Returns why that failed, or None."""
    if (RAY / "installed").exists():
        return None
    ctx.say(f"installing {PACKAGE} into {RAY}")
    python = ctx.env.python("3.11") or ctx.env.python("3.12")
    if not python or python.chroot:
        return "no Python for it"
    if subprocess.run([*python.command, "-m", "venv", "--clear", RAY]).returncode:
        return "no environment could be created for it"
    if subprocess.run([RAY / "bin/pip", "install", "--quiet", "--disable-pip-version-check", PACKAGE]).returncode:
        return "it could not be installed"
    (RAY / "installed").touch()
    return None


@contextlib.contextmanager
def ray_worker(ctx):
    """Returns (PID of a worker, None) or (None, reason)."""
    failure = install_ray(ctx)
    if failure:
        yield None, failure
        return
    ctx.say("native: a Ray worker")
    state = ctx.env.work / "state-ray"
    state.write_bytes(bytes(64 * 8))
    run = procs.Measured(ctx.env, [RAY / "bin/python", "-B", ctx.env.work / "targets/ray_worker.py", state,
                                   ctx.env.work / "ray"])
    try:
        ready = run.wait_for(lambda: procs.read_slots(state)[0], 90)
        yield (int(procs.read_slots(state)[1]), None) if ready else (None, "it did not start")
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.kill(run.pid, signal.SIGTERM)
        run.end(30)


def summary(data):
    """Medians over the rounds; for the share of complete stacks, the minimum."""
    def one(name, values):
        values = [v for v in values if v is not None]
        return min(values) if values and name in ("whole", "told") else median(values)
    return {key: {what: {name: one(name, values) for name, values in figures.items()} for what, figures in by.items()}
            for key, by in data.items()}


def tables(data, failure):
    pythons = [m for m in PYTHONS if any(m in by for by in data.values())]

    def row(key, what, *names):
        by = data.get(key, {})
        return [key, *(" / ".join(show(by.get(m, {}).get(n), f) for n, f in names) for m in what)]
    one = "{:.1f}"
    cost = [row(key, pythons, ("cpu_us", one), ("later_us", one)) for key in ("spyglass", "py-spy")]
    calm = [row(key, pythons, ("hold_us", one), ("kept", one)) for key in ("spyglass", "py-spy")]
    whole = [["spyglass --native-all, counted", *row("spyglass", pythons, ("whole", "{:.2f}"))[1:]],
             ["spyglass --native, as it reports", *row("spyglass", pythons, ("told", "{:.2f}"))[1:]],
             ["py-spy --native, counted", *row("py-spy", pythons, ("whole", "{:.2f}"))[1:]]]
    what = [*pythons, "Ray"]
    look = [row(key, what, ("look_ms", "{:.0f}")) for key in ("spyglass", "py-spy", "pystack") if key in data]
    return [table("1 kHz: CPU µs a sample, with its start / without", ["", *pythons], cost),
            table("1 kHz: median pause, µs / pace kept, %", ["", *pythons], calm),
            table("whole stacks, %", ["", *pythons], whole),
            table("one dump with native frames, ms", ["", *pythons, "Ray worker" if not failure else f"Ray: {failure}"],
                  look)]
