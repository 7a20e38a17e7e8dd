"""`python -m spyglass` replaces this interpreter with the program. Only `spyglass ray` runs in Python.

The program runs `spyglass ray dump` as main(["ray", "dump"]) in an isolated interpreter: see src/cmd/ray.c.
"""
import os
import sys
from typing import List, Union

from ._binary import binary
from ._text import safe, safe_lines


def run_ray(words: List[str]) -> Union[int, str]:
    """Returns the exit status, or a message if Ray is missing."""
    try:
        from . import ray
    except ImportError as error:
        return ("Error: %s cannot run `spyglass ray`: %s\n"
                "Install the missing package: pip install spyglass \"ray[default]\"" % (safe(sys.executable), safe(error)))
    return ray.main(words)


def main(words: List[str]) -> Union[int, str]:
    # The program itself handles `ray` without arguments and `ray --help`.
    if words[:1] == ["ray"] and words[1:] and not words[1].startswith("-"):
        return run_ray(words[1:])
    try:
        path = binary()
    except FileNotFoundError as error:
        return "Error: %s" % safe_lines(error)
    os.execv(path, ["spyglass"] + words)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
