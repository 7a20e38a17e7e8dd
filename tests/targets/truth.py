"""What a target knows about itself: the actual stacks of its threads, as one line of JSON.

A target calls start(n) in its main thread and lets n threads (including itself, if it parks) block, each after
announce() or in park(). A helper thread waits until all n have called announce() and prints what sys._current_frames()
returns for every thread but itself. A thread may call announce() before it blocks, so this first report can be stale.
The test waits until all threads are blocked (at_rest() in tests/live/processes.py), then sends a byte; the helper
replies with the current stacks. It ends the process when standard input is closed.
Runs on 2.7 and on every 3.x; imports neither threading nor anything that does.
"""
import json
import os
import sys
import time

try:
    import _thread
except ImportError:
    import thread as _thread

announced = {}  # ident -> OS thread ID, None if this Python does not provide it
state = {}


def native_id():
    if hasattr(_thread, "get_native_id"):
        return _thread.get_native_id()
    try:
        return int(os.readlink("/proc/thread-self").rsplit("/", 1)[1])
    except OSError:
        return None


def announce():
    announced[_thread.get_ident()] = native_id()


def park():
    """Blocks here: the innermost frame of most situations."""
    announce()
    rest = os.pipe()
    os.read(rest[0], 1)


def text(value):
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    return value


def stack_of(frame):
    rows = []
    while frame is not None:
        code = frame.f_code
        name = getattr(code, "co_qualname", code.co_name)
        rows.append((text(name), text(code.co_filename), frame.f_lineno, frame.f_lasti))
        frame = frame.f_back
    return rows


def stacks():
    mine = _thread.get_ident()
    return dict((ident, stack_of(frame)) for ident, frame in sys._current_frames().items() if ident != mine)


def names():
    threading = sys.modules.get("threading")
    return dict((t.ident, text(t.name)) for t in threading._active.values()) if threading else {}


def say(**row):
    line = (json.dumps(row) + "\n").encode("ascii")
    while line:
        line = line[os.write(1, line):]


def write_stacks():
    known = names()
    say(
        pid=os.getpid(),
        version=list(sys.version_info[:3]),
        threading="threading" in sys.modules,
        helper=_thread.get_ident(),
        extra=state.get("extra"),
        repeats_on_input=True,
        threads=[
            dict(
                ident=ident,
                os_id=announced.get(ident),
                name=known.get(ident),
                main=ident == state["main"],
                frames=[dict(name=r[0], filename=r[1], line=r[2]) for r in rows],
            )
            for ident, rows in stacks().items()
        ],
    )


def tell():
    while len(announced) < state["n"]:
        time.sleep(0.002)
    write_stacks()
    while os.read(0, 1):
        write_stacks()
    os._exit(0)


def start(n=1, extra=None):
    state.update(n=n, main=_thread.get_ident(), extra=extra)
    _thread.start_new_thread(tell, ())
