"""Two interpreters in one process: the main one blocks in main_rests, the other one, in a thread, in sub_rests.

Needs one of the modules for subinterpreters; prints which one it found, if any.
"""
import os
import threading

import truth

SUB = """
import os
def sub_rests():
    os.write(%d, b"x")
    os.read(%d, 1)
def sub_calls():
    sub_rests()
sub_calls()
"""


def modules():
    for name in ("_interpreters", "_xxsubinterpreters"):
        try:
            return name, __import__(name)
        except ImportError:
            pass
    return None, None


def run_sub(module, interpreter, code):
    module.run_string(interpreter, code)


def main_rests():
    truth.park()


if __name__ == "__main__":
    name, module = modules()
    if module is None:
        truth.say(module=None)
    else:
        ready, rest = os.pipe(), os.pipe()
        code = SUB % (ready[1], rest[0])
        threading.Thread(target=run_sub, args=(module, module.create(), code), name="runner").start()
        os.read(ready[0], 1)
        truth.start(1, extra={"module": name})
        main_rests()
