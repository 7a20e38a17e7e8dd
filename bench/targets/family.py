"""family.py STATE N forked|started: a parent with N children that sleep, forked from it or started as programs of their own."""
import os
import subprocess
import sys
import time

import shared


def all_reduce():
    while True:
        time.sleep(1000)


def leaf(pipe):
    os.write(pipe, b"x")
    all_reduce()


def read_all(pipe, left):
    while left:
        left -= len(os.read(pipe, left))


def start_all(n, forked):
    read, write = os.pipe()
    for _ in range(n):
        if not forked:
            subprocess.Popen([sys.executable, "-S", __file__, sys.argv[1], str(write), "leaf"], pass_fds=[write])
        elif os.fork() == 0:
            leaf(write)
    read_all(read, n)


if sys.argv[3] == "leaf":
    leaf(int(sys.argv[2]))
start_all(int(sys.argv[2]), sys.argv[3] == "forked")
shared.ready()
all_reduce()
