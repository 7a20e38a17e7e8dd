"""The output formats and their extensions. tests/lint/formats.py compares both tables with those in src/out/format.c."""
from __future__ import annotations

import os
import re
from typing import Literal, Optional, Tuple, Union, get_args

Path = Union[str, "os.PathLike[str]"]
Format = Literal["flamegraph", "raw", "speedscope", "chrometrace"]
FORMATS: Tuple[Format, ...] = get_args(Format)

# Longer extensions first: ".trace.json" also ends in ".json".
ENDINGS: Tuple[Tuple[str, Format], ...] = (
    (".svg", "flamegraph"),
    (".trace.json", "chrometrace"),
    (".chrometrace.json", "chrometrace"),
    (".json", "speedscope"),
    (".txt", "raw"),
    (".raw", "raw"),
    (".folded", "raw"),
    (".collapsed", "raw"),
)


def absolute(path: Path) -> str:
    text: str = os.fspath(path)
    return os.path.abspath(text)


def check_format(format: str) -> Format:
    """Returns the format with this name, in any case. Raises ValueError if there is none."""
    for known in FORMATS:
        if format.lower() == known:
            return known
    raise ValueError("format must be one of %s, not %r" % (", ".join(FORMATS), format))


def format_of(path: Path) -> Optional[Format]:
    """Returns the format for the extension of a path, or None if it has no extension. Raises ValueError if no format has
    this extension."""
    name = os.fspath(path)
    for ending, format in ENDINGS:
        if name.lower().endswith(ending):
            return format
    base = os.path.basename(name)
    extension = base[base.rfind("."):] if base.rfind(".") > 0 else ""
    if re.search("[A-Za-z]", extension) and not name.startswith("/dev/"):
        raise ValueError("no format has the extension %r: use one of %s, or pass format" % (
            extension, ", ".join("%s (%s)" % row for row in ENDINGS)))
    return None


def extension_of(format: Format) -> str:
    """Returns the usual extension of a format: ".svg"."""
    return next(ending for ending, known in ENDINGS if known == format)
