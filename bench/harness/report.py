"""Formats the results: the tables on the terminal and RESULTS.md."""
from . import goals as goals_module
from . import split
from .common import show, table, thousands

TOOLS = ("spyglass", "spyglass-nb", "py-spy", "py-spy-nb", "austin", "cpython", "cpython-b")
COMMANDS = """\
spyglass     record --pid PID -r RATE -f raw -o OUT           dump --pid PID
spyglass-nb  record --nonblocking …                           dump --nonblocking --pid PID
py-spy       record --pid PID -r RATE -f raw -o OUT           dump --pid PID
py-spy-nb    record --nonblocking …                           dump --nonblocking --pid PID
austin       -i INTERVAL_US -o OUT -p PID
cpython      -m profiling.sampling attach -r RATE --no-gc --collapsed -o OUT [-a] PID
cpython-b    … --blocking
pystack                                                       remote PID

native: spyglass and py-spy record --native, spyglass record --native-all; spyglass and py-spy dump --native,
        pystack remote --native"""


def summary(data):
    """spyglass compared with the others: one row per question, one column per tool."""
    dig = goals_module.dig
    rows = []

    def row(text, cell):
        cells = [cell(key) for key in TOOLS]
        if any(c != "–" for c in cells):
            rows.append([text, *cells])

    row("deep 20: samples/s", lambda k: thousands(dig(data, "deep", k, "20", "rate")))
    row("deep 20: CPU µs a sample", lambda k: show(dig(data, "deep", k, "20", "cpu_us")))
    for kind in ("plain", "generator", "method", "coroutine"):
        row(f"chains, {kind}: impossible ppm", lambda k: ppm(dig(data, "chains", k), kind))
    for kind in split.PARTS:
        row(f"split, {kind}: error, points", lambda k: show(split.worst(dig(data, "split", k, kind) or []), "{:+.2f}"))
    for what in ("1 100 Hz", "1 1 kHz", "200 100 Hz", "1000 100 Hz"):
        threads, rate = what.split(" ", 1)
        row(f"pace kept %: {threads} thread{'s' * (threads != '1')}, {rate}",
            lambda k: show(dig(data, "pace", k, what, "kept")))
    row("profiler's CPU % at 100 Hz", lambda k: show(percent(dig(data, "pace", k, "1 100 Hz", "share")), "{:.2f}"))
    row("peak MB, 1M distinct stacks, raw", lambda k: show(dig(data, "growth", k, "1M distinct raw", "mb")))
    row("dump, small: ms", lambda k: show(dig(data, "dump", "tools", k, "small", "ms")))
    row("dump, small: MB", lambda k: show(mega(dig(data, "dump", "tools", k, "small", "kb"))))
    row("native, 1 kHz on 3.12: CPU µs a sample", lambda k: show(dig(data, "native", "tools", k, "3.12", "cpu_us")))
    row("native: dump of a Ray worker, ms", lambda k: show(dig(data, "native", "tools", k, "Ray", "look_ms"), "{:.0f}"))
    return table("", ["", *TOOLS], rows)


def percent(share):
    return None if share is None else share * 100


def mega(kilo):
    return None if kilo is None else kilo / 1024


def ppm(by, kind):
    got = [kinds[kind] for kinds in (by or {}).values() if kinds.get(kind)]
    total = sum(g["total"] for g in got)
    return f"{sum(g['impossible'] for g in got) * 1e6 / total:,.0f}" if total else "–"


def goal_table(goals):
    mark = {True: "held", False: "MISSED", None: "not measured"}
    return table("", ["Goal", "got", "wanted", ""], [[g.text, g.got, g.wanted, mark[g.ok]] for g in goals])


def plain(t):
    """A table for the terminal."""
    lines = [t["head"], *t["rows"]]
    widths = [max(len(line[i]) for line in lines) for i in range(len(t["head"]))]

    def fit(line):
        return "  ".join(c.ljust(w) if i == 0 else c.rjust(w) for i, (c, w) in enumerate(zip(line, widths))).rstrip()
    title = [t["title"]] if t["title"] else []
    return "\n".join([*title, fit(t["head"]), "  ".join("─" * w for w in widths), *map(fit, t["rows"])])


def markdown(t):
    def line(cells):
        return "| " + " | ".join(c.replace("|", "\\|") for c in cells) + " |"
    title = [f"**{t['title']}**", ""] if t["title"] else []
    rule = "|---|" + "---:|" * (len(t["head"]) - 1)
    return "\n".join([*title, line(t["head"]), rule, *map(line, t["rows"])])


def document(results, sections, facts, goals):
    """RESULTS.md. results: {name: {"data", "tables", "date", "minutes"}}."""
    data = {name: r["data"] for name, r in results.items()}
    dates = sorted(r["date"] for r in results.values())
    parts = ["# Cost and accuracy of spyglass, compared with other profilers",
             f"Written by `make bench`, {dates[0]}" + (f" to {dates[-1]}" if dates[-1] != dates[0] else "") +
             ". Within a section, all tools ran in turn on the same machine; **compare ratios, not absolute figures**.",
             "![](results.svg)", "## Comparison", markdown(summary(data)),
             "–: not measured, or not supported by the tool. `-nb` is `--nonblocking`, `cpython` the 3.15 interpreter's "
             "`profiling.sampling`, `cpython-b` the same with `--blocking`; those two read only 3.15.",
             "## Goals", markdown(goal_table(goals)), "## The machine",
             "\n".join(f"- {name}: {value}" for name, value in facts),
             "- No process is pinned: the kernel places target and profiler, and spyglass places itself.",
             "- Ctrl-C ends a profiler after its window. Its rate is its own count divided by the time since it "
             "began to sample (or by the time that it reports). Its memory and CPU are those the kernel "
             "reports at its end, including children.",
             "- austin's wheel needs a newer C library than Debian 12 has: it runs with the loader and libraries of "
             "Debian sid, and inside the sid tree for targets that run there, as do 3.14, 3.15 and CPython's own "
             "profiler.",
             "## Commands", f"```\n{COMMANDS}\n```"]
    for section in sections:
        if section.NAME not in results:
            continue
        result = results[section.NAME]
        parts += [f"## {section.TITLE}", "\n\n".join(section.NOTES), *map(markdown, result["tables"]),
                  f"Measured {result['date']}, in {result['minutes']:.1f} minutes, at commit {result['commit']}."]
    return "\n\n".join(parts) + "\n"
