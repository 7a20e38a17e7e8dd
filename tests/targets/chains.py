"""Sixteen call chains of eight functions, called in turn as fast as possible: `python chains.py KIND`.

Function k of chain n is named cN_fK and calls only the next one of its own chain. So every real stack is <module>,
main, turn, cN_f0, cN_f1 and so on, of one chain. A stack with frames of two chains, with a gap, or without its root is
impossible.
KIND is plain, method, generator, nested (a generator loops over the next), coroutine, callback (C code calls the next),
mixed (functions that C code calls loop over generators), or exec: exec creates the functions again in each round, with
other names, so that new code objects reuse the addresses of old ones. It prints its PID after WARM rounds.
"""
import os
import sys

import truth

CHAINS, LENGTH = 16, 8
WARM = 100  # rounds, after which the interpreter has specialized all instructions
# The functions of a chain in turn, and the last one.
SHAPES = {
    "plain": ("def {name}(x):\n    return {next}(x + 1)\n", "def {name}(x):\n    return x + 1\n"),
    "method": ("def {name}(self, x):\n    return self.{next}(x + 1)\n", "def {name}(self, x):\n    return x + 1\n"),
    "nested": ("def {name}(x):\n    for y in {next}(x + 1):\n        yield y\n", "def {name}(x):\n    yield x + 1\n"),
    "generator": ("def {name}(x):\n    yield x\n    yield from {next}(x + 1)\n", "def {name}(x):\n    yield x + 1\n"),
    "callback": ("def {name}(x):\n    return max(map({next}, (x + 1,)))\n", "def {name}(x):\n    return x + 1\n"),
    "mixed": ("def {name}(x):\n    for y in {next}(x + 1):\n        pass\n    return y\n",
              "def {name}(x):\n    yield max(map({next}, (x + 1,)))\n", "def {name}(x):\n    yield x + 1\n"),
    "coroutine": ("async def {name}(x):\n    return await {next}(x + 1)\n", "async def {name}(x):\n    return x + 1\n"),
}
SHAPES["exec"] = SHAPES["plain"]


def make(kind, n, space):
    """Creates the functions of chain n in `space`."""
    shape = SHAPES[kind]
    name = "c%d_f%d"
    text = "".join(shape[-1 if k == LENGTH - 1 else k % (len(shape) - 1)].format(name=name % (n, k), next=name % (n, k + 1))
                   for k in range(LENGTH))
    if kind == "method":
        text = "class C:\n" + "".join("    " + line + "\n" for line in text.splitlines())
    exec(compile(text, "chain%d.py" % n, "exec"), space)
    return getattr(space["C"](), name % (n, 0)) if kind == "method" else space[name % (n, 0)]


def turn(kind, first):
    for call in first:
        if kind in ("nested", "generator"):
            for x in call(1):
                pass
        elif kind == "coroutine":
            try:
                call(1).send(None)
            except StopIteration:
                pass
        else:
            call(1)


def main(kind):
    n = 0
    first = [make(kind, i, {}) for i in range(CHAINS)]
    while True:
        n += 1
        if kind == "exec":
            first = [make(kind, n % 1000, {})] * 50
        turn(kind, first)
        if n == WARM:
            truth.say(pid=os.getpid())


if __name__ == "__main__":
    main(sys.argv[1])
