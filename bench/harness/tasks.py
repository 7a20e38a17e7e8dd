"""Section tasks: one dump of an event loop with many tasks, and how long it pauses the loop."""
import re

from . import env as environment
from . import procs
from .common import median, show, table

NAME = "tasks"
TITLE = "Tasks: one dump of an event loop"
NOTES = ["Wall time and CPU time of the whole run of `spyglass dump`, medians. Longest pause: as spyglass measures it, from before the "
         "thread is paused until after. Longest step: of a task that does nothing but let the others run, as it measures it "
         "itself; so long before the dumps, and during them."]
COUNTS = {"1,000": "1000", "10,000": "10000"}
PYTHONS = "3.8", "3.11", "3.13", "3.14", "3.15"


def dump(ctx, target):
    run = procs.Measured(ctx.env, [environment.SPYGLASS, "dump", "--pid", target.pid, "--log-level", "info"]).end(60)
    found = re.search(r"(\d+) tasks of \d+ loops in \d+ us: \d+ slices, longest pause (\d+) us", run.text)
    if run.status or not found:
        ctx.say(f"tasks: failed: {run.text.strip().splitlines()[-1:]}")
        return None
    return {"tasks": int(found.group(1)), "ms": run.wall * 1e3, "cpu_ms": run.cpu * 1e3, "pause_ms": int(found.group(2)) / 1e3}


def measure(ctx, target):
    before = target.slot(1)
    looks = [dump(ctx, target) for _ in range(ctx.pick(20, 5))]
    looks = [look for look in looks if look]
    figures = {key: median([look[key] for look in looks]) for key in ("tasks", "ms", "cpu_ms")}
    return {**figures, "pause_ms": max((look["pause_ms"] for look in looks), default=None), "step_before_ms": before * 1e3,
            "step_ms": target.slot(1) * 1e3}


def run(ctx):
    data, rows = {}, []
    wanted = {f"{version} {count} {state}": (ctx.env.python(version), "tasks", number, state) for version in PYTHONS
              for count, number in COUNTS.items() for state in ("asleep", "busy")}
    for name, what in wanted.items():
        with ctx.targets({name: what}) as targets:
            for target in targets.values():
                ctx.say(f"tasks: {name}")
                got = data[name] = measure(ctx, target)
                busy = name.endswith("busy")
                rows.append([name, show(got["ms"]), show(got["cpu_ms"]), show(got["pause_ms"] if busy else None, "{:.2f}"),
                             show(got["step_before_ms"] if busy else None, "{:.2f}"), show(got["step_ms"] if busy else None, "{:.2f}")])
    head = ["", "ms", "CPU ms", "longest pause, ms", "longest step before, ms", "longest step, ms"]
    return {"data": data, "tables": [table("", head, rows)]}
