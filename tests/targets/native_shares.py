"""Spends known shares of CPU time in C functions, and reports them on SIGTERM: native_shares.py DIRECTORY.

light : heavy = 1 : 3, by a CPU clock. The stack of heavy alternates between C and Python. Another thread sleeps in
C.
"""
import os
import signal
import sys
import threading
import time

import native_truth as truth

sys.path.insert(0, sys.argv[1])
import spy_c  # noqa: E402

clock = getattr(time, "thread_time", None) or time.clock
BURN = ["spy_c_burn", "burn_outer", "burn_here"]
CALL = ["spy_c_call", "call_outer", "call_inner"]
STACKS = {"light": ["main", "light"] + BURN, "heavy": ["main", "heavy"] + CALL + ["in_heavy"] + BURN}
spent = {"light": 0.0, "heavy": 0.0}
state = {"on": True}


def light():
    spy_c.burn(0.004)


def heavy():
    spy_c.call(in_heavy)


def in_heavy():
    spy_c.burn(0.012)


def sleeper():
    spy_c.spin("poll", 1, "")


def stop(number, frame):
    state["on"] = False


def main():
    signal.signal(signal.SIGTERM, stop)
    thread = threading.Thread(target=sleeper, name="sleeper")
    thread.daemon = True
    thread.start()
    truth.say(truth.line_of_truth("spy_c", stacks=STACKS))
    while state["on"]:
        begin = clock()
        light()
        middle = clock()
        heavy()
        spent["light"] += middle - begin
        spent["heavy"] += clock() - middle
    truth.say(truth.line_of_truth("spy_c", spent=spent))
    os._exit(0)  # the sleeping thread never returns from C


if __name__ == "__main__":
    main()
