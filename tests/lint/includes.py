#!/usr/bin/python3
"""Checks that includes respect the layers: see docs/architecture.md.

    tests/lint/includes.py [SRC]     prints each forbidden include; the last line is `includes: N passed, M failed`

MAY lists what each layer may include besides itself. ADD A LAYER HERE.
"""
import pathlib
import re
import sys
import tempfile

TRACE = "sample/trace.h"
TASKS = "sample/task_set.h"
VERDICT = "sample/verdict.h"
MAY = {
    "base": [],
    "elf": ["base"],
    "target": ["base", "elf"],
    "pause": ["base", "elf", "target"],
    "unwind": ["base", "elf", "target"],
    "snapshot": ["base", "elf", "target"],
    "python": ["base", "elf", "target", "snapshot"],
    "tree": ["base", "elf", "target", TRACE],
    "sample": ["base", "elf", "target", "pause", "snapshot", "unwind", "python", "tree"],
    "profile": ["base", TRACE],
    "out": ["base", "profile", TRACE, TASKS, VERDICT],
    "ui": ["base", "profile", "out", TRACE],
    "cmd": ["base", "elf", "target", "pause", "snapshot", "unwind", "python", "tree", "sample", "profile", "out", "ui"],
    "main.c": ["base", "out", "cmd", "target/setuid_guard.h"],
}
INCLUDE = re.compile(r'^\s*#\s*include\s+"([^"]+)"', re.M)


def layer_of(path):
    return path.parts[0]


def allowed(layer, included):
    return included in MAY[layer] or layer_of(pathlib.PurePath(included)) in [layer, *MAY[layer]]


def check(src):
    """Returns the number of correct files, and a line for each forbidden include."""
    right, wrong = 0, []
    for path in sorted(src.rglob("*.[ch]")):
        name = path.relative_to(src)
        layer = layer_of(name)
        if layer not in MAY:
            wrong.append("%s: the layer %s is in no row of tests/lint/includes.py" % (name, layer))
            continue
        bad = [i for i in INCLUDE.findall(path.read_text()) if not allowed(layer, i)]
        wrong += ["%s: may not include %s" % (name, i) for i in bad]
        right += not bad
    return right, wrong


def check_self():
    """Tests the checker itself: it detects one violation of each rule, and no others."""
    cases = [
        ("base/a.c", "elf/a.h", 1), ("python/a.c", "unwind/a.h", 1), ("unwind/a.c", "python/a.h", 1),
        ("out/a.c", "target/mem.h", 1), ("out/a.c", "sample/sampler.h", 1), ("out/a.c", TRACE, 0),
        ("target/a.c", "python/a.h", 1), ("sample/a.c", "profile/profile.h", 1), ("profile/a.c", "out/format.h", 1),
        ("sample/a.c", "python/a.h", 0), ("cmd/a.c", "sample/sampler.h", 0), ("elf/a.c", "elf/b.h", 0), ("odd/a.c", "base/a.h", 1),
    ]
    for file, included, count in cases:
        with tempfile.TemporaryDirectory() as place:
            path = pathlib.Path(place, file)
            path.parent.mkdir()
            path.write_text('#include <stdio.h>\n#include "%s"\n' % included)
            _, wrong = check(pathlib.Path(place))
            if len(wrong) != count:
                return ["the checker itself: %s including %s gave %r" % (file, included, wrong)]
    return []


def main():
    src = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).resolve().parents[2] / "src")
    right, wrong = check(src)
    wrong += check_self()
    for line in wrong:
        print("includes: " + line)
    print("includes: %d passed, %d failed" % (right, len(wrong)))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
