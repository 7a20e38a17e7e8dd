"""Greenlets in every state, in two threads, with what they know about their own stacks in "extra": a list of

    {"id": address, "parent": address or 0, "main": bool, "state": "suspended" or "running", "name": str or None,
     "type": str, "thread": ident, "frames": [{"name", "filename", "line"}]}

`counts` has those that are not listed. Needs the package greenlet. Runs on 2.7 and on every 3.x.
"""
import functools
import sys

import greenlet

import truth

try:
    import _thread
except ImportError:
    import thread as _thread

SHOWN = {"greenlets": [], "counts": {"new": 2, "dead": 1}}
KEPT = []
sys.setrecursionlimit(5000)


class Worker(greenlet.greenlet):
    """A subclass, with a name as in gevent."""

    def run(self):
        self.name = "worker-%d" % sum(isinstance(g, Worker) for g in KEPT)
        self.parent.switch()


class Nested(Worker):
    pass


def leaf():
    greenlet.getcurrent().parent.switch()


def deep(n, function):
    return deep(n - 1, function) if n else function()


def through_c(n, function):
    """Each level is a call from C, so that the interpreter is entered again."""
    return list(map(lambda _: through_c(n - 1, function), [0])) if n else function()


def generate():
    yield 1
    leaf()


def in_generator():
    for _ in generate():
        pass


def in_handler():
    try:
        raise KeyError("k")
    except KeyError:
        leaf()


def sorts():
    sorted([3, 1, 2], key=functools.partial(lambda depth, _: deep(depth, leaf), 3))


def starts_another():
    """Its own greenlet has it as parent, and is suspended in turn."""
    inner = greenlet.greenlet(functools.partial(deep, 2, leaf))
    KEPT.append(inner)
    inner.switch()
    leaf()


def row(g, ident, running=None):
    return dict(id=id(g), parent=id(g.parent) if g.parent is not None else 0, main=g.parent is None,
                state="running" if g is running else "suspended", name=getattr(g, "name", None), type=type(g).__name__,
                thread=ident,
                frames=[dict(name=r[0], filename=r[1], line=r[2]) for r in truth.stack_of(g.gr_frame)] if g is not running else [])


def start_all():
    jobs = [leaf, in_generator, in_handler, sorts, starts_another, functools.partial(deep, 5, leaf), functools.partial(deep, 400, leaf),
            functools.partial(through_c, 20, leaf), functools.partial(deep, 3, functools.partial(through_c, 3, leaf))]
    for job in jobs:
        KEPT.append(greenlet.greenlet(job))
        KEPT[-1].switch()
    for kind in (Worker, Worker, Worker, Nested):
        KEPT.append(kind())
        KEPT[-1].switch()


def report(running, ident):
    started = [g for g in KEPT if g and not g.dead and not any(r["id"] == id(g) for r in SHOWN["greenlets"])]
    main = running if running.parent is None else running.parent
    SHOWN["greenlets"] += [row(g, ident, running) for g in started + [main] + [running] * (running is not main)]


def second():
    """This thread is parked in a greenlet, and its main greenlet is suspended."""
    main = greenlet.getcurrent()

    def parks():
        through_c(2, lambda: report(greenlet.getcurrent(), _thread.get_ident()))
        truth.park()

    KEPT.append(greenlet.greenlet(deep, main))
    KEPT[-1].switch(7, leaf)
    KEPT.append(greenlet.greenlet(through_c))
    KEPT[-1].switch(4, leaf)
    through_c(3, greenlet.greenlet(parks).switch)


if __name__ == "__main__":
    ended = greenlet.greenlet(len)
    ended.switch(())
    new = [greenlet.greenlet(leaf), Worker()]
    start_all()
    through_c(30, lambda: None)
    report(greenlet.getcurrent(), _thread.get_ident())
    truth.start(2, SHOWN)
    _thread.start_new_thread(second, ())
    truth.park()
