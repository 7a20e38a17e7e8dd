"""Blocks in code that is generated at run time: native_jit.py DIRECTORY LIBRARY KIND. For the kinds see spy_jit.c.

The library prints the line itself once it is in its final position.
"""
import ctypes
import os
import sys

import native_truth as truth

DIRECTORY, LIBRARY, KIND = sys.argv[1:4]


def calls(run):
    line = truth.line_of_truth(LIBRARY)
    run(KIND.encode(), line.encode(), os.path.join(DIRECTORY, "spy_jit_code.o").encode())


def main():
    run = ctypes.CDLL(os.path.join(DIRECTORY, LIBRARY + ".so")).jit_run
    run.argtypes = [ctypes.c_char_p] * 3
    calls(run)


if __name__ == "__main__":
    main()
