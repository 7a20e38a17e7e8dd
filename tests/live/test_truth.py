"""record tells the truth: no stack that never was, the shares of time as they were, in each way of reading."""
import os
import re
import subprocess
import time

import pytest
from conftest import DEBIAN, NEWEST_HOST, SPYGLASS, TARGETS, clean_env, finish, run, start, wait_until

KINDS = ["plain", "method", "nested", "generator", "coroutine", "exec"]
NOT_SURE = "[not sure]"
MODES = {"default": [], "nonblocking": ["--nonblocking"]}


def is_possible(names):
    """A stack of chains.py as it can be: from the root, down one chain without a gap. `make` is where exec works."""
    if names[-1] == NOT_SURE:
        names = names[:-1]
    if names[0] != "<module>":
        return False
    if names[:3] != ["<module>", "main", "turn"][:len(names)]:
        return not any(re.match(r"c\d+_f\d", name) for name in names)  # it prepares: no chain is called yet
    chain = re.match(r"(c\d+)_f0$", names[3]) if len(names) > 3 else None
    return len(names) <= 3 or bool(chain) and names[3:] == ["%s_f%d" % (chain.group(1), k) for k in range(len(names) - 3)]


def read(path):
    """The stacks of a raw profile: (function names, samples)."""
    for line in path.read_text().splitlines():
        stack, _, n = line.rpartition(" ")
        yield [part.partition(" (")[0].rpartition(".")[2] for part in stack.split(";")], int(n)


def test_checker_knows_the_impossible():
    """The check itself: two chains, a gap, no root are found out."""
    root = ["<module>", "main", "turn"]
    assert is_possible(root) and is_possible(root[:1]) and is_possible(root + ["c3_f0", "c3_f1"])
    assert is_possible(root + ["c3_f0", NOT_SURE])
    for wrong in (["c3_f0"], root + ["c3_f1"], root + ["c3_f0", "c4_f1"], root + ["c3_f0", "c3_f2"],
                  ["main", "turn"], root[:2] + ["c3_f0"], root + ["<module>"], root + ["c3_f0", NOT_SURE, "c3_f1"]):
        assert not is_possible(wrong), wrong


def record(target, out, *flags):
    run("record", "--pid", target.pid, "-d", 1, "-r", 20000, "--nolineno", "-o", out, "-f", "raw", *flags).check()
    stacks = list(read(out))
    total = sum(n for _, n in stacks)
    wrong = [(names, n) for names, n in stacks if not is_possible(names)]
    return total, sum(n for _, n in wrong), wrong


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("kind", KINDS)
def test_chains(spawn, tmp_path, python, kind, mode):
    if python.version < (3, 5) and kind in ("generator", "coroutine"):
        pytest.skip("Python 2 has no `yield from` and no coroutines")
    target = spawn(python, "chains.py", kind)
    total, impossible, wrong = record(target, tmp_path / "out.txt", *MODES[mode])
    assert total > 0
    allowed = 0 if mode == "default" else max(1, total * 50 // 1000000)
    assert impossible <= allowed, (impossible, total, wrong[:5])


def cores(pid):
    return sorted(os.sched_getaffinity(pid))


def pinned(*allowed):
    return lambda: os.sched_setaffinity(0, allowed)


def ways(result):
    """How the stacks were read, by the line that --verbose gives."""
    match = re.search(r"own core: (\d+); held by ptrace: (\d+); asleep: (\d+); unheld: (\d+)", result.out)
    return dict(zip(("core", "held", "asleep", "unheld"), map(int, match.groups())))


@pytest.mark.parametrize("rate", [300, 1000, 20000])
@pytest.mark.parametrize("kind", ["plain", "generator"])
def test_chains_on_the_move(spawn, tmp_path, kind, rate):
    """The target goes from core to core while it is read."""
    both = cores(0)
    if len(both) < 2:
        pytest.skip("one core only: nowhere to go")
    target = spawn(NEWEST_HOST, "chains.py", kind)
    process = start("record", "--pid", target.pid, "-d", 2, "-r", rate, "--nolineno", "-o", tmp_path / "out.txt", "-f", "raw")
    moves = 0
    while process.poll() is None:
        moves += 1
        os.sched_setaffinity(target.pid, {both[moves % 2]})
        time.sleep(0.0007)
    finish(process).check()
    stacks = list(read(tmp_path / "out.txt"))
    assert moves > 100 and sum(n for _, n in stacks) > 0
    assert [names for names, _ in stacks if not is_possible(names)] == []


@pytest.fixture
def apart(spawn):
    """A busy target on one core, and another core for the profiler."""
    both = cores(0)
    if len(both) < 2:
        pytest.skip("one core only: the profiler cannot be kept off the target's")
    target = spawn(NEWEST_HOST, "chains.py", "plain")
    os.sched_setaffinity(target.pid, {both[0]})
    return target, both[1]


def record_apart(target, core, out):
    return run("record", "--pid", target.pid, "-d", 1, "-r", 500, "-v", "--nolineno", "-o", out, "-f", "raw",
               preexec_fn=pinned(core)).check()


def test_own_core_is_the_first_way(spawn, tmp_path):
    target = spawn(NEWEST_HOST, "chains.py", "plain")
    result = run("record", "--pid", target.pid, "-d", 1, "-v", "-o", tmp_path / "out.txt", "-f", "raw").check()
    assert ways(result)["core"] > 0 and ways(result)["unheld"] == 0, result


def test_held_where_the_core_is_forbidden(apart, tmp_path):
    target, core = apart
    result = record_apart(target, core, tmp_path / "out.txt")
    assert ways(result)["held"] > 0 and ways(result)["core"] == ways(result)["unheld"] == 0, result
    assert all(is_possible(names) for names, _ in read(tmp_path / "out.txt"))


def test_unheld_where_ptrace_is_refused_too(apart, tmp_path):
    """Another tracer has the target: it may still be read, and that is told."""
    target, core = apart
    tracer = subprocess.Popen(["strace", "-f", "-e", "trace=none", "-o", "/dev/null", "-p", str(target.pid)],
                              stderr=subprocess.DEVNULL)
    try:
        wait_until(lambda: "TracerPid:\t%d" % tracer.pid in open("/proc/%d/status" % target.pid).read(), "the tracer")
        result = record_apart(target, core, tmp_path / "out.txt")
    finally:
        tracer.terminate()
        tracer.wait()
    assert ways(result)["unheld"] > 0 and ways(result)["core"] == ways(result)["held"] == 0, result
    assert "may not be held" in result.out


@pytest.mark.quiet
@pytest.mark.parametrize("mode", MODES)
def test_split(spawn, tmp_path, python, mode):
    """one : two : three are 1 : 2 : 5 by the target's own clock, and so they are in the profile."""
    target = spawn(python, "shares.py", "1000")
    run("record", "--pid", target.pid, "-d", 2, "-r", 5000, "--function", "-o", tmp_path / "out.txt", "-f", "raw",
        *MODES[mode]).check()
    target.process.terminate()
    spent = target.read_line()["spent"]
    counts = {name: sum(n for names, n in read(tmp_path / "out.txt") if name in names) for name in spent}
    for name in spent:
        share, true = counts[name] / sum(counts.values()), spent[name] / sum(spent.values())
        assert abs(share - true) < 0.03, (counts, spent)


@pytest.mark.quiet
@pytest.mark.parametrize("mode", MODES)
def test_turns(spawn, tmp_path, python, mode):
    """Functions that are never the same from one sample to the next: their frames are where none was before, which without
    a hold must neither be lost nor count for those who called them."""
    target = spawn(python, "turns.py")
    result = run("record", "--pid", target.pid, "-d", 2, "-r", 2000, "--function", "-o", tmp_path / "out.txt", "-f", "raw",
                 *MODES[mode]).check()
    target.process.terminate()
    spent = target.read_line()["spent"]
    stacks = list(read(tmp_path / "out.txt"))
    counts = {kind: sum(n for names, n in stacks if any(name.startswith(kind) for name in names)) for kind in spent}
    total, unsure = sum(n for _, n in stacks), sum(n for names, n in stacks if NOT_SURE in names)
    assert total > 2500, result
    assert unsure <= (0 if mode == "default" else total // 4), (unsure, total, result)
    assert sum(counts.values()) + unsure > 0.9 * total, (counts, total, result)
    for kind in spent:
        share, true = counts[kind] / sum(counts.values()), spent[kind] / sum(spent.values())
        assert abs(share - true) < 0.04, (counts, spent)


@pytest.mark.parametrize("mode", MODES)
def test_recursion(spawn, tmp_path, python, mode):
    """However deep, a stack is seen whole."""
    target = spawn(python, "recursion.py", "3000")
    result = run("record", "--pid", target.pid, "-d", 1, "-r", 50, "--function", "-o", tmp_path / "out.txt", "-f", "raw",
                 *MODES[mode]).check()
    deep = sum(n for names, n in read(tmp_path / "out.txt") if names.count("down") == 3001 and "works" in names)
    total = sum(n for _, n in read(tmp_path / "out.txt"))
    assert total > 5 and deep >= 0.8 * total, (deep, total, result)


@pytest.mark.quiet
@pytest.mark.parametrize("kind, ms, sleepers, mode", [("python", 300, 0, "default"), ("python", 4, 10, "default"),
                                                      ("foreign", 4, 0, "nonblocking")])
def test_threads_that_come(spawn, tmp_path, python, kind, ms, sleepers, mode):
    """A thread that has just come is seen at once, though all that were known sleep."""
    target = spawn(python, "comers.py", kind, str(ms), str(sleepers))
    result = run("record", "--pid", target.pid, "-d", 2, "-r", 500, "--function", "-o", tmp_path / "out.txt", "-f", "raw",
                 *MODES[mode]).check()
    target.process.terminate()
    spent = target.read_line()["spent"]
    counts = {name: sum(n for names, n in read(tmp_path / "out.txt") if name in names) for name in spent}
    share, true = counts["comes"] / sum(counts.values()), spent["comes"] / sum(spent.values())
    assert sum(counts.values()) > 500 and abs(share - true) < 0.08, (share, true, counts, spent, result)


def cpu_seconds(pid):
    with open("/proc/%d/schedstat" % pid) as file:
        return int(file.read().split()[0]) / 1e9


@pytest.mark.quiet
@pytest.mark.parametrize("rate", [100, 1000])
def test_short_naps(spawn, tmp_path, rate):
    """Works and sleeps by turns of 2 ms: it is seen at work as often as it was, not only when the kernel found room for us
    on its core."""
    target = spawn(NEWEST_HOST, "naps.py")
    seconds = 6 if rate == 100 else 3
    before, begin = cpu_seconds(target.pid), time.monotonic()
    process = start("record", "--pid", target.pid, "-d", seconds, "-r", rate, "-o", tmp_path / "out.txt", "-f", "raw")
    result = finish(process).check()
    worked = (cpu_seconds(target.pid) - before) / (time.monotonic() - begin)
    seen = sum(n for _, n in read(tmp_path / "out.txt")) / (seconds * rate)
    assert abs(seen - worked) < 0.12, (seen, worked, result.out)


@pytest.mark.quiet
def test_short_naps_where_we_are_run_late(spawn, tmp_path):
    """Neither short turns nor the right to run first: held from another core, they are seen all the same."""
    if len(cores(0)) < 2:
        pytest.skip("one core only: nowhere to go")
    subprocess.run(["gcc", "-O1", "-o", tmp_path / "deny", TARGETS / "deny.c"], check=True)
    target = spawn(NEWEST_HOST, "naps.py")
    before, begin = cpu_seconds(target.pid), time.monotonic()
    result = run("ENOSYS:sched_setattr", "EPERM:sched_setscheduler", "--", SPYGLASS, "record", "-v", "--pid", target.pid,
                 "-d", 4, "-r", 500, "-o", tmp_path / "out.txt", "-f", "raw", program=tmp_path / "deny",
                 env=clean_env(ASAN_OPTIONS="detect_leaks=0")).check()
    worked = (cpu_seconds(target.pid) - before) / (time.monotonic() - begin)
    seen = sum(n for _, n in read(tmp_path / "out.txt")) / (4 * 500)
    assert abs(seen - worked) < 0.12, (seen, worked, result.out)


def test_a_thousand_sleepers_are_not_looked_at(launch, tmp_path):
    """A tick costs one look at the process, not one at each thread that sleeps."""
    text = ("import threading, time\n"
            "for i in range(300): threading.Thread(target=time.sleep, args=(1e6,), daemon=True).start()\n"
            "print('{}', flush=True)\nwhile True: pass\n")
    target = launch([*DEBIAN.command, "-c", text])
    log = tmp_path / "strace.txt"
    run("-c", "-o", log, "-e", "trace=pread64", SPYGLASS, "record", "--pid", target.pid, "-d", 2, "-o", tmp_path / "out.txt",
        "-f", "raw", program="strace", env=clean_env(ASAN_OPTIONS="detect_leaks=0")).check()
    calls = int(re.search(r"(\d+)\s+(?:\d+ )?pread64", log.read_text()).group(1))
    assert calls < 300 * 40, "200 ticks must not read the files of 300 threads each"
