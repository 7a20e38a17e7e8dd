"""record --native: the shares of C functions in every format, libraries that come and go, sleepers that are left alone."""
import collections
import json
import os
import re
import shutil
import signal
import xml.etree.ElementTree as xml

import pytest
from conftest import SPYGLASS, clean_env, run, task_states, wait_until
from test_native import directory
from test_record import EXTENSION, SVG, messages


# Each reader gives: stack of names, from the root on -> its samples, or its time.

def raw_stacks(text):
    stacks = collections.Counter()
    for line in text.splitlines():
        stack, _, n = line.rpartition(" ")
        stacks[tuple(part.rpartition(" (")[0] if part.endswith(")") else part for part in stack.split(";"))] += int(n)
    return stacks


def speedscope_stacks(text):
    data = json.loads(text)
    names = [frame["name"] for frame in data["shared"]["frames"]]
    stacks = collections.Counter()
    for profile in data["profiles"]:
        for sample, weight in zip(profile["samples"], profile["weights"]):
            stacks[tuple(names[i] for i in sample)] += weight
    return stacks


def chrometrace_stacks(text):
    """The time between two events belongs to what is open then."""
    stacks, open_frames, last = collections.Counter(), collections.defaultdict(list), {}
    for event in json.loads(text):
        if event["ph"] not in "BE":
            continue
        thread = event["pid"], event["tid"]
        if open_frames[thread]:
            stacks[tuple(open_frames[thread])] += event["ts"] - last[thread]
        last[thread] = event["ts"]
        if event["ph"] == "B":
            open_frames[thread].append(event["name"])
        else:
            assert open_frames[thread].pop() == event["name"]
    return stacks


def flamegraph_stacks(text):
    """Each box lies over the one that it was called from. What is left of it beside its callees is its own."""
    boxes = []
    for group in xml.fromstring(text).iter(SVG + "g"):
        title, rect = group.find(SVG + "title"), group.find(SVG + "rect")
        match = title is not None and re.match(r"^(.*) \(([\d,]+) samples?, [\d.]+%\)$", title.text or "")
        if match and rect is not None:
            x, width = (float(rect.get(key).rstrip("%")) for key in ("x", "width"))
            boxes.append((int(rect.get("y")), x + width / 2, x, x + width, match.group(1).partition(" (")[0],
                          int(match.group(2).replace(",", ""))))
    root = next(box for box in boxes if box[4] == "all")
    rows = sorted({box[0] for box in boxes}, key=lambda y: abs(y - root[0]))
    stacks = collections.Counter()
    for box in boxes:
        below = [next(b for b in boxes if b[0] == y and b[2] <= box[1] < b[3]) for y in rows[:rows.index(box[0])]]
        stack = tuple(b[4] for b in below[1:]) + (box[4],)
        if box is not root:
            stacks[stack] += box[5]
            stacks[stack[:-1]] -= box[5] if len(stack) > 1 else 0
    return stacks


READ = {"raw": raw_stacks, "speedscope": speedscope_stacks, "chrometrace": chrometrace_stacks, "flamegraph": flamegraph_stacks}


def record(target, out, format, enough, *flags):
    """Stacks of one recording; of more and longer ones where a busy machine gives too few samples."""
    stacks, samples, seconds = collections.Counter(), 0, 1
    while samples < enough:
        result = run("record", "--native", "--pid", target.pid, "-d", seconds, "-f", format, "-o", out, *flags).check()
        samples += int(re.search(r"Samples: (\d+)", messages(result)).group(1))
        stacks.update(READ[format](out.read_text()))
        seconds *= 2
        assert seconds < 100, result
    return stacks, samples


def ours(stack, names):
    return [name for name in stack if name in names]


@pytest.mark.quiet
@pytest.mark.parametrize("format", READ)
def test_shares(spawn, tmp_path, python, format):
    """Python and C in the order of the calls, in the shares that the target measured."""
    target = spawn(python, "native_shares.py", directory(python, "spy_c"))
    wait_until(lambda: "S" in task_states(target.pid), "the sleeper asleep")
    stacks, samples = record(target, tmp_path / ("out." + EXTENSION[format]), format, 50, "-r", "173")
    os.kill(target.pid, signal.SIGTERM)
    spent, true = target.read_line()["spent"], target.truth["stacks"]
    total = sum(stacks.values())
    names = {name for stack in true.values() for name in stack}
    found = {}
    for name, stack in true.items():
        found[name] = sum(n for each, n in stacks.items() if ours(each, names) == stack)
        share = spent[name] / sum(spent.values())
        assert abs(found[name] / total - share) < 0.04 + 1.5 / samples ** 0.5, (found, total, spent, stacks)
    assert sum(found.values()) > 0.9 * total, stacks  # the rest is on the way from one to the other
    assert not any("sleeper" in stack for stack in stacks)
    assert not any(name.startswith(("_PyEval", "PyEval", "[native frames")) for stack in stacks for name in stack), stacks


@pytest.mark.quiet
def test_dlopen(spawn, tmp_path, python):
    """Two libraries take turns at one place, each for some milliseconds: no name of one while the other is there."""
    target = spawn(python, "native_load.py", directory(python, "spy_load"))
    assert target.truth["same"], "the libraries were not loaded at one place"
    stacks, samples = record(target, tmp_path / "out.txt", "raw", 200, "-r", "500")
    whole = collections.Counter()
    for stack, n in stacks.items():
        native = [name for name in stack if name.startswith(("one_", "two_"))]
        name = "one" if "with_one" in stack else "two" if "with_two" in stack else None
        assert native == ["%s_%s" % (name, part) for part in ("run", "outer", "inner")][:len(native)], stack
        assert not native or stack.index("with_" + name) < stack.index(native[0]), stack
        whole[name] += n if len(native) == 3 else 0
    # A stack whose library went while it was looked at has none of its names; most have.
    assert min(whole["one"], whole["two"]) > samples / 10, (whole, samples)


def test_naps(spawn, tmp_path, python):
    """--idle: a thread that sleeps now here, now there, is shown where it is."""
    target = spawn(python, "native_naps.py", "1")
    stacks, samples = record(target, tmp_path / "out.txt", "raw", 100, "-r", "73", "--idle")
    os.kill(target.pid, signal.SIGTERM)
    spent = target.read_line()["spent"]
    found = {name: sum(n for stack, n in stacks.items() if name in stack) for name in ("short", "long", "parked")}
    total = found["short"] + found["long"]
    assert abs(found["short"] / total - spent["short"] / sum(spent.values())) < 0.04 + 1.5 / total ** 0.5, (found, spent)
    awake = sum(n for stack, n in stacks.items() if stack[-1] in ("short", "long", "parked"))  # on the way to the next nap
    assert found["parked"] > 0 and awake <= samples / 50, stacks


@pytest.mark.skipif(not shutil.which("strace"), reason="strace is not installed")
@pytest.mark.parametrize("flag", ["--native", "--native-all"])
def test_sleepers_are_left_alone(spawn, tmp_path, python, flag):
    """A thread that has not run since it was held is not held again."""
    target = spawn(python, "native_naps.py", "2", "park")
    wait_until(lambda: task_states(target.pid) == "SSS", "all asleep")
    calls, out, samples, holds, runs = tmp_path / "calls", tmp_path / "out.txt", 0, 0, 0
    while samples < 100:
        result = run("-f", "-e", "trace=ptrace", "-o", calls, SPYGLASS, "record", flag, "--idle", "-p", target.pid, "-d", "1",
                     "-f", "raw", "-o", out, program=shutil.which("strace"),
                     env=clean_env(ASAN_OPTIONS="detect_leaks=0:exitcode=99")).check()
        samples += sum(n for stack, n in raw_stacks(out.read_text()).items() if "parked" in stack)
        holds += calls.read_text().count("PTRACE_SEIZE")
        runs += 1
        assert runs < 20, result
    assert 3 * runs <= holds < samples / 3, (holds, samples, runs)
