#!/usr/bin/env python3
"""Checks that main() seeds the hashes before it does anything else: a target chooses many of the keys (src/base/hash.h)."""
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]


def main():
    body = (ROOT / "src" / "main.c").read_text().split("\nint main(", 1)[1].split("{", 1)[1]
    calls = re.findall(r"^    (?:.*= )?(\w+)\(", body, re.M)
    good = calls[:1] == ["hash_seed_randomize"]
    print("seed: main() seeds the hashes first" if good else "src/main.c: main() does not call hash_seed_randomize() first")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
