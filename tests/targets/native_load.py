"""Loads a library, computes in it, unloads it; then another one at the same address, and so on: native_load.py
DIRECTORY.

The first line says whether both were loaded at the same address.
"""
import ctypes
import os
import sys

import _ctypes

import native_truth as truth

DIRECTORY = sys.argv[1]


def load(name):
    library = ctypes.CDLL(os.path.join(DIRECTORY, "libspy_%s.so" % name))
    function = getattr(library, name + "_run")
    function.argtypes = [ctypes.c_double]
    return library, function


def unload(library):
    _ctypes.dlclose(library._handle)


def with_one(function, seconds):
    function(seconds)


def with_two(function, seconds):
    function(seconds)


def turn(name, run, seconds):
    library, function = load(name)
    place = ctypes.cast(function, ctypes.c_void_p).value
    run(function, seconds)
    unload(library)
    return place


def main():
    same = turn("one", with_one, 0) == turn("two", with_two, 0)
    truth.say(truth.line_of_truth("libspy_one.so", same=same))
    seconds = 0.003
    while True:
        turn("one", with_one, seconds)
        turn("two", with_two, seconds)


if __name__ == "__main__":
    main()
