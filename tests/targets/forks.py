"""A busy parent that starts busy Python children while it is profiled. The first line says only that it runs.

`python forks.py N`: after a byte on standard input it starts N children with os.fork and one with subprocess, and
prints their PIDs.
"""
import os
import subprocess
import sys
import time

import truth


def parent_works():
    while True:
        sum(range(500))


def forked_works():
    while True:
        sum(range(500))


def started_works():
    while True:
        sum(range(500))


def start_all(n):
    pids = []
    for _ in range(n):
        pid = os.fork()
        if pid == 0:
            forked_works()
        pids.append(pid)
    pids.append(subprocess.Popen([sys.executable, __file__, "started"]).pid)
    pids.append(subprocess.Popen(["sleep", "1000"]).pid)
    return pids


if __name__ == "__main__":
    if sys.argv[1] == "started":
        started_works()
    truth.say(pid=os.getpid())
    os.read(0, 1)
    time.sleep(0.3)
    truth.say(children=start_all(int(sys.argv[1])))
    parent_works()
