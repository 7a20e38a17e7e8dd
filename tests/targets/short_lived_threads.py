"""The main thread works, then waits for a new thread that works, in turn: `python short_lived_threads.py KIND MS SLEEPERS`.

KIND is `python` for threads of the threading module, or `foreign` for C threads, which Python knows only while they
call it. Each works for MS milliseconds of CPU time. SLEEPERS threads sleep all the time. On SIGTERM it prints one
line with the CPU seconds of both.
"""
import ctypes
import os
import signal
import sys
import threading

import truth
from shares import clock, sleeper, spin, state, stop

spent = {"waits": 0.0, "comes": 0.0}


def waits(seconds):
    begin = clock()
    spin(seconds)
    spent["waits"] += clock() - begin


def comes(seconds):
    begin = clock()
    spin(seconds)
    spent["comes"] += clock() - begin


def python_thread(seconds):
    thread = threading.Thread(target=comes, args=(seconds,))
    thread.start()
    thread.join()


def foreign_thread(seconds):
    @ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p)
    def begin(arg):
        comes(seconds)

    libc = ctypes.CDLL("libpthread.so.0")
    thread = ctypes.c_ulong()
    libc.pthread_create(ctypes.byref(thread), None, begin, None)
    libc.pthread_join(thread, None)


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, stop)
    calls = {"python": python_thread, "foreign": foreign_thread}[sys.argv[1]]
    for i in range(int(sys.argv[3])):
        thread = threading.Thread(target=sleeper)
        thread.daemon = True
        thread.start()
    truth.say(pid=os.getpid())
    while state["on"]:
        waits(float(sys.argv[2]) / 1000)
        calls(float(sys.argv[2]) / 1000)
    truth.say(spent=spent)
