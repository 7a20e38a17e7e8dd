# -*- coding: utf-8 -*-
"""A process in which every name that a profiler shows contains sys.argv[1]: process, thread, function, file, variable."""
import ctypes
import json
import os
import sys
import threading

NAME = sys.argv[1]


def renamed(function, **names):
    if hasattr(function.__code__, "co_qualname"):
        names["co_qualname"] = names["co_name"]
    function.__code__ = function.__code__.replace(**names)
    return function


def wait(argument=NAME, other={NAME: [NAME]}):
    value = argument
    sys.stdout.write(json.dumps({"pid": os.getpid()}) + "\n")
    sys.stdout.flush()
    while sys.stdin.read(1):
        pass
    return value


def work(argument=NAME):
    local = argument
    while local:
        sum(range(300))


ctypes.CDLL(None).prctl(15, os.fsencode(NAME[:8]))  # PR_SET_NAME
threading.current_thread().name = NAME
renamed(work, co_name="work" + NAME, co_filename="/" + NAME + "/work.py", co_varnames=("argument" + NAME, "local" + NAME))
thread = threading.Thread(target=work, name=NAME)
thread.daemon = True
thread.start()
renamed(wait, co_name="wait" + NAME, co_filename="/x/" + NAME + ".py")()
