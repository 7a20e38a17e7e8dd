"""Section rates: what a profiler really reads, what that costs, and what it leaves to the target."""
from . import pace, tools
from .common import median, show, table

NAME = "rates"
TITLE = "Rates: stacks read, their cost, and the pace that the target keeps"
NOTES = ["A reading is a stack that was read: a stack that is counted again because the thread has not run since is not one. One "
         "busy thread on CPython 3.11; medians of the rounds, tools in turn. Full: as fast as the tool can; spyglass leaves the "
         "target 95% of its pace, or 90% if asked for more than 10 kHz."]
RATES = {"100 Hz": 100, "1 kHz": 1000, "10 kHz": 10000, "full": tools.FULL}
ROUNDS = 5


def run(ctx):
    data = {}
    with ctx.targets({"it": (ctx.env.python("3.11"), "pace", "1", "busy")}) as targets:
        for target in targets.values():
            for number in range(ctx.pick(ROUNDS, 1)):
                for rate in RATES:
                    ctx.say(f"rates: {rate}, round {number + 1}")
                    one_rate(ctx, data, target, rate)
    return {"data": data, "tables": tables(data)}


def one_rate(ctx, data, target, rate):
    before = pace.pace_alone(ctx, target)
    for tool in ctx.usable(target.python):
        if tool.family == "cpython":
            continue
        run = tools.run_tool(tool, target, RATES[rate], ctx.pick(3.0, 1.0), settle=0.15, watch=lambda: target.slot(1))
        after = pace.pace_alone(ctx, target)
        if run.failure:
            ctx.say(f"rates: {tool.key}: {run.failure}")
        else:
            first, last, span = run.window
            data.setdefault(tool.key, {}).setdefault(rate, []).append(
                {"readings": run.readings / run.seconds, "kept": 100 * (last - first) / span / ((before + after) / 2),
                 "us": 1e6 * run.share * run.seconds / run.readings if run.readings and run.share else None})
        before = after


def figures(data, key, rate):
    entries = data.get(key, {}).get(rate, [])
    return {what: median([e[what] for e in entries]) for what in ("readings", "us", "kept")}


def tables(data):
    result = []
    for rate in RATES:
        rows = []
        for key in data:
            got = figures(data, key, rate)
            rows.append([key, show(got["readings"], "{:,.0f}"), show(got["us"]), show(got["kept"])])
        result.append(table(rate, ["", "readings/s", "CPU µs a reading", "pace kept, %"], rows))
    return result
