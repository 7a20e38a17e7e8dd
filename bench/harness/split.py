"""Section split: a program that measures where its time goes, and how far each profiler is off."""
from . import stacks, tools
from .common import median, show, table

NAME = "split"
TITLE = "Split: error of known shares"
NOTES = ["slow: three functions of 5 to 15 ms. fast: a third of the time goes to tiny calls. turns: three functions "
         "of 0.2 to 0.6 ms, one called by a generator. The reference is the target's own CPU time in each part "
         "while the profiler was sampling. Every tool is asked for 10,000 samples a second and may take fewer; "
         "chance alone gives an error of about 50/√samples points. Worst part, in percentage points."]
PARTS = {"slow": ("part_a", "part_b", "part_c"), "fast": ("part_a_fast", "part_b", "part_c"),
         "turns": ("part_a", "part_b", "part_c")}
PYTHONS = {"3.11": None, "3.9": ("spyglass",), "3.15": ("cpython", "spyglass")}  # the profilers that run on them; None: all
RATE = 10000


def run(ctx):
    data = {}
    for minor in PYTHONS:
        for kind in PARTS:
            ctx.say(f"split: {kind} on {minor}")
            with ctx.targets({kind: (ctx.env.python(minor), "split", kind)}) as targets:
                for number in range(ctx.pick(2, 1)):
                    for target in targets.values():
                        round_of(ctx, data, target, kind, minor, number)
    return {"data": data, "tables": [tables(data)]}


def round_of(ctx, data, target, kind, minor, number):
    for tool in ctx.usable(target.python):
        if PYTHONS[minor] and (tool.family not in PYTHONS[minor] or (tool.family != "spyglass" and number > 0)):
            continue
        out = ctx.env.work / f"split.{tool.suffix}"
        run = tools.run_tool(tool, target, RATE, ctx.pick(5.0, 1.5), out=out, watch=target.slots)
        if run.failure:
            ctx.say(f"split: {tool.key}: {run.failure}")
            continue
        key = tool.key + (" on " + minor if PYTHONS[minor] and tool.family == "spyglass" else "")
        data.setdefault(key, {}).setdefault(kind, []).append(compare(tool.stacks(out), run, PARTS[kind]))


def compare(counts, run, parts):
    before, after, _ = run.window
    spent = [after[i] - before[i] for i in (1, 2, 3)]
    truth = [100 * s / sum(spent) for s in spent]
    seen = stacks.shares(counts, parts)
    error = [s - t for s, t in zip(seen, truth)] if seen else None
    return {"truth": truth, "seen": seen, "samples": sum(counts.values()), "error": error}


def worst(runs):
    """Adds up the rounds by their samples; returns the part with the largest error, with its sign."""
    runs = [r for r in runs if r["error"]]
    total = sum(r["samples"] for r in runs)
    if not total:
        return None
    errors = [sum(r["error"][i] * r["samples"] for r in runs) / total for i in range(3)]
    return max(errors, key=abs)


def first_part(runs):
    return tuple(median([r[what][0] for r in runs if r["seen"]]) for what in ("truth", "seen"))


def tables(data):
    rows = []
    for key, by in data.items():
        cells = []
        for kind in PARTS:
            runs = by.get(kind, [])
            truth, seen = first_part(runs)
            cells += [show(worst(runs), "{:+.2f}"), f"{show(seen)} of {show(truth)}",
                      f"{sum(r['samples'] for r in runs):,}"]
        rows.append([key, *cells])
    return table("", ["", *(f"{kind}: {what}" for kind in PARTS
                            for what in ("worst error, points", "first part, %", "samples"))], rows)
