#!/usr/bin/env python3
"""Checks that clang-format would change no C file. `make format` applies it.

Releases of clang-format differ: with another release than VERSION, the check is skipped (status 77).
"""
import pathlib
import re
import shutil
import subprocess
import sys

VERSION = "14"
ROOT = pathlib.Path(__file__).resolve().parents[2]


def main():
    if not shutil.which("clang-format"):
        print("format: clang-format is missing; tools/setup check installs it")
        return 1
    version = re.search(r"version (\d+)", subprocess.check_output(["clang-format", "--version"]).decode()).group(1)
    if version != VERSION:
        print("format: skipped: clang-format is %s, not %s" % (version, VERSION))
        return 77
    files = [file for top in ("src", "tests", "examples") for file in sorted((ROOT / top).rglob("*.[ch]"))]
    done = subprocess.run(["clang-format", "--dry-run", "--Werror", *map(str, files)])
    print("format: %d files, run `make format` to fix them" % len(files) if done.returncode else "format: %d files" % len(files))
    return done.returncode


if __name__ == "__main__":
    sys.exit(main())
