"""Prints one row of line_vectors.h for each code object of a small program: its line table, and the line of every
instruction according to the interpreter itself (PyCode_Addr2Line). Run it with each interpreter in turn:

    { cat head; for p in python2.7 python3.6 ...; do $p tests/unit/make_line_vectors.py; done; } >tests/unit/line_vectors.h

where head is the comment at the top of that file; then run `make format`.
"""
from __future__ import print_function

import ctypes
import sys

PLAIN = """
def plain(a,
          b=1):
    x = f(
        a,
        b,
    )
    for i in range(3):
        if (i and
                x):
            continue
        x += [
            j
            for j in
            range(i)]
    else:
        y = lambda: (
            1)
    try:
        return x
    except (ValueError,
            TypeError) as e:
        raise
    finally:
        print(x)
"""

# Gaps of more than 127 and 255 lines, a statement of more than 255 bytes, line numbers that decrease.
GAPS = "def gaps(a):\n    x = 1\n" + "\n" * 300 + "    y = (" + " + ".join("a" * 150) + ")\n" + "\n" * 130 \
    + "    z = f(\n        x,\n" + "\n" * 140 + "        y)\n    while z:\n        z -= 1\n    return (\n        z)\n"

GENERATOR = """
def generator(items):
    with open("x") as a, \\
            open("y") as b:
        for item in items:
            got = yield (
                item)
            if not got:
                break
    return
"""


def kind():
    if sys.version_info < (3, 6):
        return "LINES_LNOTAB_UNSIGNED"
    if sys.version_info < (3, 10):
        return "LINES_LNOTAB"
    return "LINES_RANGES" if sys.version_info < (3, 11) else "LINES_LOCATIONS"


def table(code):
    return bytearray(code.co_linetable if sys.version_info >= (3, 10) else code.co_lnotab)


def rows(code):
    """(offset, line) at each change; 0 where there is no line."""
    addr2line = ctypes.pythonapi.PyCode_Addr2Line
    addr2line.argtypes = [ctypes.py_object, ctypes.c_int]
    last = None
    for at in range(0, len(code.co_code), 1 if sys.version_info < (3, 6) else 2):
        line = max(addr2line(code, at), 0)
        if line != last:
            yield at, line
        last = line


def codes(source):
    module = compile(source, "x.py", "exec")
    return [module] + [c for c in module.co_consts if hasattr(c, "co_code")]


def main():
    for source in (PLAIN, GAPS, GENERATOR):
        code = codes(source)[1]
        data = table(code)
        found = list(rows(code))
        print('    {"%d.%d %s", %s, %d, %d,\n     "%s", %d,\n     {%s}, %d},'
              % (sys.version_info[0], sys.version_info[1], code.co_name, kind(), code.co_firstlineno, len(code.co_code),
                 "".join("\\x%02x" % b for b in data), len(data), ", ".join("{%d, %d}" % r for r in found), len(found)))


if __name__ == "__main__":
    main()
