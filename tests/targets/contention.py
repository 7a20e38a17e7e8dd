"""Threads that contend for locks and never deadlock: `python contention.py SEED`.

They take the locks in the same order, or one at a time. Locks pass from thread to thread while others wait.
"""
import os
import random
import sys
import threading
import time

import truth

rng = random.Random(int(sys.argv[1]))
locks = [rng.choice([threading.Lock, threading.RLock])() for _ in range(3)]


def ordered(random_):
    first, second = sorted(random_.sample(range(3), 2))
    with locks[first]:
        time.sleep(random_.random() * 0.003)
        with locks[second]:
            time.sleep(random_.random() * 0.003)


def one_by_one(random_):
    for lock in reversed(locks):
        with lock:
            time.sleep(random_.random() * 0.002)


def acquires(random_):
    for lock in reversed(locks):
        lock.acquire()
        time.sleep(random_.random() * 0.002)
        lock.release()


def repeat(function):
    random_ = random.Random(rng.random())
    while True:
        function(random_)


if __name__ == "__main__":
    for function in (ordered, ordered, ordered, one_by_one, one_by_one, acquires):
        thread = threading.Thread(target=repeat, args=(function,))
        thread.daemon = True
        thread.start()
    truth.say(pid=os.getpid())
    os.read(0, 1)
