"""A chain of N processes, each the child of the previous one: `python process_chain.py N`."""
import os
import sys
import time

import truth


def rests():
    while True:
        time.sleep(1000)


def go_down(left, fd):
    os.write(fd, ("%d\n" % os.getpid()).encode("ascii"))
    if left and os.fork() == 0:
        go_down(left - 1, fd)
    rests()


if __name__ == "__main__":
    n = int(sys.argv[1])
    truth.say(pid=os.getpid())
    os.read(0, 1)
    ends = os.pipe()
    if os.fork() == 0:
        go_down(n - 2, ends[1])
    text = b""
    while text.count(b"\n") < n - 1:
        text += os.read(ends[0], 4096)
    truth.say(pids=[os.getpid()] + [int(pid) for pid in text.split()])
    rests()
