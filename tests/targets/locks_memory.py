"""Keeps its memory locked, after a line on standard input, while it waits for the file system of a mapped file.

    locks_memory.py FILE      prints its PID once it has changed the mapped file

munmap waits until the change is written, and keeps the lock of the address space meanwhile. mmap waits for that lock, and everyone
after it.
"""
import ctypes
import json
import os
import sys
import threading

PROT_READ_WRITE, MAP_SHARED, MAP_ANONYMOUS, MAP_PRIVATE = 3, 1, 0x20, 2
libc = ctypes.CDLL(None)
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]


def start(function, *args):
    thread = threading.Thread(target=function, args=args)
    thread.daemon = True
    thread.start()


if __name__ == "__main__":
    fd = os.open(sys.argv[1], os.O_RDWR)
    address = libc.mmap(None, 4096, PROT_READ_WRITE, MAP_SHARED, fd, 0)
    ctypes.memset(address, 65, 10)
    print(json.dumps({"pid": os.getpid()}))
    sys.stdout.flush()
    os.read(0, 1)
    start(libc.munmap, address, 4096)
    while True:
        libc.mmap(None, 4096, PROT_READ_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)
