#!/usr/bin/env python3
"""Checks that every C file is in a meson.build: one that is not listed is neither built nor tested."""
import pathlib
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]


def missing():
    for top, pattern in (("src", "**/*.c"), ("tests", "unit/*.c"), ("tests", "fuzz/fuzz_*.c")):
        listed = (ROOT / top / "meson.build").read_text()
        for file in sorted((ROOT / top).glob(pattern)):
            name = str(file.relative_to(ROOT / top))
            if not any("'%s'" % known in listed for known in (name, file.stem, file.stem.replace("fuzz_", ""))):
                yield "%s/%s is not listed in %s/meson.build" % (top, name, top)


def main():
    lines = list(missing())
    print("\n".join(lines) if lines else "sources: every C file is listed")
    return 1 if lines else 0


if __name__ == "__main__":
    sys.exit(main())
