"""One thread for each way to wait, and one that works: `python waiters.py`. The name of a thread is that of its function.

Prints one line with the thread ids when all of them wait.
"""
import os
import select
import subprocess
import sys
import threading
import time

import truth

lock = threading.Lock()
lock.acquire()
pipe = os.pipe()


def works():
    while True:
        sum(range(1000))


def sleeps():
    time.sleep(100000)


def locks():
    lock.acquire()


def reads():
    os.read(pipe[0], 1)


def selects():
    select.select([pipe[0]], [], [])


def parents():
    child.wait()


if __name__ == "__main__":
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    for function in (works, sleeps, locks, reads, selects, parents):
        thread = threading.Thread(target=function, name=function.__name__)
        thread.daemon = True
        thread.start()
    truth.say(pid=os.getpid())
    while True:
        time.sleep(1000)
