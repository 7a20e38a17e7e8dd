"""Stacks through the extensions that call back: native_calls.py DIRECTORY MODULE [FUNCTION].

MODULE is spy_cpp, spy_cython, spy_cython_l (functions run, load_data, generate) or spy_rust (through ctypes).
"""
import ctypes
import os
import sys

import native_truth as truth

DIRECTORY, MODULE = sys.argv[1], sys.argv[2]
FUNCTION = sys.argv[3] if len(sys.argv) > 3 else "run"
sys.path.insert(0, DIRECTORY)

CPP = ["spy_cpp_run", "spy::start", "spy::Walker<long>::walk", "spy::Walker<long>::visit", "spy::Walker<long>::visit",
       "spy::(anonymous namespace)::hidden", "spy::Task::perform", "spy::Task::perform()::{lambda()#1}::operator()"]
RUST = ["spy_rust_run", "spy_rust::deep::first", "<spy_rust::deep::Walker as spy_rust::deep::Visit>::visit",
        "spy_rust::deep::generic"]
# The function in the .pyx, and the marker of the line where it calls the next one.
CYTHON = {
    "run": [("run", "run"), ("Worker.work", "work"), ("Worker.step", "step"), ("deeper", "deeper"), ("deeper", "deeper"),
            ("deeper", "deepest"), ("both", "both")],
    "load_data": [("load_data", "load_data")],
    "generate": [("generate", "generate"), ("count_up", "count_up")],
}


def pyx_line(mark):
    with open(os.path.join(DIRECTORY, "spy_cython.pyx")) as file:
        for number, line in enumerate(file, 1):
            if line.rstrip().endswith("  # " + mark):
                return number
    raise ValueError(mark)


def between():
    """The native frames between `main` and `callback`."""
    if MODULE == "spy_cpp":
        return truth.native(*CPP)
    if MODULE == "spy_rust":
        return truth.native(*RUST)
    return [["%s.%s" % (MODULE, name), "spy_cython.pyx", pyx_line(mark)] for name, mark in CYTHON[FUNCTION]]


def callback(*args):
    stack = [truth.python("<module>"), truth.python("main")] + between() + [truth.python("callback")]
    truth.say(truth.line_of_truth(MODULE, truth.thread(stack)))
    os.read(os.pipe()[0], 1)
    return args[0] if args else None


def main():
    if MODULE == "spy_rust":
        kind = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_int)
        ctypes.CDLL(os.path.join(DIRECTORY, "spy_rust.so")).spy_rust_run(kind(callback))
    else:
        getattr(__import__(MODULE), FUNCTION)(callback)


if __name__ == "__main__":
    main()
