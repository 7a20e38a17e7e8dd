"""The goals, computed from the data of the sections: each has the measured value, the limit, and whether it holds.

A pace goal is missed if the figure is below it by more than twice its standard error, or by half a percentage point."""
import collections

from . import load, native, rates, split

Goal = collections.namedtuple("Goal", "text got wanted ok")


def dig(data, *path):
    for key in path:
        data = data.get(key) if isinstance(data, dict) else None
    return data


def ratio(text, ours, theirs, factor, most=False):
    """The goal that ours is at least (with `most`, at most) factor times theirs."""
    if not ours or not theirs:
        return Goal(text, "–", "–", None)
    limit = theirs * factor
    figure = "{:,.0f}" if limit >= 100 else "{:,.2f}"
    return Goal(text, figure.format(ours), ("≤ " if most else "≥ ") + figure.format(limit),
                ours <= limit if most else ours >= limit)


def limit(text, got, most, unit=""):
    if got is None:
        return Goal(text, "–", f"≤ {most:g}{unit}", None)
    return Goal(text, f"{got:,.2f}{unit}", f"≤ {most:g}{unit}", got <= most)


def least(text, got, wanted, unit=""):
    if got is None:
        return Goal(text, "–", f"≥ {wanted:g}{unit}", None)
    return Goal(text, f"{got:,.2f}{unit}", f"≥ {wanted:g}{unit}", got >= wanted)


def all_of(data):
    goals = []
    for name, function in SECTIONS.items():
        if name in data:
            goals += function(data)
    return goals


def of_dump(data):
    by = data["dump"]["tools"]
    goals = []
    for name in by.get("spyglass", {}):
        for suffix in ("", "-nb"):
            for unit, text in (("ms", "time, ms"), ("kb", "memory, KB")):
                goals.append(ratio(f"dump{' --nonblocking' if suffix else ''}, {name}: {text}, at most py-spy's",
                                   dig(by, "spyglass" + suffix, name, unit), dig(by, "py-spy" + suffix, name, unit),
                                   1.0, most=True))
    goals.append(limit("size of the binary, MB", data["dump"]["binary"] / 1e6, 4))
    return goals


def truthful(data, key):
    """No impossible stack on plain calls, where that was measured; otherwise what is known about the tool."""
    got = [kinds["plain"]["impossible"] for kinds in dig(data, "chains", key).values() if kinds.get("plain")] \
        if dig(data, "chains", key) else []
    return not any(got) if got else key in ("py-spy", "cpython-b")


def of_deep(data):
    deep = data["deep"]
    peers = {key: dig(deep, key, "20", "rate") for key in ("py-spy", "py-spy-nb", "austin", "cpython", "cpython-b")
             if truthful(data, key) and dig(deep, key, "20", "rate")}
    best = max(peers, key=peers.get) if peers else None
    ours = dig(deep, "spyglass", "20", "rate")
    return [ratio(f"deep 20: truthful samples/s, 4 × the best truthful peer's ({best or 'none'})", ours,
                  peers.get(best), 4),
            ratio("deep 20 --nonblocking: samples/s, 2 × austin's", dig(deep, "spyglass-nb", "20", "rate"),
                  dig(deep, "austin", "20", "rate"), 2),
            ratio("deep 20: CPU µs a truthful sample, 1/50 of py-spy's", dig(deep, "spyglass", "20", "cpu_us"),
                  dig(deep, "py-spy", "20", "cpu_us"), 1 / 50, most=True)]


def of_chains(data):
    goals = []
    for key, most in (("spyglass", 0), ("spyglass-nb", 50)):
        by = data["chains"].get(key) or {}
        for kind in ("plain", "generator", "method", "coroutine"):
            got = [by[m].get(kind) for m in by if kind in by[m]]
            if not got:
                continue
            text = f"chains, {kind}, {key}: impossible in a million, all Pythons"
            if not all(got):
                goals.append(Goal(text, "a Python that could not be read", f"≤ {most}", False))
                continue
            total = sum(g["total"] for g in got)
            goals.append(limit(text, sum(g["impossible"] for g in got) * 1e6 / total if total else None, most))
    return goals


def of_split(data):
    goals = []
    for key, most in (("spyglass", 1), ("spyglass on 3.9", 1), ("spyglass on 3.15", 1),
                      ("spyglass-nb", 2), ("spyglass-nb on 3.9", 2), ("spyglass-nb on 3.15", 2)):
        for kind, runs in (data["split"].get(key) or {}).items():
            worst = split.worst(runs)
            count = sum(r["samples"] for r in runs)
            goals.append(limit(f"split, {kind}, {key}: error at {count:,} samples",
                               None if worst is None else abs(worst), most, " points"))
    return goals


def of_load(data):
    goals = []
    for key in ("spyglass", "spyglass-nb"):
        for name, runs in (data["load"].get(key) or {}).items():
            total = load.median([r["total"] for r in runs])
            worst = split.worst(runs)
            goals.append(limit(f"load, {name}, {key}: total, off by", None if total is None else abs(total - 100), 1, "%"))
            chance = 100 / max(1, sum(r["samples"] for r in runs)) ** 0.5  # two standard errors
            goals.append(limit(f"load, {name}, {key}: worst share", None if worst is None else abs(worst),
                               max(1, round(chance, 1)), " points"))
    return goals


def of_rates(data):
    def got(key, rate):
        return rates.figures(data["rates"], key, rate)
    return [ratio("rates, 10 kHz: CPU µs a reading, at most austin's", got("spyglass", "10 kHz")["us"],
                  got("austin", "10 kHz")["us"], 1.0, most=True),
            ratio("rates, 10 kHz: pace kept, 95% of austin's", got("spyglass", "10 kHz")["kept"],
                  got("austin", "10 kHz")["kept"], 0.95),
            least("rates, full: pace kept", got("spyglass", "full")["kept"], 90, "%")]


def of_pace(data):
    ours = data["pace"].get("spyglass") or {}
    goals = []
    for what, least in (("1 100 Hz", 99.5), ("1 1 kHz", 97), ("200 100 Hz", 98)):
        got = ours.get(what)
        if not got or got["kept"] is None:
            continue
        error = got["error"]
        threads, rate = what.split(" ", 1)
        goals.append(Goal(f"pace, {threads} thread{'s' * (threads != '1')} at {rate}: kept",
                          f"{got['kept']:.2f}%" + (f" ±{error:.2f}" if error is not None else ""), f"≥ {least}%",
                          got["kept"] + min(2 * (error or 0), 0.5) >= least))
    if dig(ours, "1000 100 Hz", "samples"):
        got = min(ours["1000 100 Hz"]["samples"], ours["1000 100 Hz"]["held"] or 1e9)
        goals.append(Goal("pace, 1000 threads at 100 Hz: samples/s held", f"{got:.1f}", "≥ 95", got >= 95))
    share = dig(ours, "1 100 Hz", "share")
    goals.append(limit("pace, 1 thread at 100 Hz: CPU of the profiler", share and share * 100, 0.5, "% of a core"))
    return goals


def of_growth(data):
    got = [v["mb"] for k, v in (data["growth"].get("spyglass") or {}).items() if "distinct" in k and v]
    return [limit("growth: peak memory over distinct stacks, MB", max(got) if got else None, 256)]


def of_native(data):
    by = data["native"]["tools"]
    ours, theirs = by.get("spyglass", {}), by.get("py-spy", {})
    goals = []
    for minor in native.PYTHONS:
        got = ours.get(minor)
        if not got:
            continue
        where = f"native, {minor}"
        goals += [limit(f"{where}: CPU µs a sample at 1 kHz, its start included", got.get("cpu_us"), 40),
                  ratio(f"{where}: the same, 1/10 of py-spy's", got.get("cpu_us"), dig(theirs, minor, "cpu_us"), 1 / 10,
                        most=True),
                  limit(f"{where}: median pause, µs", got.get("hold_us"), 30),
                  least(f"{where}: whole stacks, counted", got.get("whole"), 99.5, "%"),
                  least(f"{where}: complete stacks, as spyglass reports", got.get("told"), 99.5, "%"),
                  ratio(f"{where}: dump --native, ms, at most py-spy's", got.get("look_ms"),
                        dig(theirs, minor, "look_ms"), 1.0, most=True)]
    goals.append(limit("native: dump --native of a worker of Ray, ms", dig(ours, "Ray", "look_ms"), 300))
    return goals


def of_async(data):
    """10,000 tasks take longer to read, but not more often than 1% of a core allows."""
    return [limit(f"async, {what}, {way}: CPU of the profiler", share(rows), 2, "% of a core")
            for way in ("--async", "--async all") for what, rows in (data["async"].get(way) or {}).items()]


def share(rows):
    got = load.median([row["share"] for row in rows])
    return got and got * 100


def of_tasks(data):
    goals = []
    for name, got in data["tasks"].items():
        if " 10,000 " in name:
            goals.append(limit(f"tasks, {name}: a dump, ms", got["ms"], 100))
        if name.endswith(" 10,000 busy"):
            goals.append(limit(f"tasks, {name}: longest pause, ms", got["pause_ms"], 5))
    return goals


def of_group(data):
    got = dig(data, "group", "tools", "spyglass", "1,000 forked") or {}
    return [limit("group: 1,000 processes, s", got.get("s"), 3, " s"), limit("group: 1,000 processes, MB", got.get("mb"), 64, " MB")]


SECTIONS = {"dump": of_dump, "deep": of_deep, "chains": of_chains, "split": of_split, "load": of_load,
            "rates": of_rates, "pace": of_pace,
            "growth": of_growth, "native": of_native, "async": of_async, "tasks": of_tasks, "group": of_group}
