"""Stacks through the C extension: native_c.py DIRECTORY MODULE SITUATION [PLACE], with MODULE spy_c or spy_c_fp.

PLACE is where a crashing situation leaves its core file.

The C code prints the expected stack itself once it has reached its final position, so that the report is never
stale.
"""
import os
import sys

import native_truth as truth

sys.path.insert(0, sys.argv[1])
MODULE, SITUATION = sys.argv[2], sys.argv[3]
spy = __import__(MODULE)

ROOT = [truth.python("<module>"), truth.python("main")]
LEAF = truth.native("spy_c_spin", "level_one", "level_two", "spin_here")


def tell(*threads, **more):
    return truth.line_of_truth(MODULE, *threads, **more)


def rest(stack, mode="poll", depth=1, **more):
    """Blocks below `stack`; this function and the C code are its innermost frames."""
    spin = truth.native("spy_c_spin", "level_one") + depth * truth.native("level_two") + truth.native("spin_here")
    spy.spin(mode, depth, tell(truth.thread(stack + [truth.python("rest")] + spin), **more))


def busy():
    rest(ROOT + [truth.python("busy")], "busy")


def busy_with_gil():
    rest(ROOT + [truth.python("busy_with_gil")], "busy-gil")


def poll():
    rest(ROOT + [truth.python("poll")])


def poll_with_gil():
    rest(ROOT + [truth.python("poll_with_gil")], "poll-gil")


def nanosleep():
    rest(ROOT + [truth.python("nanosleep")], "nanosleep")


def deep():
    """More C frames than fit on one page of the stack."""
    rest(ROOT + [truth.python("deep")], depth=200)


CALL = truth.native("spy_c_call", "call_outer", "call_inner")
INNERMOST = ROOT + [truth.python("alternate")] + CALL + [truth.python("first")] + CALL + [truth.python("second")]


def alternate():
    """Python, C, Python, C, Python, C."""
    spy.call(first)


def first():
    spy.call(second)


def second():
    rest(INNERMOST)


def frames():
    """Frames of unusual shape: alloca, alignment."""
    spy.frames(in_frames)


def in_frames():
    rest(ROOT + [truth.python("frames")] + truth.native("spy_c_frames", "call_alloca", "call_aligned", "call_inner") +
         [truth.python("in_frames")])


def cold():
    """A call from the .cold part of a function."""
    spy.cold(in_cold)


def in_cold():
    rest(ROOT + [truth.python("cold")] + truth.native("spy_c_cold", "call_split", "call_rarely", "call_inner") +
         [truth.python("in_cold")])


def sort():
    """qsort of the C library calls back."""
    spy.sort(in_sort)


def in_sort():
    rest(ROOT + [truth.python("sort")] + truth.native("spy_c_sort", "sort_outer", "compare_items", "call_inner") +
         [truth.python("in_sort")], others=[["sort_outer", "qsort", "compare_items"]])


def signal():
    """A signal handler in C that interrupts code at any point."""
    stack = ROOT + [truth.python("signal")] + truth.native("spy_c_signal", "signal_outer", "wait_for_signal",
                                                           "on_signal", "spin_here")
    spy.signal("poll-gil", 1, tell(truth.thread(stack)))


def thread():
    """A thread that C started and that never ran Python: for --native-all."""
    worker = spy.thread()
    stack = truth.native("worker_main", "worker_loop", "worker_wait")
    spy.spin("poll", 1, tell(truth.thread(ROOT + [truth.python("thread")] + LEAF),
                             truth.thread(stack, worker, False, "native-worker")))


def busy_thread():
    """The only thread that computes never ran Python."""
    spy.busy_thread()
    rest(ROOT + [truth.python("busy_thread")])


def two_busy_threads():
    """A thread without Python computes, and so does the main thread, in Python."""
    spy.busy_thread()
    truth.say(tell())
    works()


def works():
    while True:
        sum(range(300))


def by_turns():
    """A thread that C started computes in C, then calls Python, and so on: for --native-all."""
    spy.thread_by_turns(in_turn)
    rest(ROOT + [truth.python("by_turns")])


def in_turn():
    spy.burn(0.05)


def named_by_turns():
    """The same with a name in Python, which differs from the kernel's."""
    import threading
    threading.current_thread()

    def in_named_turn():
        threading.current_thread().name = "named-in-python"
        spy.burn(0.05)

    spy.thread_by_turns(in_named_turn)
    rest(ROOT + [truth.python("named_by_turns")])


def thread_with_python():
    """A thread that C started and that calls Python; the main thread waits in C without the GIL."""
    spy.thread_with_python(in_thread)
    spy.spin("poll", 1, "")


def in_thread():
    main = ROOT + [truth.python("thread_with_python")] + LEAF
    stack = truth.native("worker_python", "call_outer", "call_inner") + [truth.python("in_thread")] + LEAF
    spy.spin("poll", 1, tell(truth.thread(main), truth.thread(stack, truth.thread_id(), False)))


CRASH = truth.native("spy_c_spin", "level_one", "level_two", "level_two")


def crash():
    """Crashes at address 16, in C."""
    depth = 2
    spy.spin("crash", depth, tell(truth.thread(ROOT + [truth.python("crash")] + CRASH)))


def crash_with_gil():
    spy.call(crashes)


def crashes():
    stack = ROOT + [truth.python("crash_with_gil")] + CALL + [truth.python("crashes")] + CRASH
    spy.spin("crash-gil", 2, tell(truth.thread(stack)))


def crash_in_thread():
    """The main thread is in this function meanwhile."""
    spy.thread_with_python(crashes_in_thread)
    spy.spin("poll", 1, "")


def crashes_in_thread():
    main = ROOT + [truth.python("crash_in_thread")]
    stack = truth.native("worker_python", "call_outer", "call_inner") + [truth.python("crashes_in_thread")] + CRASH
    spy.spin("crash", 2, tell(truth.thread(stack, truth.thread_id(), False), truth.thread(main)))


def main():
    if len(sys.argv) > 4:
        os.chdir(sys.argv[4])
    globals()[SITUATION]()


if __name__ == "__main__":
    main()
