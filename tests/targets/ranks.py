"""A job of N ranks: `python ranks.py N ODD [BELOW]`. All wait in all_reduce, but for ODD, which waits in load_batch. BELOW is a rank with
a child that has inherited its number, and that a shell has started. Prints the PIDs, then lets rank 0 go on by one call for each byte that it gets.
"""
import os
import subprocess
import sys
import threading

import truth


def load_batch():
    threading.Event().wait()


def all_reduce():
    threading.Event().wait()


def step(rank, odd):
    if rank == odd:
        load_batch()
    all_reduce()


def starts_next():
    os.read(0, 1)


def helper():
    os.read(0, 1)


def rank_main(rank, odd, below):
    if rank == below:
        subprocess.Popen(["sh", "-c", '"$0" "$1" helper; :', sys.executable, __file__], stdin=subprocess.PIPE)
    if rank == 0:
        starts_next()
    step(rank, odd)


def start_all(n, odd, below):
    ranks = []
    for rank in range(n):
        env = dict(os.environ, RANK=str(rank), LOCAL_RANK="9")
        ranks.append(subprocess.Popen([sys.executable, __file__, str(odd), str(below)], stdin=subprocess.PIPE, env=env))
    return ranks


def waits_for_ranks(ranks):
    while True:
        ranks[0].stdin.write(os.read(0, 1))
        ranks[0].stdin.flush()


if __name__ == "__main__":
    if sys.argv[1] == "helper":
        helper()
    elif "RANK" in os.environ:
        rank_main(int(os.environ["RANK"]), int(sys.argv[1]), int(sys.argv[2]))
    else:
        started = start_all(int(sys.argv[1]), int(sys.argv[2]), int((sys.argv + ["-1"])[3]))
        truth.say(pid=os.getpid(), ranks=[process.pid for process in started])
        waits_for_ranks(started)
