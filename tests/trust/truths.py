"""Row 25: is what the profile says true?"""
import json
import re
import signal

from chain_stacks import impossible, read
from common import Figure, PYTHONS, ROOT, Target, plural, run

KINDS = ["plain", "generator", "callback", "coroutine", "method", "mixed"]  # "nested" differs on 2.7 only without a pause
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
    """Records until there are so many samples, or a few times on a busy machine; yields the text of each profile and the number
    of its samples. The counts in the text are CPU time."""
    got, seconds = 0, 2
    for _ in range(4):
        if got >= wanted:
            return
        ended = run("record", "-p", target.pid, "-r", rate, "-d", seconds, "--function", "--nolineno", "-f", "raw", "-o", out)
        if ended.status != 0:
            return
        got += samples_of(ended)
        yield out.read_text(), samples_of(ended)
        seconds = max(2, min(10, int(seconds * (wanted - got) / max(1, got)) + 1))


def chains(ctx, python, kind, wanted):
    """Returns (samples, distinct impossible stacks)."""
    total = wrong = 0
    if python.version < (3, 6) and kind in ("generator", "coroutine"):
        kind = "plain"
    with start_target(ctx, python, "chains.py", kind) as target:
        for text, samples in record(ctx, target, 20000, wanted, ctx.work / "chains"):
            total += samples
            wrong += len(impossible(text))
    return total, wrong


def shares(ctx, python, wanted):
    """Returns (samples, {function: share in the profile}, {function: its share by the target's own clock})."""
    counts, total = {"one": 0, "two": 0, "three": 0}, 0
    with start_target(ctx, python, "shares.py", "100000") as target:
        for text, samples in record(ctx, target, 5000, wanted, ctx.work / "shares"):
            total += samples
            for names, n in read(text):
                for name in counts:
                    counts[name] += n if name in names else 0
        target.process.send_signal(signal.SIGTERM)
        spent = json.loads(target.line().decode())["spent"]
    seen, whole = max(1, sum(counts.values())), sum(spent.values())
    return total, {k: n / seen for k, n in counts.items()}, {k: s / whole for k, s in spent.items()}


def truth(ctx):
    wanted = ctx.count(100000, 2000)
    each = wanted // max(1, len(PYTHONS)) + 1
    stacks = wrong = samples = 0
    errors, problems = {}, []
    for i, python in enumerate(PYTHONS):
        try:
            total, bad = chains(ctx, python, KINDS[i % len(KINDS)], each)
            stacks, wrong = stacks + total, wrong + bad
            total, seen, real = shares(ctx, python, each)
        finally:
            clean(ctx, python)
        samples += total
        for name in real:
            off = seen[name] - real[name]
            errors[name] = errors.get(name, 0) + off * total
            if abs(off) > 0.01 + CHANCE * (real[name] * (1 - real[name]) / max(1, total)) ** 0.5:
                problems.append("%s: %s %+.1f points at %d samples" % (python, name, 100 * off, total))
        if bad or not total:
            problems.append("%s: %d impossible, %d samples" % (python, bad, total))
    worst = max((abs(error) / max(1, samples) for error in errors.values()), default=1)
    allowed = 0.01 + (CHANCE * (0.25 / max(1, samples)) ** 0.5 if samples < 100000 else 0)
    text = "%s on %d Pythons: %s; %s of known shares: %.2f points off%s" % (
        plural(stacks, "sample"), len(PYTHONS), plural(wrong, "impossible stack"), plural(samples, "sample"), 100 * worst,
        "; " + "; ".join(problems[:3]) if problems else "")
    return Figure(text, not problems and not wrong and worst <= allowed)
