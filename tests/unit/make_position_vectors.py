"""Prints rows of position_vectors.h: for each code object of a small program its location table, and the position of every
instruction according to the interpreter itself (co_positions()). Run it with each interpreter from 3.11 on, in turn:

    { cat head; for p in python3.11 python3.12 ...; do $p tests/unit/make_position_vectors.py; done; echo '};'; echo; echo '#endif'; } \\
        >tests/unit/position_vectors.h

where head is the top of that file, up to the first row.
"""
import sys

# Columns above 127 and 255, characters of several bytes, expressions of several lines, more than eight code units, no position.
SOURCE = """
def columns(a, b=1):
    größe = {"ä": a, "漢字": b}["ä"] + f(a)[b].c
    x = [i * (a or b) for i in range(3) if i]; y = """ + " + ".join(["a"] * 70) + """
    z = f(
        x,
        [j
         for j in y
         if j],
    )
    with open(z) as w, open(y): return lambda: (w,
        x + y)
    try:
        pass
    finally:
        print(x)
"""


def rows(code):
    """(offset, line, end line, column, end column) at each change; 0 and -1 where unknown."""
    last = None
    for i, (line, end_line, column, end_column) in enumerate(code.co_positions()):
        if not line or column is None:
            end_line = column = end_column = None  # one without the other is of no use
        row = (line or 0, end_line or 0, -1 if column is None else column, -1 if end_column is None else end_column)
        if row != last:
            yield (i * 2, *row)
        last = row


def main():
    module = compile(SOURCE, "x.py", "exec")
    for code in [module, *(c for c in module.co_consts if hasattr(c, "co_code"))]:
        found = list(rows(code))
        data = code.co_linetable
        print('    {"%d.%d %s", %d, %d, "%s", %d,\n     {%s}, %d},'
              % (*sys.version_info[:2], code.co_name, code.co_firstlineno, len(code.co_code),
                 "".join("\\%03o" % b for b in data), len(data), ", ".join("{%d, {%d, %d, %d, %d}}" % r for r in found), len(found)))


if __name__ == "__main__":
    main()
