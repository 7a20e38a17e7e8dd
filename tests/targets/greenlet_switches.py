"""Greenlets that are resumed all the time, beside some that stay suspended. Needs the package greenlet.

Prints what it knows of the latter ("parked"), and the names of the functions, innermost first, that one can be suspended in.
"""
import os

import greenlet

import truth


def leaf():
    greenlet.getcurrent().parent.switch()


def deep(n):
    return deep(n - 1) if n else leaf()


def works(most):
    while True:
        for n in range(most):
            deep(n)


def parks():
    deep(9)


def start(function, *args):
    g = greenlet.greenlet(function)
    g.switch(*args)
    return g


if __name__ == "__main__":
    parked = [start(parks) for _ in range(50)]
    working = [start(works, 5) for _ in range(4)]
    possible = [["leaf"] + ["deep"] * (n + 1) + ["works"] for n in range(5)] + [["leaf"] + ["deep"] * 10 + ["parks"]]
    rows = [dict(id=id(g), frames=[dict(name=r[0], filename=r[1], line=r[2]) for r in truth.stack_of(g.gr_frame)]) for g in parked]
    truth.say(pid=os.getpid(), parked=rows, possible=possible)
    while True:
        for g in working:
            g.switch()
