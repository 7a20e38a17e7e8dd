"""Finds the program `spyglass`. Every call searches again; nothing is cached."""
from __future__ import annotations

import os
import shutil
import sys
import sysconfig
from typing import Iterator, Optional

from ._errors import ProgramNotFound
from ._text import safe

VARIABLE = "SPYGLASS_BINARY"
NAME = "spyglass"


def _installed() -> Iterator[str]:
    """Yields the paths where pip may have installed the program: default, --user, --prefix, --target."""
    package = os.path.dirname(os.path.abspath(__file__))
    site = os.path.dirname(package)
    # lib/python3.X/site-packages -> bin. Only for these names: for a copy in /tmp/a/b/c it would be /tmp/bin, which may
    # belong to anyone.
    if os.path.basename(site) in ("site-packages", "dist-packages"):
        yield os.path.join(os.path.dirname(os.path.dirname(os.path.dirname(site))), "bin", NAME)
    else:
        yield os.path.join(site, "bin", NAME)  # --target
    yield os.path.join(sysconfig.get_path("scripts"), NAME)
    if sys.executable:  # empty in some embedded interpreters
        yield os.path.join(os.path.dirname(os.path.abspath(sys.executable)), NAME)
    # A source tree: python/spyglass next to build/.
    if os.path.basename(site) == "python":
        yield os.path.join(os.path.dirname(site), "build", NAME)


def which(name: str) -> Optional[str]:
    """Like shutil.which(), but skips relative entries of PATH: the current directory may belong to anyone."""
    if os.path.dirname(name):
        return shutil.which(name)
    entries = os.environ.get("PATH", os.defpath).split(os.pathsep)
    return shutil.which(name, path=os.pathsep.join(entry for entry in entries if os.path.isabs(entry)))


def _is_program(path: str) -> bool:
    return os.path.isfile(path) and os.access(path, os.X_OK)


def binary(path: Optional[str] = None) -> str:
    """Returns the path of the program: `path` if given, else $SPYGLASS_BINARY, else the program installed with this
    package, else the first in PATH.

    Raises FileNotFoundError if there is none; the text says what to do.
    """
    given = path or os.environ.get(VARIABLE)
    if given:
        found = which(given)
        if found is None:
            origin = "binary" if path else VARIABLE
            raise ProgramNotFound("%s names a program that does not exist or is not executable: '%s'" % (origin, safe(given)))
        return os.path.abspath(found)
    for candidate in _installed():
        if _is_program(candidate):
            return os.path.abspath(candidate)
    found = which(NAME)
    if found is None:
        raise ProgramNotFound(
            "the program 'spyglass' was found neither beside this package nor in PATH: install the package with pip on "
            "Linux x86-64, or set %s=/path/to/spyglass" % VARIABLE)
    return os.path.abspath(found)
