"""chains.py STATE plain|generator|method|coroutine: 16 chains of 8 functions, called in turn as fast as possible.

Function k of chain n is c<n>_f<k>, and calls only the next one of its own chain. So every real stack is <module>,
main, dispatch and then the first functions of a single chain. Any other stack is impossible."""
import sys

import shared

CHAINS = 16
LENGTH = 8

SHAPES = {  # how a function calls the next one, and how the last one ends
    "plain": ("def {name}(x):\n    x = x + 1\n    return {next}(x)\n", "def {name}(x):\n    return x + 1\n"),
    "method": ("def {name}(self, x):\n    x = x + 1\n    return self.{next}(x)\n",
               "def {name}(self, x):\n    return x + 1\n"),
    "generator": ("def {name}(x):\n    x = x + 1\n    yield x\n    yield from {next}(x)\n",
                  "def {name}(x):\n    yield x + 1\n"),
    "coroutine": ("async def {name}(x):\n    x = x + 1\n    return await {next}(x)\n",
                  "async def {name}(x):\n    return x + 1\n"),
}


def indent(text):
    return "".join("    " + line + "\n" for line in text.splitlines())


def source(kind):
    middle, last = SHAPES[kind]
    parts = []
    for n in range(CHAINS):
        body = "".join((last if k == LENGTH - 1 else middle).format(
            name="c%02d_f%d" % (n, k), next="c%02d_f%d" % (n, k + 1)) for k in range(LENGTH))
        parts.append("class Chain%02d:\n%s" % (n, indent(body)) if kind == "method" else body)
    return "\n".join(parts)


def dispatch_plain(first):
    while True:
        for call in first:
            call(1)


def dispatch_generator(first):
    while True:
        for call in first:
            for _ in call(1):
                pass


def dispatch_coroutine(first):
    while True:
        for call in first:
            try:
                call(1).send(None)
            except StopIteration:
                pass


def main(kind):
    if kind == "method":
        first = [getattr(globals()["Chain%02d" % n](), "c%02d_f0" % n) for n in range(CHAINS)]
    else:
        first = [globals()["c%02d_f0" % n] for n in range(CHAINS)]
    shared.ready()
    {"generator": dispatch_generator, "coroutine": dispatch_coroutine}.get(kind, dispatch_plain)(first)


exec(compile(source(sys.argv[2]), __file__, "exec"))
main(sys.argv[2])
