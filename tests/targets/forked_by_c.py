"""A child that C code forks, without Python's hooks, so that Python still has its parent's thread ID. It hashes without
the GIL, and prints its PID first."""
import ctypes
import hashlib
import json
import os
import sys


def hashes():
    data = b"x" * (1 << 22)
    while True:
        hashlib.sha256(data).hexdigest()


child = ctypes.PyDLL(None).fork()
if child:
    os.waitpid(child, 0)
else:
    sys.stdout.write(json.dumps({"pid": os.getpid()}) + "\n")
    sys.stdout.flush()
    hashes()
