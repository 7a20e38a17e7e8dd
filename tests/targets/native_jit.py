"""Blocks in code that is generated at run time: native_jit.py DIRECTORY LIBRARY KIND. For the kinds see spy_jit.c;
"python" is the JIT compiler of the interpreter.

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


def loops(step):
    line = truth.line_of_truth(LIBRARY).encode()
    left = 100000
    while left >= 0:
        step(line, left)
        left -= 1


def main():
    if KIND == "python":
        step = ctypes.CDLL(os.path.join(DIRECTORY, LIBRARY + ".so")).jit_step
        step.argtypes = [ctypes.c_char_p, ctypes.c_int]
        loops(step)
    run = ctypes.CDLL(os.path.join(DIRECTORY, LIBRARY + ".so")).jit_run
    run.argtypes = [ctypes.c_char_p] * 3
    calls(run)


if __name__ == "__main__":
    main()
