#!/usr/bin/env python3
"""Checks that clang-format would change nothing in any C file. `make format` applies it."""
import pathlib
import shutil
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]


def main():
    if not shutil.which("clang-format"):
        print("format: clang-format is missing; tools/setup check installs it")
        return 1
    files = [file for top in ("src", "tests", "examples") for file in sorted((ROOT / top).rglob("*.[ch]"))]
    done = subprocess.run(["clang-format", "--dry-run", "--Werror", *map(str, files)])
    print("format: %d files, run `make format` to fix them" % len(files) if done.returncode else "format: %d files" % len(files))
    return done.returncode


if __name__ == "__main__":
    sys.exit(main())
