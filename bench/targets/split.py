"""split.py STATE slow|fast|turns|naps [SECONDS]: spends its time in three functions and measures how much in each.

slow: three functions of about 10 ms, in the ratio 3:2:1, that call nothing.
fast: about a third of the time goes to a function that makes tiny calls as fast as it can, the rest to two that call
nothing. A profiler that discards samples that changed during the read sees too little of the first.
turns: three functions of 0.2 to 0.6 ms, the last one called by a generator: each sample sees another one. A profiler
that trusts only frames that were already in the previous sample sees none of them.
naps: 4 ms of work in three functions, then 2 ms of sleep.

Slots 1 to 3 have the thread's own CPU time in each function; slots 4 to 6 have the wall time.

With SECONDS, it waits until a byte is written to the FIFO STATE.go, works for that much CPU time, adds 1 to slot 7, and waits
again: so a profiler can record all of the work."""
import os
import sys
import time

import shared


def part_a(turns):
    total = 0
    for i in range(turns):
        total += i * i
    return total


def part_b(turns):
    total = 0
    for i in range(turns):
        total += i * i
    return total


def part_c(turns):
    total = 0
    for i in range(turns):
        total += i * i
    return total


def tiny_leaf(x):
    return x + 1


def tiny_middle(x):
    return tiny_leaf(x)


def tiny(x):
    return tiny_middle(x)


def part_a_fast(turns):
    for i in range(turns):
        tiny(i)


def steps(turns):
    yield part_c(turns)


def by_generator(turns):
    return list(steps(turns))


def turns_for(seconds, function):
    """Measures how many turns of the function take that long."""
    best = 1e9
    for _ in range(5):
        start = time.perf_counter()
        function(20000)
        best = min(best, time.perf_counter() - start)
    return int(20000 * seconds / best)


def keep_time(slot, function, turns):
    wall, cpu = time.perf_counter(), time.thread_time()
    function(turns)
    page = shared.page
    page[slot] += time.thread_time() - cpu
    page[slot + 3] += time.perf_counter() - wall


def work(parts, naps, seconds=None):
    end = seconds and time.process_time() + seconds
    while not end or time.process_time() < end:
        for slot, (function, turns) in enumerate(parts, 1):
            keep_time(slot, function, turns)
        if naps:
            time.sleep(0.002)


def work_when_told(parts, naps, seconds):
    go = sys.argv[1] + ".go"
    os.mkfifo(go)
    shared.ready()
    while True:
        with open(go, "rb") as fifo:
            fifo.read(1)
        work(parts, naps, seconds)
        shared.page[7] += 1


def main(kind, seconds=None):
    if kind == "slow":
        parts = [(part_a, 0.015), (part_b, 0.010), (part_c, 0.005)]
    elif kind == "naps":
        parts = [(part_a, 0.002), (part_b, 0.0013), (by_generator, 0.0007)]
    elif kind == "turns":
        parts = [(part_a, 0.0006), (part_b, 0.0004), (by_generator, 0.0002)]
    else:
        parts = [(part_a_fast, 0.0068), (part_b, 0.0066), (part_c, 0.0066)]
    parts = [(function, turns_for(seconds, function)) for function, seconds in parts]
    if seconds:
        work_when_told(parts, kind == "naps", float(seconds))
    shared.ready()
    work(parts, kind == "naps")


main(*sys.argv[2:])
