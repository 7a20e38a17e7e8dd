"""Reports its own stack, then crashes in it: `python crash.py KIND main|thread [DIRECTORY]`. Another thread blocks.

The report and the crash are on one line of code, so that the reported line is the line of the crash.
"""
import os
import signal
import sys
import threading

import truth

try:
    import ctypes
except ImportError:
    ctypes = None


def tell(frame):
    """Prints the stack of the thread that crashes and that of the thread that waits."""
    ident = truth._thread.get_ident()
    stacks = dict((i, truth.stack_of(f)) for i, f in sys._current_frames().items())
    stacks[ident] = truth.stack_of(frame)
    known = truth.names()
    truth.say(pid=os.getpid(), crashed=truth.native_id(), argv=sys.argv,
              threads=[dict(ident=i, name=known.get(i), frames=[dict(name=r[0], filename=r[1], line=r[2]) for r in rows])
                       for i, rows in stacks.items()])


def crash(kind):
    if kind == "abrt":
        tell(sys._getframe()), os.abort()
    elif kind == "segv" and ctypes:
        tell(sys._getframe()), ctypes.memset(8, 1, 1)
    elif kind == "null":  # the C library calls a function pointer that is NULL
        tell(sys._getframe()), ctypes.CDLL(None).qsort(ctypes.create_string_buffer(b"abc"), 3, 1, None)
    else:
        tell(sys._getframe()), os.kill(os.getpid(), getattr(signal, "SIG" + kind.upper()))


def calls(kind, depth):
    return calls(kind, depth - 1) if depth else crash(kind)


def rests(ready):
    rest = os.pipe()
    ready.release(), os.read(rest[0], 1)


def settled(thread_ident):
    """Waits until the other thread's stack no longer changes: it is in its read."""
    last, same = None, 0
    while same < 10:
        truth.time.sleep(0.005)
        now = truth.stacks().get(thread_ident)
        same = same + 1 if now == last and now and now[0][0] == "rests" else 0
        last = now


if __name__ == "__main__":
    kind, where = sys.argv[1:3]
    if len(sys.argv) > 3:
        os.chdir(sys.argv[3])
    ready = truth._thread.allocate_lock()
    ready.acquire()
    if where == "main":
        other = threading.Thread(target=rests, args=(ready,), name="at rest")
        other.daemon = True
        other.start()
        ready.acquire()
        settled(other.ident)
        calls(kind, 3)
    else:
        main = truth._thread.get_ident()

        def run():
            ready.acquire()
            settled(main)
            calls(kind, 3)

        threading.Thread(target=run, name="crashes").start()
        rests(ready)
