"""Where the program `spyglass` is. Called by all that runs it; the answer is looked for anew each time."""
from __future__ import annotations

import os
import shutil
import sys
import sysconfig
from typing import Iterator, Optional

VARIABLE = "SPYGLASS_BINARY"
NAME = "spyglass"


def _installed() -> Iterator[str]:
    """Where pip puts a command that comes with this package, whatever the scheme: --user, --prefix, --target."""
    package = os.path.dirname(os.path.abspath(__file__))
    site = os.path.dirname(package)
    # lib/python3.X/site-packages -> bin. Not for any directory: three above a copy in /tmp/x/y may be anybody's /tmp/bin.
    if os.path.basename(site) in ("site-packages", "dist-packages"):
        yield os.path.join(os.path.dirname(os.path.dirname(os.path.dirname(site))), "bin", NAME)
    else:
        yield os.path.join(site, "bin", NAME)  # --target
    yield os.path.join(sysconfig.get_path("scripts"), NAME)
    yield os.path.join(os.path.dirname(os.path.abspath(sys.executable or "python")), NAME)
    # A working copy of the source: python/spyglass beside build/.
    if os.path.basename(site) == "python":
        yield os.path.join(os.path.dirname(site), "build", NAME)


def _is_program(path: str) -> bool:
    return os.path.isfile(path) and os.access(path, os.X_OK)


def binary(path: Optional[str] = None) -> str:
    """The path of the program: `path` if given, else $SPYGLASS_BINARY, what was installed with this package, PATH.

    Raises FileNotFoundError that says what to do.
    """
    told = path or os.environ.get(VARIABLE)
    if told:
        found = shutil.which(told)
        if found is None:
            origin = "given" if path else "that %s names" % VARIABLE
            raise FileNotFoundError("the program %s is not there or not executable: %r" % (origin, told))
        return os.path.abspath(found)
    for candidate in _installed():
        if _is_program(candidate):
            return os.path.abspath(candidate)
    found = shutil.which(NAME)
    if found is None:
        raise FileNotFoundError(
            "the program 'spyglass' was found neither beside this package nor in PATH: install the package with pip on "
            "Linux x86-64, or name the program by %s=/path/to/spyglass" % VARIABLE)
    return os.path.abspath(found)
