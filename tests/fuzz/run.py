#!/usr/bin/env python3
"""Runs the fuzz targets for a given time, on new mutations of their corpora, in the build with ASan and UBSan.

    tests/run fuzz                       one minute for all targets
    tests/run fuzz --seconds 600 core    ten minutes for this one
    tests/run fuzz --seed 7              the mutations of another run, which printed that seed

fuzz_process also gets the memory of every interpreter in build/pythons.txt. An input that crashes, leaks, hangs or takes more
than a second of CPU time is kept in build/fuzz.
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
PROGRAMS = ROOT / "build" / "asan" / "tests"
SUMMARY = re.compile(r"^\w+: (\d+) inputs in ([\d.]+) s, longest ([\d.]+) s, (\d+) MB$", re.M)
PAGE, ODDS = 4096, (0, 200)
WEIGHTS = {"process": 5}  # it reads a whole process for each input, so it gets more time than the others
PATIENCE = 300  # seconds beyond its time after which a target counts as hanging, however busy the machine is

Found = collections.namedtuple("Found", "name inputs seconds longest mb problem")  # problem: None, or a text


def targets():
    return sorted(path.stem[len("fuzz_"):] for path in HERE.glob("fuzz_*.c"))


def make_processes():
    """Snapshots of the interpreters on this machine, which the corpus has no room for."""
    place = PLACE / "process"
    place.mkdir(parents=True, exist_ok=True)
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
    return place


def keep(name, seed, current):
    """Saves the input that was running when the target failed; returns how to run it again."""
    data = current.read_bytes()
    length, = struct.unpack_from("<Q", data)
    path = PLACE / ("found-%s-%d" % (name, seed))
    path.write_bytes(data[8:8 + length])
    return "%s tests/golden %s" % ((PROGRAMS / ("test_fuzz_" + name)).relative_to(ROOT), path.relative_to(ROOT))


def fuzz_one(name, seconds, seed, more):
    PLACE.mkdir(parents=True, exist_ok=True)
    current = PLACE / ("current-" + name)
    command = [PROGRAMS / ("test_fuzz_" + name), "tests/golden", "%g" % seconds, str(seed), current, *([more] if more else [])]
    env = dict(os.environ, ASAN_OPTIONS="exitcode=99:hard_rss_limit_mb=2048", UBSAN_OPTIONS="halt_on_error=1:exitcode=99")
    try:
        done = subprocess.run([str(part) for part in command], cwd=str(ROOT), env=env, timeout=seconds + PATIENCE,
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        output, status = done.stdout.decode(errors="replace"), done.returncode
    except subprocess.TimeoutExpired as error:
        output, status = (error.stdout or b"").decode(errors="replace") + "it hangs\n", None
    summary = SUMMARY.search(output)
    figures = map(float, summary.groups()) if summary else (0, 0, 0, 0)
    problem = None if status == 0 else "%sThe input; repeat it with:\n    %s\n" % (output, keep(name, seed, current))
    current.unlink()
    return Found(name, *figures, problem)


def fuzz(seconds, seed, names=()):
    """Runs the targets, one per core at a time, for `seconds` in all: those with long turns first. Returns a Found for each."""
    names = list(names) or targets()
    more = {"process": make_processes()} if "process" in names else {}
    jobs = min(os.cpu_count() or 1, len(names))
    names.sort(key=lambda name: -WEIGHTS.get(name, 1))
    turn = seconds * jobs / sum(WEIGHTS.get(name, 1) for name in names)
    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        return list(pool.map(lambda name: fuzz_one(name, turn * WEIGHTS.get(name, 1), seed, more.get(name)), names))


def table(results):
    lines = ["%-14s %12s %9s %11s %7s" % ("target", "inputs", "seconds", "longest, s", "MB")]
    for r in results:
        lines.append("%-14s %12s %9.1f %11.3f %7d%s" % (r.name, format(int(r.inputs), ","), r.seconds, r.longest, r.mb,
                                                        "  FAILED" if r.problem else ""))
    lines.append("%-14s %12s %9.1f" % ("all", format(int(sum(r.inputs for r in results)), ","), sum(r.seconds for r in results)))
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(prog="tests/run fuzz", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("targets", nargs="*", metavar="TARGET", help="of: " + ", ".join(targets()))
    parser.add_argument("--seconds", type=float, default=60, help="time for all targets together (default 60)")
    parser.add_argument("--seed", type=int, default=int(time.time()), help="of the mutations (default: a new one)")
    args = parser.parse_args()
    unknown = set(args.targets) - set(targets())
    if unknown:
        parser.error("no such target: " + ", ".join(sorted(unknown)))
    results = fuzz(args.seconds, args.seed, args.targets)
    for result in results:
        if result.problem:
            print("%s, seed %d:\n%s" % (result.name, args.seed, result.problem))
    print("%s\nseed %d" % (table(results), args.seed))
    failed = sum(bool(result.problem) for result in results)
    print("%d passed, %d failed" % (len(results) - failed, failed))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
