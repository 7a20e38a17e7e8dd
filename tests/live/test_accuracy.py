"""record reports no impossible stack and the right proportion of time, for each way to read a stack."""
import os
import re
import subprocess
import time

import chain_stacks
import pytest
from chain_stacks import NOT_SURE, impossible, is_possible, read
from processes import run_seconds
from profiles import Recording, record_enough
from program import SPYGLASS, TARGETS, WAIT, clean_env, run, wait_until
from pythons import DEBIAN, NEWEST_HOST
from share_check import check_shares

SINCE = {"generator": (3, 5), "coroutine": (3, 5)}
KINDS = [pytest.param(kind, marks=pytest.mark.since(*SINCE.get(kind, (2, 7)))) for kind in chain_stacks.KINDS]
MODES = {"default": [], "nonblocking": ["--nonblocking"]}


def samples_of(text):
    return sum(n for _, n in read(text))


def test_checker():
    """Tests the check itself: it detects two chains, a gap, a missing root."""
    root = ["<module>", "main", "turn"]
    assert is_possible(root) and is_possible(root[:1]) and is_possible(root + ["c3_f0", "c3_f1"])
    assert is_possible(root + ["c3_f0", NOT_SURE])
    for wrong in (["c3_f0"], root + ["c3_f1"], root + ["c3_f0", "c4_f1"], root + ["c3_f0", "c3_f2"],
                  ["main", "turn"], root[:2] + ["c3_f0"], root + ["<module>"], root + ["c3_f0", NOT_SURE, "c3_f1"]):
        assert not is_possible(wrong), wrong


def check_chains(text):
    wrong = impossible(text)
    assert not wrong, wrong[:5]


@pytest.mark.parametrize("kind", KINDS)
def test_chains(spawn, tmp_path, python, kind):
    """No stack that the program never had."""
    target = spawn(python, "chains.py", kind)
    check_chains(record_enough(lambda text: samples_of(text) > 1000, "--pid", target.pid, "-r", 20000, "--nolineno", "-f", "raw",
                               out=tmp_path / "out.txt")[0])


@pytest.mark.statistical
@pytest.mark.parametrize("kind", KINDS)
def test_chains_nonblocking(spawn, tmp_path, python, kind):
    """At most 50 impossible stacks per million samples. A profiler at that limit fails once in three million runs. A frame
    of 2.7 does not tell whether its generator is suspended, so nested generators are allowed more: see docs/safety.md."""
    limit = 2000 if kind == "nested" and python.version < (3, 0) else 50
    target = spawn(python, "chains.py", kind)
    text, _ = record_enough(lambda text: samples_of(text) > 20000, "--pid", target.pid, "-r", 20000, "--nolineno", "-f", "raw",
                            "--nonblocking", out=tmp_path / "out.txt", first=1)
    wrong = impossible(text)
    mean = samples_of(text) * limit / 1000000
    assert sum(n for _, n in wrong) <= mean + 5 * mean ** 0.5, wrong[:5]


def cpus(pid):
    return sorted(os.sched_getaffinity(pid))


def pinned(*allowed):
    return lambda: os.sched_setaffinity(0, allowed)


def ways(result):
    """How the stacks were read, from the --verbose line."""
    match = re.search(r"same core (\d+), ptrace (\d+), asleep (\d+), unpaused (\d+)", result.messages)
    return dict(zip(("core", "held", "asleep", "unheld"), map(int, match.groups())))


@pytest.mark.parametrize("rate", [300, 1000, 20000])
@pytest.mark.parametrize("kind", ["plain", "generator"])
def test_chains_migrating(spawn, tmp_path, kind, rate):
    """The target migrates from CPU to CPU while spyglass reads it."""
    both = cpus(0)
    if len(both) < 2:
        pytest.skip("one core only: nowhere to go")
    target = spawn(NEWEST_HOST, "chains.py", kind)
    recording = Recording(tmp_path / "out.txt", "--pid", target.pid, "-r", rate, "--nolineno", "-f", "raw")
    moves = 0

    def moved_and_sampled(text):
        nonlocal moves
        for _ in range(300):
            moves += 1
            os.sched_setaffinity(target.pid, {both[moves % 2]})
            time.sleep(0.0007)
        return moves > 1000 and samples_of(text) > 100

    recording.until(moved_and_sampled)
    check_chains(recording.stop())


@pytest.fixture
def apart(spawn):
    """A busy target on one CPU, and another CPU for the profiler."""
    both = cpus(0)
    if len(both) < 2:
        pytest.skip("one core only: the profiler cannot be kept off the target's")
    target = spawn(NEWEST_HOST, "chains.py", "plain")
    os.sched_setaffinity(target.pid, {both[0]})
    return target, both[1]


def record_until_read(wanted, target, out, **options):
    """Records until a stack was read in the given way; returns how all were read, and the Result."""
    seconds = 0.3
    while True:
        result = run("record", "--pid", target.pid, "-d", seconds, "-r", 500, "-v", "--nolineno", "-o", out, "-f", "raw",
                     **options).check()
        if ways(result)[wanted]:
            return ways(result), result
        seconds *= 2
        assert seconds < WAIT, result


def test_same_cpu_is_preferred(spawn, tmp_path):
    target = spawn(NEWEST_HOST, "chains.py", "plain")
    found, result = record_until_read("core", target, tmp_path / "out.txt")
    assert found["unheld"] == 0, result


def test_ptrace_if_cpu_is_forbidden(apart, tmp_path):
    target, core = apart
    found, result = record_until_read("held", target, tmp_path / "out.txt", preexec_fn=pinned(core))
    assert found["core"] == found["unheld"] == 0, result
    check_chains((tmp_path / "out.txt").read_text())


def test_unpaused_if_ptrace_is_refused(apart, tmp_path):
    """Another process traces the target: spyglass still reads it, and says so."""
    target, core = apart
    tracer = subprocess.Popen(["strace", "-f", "-e", "trace=none", "-o", "/dev/null", "-p", str(target.pid)],
                              stderr=subprocess.DEVNULL)
    try:
        wait_until(lambda: "TracerPid:\t%d" % tracer.pid in open("/proc/%d/status" % target.pid).read(), "the tracer")
        found, result = record_until_read("unheld", target, tmp_path / "out.txt", preexec_fn=pinned(core))
    finally:
        tracer.terminate()
        tracer.wait()
    assert found["core"] == found["held"] == 0, result
    assert "Could not pause the process" in result.messages


# ---- deterministic versions of the statistical tests ----

@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("program, names", [("shares.py", ["one", "two", "three"]), ("alternating_functions.py", ["kind0", "kind1", "kind2"])])
def test_every_function_is_seen(spawn, tmp_path, python, program, names, mode):
    """Includes functions whose frames move between samples."""
    target = spawn(python, program, "1000")

    def all_seen(text):
        return all(any(name in frame for names_, _ in read(text) for frame in names_) for name in names)

    text, _ = record_enough(all_seen, "--pid", target.pid, "-r", 1000, "--function", "-f", "raw", *MODES[mode],
                            out=tmp_path / "out.txt")
    assert mode != "default" or NOT_SURE not in text


@pytest.mark.parametrize("mode", MODES)
def test_recursion(spawn, tmp_path, python, mode):
    """A stack is complete, however deep it is."""
    target = spawn(python, "recursion.py", "3000")
    text, _ = record_enough(lambda text: any(names.count("down") == 3001 and "works" in names for names, _ in read(text)),
                            "--pid", target.pid, "-r", 50, "--function", "-f", "raw", *MODES[mode], out=tmp_path / "out.txt")
    if mode == "default":
        assert all(names.count("down") == 3001 for names, _ in read(text) if "works" in names)


COMERS = [("python", 300, 0, "default"), ("python", 4, 10, "default"), ("foreign", 4, 0, "nonblocking")]


@pytest.mark.parametrize("kind, ms, sleepers, mode", COMERS)
def test_new_threads_are_seen(spawn, tmp_path, python, kind, ms, sleepers, mode):
    """A thread that starts while every known thread sleeps."""
    target = spawn(python, "short_lived_threads.py", kind, str(ms), str(sleepers))
    record_enough(lambda text: all(any(name in names for names, _ in read(text)) for name in ("comes", "waits")),
                  "--pid", target.pid, "-r", 500, "--function", "-f", "raw", *MODES[mode], out=tmp_path / "out.txt", first=0.7)


@pytest.mark.parametrize("rate", [100, 1000])
def test_short_sleeps_are_seen(spawn, tmp_path, rate):
    """2 ms of work, 2 ms of sleep: seen working."""
    target = spawn(NEWEST_HOST, "short_sleeps.py")
    record_enough(lambda text: any("work" in names for names, _ in read(text)), "--pid", target.pid, "-r", rate, "-f", "raw",
                  out=tmp_path / "out.txt")


# ---- proportions against the target's own CPU clock ----

def record_spent(target, out, *flags):
    """Records for two seconds; returns samples per function, CPU seconds per function, the stacks, the Result."""
    result = run("record", "--pid", target.pid, "-d", 2, "--function", "-o", out, "-f", "raw", *flags).check()
    target.process.terminate()
    spent = target.read_line()["spent"]
    stacks = list(read(out.read_text()))
    counts = {kind: sum(n for names, n in stacks if any(name.startswith(kind) for name in names)) for kind in spent}
    return counts, spent, stacks, result


@pytest.mark.statistical
@pytest.mark.parametrize("mode", MODES)
def test_shares(spawn, tmp_path, python, mode):
    """one : two : three are 1 : 2 : 5 by the target's own clock, and so they are in the profile."""
    counts, spent, _, _ = record_spent(spawn(python, "shares.py", "1000"), tmp_path / "out.txt", "-r", 5000, *MODES[mode])
    check_shares(counts, spent, sum(counts.values()))


@pytest.mark.statistical
@pytest.mark.parametrize("mode", MODES)
def test_alternating_functions(spawn, tmp_path, python, mode):
    """Functions that are in another place at each sample: without a pause, spyglass must neither lose their frames
    nor attribute them to their callers."""
    counts, spent, stacks, result = record_spent(spawn(python, "alternating_functions.py"), tmp_path / "out.txt", "-r", 2000, *MODES[mode])
    total, unsure = sum(n for _, n in stacks), sum(n for names, n in stacks if NOT_SURE in names)
    assert unsure <= (0 if mode == "default" else total // 4), (unsure, total, result)
    assert sum(counts.values()) + unsure > 0.9 * total, (counts, total, result)
    check_shares(counts, spent, sum(counts.values()))


@pytest.mark.statistical
@pytest.mark.parametrize("kind, ms, sleepers, mode", COMERS)
def test_short_lived_threads(spawn, tmp_path, python, kind, ms, sleepers, mode):
    """A new thread gets its proportion of samples although every known thread sleeps."""
    target = spawn(python, "short_lived_threads.py", kind, str(ms), str(sleepers))
    counts, spent, _, result = record_spent(target, tmp_path / "out.txt", "-r", 500, *MODES[mode])
    check_shares(counts, spent, sum(counts.values()), bias=0.06)


def check_sleep_share(target, out, seconds, rate, record):
    """Samples per tick equal the fraction of time that the thread ran, within 12 percentage points."""
    before, begin = run_seconds(target.pid), time.monotonic()
    result = record()
    worked = (run_seconds(target.pid) - before) / (time.monotonic() - begin)
    seen = sum(n for _, n in read(out.read_text())) / (seconds * rate)
    assert abs(seen - worked) < 0.12, (seen, worked, result.out)


@pytest.mark.statistical
@pytest.mark.parametrize("rate", [100, 1000])
def test_short_sleeps(spawn, tmp_path, rate):
    """Alternates 2 ms of work and 2 ms of sleep: seen working as often as it worked, not only when the kernel let
    spyglass run on its CPU."""
    target, out = spawn(NEWEST_HOST, "short_sleeps.py"), tmp_path / "out.txt"
    seconds = 6 if rate == 100 else 3
    check_sleep_share(target, out, seconds, rate, lambda: run("record", "--pid", target.pid, "-d", seconds, "-r", rate, "-o", out,
                                                       "-f", "raw").check())


@pytest.mark.statistical
def test_short_sleeps_without_priority(spawn, tmp_path):
    """Neither a short time slice nor real-time priority: stopped from another CPU, the sleeps are still seen."""
    if len(cpus(0)) < 2:
        pytest.skip("one core only: nowhere to go")
    subprocess.run(["gcc", "-O1", "-o", tmp_path / "deny", TARGETS / "deny.c"], check=True)
    target, out = spawn(NEWEST_HOST, "short_sleeps.py"), tmp_path / "out.txt"
    check_sleep_share(target, out, 4, 500, lambda: run(
        "ENOSYS:sched_setattr", "EPERM:sched_setscheduler", "--", SPYGLASS, "record", "-v", "--pid", target.pid, "-d", 4, "-r", 500,
        "-o", out, "-f", "raw", program=tmp_path / "deny", env=clean_env(ASAN_OPTIONS="detect_leaks=0")).check())


def test_sleeping_threads_are_not_read(launch, tmp_path):
    """A tick costs one look at the process, not one at each sleeping thread."""
    text = ("import threading, time\n"
            "for i in range(300): threading.Thread(target=time.sleep, args=(1e6,), daemon=True).start()\n"
            "print('{}', flush=True)\nwhile True: pass\n")
    target = launch([*DEBIAN.command, "-c", text])
    log = tmp_path / "strace.txt"
    _, result = record_enough(lambda text: samples_of(text) > 50, "--pid", target.pid, "-f", "raw", out=tmp_path / "out.txt",
                            wrapper=["strace", "-c", "-o", log, "-e", "trace=pread64"], first=1,
                            env=clean_env(ASAN_OPTIONS="detect_leaks=0"))
    calls = int(re.search(r"(\d+)\s+(?:\d+ )?pread64", log.read_text()).group(1))
    ticks = float(re.search(r"Sampled ([\d.]+) times per second", result.messages).group(1)) * float(result.args[result.args.index("-d") + 1])
    assert calls < 300 * 10 + 50 * ticks, "a tick must not read the files of 300 threads each"
