"""Section pace: how much of its speed the target keeps, and what the profiler itself uses.

A window with the profiler is between two windows without it; the pace kept is its figure divided by the mean of the
two."""
import time

from . import tools
from .common import median, show, spread, table

NAME = "pace"
TITLE = "Pace: what the target keeps"
NOTES = ["One thread counts its rounds, the others sleep. Percent of the pace without a profiler, median of the "
         "rounds, ± its standard error; then the profiler's own use of one core in percent, from its first sample "
         "on. On CPython 3.11; CPython's own on 3.15, with the flag to sample all threads.",
         "`wake-up` is not a profiler: it wakes up on the target's CPU that many times a second and does nothing. "
         "That is the cost of the machine itself; what a profiler costs beyond it is its own.",
         "✗: the tool failed there. `late`: by its own count, the tool took fewer than 90% of the requested "
         "samples."]
RATES = {"100 Hz": 100, "1 kHz": 1000, "full": tools.FULL}
THREADS = (1, 10, 200, 1000)
ROUNDS = 11


def run(ctx):
    data = {}
    for threads in ctx.pick(THREADS, (1, 200)):
        for minor in ("3.11", "3.15"):
            python = ctx.env.python(minor)
            ctx.say(f"pace: {threads} threads on {minor}")
            with ctx.targets({"it": (python, "pace", str(threads), "busy")}) as targets:
                for target in targets.values():
                    for number in range(ctx.pick(ROUNDS, 1)):
                        one_round(ctx, data, target, threads, number)
    result = summary(data)
    return {"data": result, "tables": tables(result)}


def wanted(ctx, tool, threads, rate, number):
    """Low rates need more rounds, because the differences are small and matter; the goals are about spyglass."""
    if ctx.quick:
        return rate != "1 kHz" or threads == 1
    ours = tool.family == "spyglass"
    if tool.family == "wake-up":
        return threads == 1 and rate != "full"
    rounds = 1
    if rate != "full" and (threads == 1 or threads == 200):
        rounds = ROUNDS if ours and (threads == 1 or rate == "100 Hz") else 2
    return number < rounds


def one_round(ctx, data, target, threads, number, rates=RATES):
    before = None
    for rate, hertz in rates.items():
        for tool in [*ctx.usable(target.python), tools.WakeUp(ctx.env)]:
            if target.python.minor == "3.15" and tool.family != "cpython":
                continue
            if not wanted(ctx, tool, threads, rate, number):
                continue
            before = before or pace_alone(ctx, target)
            seconds = 2.0 if threads == 1000 and hertz == 100 else ctx.pick(0.8, 0.5)
            run = tools.run_tool(tool, target, hertz, seconds, threads=True, settle=0.15,
                                 watch=lambda: target.slot(1))
            after = pace_alone(ctx, target)
            entry = {"failure": run.failure}
            if run.failure:
                ctx.say(f"pace: {tool.key}: {run.failure}")
            else:
                first, last, span = run.window
                entry |= {"kept": 100 * (last - first) / span / ((before + after) / 2), "share": run.share,
                          "held": run.rate_held, "samples": run.samples / run.seconds}
            data.setdefault(tool.key, {}).setdefault(f"{threads} {rate}", []).append(entry)
            before = after


def pace_alone(ctx, target):
    first, start = target.slot(1), time.monotonic()
    time.sleep(ctx.pick(0.3, 0.2))
    return (target.slot(1) - first) / (time.monotonic() - start)


def summary(data):
    def one(entries):
        good = [e for e in entries if not e["failure"]]
        return {"kept": median([e["kept"] for e in good]), "error": spread([e["kept"] for e in good]),
                "share": median([e["share"] for e in good]), "held": median([e["held"] for e in good]),
                "samples": median([e["samples"] for e in good]), "rounds": len(good)}
    return {key: {what: one(entries) for what, entries in by.items()} for key, by in data.items()}


def cell(got, rate):
    if not got or got["kept"] is None:
        return "✗" if got else "–"
    error = f" ±{got['error']:.1f}" if got["error"] is not None else ""
    late = rate != "full" and min(got["samples"], got["held"] or got["samples"]) < 0.9 * RATES[rate]
    share = show(got["share"] and got["share"] * 100, "{:.2f}" if rate == "100 Hz" else "{:.0f}")
    return f"{got['kept']:.1f}{error} / {share}{' late' if late else ''}"


def tables(data):
    result = []
    for rate in RATES:
        counts = [n for n in THREADS if any(f"{n} {rate}" in by for by in data.values())]
        rows = [[key, *(cell(by.get(f"{n} {rate}"), rate) for n in counts)] for key, by in data.items()]
        head = ["", *(f"{n:,} thread{'s' * (n > 1)}" for n in counts)]
        result.append(table(f"{rate}: pace kept % / CPU %", head, rows))
    return result
