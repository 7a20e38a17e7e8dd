"""Tests what users rely on and writes the results to docs/trust.md.

    tests/run trust                  all rows, with the numbers of the table: about an hour
    tests/run trust 1 7 12           only these; the table keeps the other results
    tests/run trust --minutes 6      a tenth of the repetitions, as a quick look; writes nothing
    tests/run trust --list           the rows

Exits with 1 if a row fails. Figures that depend on time are worth little on a busy machine; their limits are wider there."""
import argparse
import concurrent.futures
import pathlib
import shutil
import sys
import tempfile
import time
import traceback

sys.dont_write_bytecode = True
import report  # noqa: E402
from common import Context, Figure  # noqa: E402
from rows import ROWS  # noqa: E402

FULL = 60  # minutes


def arguments():
    parser = argparse.ArgumentParser(prog="tests/run trust", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("rows", nargs="*", type=int, metavar="ROW", help="numbers of rows")
    parser.add_argument("--minutes", type=float, default=FULL, help="time for all rows, roughly (default %d: all repetitions)" % FULL)
    parser.add_argument("--fuzz-minutes", type=float, help="time for row 10 (default: a third of --minutes)")
    parser.add_argument("--list", action="store_true", help="list the rows")
    args = parser.parse_args()
    args.scale = min(1.0, args.minutes / FULL)
    if args.fuzz_minutes is None:
        args.fuzz_minutes = args.minutes / 3
    unknown = set(args.rows) - {row.number for row in ROWS}
    if unknown:
        parser.error("no such row: " + ", ".join(map(str, sorted(unknown))))
    if min(args.minutes, args.fuzz_minutes) <= 0:
        parser.error("a time must be positive")
    return args


def run_row(row, args, place):
    """Runs one row, in a directory of its own. An exception is a failure."""
    work = place / ("row-%d" % row.number)
    work.mkdir()
    begin, ctx = time.monotonic(), Context(args.scale, args.fuzz_minutes, work)
    try:
        figure = row.test(ctx)
    except Exception as error:
        traceback.print_exc(file=sys.stdout)
        figure = Figure("could not be tested: %r" % error, False)
    word = {True: "passed", False: "FAILED", None: "not run"}[figure.ok]
    print("%2d %-7s %4d s  %s" % (row.number, word, time.monotonic() - begin, figure.text), flush=True)
    shutil.rmtree(str(work), ignore_errors=True)
    if args.scale == 1:
        report.write(ROWS, {row.number: (figure, ctx.widest)})
    return figure


def run_rows(rows, args, place):
    """Rows that measure times first, each alone; then the others, with those that only take long beside them."""
    found = {}
    for row in rows:
        if row.timed:
            found[row.number] = run_row(row, args, place)
    with concurrent.futures.ThreadPoolExecutor() as pool:
        beside = {row.number: pool.submit(run_row, row, args, place) for row in rows if row.beside}
        for row in rows:
            if row.number not in found and row.number not in beside:
                found[row.number] = run_row(row, args, place)
        found.update((number, job.result()) for number, job in beside.items())
    return found


def main():
    args = arguments()
    wanted = [row for row in ROWS if not args.rows or row.number in args.rows]
    if args.list:
        for row in wanted:
            print("%2d %s%s" % (row.number, row.promise, " (%s)" % row.test if isinstance(row.test, str) else ""))
        return 0
    place = pathlib.Path(tempfile.mkdtemp(prefix="spyglass-trust-"))
    try:
        found = run_rows([row for row in wanted if callable(row.test)], args, place)
    finally:
        shutil.rmtree(str(place), ignore_errors=True)
    if args.scale == 1:
        report.write(ROWS, {})  # the texts may be new
    judged = [figure.ok for figure in found.values()]
    skipped = len(wanted) - judged.count(True) - judged.count(False)
    print("%d passed, %d failed, %d skipped" % (judged.count(True), judged.count(False), skipped))
    return 1 if False in judged else 0


if __name__ == "__main__":
    sys.exit(main())
