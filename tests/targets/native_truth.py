"""For the targets native_*.py: the stack that dump --native must show, as one line of JSON.

    {"pid": 1, "module": "spy_c", "threads": [
        {"os_id": 1, "main": true, "name": null, "stack": [["<module>", "native_c.py", 41], ["spy_c_spin", null, 0], ...]}]}

A stack lists Python and native frames in call order, root first. Each frame is a name, a file (null for native code
whose lines are not compared) and a line (0: not compared). It has only functions of the scripts and of the modules
in tests/native: those of the interpreter, libc and ctypes appear between them. `others` has names that must be
between two of them: [["sort_outer", "qsort", "compare_items"]].
"""
import json
import os
import sys

try:
    import _thread
except ImportError:
    import thread as _thread


def python(name, line=0, file=None):
    """A Python function of the running script."""
    return [name, file or os.path.abspath(sys.argv[0]), line]


def native(*names):
    return [[name, None, 0] for name in names]


def thread_id():
    if hasattr(_thread, "get_native_id"):
        return _thread.get_native_id()
    return int(os.readlink("/proc/thread-self").rsplit("/", 1)[1])


def thread(stack, os_id=None, main=True, name=None):
    return {"os_id": os_id or os.getpid(), "main": main, "name": name, "stack": stack}


def line_of_truth(module, *threads, **more):
    truth = dict(more, pid=os.getpid(), module=module, threads=list(threads), version=list(sys.version_info[:2]))
    return json.dumps(truth) + "\n"


def say(text):
    sys.stdout.write(text)
    sys.stdout.flush()
