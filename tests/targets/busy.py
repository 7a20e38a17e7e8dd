"""Runs forever, for tests that record: `python busy.py [threads]`. Prints one line, then alternates between two call
chains.

Each pass calls root -> chain_a -> leaf_a or root -> chain_b -> leaf_b: any other stack is wrong.
"""
import os
import sys

import truth


def leaf_a(n):
    total = 0
    for i in range(n):
        total += i
    return total


def leaf_b(n):
    total = 1
    for i in range(n):
        total ^= i
    return total


def chain_a():
    return leaf_a(300)


def chain_b():
    return leaf_b(300)


def root(speak=False):
    if speak:
        truth.say(pid=os.getpid())
    while True:
        chain_a()
        chain_b()


def more_threads(n):
    import threading

    for i in range(n):
        thread = threading.Thread(target=root, name="busy-%d" % i)
        thread.daemon = True
        thread.start()


if __name__ == "__main__":
    if len(sys.argv) > 1:
        more_threads(int(sys.argv[1]))
    root(speak=True)
