"""A parent with N children, of which four work and the rest sleep: `python many_children.py N`."""
import os
import sys
import time

import truth

BUSY = 4


def child_rests():
    while True:
        time.sleep(1000)


def child_works():
    while True:
        sum(range(500))


def start_all(n):
    pids = []
    for i in range(n):
        pid = os.fork()
        if pid == 0:
            child_works() if i < BUSY else child_rests()
        pids.append(pid)
    return pids


if __name__ == "__main__":
    truth.say(pid=os.getpid())
    os.read(0, 1)
    pids = start_all(int(sys.argv[1]))
    truth.say(busy=pids[:BUSY], idle=pids[BUSY:])
    while True:
        time.sleep(1000)
