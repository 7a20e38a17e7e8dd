"""Alternates between twelve functions, a few hundred microseconds each, half of them called by generators: `python
alternating_functions.py`.

Functions of kind0 : kind1 : kind2 get 1 : 2 : 3 parts of the time. On SIGTERM it prints one line with the CPU
seconds of each kind.
"""
import os
import signal
import time

import truth

clock = getattr(time, "thread_time", None) or time.clock
state = {"on": True}
spent = {"kind%d" % i: 0.0 for i in range(3)}

FUNCTION = """
def kind%d_f%d(turns):
    total = 0
    for i in range(turns):
        total += i
    return total
"""
functions = []
for n in range(12):
    exec(FUNCTION % (n % 3, n))
    functions.append(globals()["kind%d_f%d" % (n % 3, n)])


def turns_for(seconds):
    best = min(timed(functions[0], 20000) for _ in range(20))
    return int(20000 * seconds / best)


def timed(function, turns):
    begin = clock()
    function(turns)
    return clock() - begin


def called_by_generator(function, turns):
    yield function(turns)


def listed(function):
    return lambda turns: list(called_by_generator(function, turns))


def stop(number, frame):
    state["on"] = False


def work(calls):
    while state["on"]:
        for name, function, turns in calls:
            spent[name] += timed(function, turns)


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, stop)
    turns = turns_for(0.0002)
    calls = [("kind%d" % (n % 3), f if n % 2 else listed(f), turns * (1 + n % 3)) for n, f in enumerate(functions)]
    truth.say(pid=os.getpid())
    work(calls)
    truth.say(spent=spent)
