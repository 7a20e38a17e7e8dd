"""A process in which threads wait for the GIL: gil_waiters.py [isolated | legacy].

Prints a line and reads a byte. Then the thread "holds" has the GIL, in a C function that reads the next byte, and the
main thread and the thread "waits" wait for it. Other threads sleep, or wait for a lock. With an argument, all of that
happens in a subinterpreter of that kind (3.13 and later), while the thread "spins" of the main interpreter spins.
"""
import ctypes
import os
import sys
import threading
import time


def holds_gil(wake):
    c_read = ctypes.PyDLL(None).read  # unlike CDLL, PyDLL keeps the GIL
    os.read(0, 1)
    os.write(wake, b"xxx")
    c_read(0, ctypes.create_string_buffer(1), 1)


def wants_gil(wake):
    os.read(wake, 1)
    while True:
        pass


def start(name, function, *args):
    thread = threading.Thread(target=function, args=args, name=name)
    thread.daemon = "gil_waiters" not in sys.modules  # a subinterpreter does not allow it
    thread.start()


def main(wake):
    lock = threading.Lock()
    lock.acquire()
    start("holds", holds_gil, wake[1])
    start("waits", wants_gil, wake[0])
    start("sleeps", time.sleep, 1e6)
    start("locked", lock.acquire)
    os.write(1, b"{}\n")
    wants_gil(wake[0])


def in_subinterpreter(kind):
    import _interpreters
    wake = os.pipe()
    start("spins", wants_gil, wake[0])
    code = "import sys\nsys.path.insert(0, %r)\nimport gil_waiters\ngil_waiters.main(%r)\n"
    code %= os.path.dirname(os.path.abspath(__file__)), wake
    getattr(_interpreters, "exec")(_interpreters.create(kind), code)


if __name__ == "__main__":
    if len(sys.argv) > 1:
        in_subinterpreter(sys.argv[1])
    else:
        main(os.pipe())
