"""Selects the tests of a run.

    --tier all     (the default) every test with every combination of its parameters: `make test-all`
    --tier test    every test, every interpreter and every parameter value, but not every combination: `make test`
    --tier check   the tests marked `smoke`, on one interpreter: `make check`

Marks:
    full            only in `all`: a soak test, or a combination that `make test` already covers elsewhere
    statistical     only in `all`, and run alone: compares proportions, rates or delays, with a stated error probability
    pairwise        `test` covers every pair of parameter values, not only every value (without sanitizers)
    since(3, 8)     skips older interpreters; also a mark of a single parameter value
    until(3, 11)    skips newer interpreters
"""
import itertools
import zlib

import pytest
from program import SANITIZED
from pythons import DEBIAN, ONE_PER_LAYOUT, Python

MARKS = {
    "full": "only in --tier all",
    "statistical": "only in --tier all, alone: shares, rates or delays, with a stated error probability",
    "smoke": "in --tier check",
    "pairwise": "--tier test takes every pair of parameter values",
    "since(major, minor)": "needs this Python or a newer one",
    "until(major, minor)": "needs this Python or an older one",
}


def parameters(item):
    return item.callspec.params if hasattr(item, "callspec") else {}


def interpreters(item):
    return [value for value in parameters(item).values() if isinstance(value, Python)]


def fits(item):
    """False if the interpreter is too old or too new for the test."""
    for python in interpreters(item):
        if any(python.version < mark.args for mark in item.iter_markers("since")):
            return False
        if any(python.version > mark.args for mark in item.iter_markers("until")):
            return False
    return True


def is_one_per_layout(item):
    return all(python in ONE_PER_LAYOUT for python in interpreters(item))


def values_of(item, size):
    """The combinations of `size` parameter values that a test covers."""
    named = sorted((name, repr(value)) for name, value in parameters(item).items()) or [("", "")]
    return set(itertools.combinations(named, min(size, len(named))))


def cover(items, size):
    """Selects a few items that together cover every combination of `size` values, the same ones in every run."""
    left = set().union(*(values_of(item, size) for item in items))
    taken = []
    pool = sorted(items, key=lambda item: zlib.crc32(item.nodeid.encode()))
    while left:
        best = max(pool, key=lambda item: len(values_of(item, size) & left))
        taken.append(best)
        left -= values_of(best, size)
    return taken


def choose_for_test(items):
    items = [i for i in items if not i.get_closest_marker("full") and not i.get_closest_marker("statistical")]
    groups = {}
    for item in items:
        groups.setdefault((item.nodeid.partition("::")[0], getattr(item, "originalname", item.name)), []).append(item)
    taken = set()
    for group in groups.values():
        size = 2 if group[0].get_closest_marker("pairwise") and not SANITIZED else 1
        if SANITIZED:
            group = [item for item in group if is_one_per_layout(item)] or group[:1]
        taken.update(cover(group, size))
    return [item for item in items if item in taken]


def choose_for_check(items):
    return [i for i in items if i.get_closest_marker("smoke") and all(p is DEBIAN for p in interpreters(i))]


@pytest.fixture
def one_of(request):
    """one_of(values) -> one of them in --tier test, selected by the test's name; all of them otherwise."""
    def choose(values):
        values = list(values)
        if request.config.getoption("--tier") != "test":
            return values
        return [values[zlib.crc32(request.node.nodeid.encode()) % len(values)]]

    return choose


def pytest_addoption(parser):
    parser.addoption("--tier", choices=["check", "test", "all"], default="all", help="which tests: see tests/live/selection.py")


def pytest_configure(config):
    for name, text in MARKS.items():
        config.addinivalue_line("markers", "%s: %s" % (name, text))


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config, items):
    tier = config.getoption("--tier")
    fitting = [item for item in items if fits(item)]
    chosen = {"check": choose_for_check, "test": choose_for_test}.get(tier, list)(fitting)
    dropped = set(items) - set(chosen)
    if dropped:
        config.hook.pytest_deselected(items=list(dropped))
        items[:] = chosen
