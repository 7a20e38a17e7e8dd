"""Section chains: impossible stacks per million samples, on calls as fast as Python makes them."""
from . import stacks, tools
from .common import show, table

NAME = "chains"
TITLE = "Chains: stacks that never existed"
NOTES = ["16 chains of 8 functions, called in turn. A stack with frames of two chains, a gap, a wrong order or no "
         "root is impossible. Every tool runs at full speed, to give it as many chances as possible. Figures are "
         "impossible stacks per million samples; ✗ where the tool cannot read that Python. `inside` is the number "
         "of samples with frames of a chain, `depth` the mean number of such frames: a tool that keeps only frames "
         "that it can verify shows fewer than one that stops the target.",
         "A profiler with torn reads looks correct on a busy machine, where it seldom runs at the same time as its "
         "target."]
KINDS = ("plain", "generator", "method", "coroutine")
PYTHONS = ("3.9", "3.11", "3.12", "3.14", "3.15")


def run(ctx):
    data = {}
    for minor in ctx.pick(PYTHONS, ("3.11", "3.15")):
        python = ctx.env.python(minor)
        if not python:
            ctx.say(f"chains: Python {minor} is missing")
            continue
        for kind in ctx.pick(KINDS, ("plain", "generator")):
            ctx.say(f"chains: {kind} on {minor}")
            with ctx.targets({kind: (python, "chains", kind)}) as targets:
                for tool in ctx.usable(python):
                    data.setdefault(tool.key, {}).setdefault(minor, {})[kind] = judge(ctx, tool, targets[kind])
    return {"data": data, "tables": tables(ctx, data)}


def judge(ctx, tool, target):
    out = ctx.env.work / f"chains.{tool.suffix}"
    run = tools.run_tool(tool, target, tools.FULL, ctx.pick(1.2, 0.7), out=out)
    if run.failure:
        ctx.say(f"chains: {tool.key}: {run.failure}")
        return None
    got = stacks.check_chains(tool.stacks(out))
    return {**got, "errors": run.errors}


def tables(ctx, data):
    minors = [m for m in PYTHONS if any(m in by for by in data.values())]
    kinds = [k for k in KINDS if any(k in by[m] for by in data.values() for m in by)]
    result = []
    for kind in kinds:
        rows = []
        for key, by in data.items():
            got = [by.get(m, {}).get(kind) for m in minors]
            good = [g for g in got if g]
            rows.append([key, *(show(g and g["ppm"], "{:,.0f}", "✗") for g in got),
                         f"{sum(g['total'] for g in good):,}", f"{sum(g['inside'] for g in good):,}",
                         f"{sum(g['errors'] for g in good):,}",
                         show(sum(g["depth"] for g in good) / len(good) if good else None, "{:.2f}"), ways(good)])
        result.append(table(f"{kind} calls, impossible in a million",
                            ["", *minors, "samples", "inside", "errors reported", "depth", "how"], rows))
    return result


def ways(results):
    total = {}
    for got in results:
        for way, count in got["kinds"].items():
            total[way] = total.get(way, 0) + count
    return ", ".join(f"{way} {count:,}" for way, count in sorted(total.items(), key=lambda x: -x[1])) or "–"
