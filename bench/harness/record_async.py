"""Section async: what it costs to record tasks, running and waiting ones."""
from . import tools
from .common import median, show, table

NAME = "async"
TITLE = "Asyncio: what tasks cost"
NOTES = ["record at 100 Hz of an event loop, without --async, with it, with --mode wall, and with --async all, in turns. CPU of the profiler "
         "in percent of one core; in brackets, the speed that the program keeps, compared with its speed without a profiler. asleep: no "
         "task runs. busy: one task computes all the time, and 100 others wake up every second. --async all limits the cost of "
         "reading waiting tasks to 0.5% of a core."]
TASKS = (10, 1000, 10000)
WAYS = {"record": (), "--async": ("--async",), "--mode wall": ("--mode", "wall"), "--async all": ("--async", "all")}
PYTHONS = ("3.11", "3.13")


def run(ctx):
    data = {}
    for minor in PYTHONS:
        for n in ctx.pick(TASKS, TASKS[:2]):
            for state in ("asleep", "busy"):
                measure(ctx, data, minor, n, state)
    return {"data": data, "tables": [tables(data)]}


def measure(ctx, data, minor, n, state):
    what = f"{n} tasks, {state}, {minor}"
    ctx.say(f"async: {what}")
    with ctx.targets({"it": (ctx.env.python(minor), "record_async", str(n), state)}) as targets:
        for target in targets.values():
            for _ in range(ctx.pick(3, 1)):
                for way, flags in WAYS.items():
                    one_way(ctx, data.setdefault(way, {}).setdefault(what, []), target, flags)


def one_way(ctx, rows, target, flags):
    tool = tools.Spyglass(ctx.env)
    tool.flags = flags
    alone = speed(target, ctx.pick(2.0, 0.5))
    run = tools.run_tool(tool, target, 100, ctx.pick(5.0, 2.0), settle=1.0, watch=lambda: target.slot(1))
    if run.failure:
        ctx.say(f"async: {' '.join(flags)}: {run.failure}")
        return
    first, last, span = run.window
    rows.append({"share": run.share, "kept": (last - first) / span / alone if alone else None, "mb": run.peak / 1024})


def speed(target, seconds):
    first = target.slot(1)
    tools.time.sleep(seconds)
    return (target.slot(1) - first) / seconds


def tables(data):
    whats = list(dict.fromkeys(what for by in data.values() for what in by))

    def cell(rows):
        if not rows:
            return "–"
        kept = median([row["kept"] for row in rows])
        return show(median([row["share"] for row in rows]) * 100, "{:.2f}") + (f" ({100 * kept:.1f}%)" if kept else "")
    return table("CPU % (speed kept)", ["", *data], [[what, *(cell(by.get(what)) for by in data.values())] for what in whats])
