"""Prints each signal that it gets as a line of JSON, and works: `python signal_reporter.py [ends]`.

With `ends`, it exits on SIGTERM and SIGINT with the status 40 + signal, after half a second of cleanup.
"""
import json
import os
import signal
import sys
import time

import truth

TOLD = ["SIGINT", "SIGTERM", "SIGHUP", "SIGQUIT", "SIGUSR1", "SIGUSR2", "SIGWINCH", "SIGCONT", "SIGALRM", "SIGRTMIN", "SIGIO"]


def on_signal(number, frame):
    truth.say(signal=number)
    if "ends" in sys.argv and number in (signal.SIGTERM, signal.SIGINT):
        end = time.time() + 0.5
        while time.time() < end:
            sum(range(300))
        os._exit(40 + number)


def works():
    while True:
        sum(range(500))


if __name__ == "__main__":
    for name in TOLD:
        signal.signal(getattr(signal, name, 34), on_signal)
    truth.say(pid=os.getpid())
    works()
