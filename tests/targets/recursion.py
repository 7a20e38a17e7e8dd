"""Works below DEPTH recursive calls: `python recursion.py DEPTH`."""
import os
import sys
import threading

import truth


def works():
    while True:
        sum(range(300))


def down(left):
    if left:
        down(left - 1)
    else:
        truth.say(pid=os.getpid())
        works()


if __name__ == "__main__":
    depth = int(sys.argv[1])
    sys.setrecursionlimit(depth + 100)
    threading.stack_size(256 * 1024 * 1024)  # up to 3.10 each call takes some of the C stack
    threading.Thread(target=down, args=(depth,)).start()
