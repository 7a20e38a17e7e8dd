#!/usr/bin/python3
"""Runs a program as Linux 3.10 would, without newer system calls. 3.10 is the oldest kernel that the wheel's tag
allows.

    tests/live/old_kernel.py PROGRAM [ARGUMENT...]

On x86-64 the newer calls have the numbers 314 and above (sched_setattr, 3.14). A seccomp filter makes them fail with
ENOSYS.
"""
import ctypes
import os
import struct
import sys

NEWEST = 313  # finit_module, 3.8
PR_SET_NO_NEW_PRIVS, PR_SET_SECCOMP, SECCOMP_MODE_FILTER = 38, 22, 2
LOAD, GREATER, RETURN = 0x20, 0x25, 0x06  # BPF: ld [k]; jgt #k; ret #k
ALLOW, ERRNO, ENOSYS = 0x7FFF0000, 0x00050000, 38


class Program(ctypes.Structure):
    _fields_ = [("n", ctypes.c_ushort), ("code", ctypes.c_char_p)]


def restrict():
    steps = [(LOAD, 0, 0, 0), (GREATER, 0, 1, NEWEST), (RETURN, 0, 0, ERRNO | ENOSYS), (RETURN, 0, 0, ALLOW)]
    program = Program(len(steps), b"".join(struct.pack("<HBBI", *step) for step in steps))
    libc = ctypes.CDLL(None, use_errno=True)
    for args in ((PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), (PR_SET_SECCOMP, SECCOMP_MODE_FILTER, ctypes.byref(program), 0, 0)):
        if libc.prctl(*args) != 0:
            raise OSError(ctypes.get_errno(), "prctl%r" % (args,))


if __name__ == "__main__":
    restrict()
    os.execvp(sys.argv[1], sys.argv[1:])
