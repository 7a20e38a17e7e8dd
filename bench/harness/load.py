"""Section load: does a profile add up to the CPU time that was used, and are its shares right, if the target has to wait for
a core?"""
import contextlib
import pathlib
import sys
import time

from . import procs, split, tools
from .common import median, show, table

NAME = "load"
TITLE = "Load: totals and shares on a busy machine"
NOTES = ["The target of section split (turns). 3 and 8 loops: as many busy loops run beside it. 20% of a core: its cgroup has "
         "that limit. naps: a target that sleeps for 2 ms after each 4 ms of work. The target waits until the profiler samples, uses "
         "some seconds of CPU time, and waits again. Total: the time in the profile, including what spyglass shows as "
         "unattributed, as a percentage of the CPU time that the kernel charged for it; 100 is right. Worst share: in percentage points; chance alone gives about 50/√samples."]
LOADS = {"no load": 0, "3 loops": 3, "8 loops": 8, "20% of a core": None}
TARGETS = {"turns": ("split", "turns"), "naps": ("split", "naps")}
RATES = (100, 1000)
GROUP = "spyglass-bench"


def run(ctx):
    data = {}
    for name, what in TARGETS.items():
        for load, loops in LOADS.items():
            ctx.say(f"load: {name}, {load}")
            with ctx.targets({"it": (ctx.env.python("3.11"), *what, ctx.pick("8", "1"))}) as targets:
                for target in targets.values():
                    with busy(loops), limited(target.pid, loops) as possible:
                        if possible:
                            one_load(ctx, data, target, f"{name}, {load}")
    return {"data": data, "tables": [tables(data)]}


def work(target):
    """Lets the target work, and returns when it waits again, and the profiler has noticed."""
    rounds = target.slot(7)
    write(f"{target.state}.go", 1)
    while target.slot(7) == rounds:
        time.sleep(0.05)
    time.sleep(0.5)


def one_load(ctx, data, target, name):
    for rate in RATES:
        for tool in ctx.usable(target.python):
            if tool.family not in ("spyglass", "py-spy") or tool.key == "py-spy-nb":
                continue
            out = ctx.env.work / f"load.{tool.suffix}"
            run = tools.run_tool(tool, target, rate, 0, out=out, settle=0.5, during=lambda: work(target),
                                 watch=lambda: (*target.slots(), procs.on_cpu(target.pid)))
            if run.failure:
                ctx.say(f"load: {tool.key}: {run.failure}")
                continue
            counts = tool.stacks(out)
            before, after, _ = run.window
            entry = split.compare(counts, run, split.PARTS["turns"])
            charged = after[-1] - before[-1]
            entry["total"] = 100 * sum(counts.values()) / rate / charged if charged else None
            entry["samples"] = run.samples
            data.setdefault(tool.key, {}).setdefault(f"{name}, {rate} Hz", []).append(entry)


@contextlib.contextmanager
def busy(loops):
    others = [procs.start([sys.executable, "-c", "while True: pass"]) for _ in range(loops or 0)]
    try:
        yield
    finally:
        for other in others:
            procs.kill(other)


def write(path, text):
    with open(path, "w") as f:
        f.write(str(text))


@contextlib.contextmanager
def limited(pid, loops):
    """Puts the process into a cgroup with a fifth of a core; yields False if that is not possible."""
    if loops is not None:
        yield True
        return
    v1, v2 = pathlib.Path("/sys/fs/cgroup/cpu"), pathlib.Path("/sys/fs/cgroup")
    group = (v1 if v1.is_dir() else v2) / GROUP
    try:
        group.mkdir(exist_ok=True)
        if v1.is_dir():
            write(group / "cpu.cfs_period_us", 100000)
            write(group / "cpu.cfs_quota_us", 20000)
        else:
            write(group / "cpu.max", "20000 100000")
        write(group / "cgroup.procs", pid)
    except OSError:
        yield False
        return
    try:
        yield True
    finally:
        write(group.parent / "cgroup.procs", pid)
        group.rmdir()


def tables(data):
    names = list(dict.fromkeys(name for by in data.values() for name in by))
    rows = [[name, *(cell(by.get(name)) for by in data.values())] for name in names]
    return table("total % / worst share, points / samples", ["", *data], rows)


def cell(runs):
    if not runs:
        return "–"
    return (f"{show(median([r['total'] for r in runs]), '{:.1f}')} / {show(split.worst(runs), '{:+.2f}')} / "
            f"{sum(r['samples'] for r in runs):,}")
