"""A greenlet whose callers have left the C stack: greenlets.py, with the package greenlet.

It is started deep in C calls, and resumed after other calls have overwritten those frames.
"""
import os

import greenlet

import truth

NESTED = []
for _ in range(200):
    NESTED = [NESTED]


def deep(n, function):
    """Each level is a call from C."""
    return list(map(lambda _: deep(n - 1, function), [0])) if n else function()


def spin():
    for _ in range(3000):
        pass


def works():
    while True:
        for _ in range(20):
            spin()
        main.switch()


def started():
    main.switch()
    works()


main = greenlet.getcurrent()
worker = greenlet.greenlet(started)


if __name__ == "__main__":
    deep(30, worker.switch)
    truth.say(pid=os.getpid())
    while True:
        repr(NESTED)
        worker.switch()
