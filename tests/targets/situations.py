# -*- coding: utf-8 -*-
"""Situations for every Python, 2.7 to the newest: `python situations.py NAME`."""
import os
import sys
import time

import truth


def plain():
    def inner(depth):
        if depth:
            return inner(depth - 1)
        truth.park()

    inner(3)


def several_lines():
    """A call over several lines, in the middle of the stack and as the innermost frame."""

    def middle(first, second, third):
        leaf(
            first
            + second,
            third
            if third
            else 0,
        )

    def leaf(a, b):
        rest = os.pipe()
        truth.announce()
        os.read(
            rest[0],
            max(
                1,
                1,
            ),
        )

    middle(
        1,
        2,
        third=3,
    )


def backslashes():
    def add(a, b, c):
        return a

    def leaf():
        truth.park()
        return 1

    x = 1 + \
        add(1,
            leaf(),
            3) + \
        2
    return x


def generators():
    """Generators inside generators, driven by a for loop and by next()."""

    def innermost():
        yield 1
        truth.park()
        yield 2

    def middle():
        for value in innermost():

            yield value

    def outer():
        numbers = middle()
        yield next(numbers)
        yield next(
            numbers
        )

    for _ in outer():
        pass


def generator_left_alive():
    """A dump must show running generators, but no suspended ones."""

    def suspended():
        truth.announce()
        yield 1
        yield 2

    def running(other):
        next(other)
        truth.park()
        yield 3

    kept = suspended()
    list(running(kept))


def comprehensions():
    def leaf(x):
        if x == 2:
            truth.park()
        return x

    def in_set():
        return {
            leaf(x)
            for x in range(3)
        }

    def in_dict(x):
        return {
            y: in_set()
            for y in [x]
        }

    def in_generator():
        return sum(len(in_dict(x))
                   for x in range(3))

    return [
        in_generator()
        for x in range(2)
        if x < 5
    ]


def lambdas():
    park = lambda: truth.park()
    wrap = lambda f: (
        f()
    )
    (lambda: wrap(park))()


def executed():
    """Code from exec, eval and compile, with odd file names."""
    space = {"truth": truth}
    inner = "def f():\n\n\n    truth.park()\n"
    exec(compile(inner, "<odd 'name' & more>", "exec"), space)
    outer = "\n\ndef g():\n    return eval('f()')\n"
    exec(compile(outer, "", "exec"), space)
    exec("\n\ng()", space)


def class_body():
    class Outer(object):
        x = 1

        class Inner(object):
            truth.park()

        y = 2


def methods():
    class Base(object):
        def run(self):
            return self.step

        @property
        def step(self):
            return self.make()

        @classmethod
        def make(cls):
            return cls.stay()

        @staticmethod
        def stay():
            truth.park()

    class Derived(Base):
        def run(self):
            return super(Derived, self).run()

        def __call__(self):
            return self.run()

    Derived()()


def old_style():
    """2.7: an old-style class; elsewhere a plain class."""

    class Old:
        def __init__(self):
            self.go()

        def go(self):
            truth.park()

    Old()


def decorators():
    def twice(function):
        def wrapper(*args, **kwargs):
            function(*args, **kwargs)
            return function(*args, **kwargs)

        return wrapper

    calls = []

    @twice
    @twice
    def decorated(a, b=2):
        calls.append(a)
        if len(calls) == 4:
            truth.park()

    decorated(1)


def decoration_time():
    """Blocks while a decorator runs: the line is the decorator's or the def's, depending on the Python."""

    def register(name):
        def wrap(function):
            if name == "two":
                truth.park()
            return function

        return wrap

    @register("one")
    @register(
        "two"
    )
    def decorated(
        a,
        b=2,
    ):
        return a

    decorated(1)


def with_and_finally():
    class Guard(object):
        def __enter__(self):
            return self

        def __exit__(self, *exc):
            truth.park()
            return True

    def in_finally():
        try:
            raise ValueError("x")
        except ValueError:
            try:
                pass
            finally:
                with Guard():
                    raise KeyError(
                        "y"
                    )

    in_finally()


def exception_handler():
    try:
        try:
            {}["missing"]
        except KeyError:
            truth.park()
    finally:
        pass


def recursion():
    def even(n):
        return True if n == 0 and truth.park() is None else odd(n - 1)

    def odd(n):
        return even(n - 1)

    even(200)


def callbacks():
    """Python called back from C: sort keys, map, filter, str.join, __del__."""

    class Thing(object):
        def __init__(self, n):
            self.n = n

        def __lt__(self, other):
            truth.park()
            return self.n < other.n

        def __str__(self):
            return str(sorted([Thing(2), Thing(1)]))

    def key(x):
        return str(Thing(x))

    list(map(lambda x: sorted([x, 1], key=key), [3]))


def sleeping():
    def leaf():
        truth.announce(), time.sleep(100000)

    leaf()


def locked():
    import threading

    lock = threading.Lock()
    lock.acquire()

    def leaf():
        truth.announce() or lock.acquire()

    leaf()


def conditional_wait():
    """Blocks deep in the standard library: Event.wait in threading.py."""
    import threading

    def leaf(event):
        truth.announce() or event.wait()

    leaf(threading.Event())


def selecting():
    import select

    def leaf(fd):
        truth.announce() or select.select([fd], [], [])

    leaf(os.pipe()[0])


def no_threading():
    """Never imports the threading module: no names."""
    truth.park()


def with_threading():
    import threading  # noqa: F401  # the main thread has a name now

    truth.park()


def many_threads(n=20):
    import threading

    def worker(depth):
        if depth:
            return worker(depth - 1)
        truth.park()

    odd = [u"wörker", u"名前 三", u"🐍 snake", u"", u'"quoted" \\ name', u"x" * 200, u"a;b", u"<b>&amp;"]
    for i in range(n):
        thread = threading.Thread(target=worker, args=(i % 7,))
        if i < len(odd):
            thread.name = odd[i] if sys.version_info[0] > 2 else odd[i].encode("utf-8")
        thread.daemon = i % 2 == 0
        thread.start()
    truth.park()


def thousand_threads():
    import threading

    threading.stack_size(128 * 1024)

    def worker():
        truth.park()

    for i in range(1000):
        threading.Thread(target=worker, name="w%d" % i).start()
    truth.park()


def raw_threads():
    """Threads unknown to `threading`, together with known ones."""
    import threading

    def raw():
        truth.park()

    truth._thread.start_new_thread(raw, ())
    threading.Thread(target=raw, name="known").start()
    truth.park()


def main_thread_gone():
    """The main thread has finished its code and waits for the others at exit."""
    import threading

    def worker():
        truth.park()

    threading.Thread(target=worker, name="left").start()


def deep():
    """20,000 frames, in a thread with a big C stack: before 3.11 each Python call takes some of it."""
    import threading

    depth = 20000
    sys.setrecursionlimit(depth + 1000)
    threading.stack_size(512 * 1024 * 1024)

    def down(n):
        if n:
            down(n - 1)
        else:
            truth.park()

    threading.Thread(target=down, args=(depth,), name="deep").start()
    truth.park()


def deep_generators():
    """Generators are outside of the data stack: 500 nested ones."""

    def nest(n):
        if n:
            for value in nest(n - 1):
                yield value
        else:
            truth.park()
            yield 1

    list(nest(500))


def long_function():
    """10,000 lines, over 64 KiB of bytecode (EXTENDED_ARG in jumps); blocks on the last line."""
    lines = ["def long_one(x):"] + ["    x = x + %d - x * 2" % i for i in range(10000)] + ["    truth.park()"]
    run_text("\n".join(lines) + "\n\nlong_one(1)\n", "long.py")


def long_middle():
    """Blocks in the middle of a long function, inside ifs and loops."""
    lines = ["def long_one(x):"]
    lines += ["    if x == %d:\n        x = x + 1\n    else:\n        x = (x,\n             x)[0]" % (i + 10) for i in range(2000)]
    lines += ["    for _ in [1]:", "        truth.park()"]
    lines += ["    x = x * 2" for i in range(5000)]
    run_text("\n".join(lines) + "\n\nlong_one(1)\n", "middle.py")


def line_gaps():
    """Gaps of 127, 128, 255, 256, 300 and 70,000 lines, and a line number that decreases."""
    body = ["def gaps(x):"]
    for gap in (126, 127, 128, 129, 254, 255, 256, 300, 70000):
        body += [""] * gap + ["    x = x + 1"]
    body += ["    x = later("] + [""] * 300 + ["        x,", "    )"]
    run_text("def later(x):\n    truth.park()\n" + "\n".join(body) + "\n\n\ngaps(1)\n", "gaps.py")


def wide_line():
    """One line with much bytecode before the call: over 255 bytes without a change of line."""
    run_text("def wide(x):\n    return [" + "x + 1, " * 3000 + "truth.park()]\n\nwide(1)\n", "wide.py")


def late_code():
    """Code that begins at line 100,000 of its file."""
    run_text("\n" * 100000 + "def late():\n    truth.park()\nlate()\n", "late.py")


def run_text(source, filename):
    exec(compile(source, filename, "exec"), {"truth": truth})


def many_functions():
    """5,000 code objects: 100 of them on the stack at once, each with its own file name."""
    source = []
    for i in range(5000):
        follow = "f%d()" % (i + 1) if i < 100 else "truth.park()"
        source.append("def f%d():\n    %s\n" % (i, follow))
    space = {"truth": truth}
    for i, part in enumerate(source):
        exec(compile(part, "/no/such/dir%d/f.py" % i, "exec"), space)
    space["f0"]()


def long_names():
    name = "n" * 3000
    run_text("def %s():\n    truth.park()\n%s()\n" % (name, name), "/" + "d" * 200 + "/" + "f" * 3000 + ".py")


THREADS = {
    "many_threads": 21,
    "thousand_threads": 1001,
    "raw_threads": 3,
    "deep": 2,
}

if __name__ == "__main__":
    situation = sys.argv[1]
    truth.start(THREADS.get(situation, 1))
    globals()[situation]()
