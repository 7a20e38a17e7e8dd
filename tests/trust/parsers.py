"""Rows 10 and 11: bytes that are not what they should be."""
import os
import re
import subprocess
import time

from common import Figure, ROOT, plural
from run import fuzz, table  # tests/fuzz/run.py

HOSTILE = re.compile(r"^[\d.]+: (\d+) readings, the longest ([\d.]+) s, (\d+) MB more$", re.M)


def fuzzers(ctx):
    """Row 10."""
    results = fuzz(60 * ctx.fuzz_minutes, int(time.time()))
    print(table(results))
    problems = [problem for r in results for problem in r.problems]
    print("".join(problems))
    rarest = min(results, key=lambda r: r.inputs)
    text = "%s for %d parsers in %.0f minutes under ASan and UBSan: %s, longest %.2f s; fewest %s" % (
        plural(int(sum(r.inputs for r in results)), "input"), len(results), sum(r.seconds for r in results) / 60,
        plural(len(problems), "finding"), max(r.longest for r in results),
        "%s (%s)" % (format(int(rarest.inputs), ","), rarest.name))
    return Figure(text, not problems and all(r.inputs for r in results))


def hostile(ctx):
    """Row 11: the limit on memory is for the plain build, because sanitizers need their own."""
    readings, longest, memory, failed = 0, 0.0, 0, []
    for build in ("build", "build/asan"):
        subprocess.run(["ninja", "-C", str(ROOT / build), "tests/test_hostile"], check=True, stdout=subprocess.DEVNULL)
        env = dict(os.environ, VERBOSE="1", ASAN_OPTIONS="exitcode=99", UBSAN_OPTIONS="halt_on_error=1:exitcode=99")
        done = subprocess.run([str(ROOT / build / "tests" / "test_hostile"), "tests/golden"], cwd=str(ROOT), env=env,
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        output = done.stdout.decode(errors="replace")
        rows = [tuple(map(float, row)) for row in HOSTILE.findall(output)]
        if done.returncode != 0 or not rows:
            failed.append(build)
            print(output)
            continue
        readings += int(sum(row[0] for row in rows))
        longest = max(longest, max(row[1] for row in rows))
        memory = max(memory, max(row[2] for row in rows))
    text = "%s of a damaged interpreter, of every layout: longest %.3f s of CPU time, at most %d MB more%s" % (
        plural(readings, "reading"), longest, memory, "; failed in " + ", ".join(failed) if failed else "")
    return Figure(text, not failed and readings >= 10000 and memory <= 64)
