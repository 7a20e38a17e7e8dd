"""Writes docs/trust.md. Rows that were not run keep their last result, which is read from the file itself."""
import datetime
import os
import platform
import re

from common import CORES, ROOT

PATH = ROOT / "docs" / "trust.md"
HEAD = """# What you can rely on

Each row is a promise with a test that can fail. `tests/run trust` runs them all and writes this file; `tests/run trust 1 7` runs
single rows. `--scale 0.1` is a quick look with fewer repetitions, and writes nothing. `make test-all` includes these tests.

The result is of the last run of that row. Compare times with care: they depend on the machine and on what else runs on it. On a
busy machine, the limits on durations are wider.

[safety.md](safety.md) explains how spyglass keeps these promises. [tests/trust](../tests/trust) has the tests, and
`tests/trust/rows.py` this table.

| | promise | test | last result | when and where |
|---:|---|---|---|---|
"""
LINE = re.compile(r"^\| (\d+) \| .* \| (.*) \| (.*) \|$", re.M)


def system():
    """The distribution, such as "Debian 12"."""
    try:
        fields = dict(line.rstrip().split("=", 1) for line in open("/etc/os-release") if "=" in line)
    except OSError:
        return "Linux"
    name = fields.get("NAME", "Linux").strip('"').replace(" GNU/Linux", "")
    return (name + " " + fields.get("VERSION_ID", "").strip('"')).strip()


def machine(was_busy):
    kernel = ".".join(platform.release().split("-")[0].split(".")[:2])
    cores = len(CORES)
    return "%s, %d core%s, %s, kernel %s%s" % (datetime.date.today().isoformat(), cores, "" if cores == 1 else "s", system(), kernel,
                                              ", busy" if was_busy else "")


def earlier():
    """{number: (result, when and where)} of the file as it is."""
    return {int(number): (result, where) for number, result, where in LINE.findall(PATH.read_text())} if PATH.exists() else {}


def cell(text):
    """Text from a test, as one table cell."""
    return re.sub(r"\s+", " ", text).replace(str(ROOT), ".").replace("|", "\\|").replace("<", "&lt;").replace(os.uname().nodename, "host")


def write(rows, found):
    known = earlier()
    lines = []
    for row in rows:
        result, where = known.get(row.number, ("not run yet", "–"))
        if isinstance(row.test, str):
            result, where = row.test, "–"
        elif row.number in found:
            figure, was_busy = found[row.number]
            if figure.ok is not None or row.number not in known:
                mark = {True: "", False: "**failed:** ", None: ""}[figure.ok]
                result, where = mark + cell(figure.text), machine(was_busy)
        lines.append("| %d | %s | %s | %s | %s |" % (row.number, row.promise, row.how.replace("|", "\\|"), result, where))
    text = HEAD + "\n".join(lines) + "\n"
    PATH.write_text(text)
