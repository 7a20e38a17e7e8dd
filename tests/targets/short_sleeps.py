"""Alternates two milliseconds of work and two milliseconds of sleep: `python short_sleeps.py`."""
import sys
import time

clock = getattr(time, "perf_counter", None) or time.time


def work():
    end = clock() + 0.002
    while clock() < end:
        sum(range(100))


def main():
    sys.stdout.write("{}\n")
    sys.stdout.flush()
    while True:
        work()
        time.sleep(0.002)


main()
