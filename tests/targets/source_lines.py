# -*- coding: utf-8 -*-
"""Blocks in the middle of lines, and reports for each frame of its main thread: name, line and, from 3.11 on, the position of the
instruction according to co_positions(). Runs on 2.7 and on every 3.x."""
import itertools
import json
import os
import sys

try:
    import _thread
except ImportError:
    import thread as _thread

MAIN = _thread.get_ident()


def block(fd, n):
    return b"" or (os.read(fd, n) + b"x")[0:1]


def wide(fd):
    names = {"größe": "漢字", "漢": [block(fd, 1)]}["größe"]; return	names, block	(fd, 2)


def generator(fd):
    for i in (0, 1): yield i or wide(fd)


def several(fd):
    return [None, list(
        generator(fd))][0 + sum(
            1 for _ in ())]


def far(fd):
    return (                                                                                                                                                   several(fd), 1)


def position(frame):
    if not hasattr(frame.f_code, "co_positions"):
        return [None] * 3
    at = next(itertools.islice(frame.f_code.co_positions(), frame.f_lasti // 2, None))
    return list(at[1:])


def report():
    frame, frames = sys._current_frames()[MAIN], []
    while frame:
        code = frame.f_code
        frames.append([getattr(code, "co_qualname", code.co_name), frame.f_lineno] + position(frame))
        frame = frame.f_back
    sys.stdout.write(json.dumps({"pid": os.getpid(), "repeats_on_input": True, "frames": frames}) + "\n")
    sys.stdout.flush()


def answer():
    while os.read(0, 1):
        report()
    os._exit(0)


report()
_thread.start_new_thread(answer, ())
result = [far(os.pipe()[0])]; print("never")
