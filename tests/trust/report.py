"""Writes docs/trust.md. Rows that were not run keep their last result, which is read from the file itself."""
import datetime
import fcntl
import platform
import re

from common import CORES, ROOT, plural

PATH = ROOT / "docs" / "trust.md"
HEAD = """# What you can rely on

Each row is a promise with a test that can fail. `tests/run trust` runs them all in about an hour and writes this file;
`tests/run trust 1 7` runs single rows. `--minutes 6` is a quick look with fewer repetitions, and writes nothing. `make test-all`
includes such a run.

The result is that of the last run of the row. Compare times with care: they depend on the machine and on what else runs on it. If
other programs compete for the cores, limits on durations are wider; the factor is in the last column.

[safety.md](safety.md) explains how spyglass keeps these promises. [tests/trust](../tests/trust) has the tests, and
`tests/trust/rows.py` this table.

| | promise | test | last result | when and where |
|---:|---|---|---|---|
"""
LINE = re.compile(r"^\| (\d+) \| .* \| (.*) \| (.*) \|$", re.M)


def machine(widest):
    kernel = ".".join(platform.release().split("-")[0].split(".")[:2])
    return "%s, %s, Linux %s%s" % (datetime.date.today().isoformat(), plural(len(CORES), "core"), kernel,
                                   ", limits × %.1f" % widest if widest > 1 else "")


def earlier():
    """{number: (result, when and where)} of the file as it is."""
    return {int(number): (result, where) for number, result, where in LINE.findall(PATH.read_text())} if PATH.exists() else {}


def cell(text):
    """Text from a test, as one table cell."""
    return re.sub(r"\s+", " ", text).replace(str(ROOT), ".").replace("|", "\\|").replace("<", "&lt;")


def write(rows, found):
    """Rows run in parallel, and perhaps in several runs, so one writes at a time."""
    with open(str(ROOT / "build" / "trust.lock"), "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        PATH.write_text(HEAD + "\n".join(table(rows, found)) + "\n")


def table(rows, found):
    known = earlier()
    lines = []
    for row in rows:
        result, where = known.get(row.number, ("not run yet", "–"))
        if isinstance(row.test, str):
            result, where = row.test, "–"
        elif row.number in found:
            figure, widest = found[row.number]
            if figure.ok is not None or result.startswith("not "):  # a run without a verdict does not replace one with a verdict
                mark = {True: "", False: "**failed:** ", None: "not judged: "}[figure.ok]
                result, where = mark + cell(figure.text), machine(widest)
        lines.append("| %d | %s | %s | %s | %s |" % (row.number, row.promise, row.how.replace("|", "\\|"), result, where))
    return lines
