"""deep.py STATE DEPTH busy|asleep: works or sleeps at the bottom of a stack of DEPTH frames."""
import sys
import time

import shared


def work():
    total = 0
    while True:
        for i in range(1000):
            total += i
        total = 0


def wait():
    while True:
        time.sleep(1000)


def descend(left, bottom):
    if left > 0:
        return descend(left - 1, bottom)
    shared.ready()
    bottom()


depth = int(sys.argv[2])
sys.setrecursionlimit(depth + 1000)
descend(depth - 3, work if sys.argv[3] == "busy" else wait)  # <module>, the last descend and the bottom are three
