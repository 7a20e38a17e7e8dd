"""`record --async` shows a running task below the tasks that await it; `--async all` also those that wait."""
import collections

import pytest
from processes import at_rest
from profiles import EXTENSION, STACKS, raw_stacks, record_enough, some_samples
from program import run
from pythons import DEBIAN

pytestmark = pytest.mark.since(3, 7)
WAYS = {
    "awaits_task": "main awaits_task handler query burn",
    "awaits_gather": "main awaits_gather handler query burn",
    "awaits_wait": "main awaits_wait handler query burn",
    "awaits_shield": "main awaits_shield handler query burn",
    "awaits_wait_for": "main awaits_wait_for handler query burn",
    "awaits_generator": "main awaits_generator handler query burn",
    "awaits_chain": "main awaits_chain awaits_chain awaits_chain awaits_chain handler query burn",
    "awaits_nothing": "handler query burn",
    "awaits_group": "main awaits_group handler query burn",
    "awaits_eager": "main awaits_eager handler query burn",
}


def computing(text):
    """The stacks that compute in a query, without the functions of libraries."""
    stacks = {tuple(name for name in stack if name.startswith("awaits_") or name in ("main", "handler", "query", "burn"))
              for stack in raw_stacks(text)}
    return {stack for stack in stacks if "burn" in stack}


@pytest.mark.smoke
@pytest.mark.parametrize("flags", [[], ["--native"]], ids=lambda f: "".join(f) or "plain")
def test_ways(spawn, python, tmp_path, flags):
    target = spawn(python, "await_chains.py")
    wanted = {tuple(WAYS[way].split()) for way in target.truth["ways"]}
    text, _ = record_enough(lambda text: wanted <= computing(text), "--pid", target.pid, "--async", "-r", 500, "-F", *flags, out=tmp_path / "out.txt",
                            first=1)
    if not flags:  # nothing else computes, and no stack is one that never was
        assert computing(text) == wanted


@pytest.mark.parametrize("format", ["flamegraph", "speedscope", "chrometrace"])
def test_formats(spawn, python, tmp_path, format):
    target = spawn(python, "await_chains.py")
    wanted = tuple(WAYS["awaits_gather"].split())

    def enough(text):
        stacks = {tuple(name for name in stack if name in wanted) for stack in STACKS[format](text)}
        return wanted in stacks

    record_enough(enough, "--pid", target.pid, "--async", "-r", 500, "-F", "-f", format, out=tmp_path / ("out." + EXTENSION[format]), first=1)


# ---- all ----

def waiting(text, script):
    """{stack of the functions of the script and a state: its value}, without the threads'."""
    stacks = collections.Counter()
    for line in text.splitlines():
        stack, _, value = line.rpartition(" ")
        parts = [part for part in stack.split(";") if part.startswith("[") or " (%s" % script in part]
        if "<module>" not in stack and "in_thread" not in stack:
            stacks[" ".join(part.partition(" (")[0] for part in parts)] += int(value)
    return stacks


def check_weights(text, wanted):
    """At rest, each task has the same weight, whatever the load. Values are rounded for each stack."""
    found = waiting(text, "await_all.py")
    assert set(found) == set(wanted), text
    most = max(wanted, key=wanted.get)
    weight = found[most] / wanted[most]
    for stack, n in wanted.items():
        assert abs(found[stack] - n * weight) <= 1.5 + n, (stack, found)


@pytest.mark.smoke
def test_all(spawn, python, tmp_path):
    target = spawn(python, "await_all.py")
    text, _ = record_enough(some_samples, "--pid", at_rest(target.pid), "--async", "all", "-F", out=tmp_path / "out.txt")
    check_weights(text, target.truth["stacks"])


@pytest.mark.parametrize("flags", [["--threads"], ["--native"], ["--subprocesses"], ["--mode", "wall"]], ids="".join)
def test_all_with(spawn, python, tmp_path, flags):
    target = spawn(python, "await_all.py")
    text, _ = record_enough(some_samples, "--pid", at_rest(target.pid), "--async=all", "-F", *flags, out=tmp_path / "out.txt")
    check_weights(text, target.truth["stacks"])
    if flags == ["--threads"]:
        by_thread = collections.Counter(line.partition(";")[0] for line in text.splitlines() if "sleeps" in line)
        assert len(by_thread) == 2, text


def test_all_while_running(spawn, python, tmp_path):
    """Each stack is the beginning of one of the ways, and tasks that are ready wait for the event loop."""
    target = spawn(python, "await_chains.py")
    allowed = {tuple(way[:n]) for way in (WAYS[name].split() for name in target.truth["ways"]) for n in range(len(way) + 1)}
    allowed |= {("main", name) for name in target.truth["ways"]}
    ready = "[waiting for the event loop]"

    def own(stack):
        return tuple(name for name in stack if name.startswith("awaits_") or name in ("main", "handler", "query", "burn"))

    text, _ = record_enough(lambda text: any(ready in stack and "handler" in stack for stack in raw_stacks(text)), "--pid", target.pid,
                            "--async", "all", "-r", 500, "-F", out=tmp_path / "out.txt", first=1)
    assert {own(stack) for stack in raw_stacks(text)} <= allowed, text


def test_all_refuses_timelines(tmp_path):
    for format in ("speedscope", "chrometrace"):
        result = run("record", "--pid", 1, "--async", "all", "-f", format, "-o", tmp_path / "out").check(2)
        assert "%s shows one stack at a time, but many tasks wait at the same time" % format in result.err
        assert "--format flamegraph or --format raw" in result.err


@pytest.mark.statistical
@pytest.mark.parametrize("n", [10, 300])
def test_all_shares(spawn, tmp_path, n):
    """The times of readings do not depend on what the tasks do. 10 tasks are read about 500 times, 300 tasks about 30 times: the
    standard deviation of the share is below 1 point. The total is that of all tasks during the recording."""
    target = spawn(DEBIAN, "await_shares.py", n)
    before = target.next_report()
    run("record", "--pid", target.pid, "--async", "all", "-d", 10, "-F", "-o", tmp_path / "out.txt").check()
    after = target.next_report()
    found = waiting((tmp_path / "out.txt").read_text(), "await_shares.py")
    share = sum(value for stack, value in found.items() if "short" in stack) / sum(found.values())
    spent = {name: after["spent"][name] - before["spent"][name] for name in after["spent"]}
    assert abs(share - spent["short"] / sum(spent.values())) < 0.05, (found, spent)
    assert 9.5 * n < sum(found.values()) / 100 < 1.05 * n * (after["now"] - before["now"]), found
