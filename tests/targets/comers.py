"""By turns the main thread works, and one that has just come, while the main thread waits for it:
`python comers.py KIND MS SLEEPERS`.

KIND is `python` for threads of threading, or `foreign` for those of C, which Python knows only while they call it. They
work MS milliseconds of CPU time each. SLEEPERS threads sleep all along. At SIGTERM one line tells the seconds of both.
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
