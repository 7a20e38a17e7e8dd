#!/usr/bin/env python3
"""Runs the fuzz targets for a given time, on new mutations of their corpora, with ASan and UBSan.

    tests/run fuzz                       one minute for all targets
    tests/run fuzz --minutes 60          an hour
    tests/run fuzz --minutes 10 core     ten minutes for this one
    tests/run fuzz --seed 7              the mutations of another run, which printed that seed

Uses every core that it is allowed to use; `taskset -c 0 tests/run fuzz` uses one. Targets take turns, so that a run that you stop
has tried them all.

build/fuzz/NAME has the inputs of earlier runs that reached new code; new ones are added. For fuzz_process, it also has the memory
of every interpreter in build/pythons.txt. An input that crashes, leaks, hangs or takes more than a second of CPU time is kept as
build/fuzz/found-NAME-SEED.
"""
import argparse
import collections
import concurrent.futures
import os
import pathlib
import re
import struct
import subprocess
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path[:0] = [str(HERE), str(ROOT / "tests" / "live")]
import snapshots  # noqa: E402
from pythons import PYTHONS  # noqa: E402

PLACE = ROOT / "build" / "fuzz"
PROGRAMS = ROOT / "build" / "covered" / "tests"
SUMMARY = re.compile(r"^\w+: (\d+) inputs in ([\d.]+) s, longest ([\d.]+) s, (\d+) MB, (\d+) kept, (\d+) branches$", re.M)
PAGE, ODDS = 4096, (0, 200)
WEIGHTS = {"process": 5}  # it reads a whole process for each input, so it gets more time than the others
ROUND = 300  # seconds in which every target gets its turn
PATIENCE = 300  # seconds beyond its time after which a target counts as hanging, however busy the machine is

# problems: texts
Found = collections.namedtuple("Found", "name inputs seconds longest mb kept branches problems")


def targets():
    return sorted(path.stem[len("fuzz_"):] for path in HERE.glob("fuzz_*.c"))


def make_processes():
    """Snapshots of the interpreters on this machine, which the corpus has no room for."""
    place = PLACE / "process"
    for python in PYTHONS:
        for odds in ODDS:
            path = place / ("%s-%d" % (python, odds))
            if path.exists():
                continue
            try:
                path.write_bytes(snapshots.make(python, PAGE, odds))
            except (subprocess.CalledProcessError, AssertionError) as error:
                print("fuzz: no snapshot of %s: %s" % (python, error))
                break


def keep(name, seed, current):
    """Saves the input that was running when the target failed; returns how to run it again."""
    data = current.read_bytes()
    length, = struct.unpack_from("<Q", data)
    path = PLACE / ("found-%s-%d" % (name, seed))
    path.write_bytes(data[8:8 + length])
    return "%s tests/golden %s" % ((PROGRAMS / ("test_fuzz_" + name)).relative_to(ROOT), path.relative_to(ROOT))


def fuzz_one(name, seconds, seed):
    current = PLACE / ("current-%s-%d" % (name, seed))
    command = [PROGRAMS / ("test_fuzz_" + name), "tests/golden", "%g" % seconds, str(seed), current, PLACE / name]
    env = dict(os.environ, ASAN_OPTIONS="exitcode=99:hard_rss_limit_mb=2048", UBSAN_OPTIONS="halt_on_error=1:exitcode=99")
    try:
        done = subprocess.run([str(part) for part in command], cwd=str(ROOT), env=env, timeout=seconds + PATIENCE,
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        output, status = done.stdout.decode(errors="replace"), done.returncode
    except subprocess.TimeoutExpired as error:
        output, status = (error.stdout or b"").decode(errors="replace") + "it hangs\n", None
    summary = SUMMARY.search(output)
    figures = map(float, summary.groups()) if summary else (0, 0, 0, 0, 0, 0)
    problems = []
    if status != 0:
        which = "Its last input; a leak is of this one or of an earlier one" if "LeakSanitizer" in output else "The input"
        problems = ["%s, seed %d:\n%s%s. To repeat it:\n    %s\n" % (name, seed, output, which, keep(name, seed, current))]
    current.unlink()
    return Found(name, *figures, problems)


def fuzz_round(seconds, seed, names):
    """Runs the targets, one per core at a time, for `seconds` in all: those with long turns first."""
    jobs = min(len(os.sched_getaffinity(0)), len(names))
    turn = seconds * jobs / sum(WEIGHTS.get(name, 1) for name in names)
    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        return list(pool.map(lambda name: fuzz_one(name, turn * WEIGHTS.get(name, 1), seed), names))


def added(a, b):
    """The results of one target in two rounds."""
    return Found(a.name, a.inputs + b.inputs, a.seconds + b.seconds, max(a.longest, b.longest), max(a.mb, b.mb), a.kept + b.kept,
                 max(a.branches, b.branches), a.problems + b.problems)


def fuzz(seconds, seed, names=()):
    """Builds the targets and runs them. Returns a Found for each. Prints the total after each round."""
    subprocess.run(["make", "fuzzers"], cwd=str(ROOT), check=True)
    names = sorted(names or targets(), key=lambda name: -WEIGHTS.get(name, 1))
    for name in names:
        (PLACE / name).mkdir(parents=True, exist_ok=True)
    if "process" in names:
        make_processes()
    rounds, results = max(1, round(seconds / ROUND)), None
    for i in range(rounds):
        new = fuzz_round(seconds / rounds, seed + i, names)
        results = [added(*pair) for pair in zip(results, new)] if results else new
        if rounds > 1:
            print("round %d of %d: %s inputs so far, %d findings" % (
                i + 1, rounds, format(int(sum(r.inputs for r in results)), ","), sum(len(r.problems) for r in results)), flush=True)
    return results


def table(results):
    lines = ["%-14s %12s %9s %11s %6s %9s %7s %9s" % ("target", "inputs", "seconds", "longest, s", "MB", "branches", "kept", "findings")]
    for r in results:
        lines.append("%-14s %12s %9.1f %11.3f %6d %9d %7d %9d" % (
            r.name, format(int(r.inputs), ","), r.seconds, r.longest, r.mb, r.branches, r.kept, len(r.problems)))
    lines.append("%-14s %12s %9.1f %43d" % ("all", format(int(sum(r.inputs for r in results)), ","), sum(r.seconds for r in results),
                                            sum(len(r.problems) for r in results)))
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(prog="tests/run fuzz", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("targets", nargs="*", metavar="TARGET", help="of: " + ", ".join(targets()))
    parser.add_argument("--minutes", type=float, default=1, help="time for all targets together (default 1)")
    parser.add_argument("--seed", type=int, default=int(time.time()), help="of the mutations (default: a new one)")
    args = parser.parse_args()
    unknown = set(args.targets) - set(targets())
    if unknown:
        parser.error("no such target: " + ", ".join(sorted(unknown)))
    results = fuzz(60 * args.minutes, args.seed, args.targets)
    for result in results:
        print("".join(result.problems), end="")
    print("%s\nseed %d" % (table(results), args.seed))
    failed = sum(bool(result.problems) for result in results)
    print("%d passed, %d failed" % (len(results) - failed, failed))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
