"""Row 25: is what the profile says true?"""
import json
import re
import signal
import time

from chain_stacks import impossible, read
from common import Figure, PYTHONS, ROOT, Target, WAIT, plural, run

KINDS = ["plain", "generator", "callback", "coroutine", "method", "mixed"]  # "nested" differs on 2.7 only without a pause
FULL = 100000  # samples, on all Pythons together
CHANCE = 5  # standard deviations: a correct profiler fails once in about two million comparisons


def samples_of(ended):
    found = re.search(rb"Samples: (\d+)", ended.out + ended.err)
    return int(found.group(1)) if found else 0


def start_target(ctx, python, *args):
    """A program of tests/targets, on an interpreter that may be in a chroot: the program comes from standard input."""
    place = python.root / "tmp" / ("spyglass-trust-%s" % ctx.work.name)
    place.mkdir(exist_ok=True)
    for name in ("truth.py", args[0]):
        (place / name).write_text((ROOT / "tests" / "targets" / name).read_text())
    target = Target([*python.command, "/tmp/%s/%s" % (place.name, args[0]), *args[1:]])
    target.line()
    return target


def clean(ctx, python):
    place = python.root / "tmp" / ("spyglass-trust-%s" % ctx.work.name)
    for file in place.glob("*"):
        if file.is_file():
            file.unlink()
    if not list(place.glob("*")):
        place.rmdir()


def record(ctx, target, rate, wanted, out):
    """Records until there are so many samples; yields the text of each profile and the number of its samples. The counts in the
    text are CPU time."""
    got, seconds, end = 0, 2, time.monotonic() + WAIT
    while got < wanted and time.monotonic() < end:
        ended = run("record", "-p", target.pid, "-r", rate, "-d", seconds, "--function", "--nolineno", "-f", "raw", "-o", out)
        if ended.status != 0:
            raise RuntimeError("record: status %s: %s" % (ended.status, ended.err.decode(errors="replace").strip()[-200:]))
        got += samples_of(ended)
        yield out.read_text(), samples_of(ended)
        seconds = max(2, min(20, int(seconds * (wanted - got) / max(1, samples_of(ended))) + 1))


def chains(ctx, python, kind, wanted):
    """Returns (samples, distinct stacks within the chains, distinct impossible stacks)."""
    total = deep = wrong = 0
    if python.version < (3, 6) and kind in ("generator", "coroutine"):
        kind = "plain"
    with start_target(ctx, python, "chains.py", kind) as target:
        for text, samples in record(ctx, target, 20000, wanted, ctx.work / "chains"):
            total += samples
            deep += sum(any(name.endswith("_f1") for name in names) for names, _ in read(text))
            wrong += len(impossible(text))
    return total, deep, wrong


def shares(ctx, python, wanted):
    """Returns (samples, {function: error of its share, against the target's own clock})."""
    counts, total = {"one": 0, "two": 0, "three": 0}, 0
    with start_target(ctx, python, "shares.py", "100000") as target:
        for text, samples in record(ctx, target, 10000, wanted, ctx.work / "shares"):
            total += samples
            for names, n in read(text):
                for name in counts:
                    counts[name] += n if name in names else 0
        target.process.send_signal(signal.SIGTERM)
        spent = json.loads(target.line().decode())["spent"]
    seen, whole = max(1, sum(counts.values())), sum(spent.values())
    return total, {name: counts[name] / seen - spent[name] / whole for name in counts}


def allowed(samples):
    """One point; with fewer samples than FULL, what chance adds as well."""
    return 0.01 + (CHANCE * (0.25 / max(1, samples)) ** 0.5 if samples < FULL else 0)


def one_python(ctx, python, kinds, wanted, problems):
    """Returns (samples of chains, impossible stacks, samples of shares, {function: error of its share})."""
    stacks = wrong = 0
    try:
        for kind in kinds:
            total, deep, bad = chains(ctx, python, kind, wanted // len(kinds))
            stacks, wrong = stacks + total, wrong + bad
            if bad or not deep:
                problems.append("%s, %s: %d impossible, %d in chains" % (python, kind, bad, deep))
        samples, errors = shares(ctx, python, wanted)
    finally:
        clean(ctx, python)
    for name, off in errors.items():
        if abs(off) > allowed(samples):
            problems.append("%s: %s is %+.1f points off at %d samples" % (python, name, 100 * off, samples))
    return stacks, wrong, samples, errors


def truth(ctx):
    """Row 25. Every Python gets its part of the samples, and two kinds of chains. The shares are judged on each, and together."""
    wanted, problems = ctx.count(FULL, 26000) // len(PYTHONS) + 1, []
    found = [one_python(ctx, python, [KINDS[i % len(KINDS)], KINDS[(i + 1) % len(KINDS)]], wanted, problems)
             for i, python in enumerate(PYTHONS)]
    stacks, wrong, samples, errors = zip(*found)
    whole = sum(samples)
    pooled = max(abs(sum(n * e[name] for n, e in zip(samples, errors))) / whole for name in errors[0])
    text = "%s on %d Pythons: %s; %s of known shares: %.2f points off, at most %.2f on one Python with %s%s" % (
        plural(sum(stacks), "sample"), len(PYTHONS), plural(sum(wrong), "impossible stack"), plural(whole, "sample"), 100 * pooled,
        100 * max(abs(off) for e in errors for off in e.values()), plural(min(samples), "sample"),
        "; " + "; ".join(problems[:3]) if problems else "")
    return Figure(text, not problems and not sum(wrong) and pooled <= allowed(whole))
