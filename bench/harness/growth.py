"""Section growth: CPU and memory of the profiler as threads, depth and distinct stacks grow."""
from . import tools
from .common import show, table, thousands

NAME = "growth"
TITLE = "Growth: what size costs"
NOTES = ["Threads and depth at 100 Hz: CPU in percent of one core from the first sample on, and peak memory in MB. "
         "Distinct stacks at full speed: peak memory while the target goes through that many different stacks. A "
         "slow tool sees fewer of them, so the table also shows how many it saw (a stack that differs in a line, or "
         "was sampled half-way, counts too). austin writes every sample and keeps none: its file grows instead.",
         "CPython 3.11, and 3.15 for CPython's own."]
THREADS = (1, 100, 1000)
DEPTHS = (10, 100, 1000, 10000)
DISTINCT = {"1k": (10, 2.0), "100k": (17, 4.0), "1M": (24, 11.0)}


def tools_on(ctx, minor):
    python = ctx.env.python(minor)
    return [t for t in ctx.usable(python) if (t.family == "cpython") == (minor == "3.15")]


def run(ctx):
    data = {}
    for minor in ("3.11", "3.15"):
        for n in ctx.pick(THREADS, (1, 100)):
            steady(ctx, data, minor, f"{n} threads", "pace", str(n))
        for n in ctx.pick(DEPTHS, (10, 1000)):
            steady(ctx, data, minor, f"{n} deep", "deep", str(n))
        for name in ctx.pick(DISTINCT, ("1k",)):
            distinct(ctx, data, minor, name)
    return {"data": data, "tables": tables(data)}


def steady(ctx, data, minor, what, program, size):
    if not tools_on(ctx, minor):
        return
    ctx.say(f"growth: {what} on {minor}")
    with ctx.targets({"it": (ctx.env.python(minor), program, size, "busy")}) as targets:
        for tool in tools_on(ctx, minor):
            run = tools.run_tool(tool, targets["it"], 100, ctx.pick(1.5, 0.6), threads=True)
            if run.failure:
                ctx.say(f"growth: {tool.key}: {run.failure}")
            data.setdefault(tool.key, {})[what] = None if run.failure else {"share": run.share, "mb": run.peak / 1024}


def distinct(ctx, data, minor, name):
    bits, seconds = DISTINCT[name]
    with ctx.targets({"it": (ctx.env.python(minor), "distinct", str(bits))}) as targets:
        for tool in tools_on(ctx, minor):
            if tool.key in ("spyglass-nb", "py-spy-nb", "cpython-b"):
                continue
            for form in ("raw", "flamegraph") if tool.key != "austin" else ("raw",):
                ctx.say(f"growth: {name} distinct stacks, {tool.key}, {form}")
                data.setdefault(tool.key, {})[f"{name} distinct {form}"] = pass_by(
                    ctx, tool, targets["it"], form, ctx.pick(seconds, 1.0))


def pass_by(ctx, tool, target, form, seconds):
    out = ctx.env.work / f"distinct.{tool.suffix}"
    run = tools.run_tool(tool, target, tools.FULL, seconds, out=out, form=form, patience=60)
    if run.failure:
        ctx.say(f"growth: {tool.key}: {run.failure}")
        return None
    met = None
    if form == "raw" and tool.suffix != "mojo":
        with open(out, "rb") as file:
            met = sum(1 for _ in file)
    pruned = any(word in run.said.lower() for word in ("prun", "left out", "folded"))
    return {"mb": run.peak / 1024, "met": met, "samples": run.samples, "pruned": pruned,
            "file_mb": out.stat().st_size / 2**20, "cpu_us": run.cpu * 1e6 / max(1, run.samples)}


def tables(data):
    whats = [w for n, unit in ((THREADS, "threads"), (DEPTHS, "deep")) for w in (f"{i} {unit}" for i in n)
             if any(w in by for by in data.values())]

    def steady_cell(by, what):
        got = by.get(what)
        if not got:
            return "✗" if what in by else "–"
        return f"{show(got['share'] and got['share'] * 100, '{:.2f}')} / {got['mb']:.1f}"

    def distinct_cell(got, present):
        if not got:
            return "✗" if present else "–"
        met = f", {thousands(got['met'])} met" if got["met"] is not None else ""
        return f"{got['mb']:.1f}{met}{', pruned' if got['pruned'] else ''}"
    first = table("CPU % / peak MB at 100 Hz", ["", *whats],
                  [[key, *(steady_cell(by, w) for w in whats)] for key, by in data.items()])
    forms = [f"{name} distinct {form}" for name in DISTINCT for form in ("raw", "flamegraph")]
    forms = [f for f in forms if any(f in by for by in data.values())]
    second = table("Peak MB over distinct stacks", ["", *forms],
                   [[key, *(distinct_cell(by.get(f), f in by) for f in forms)] for key, by in data.items()
                    if any(f in by for f in forms)])
    return [first, second]
