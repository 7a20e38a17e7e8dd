"""Section deep: samples per second at full speed, and the CPU time per sample, on stacks of several depths."""
from . import tools
from .common import median, table, thousands, show

NAME = "deep"
TITLE = "Deep: full speed on a busy loop"
NOTES = ["At full speed, a tool that stops its target samples faster than the target changes. spyglass leaves the "
         "target a quarter to a half of its pace. It counts a stack again without reading it again while the "
         "kernel's run count proves that the thread has not run since; py-spy and CPython's --blocking read the "
         "stopped target again. The section pace shows how much of its speed the target keeps.",
         "A busy loop below that many frames, on CPython 3.11; CPython's own two tools run on 3.15, where spyglass "
         "runs too. Every tool is asked for 1,000,000 samples a second. Counts are what each tool reports, without "
         "errors. CPU is the CPU time of the whole profiler process, including its start, divided by its samples."]


def run(ctx):
    depths = ctx.pick((5, 20, 100, 500), (20, 100))
    data = {}
    for depth in depths:
        ctx.say(f"deep: {depth} frames")
        wanted = {m: (ctx.env.python(m), "deep", str(depth), "busy") for m in ("3.11", "3.15")}
        for _ in range(ctx.pick(3, 1)):
            for name, what in wanted.items():
                with ctx.targets({name: what}) as targets:  # one busy target at a time
                    for target in targets.values():
                        round_of(ctx, data, target, depth)
    return {"data": summary(data), "tables": tables(summary(data), depths)}


def round_of(ctx, data, target, depth):
    new = target.python.minor == "3.15"
    for tool in ctx.usable(target.python):
        if new and tool.family not in ("cpython", "spyglass"):
            continue
        key = tool.key + (" on 3.15" if new and tool.family == "spyglass" else "")
        run = tools.run_tool(tool, target, tools.FULL, ctx.pick(1.2, 0.7))
        if run.failure:
            ctx.say(f"deep: {key}: {run.failure}")
        else:
            data.setdefault(key, {}).setdefault(str(depth), []).append(run)


def summary(data):
    return {key: {depth: {"rate": median([r.samples / r.seconds for r in runs]),
                          "cpu_us": median([r.cpu * 1e6 / max(r.samples, 1) for r in runs]),
                          "errors": sum(r.errors for r in runs)} for depth, runs in by.items()}
            for key, by in data.items()}


def tables(data, depths):
    def cells(by, what, form):
        return [form(by.get(str(d), {}).get(what)) for d in depths]
    head = ["", *(f"{d} deep: samples/s" for d in depths), *(f"{d} deep: CPU µs" for d in depths)]
    return [table("", head, [[key, *cells(by, "rate", thousands), *cells(by, "cpu_us", show)]
                             for key, by in data.items()])]
