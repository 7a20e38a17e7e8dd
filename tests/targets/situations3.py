"""Situations for Python 3.6 and newer: `python situations3.py NAME`."""
import asyncio
import sys
import types

import truth


def yield_from():
    def innermost():
        yield 1
        truth.park()
        return 2

    def middle():
        result = yield from innermost()
        return result

    def outer():
        yield from middle()

    list(outer())


def yield_from_iterator():
    class Iterator:
        def __iter__(self):
            return self

        def __next__(self):
            truth.park()

    def outer():
        yield from Iterator()

    list(outer())


def coroutines():
    async def leaf():
        await asyncio.sleep(0)
        truth.park()

    async def middle():
        await leaf()

    async def top():
        await asyncio.gather(
            middle(),
            asyncio.sleep(1000),
        )

    asyncio.new_event_loop().run_until_complete(top())


def event_loop_idle():
    """All tasks wait: the event loop blocks in select, deep in asyncio."""

    async def sleeper():
        truth.announce()
        await asyncio.sleep(100000)

    async def top():
        await asyncio.gather(*[sleeper() for _ in range(3)])

    asyncio.new_event_loop().run_until_complete(top())


def async_generators():
    async def numbers():
        for i in range(3):
            yield i
            if i == 1:
                truth.park()

    async def doubled():
        async for n in numbers():
            yield n * 2

    async def top():
        return [
            n
            async for n in doubled()
        ]

    asyncio.new_event_loop().run_until_complete(top())


def async_with():
    class Guard:
        async def __aenter__(self):
            await asyncio.sleep(0)
            return self

        async def __aexit__(self, *exc):
            truth.park()

    async def top():
        async with Guard():
            pass

    asyncio.new_event_loop().run_until_complete(top())


def coroutine_by_hand():
    """A coroutine driven by send(), without an event loop; below it a types.coroutine generator."""

    @types.coroutine
    def leaf():
        yield 1
        truth.park()

    async def top():
        await leaf()

    coroutine = top()
    coroutine.send(None)
    coroutine.send(None)


def f_strings():
    class Shown:
        def __format__(self, spec):
            truth.park()
            return ""

    value = Shown()
    return (
        f"a"
        f"{value:>3}"
        f"b"
    )


def not_ascii():
    """Names with Latin-1, BMP and (by replacing the code's name) astral characters."""

    def größe():
        truth.park()

    def 名前():
        größe()

    class Ünï:
        def méthode(self):
            名前()

    Ünï().méthode()


def not_ascii_files():
    space = {"truth": truth}
    for i, name in enumerate(["/tmp/café/größe.py", "/tmp/名前/ファイル.py", "/tmp/🐍/𝔘𝔫𝔦.py", "/tmp/plain.py"]):
        follow = f"f{i - 1}()" if i else "truth.park()"
        exec(compile(f"\n\ndef f{i}():\n    {follow}\n", name, "exec"), space)
    space["f3"]()


def astral_names():
    """code.replace: 3.8 and newer."""

    def leaf():
        truth.park()

    def renamed(function, name):
        new = {"co_name": name}
        if sys.version_info >= (3, 11):
            new["co_qualname"] = "Klasse.<locals>." + name
        function.__code__ = function.__code__.replace(**new)
        return function

    inner = renamed(leaf, "🐍𝔘")

    def middle():
        inner()

    renamed(middle, "mixed é 名 🐍")()


def odd_names():
    """Names with characters that are special in some format."""

    def leaf():
        truth.park()

    for name in ['a;b "c" <d> & \'e\' \\ f', "(x.py:3)", " "]:
        new = {"co_name": name, "co_filename": "/tmp/odd;dir/" + name + ".py"}
        if sys.version_info >= (3, 11):
            new["co_qualname"] = name
        function, leaf = leaf, None

        def leaf(function=function):
            function()

        leaf.__code__ = leaf.__code__.replace(**new)
    leaf()


def metaclass():
    class Meta(type):
        def __new__(mcs, name, bases, space):
            truth.park()
            return type.__new__(mcs, name, bases, space)

        @classmethod
        def __prepare__(mcs, name, bases):
            return {}

    class Made(metaclass=Meta):
        x = 1


def nested_qualnames():
    class A:
        class B:
            def method(self):
                def local():
                    return [x for x in (lambda: self.more(y) for y in range(1))]

                return [f() for f in local()]

            def more(self, y):
                truth.park()

    A.B().method()


def thread_pool():
    from concurrent.futures import ThreadPoolExecutor

    def job(n):
        truth.park()

    pool = ThreadPoolExecutor(4, **({"thread_name_prefix": "pool"}))
    for i in range(4):
        pool.submit(job, i)
    truth.park()


def match_statement():
    """3.10 and newer."""
    source = (
        "def leaf(value):\n"
        "    match value:\n"
        "        case {'a': 1}:\n"
        "            pass\n"
        "        case [x, y] if truth.park():\n"
        "            pass\n"
        "leaf([1, 2])\n"
    )
    exec(compile(source, "match.py", "exec"), {"truth": truth})


def import_time():
    """Blocks while a module is imported: importlib's own frames are in between."""
    import blocks_on_import  # noqa: F401


def run_as_module():
    import runpy

    runpy.run_module("blocks_on_import", run_name="__main__")


def greeting_in_trace():
    """A trace function is set: its frame calls back into Python."""

    def tracer(frame, event, arg):
        if frame.f_code.co_name == "traced":
            sys.settrace(None)
            truth.park()

    def traced():
        return 1

    sys.settrace(tracer)
    traced()


THREADS = {"thread_pool": 5}

if __name__ == "__main__":
    situation = sys.argv[1]
    truth.start(THREADS.get(situation, 1))
    globals()[situation]()
