"""Spends known shares of CPU time in named functions, and reports them at the end: `python shares.py SECONDS`.

one : two : three get 1 : 2 : 5 parts of the time, by a CPU clock, so that the load of the machine does not matter.
Sleepers sleep all the time. At the end, or on SIGTERM, it prints one line with the CPU seconds of each function.
"""
import os
import signal
import sys
import threading
import time

import truth

clock = getattr(time, "thread_time", None) or time.clock
spent = {"one": 0.0, "two": 0.0, "three": 0.0}
state = {"on": True}


def one(seconds):
    spin(seconds)


def two(seconds):
    spin(seconds)


def three(seconds):
    spin(seconds)


def spin(seconds):
    end = clock() + seconds
    while clock() < end:
        sum(range(100))


def timed(function, seconds):
    begin = clock()
    function(seconds)
    spent[function.__name__] += clock() - begin


def work(until):
    while state["on"] and time.time() < until:
        timed(one, 0.005)
        timed(two, 0.010)
        timed(three, 0.025)


def sleeper():
    time.sleep(100000)


def stop(number, frame):
    state["on"] = False


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, stop)
    for i in range(3):
        thread = threading.Thread(target=sleeper, name="sleeper-%d" % i)
        thread.daemon = True
        thread.start()
    truth.say(pid=os.getpid())
    work(time.time() + float(sys.argv[1]))
    truth.say(spent=spent)
