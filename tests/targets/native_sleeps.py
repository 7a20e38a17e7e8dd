"""Sleeps in two places, and reports for how long on SIGTERM: native_sleeps.py. All other threads block forever."""
import os
import signal
import sys
import threading
import time

import native_truth as truth

clock = getattr(time, "monotonic", None) or time.time
spent = {"short": 0.0, "long": 0.0}
state = {"on": True}


def short():
    time.sleep(0.03)


def long():
    time.sleep(0.06)


def parked():
    os.read(os.pipe()[0], 1)


def stop(number, frame):
    state["on"] = False


def main():
    signal.signal(signal.SIGTERM, stop)
    for _ in range(int(sys.argv[1])):
        thread = threading.Thread(target=parked)
        thread.daemon = True
        thread.start()
    truth.say(truth.line_of_truth("none"))
    while state["on"] and len(sys.argv) < 3:
        begin = clock()
        short()
        middle = clock()
        long()
        spent["short"] += middle - begin
        spent["long"] += clock() - middle
    if len(sys.argv) > 2:
        parked()
    truth.say(truth.line_of_truth("none", spent=spent))


if __name__ == "__main__":
    main()
