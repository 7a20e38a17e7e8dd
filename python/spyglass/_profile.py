"""Profiles: stacks with counts, as `spyglass record -f raw` writes them. The program renders the other formats."""
from __future__ import annotations

import os
import re
import subprocess
import tempfile
from typing import Dict, Iterable, List, Optional, Sequence, Tuple, Union

from ._binary import binary as find_binary
from ._errors import SpyglassError, error_from, start_error
from ._formats import Format, Path, absolute, check_format, format_of
from ._picture import still_picture

Stack = Tuple[str, ...]
LINE = re.compile(r"(.+) ([0-9]{1,18})")
UNSAFE = re.compile(r"[\x00-\x1f\x7f\x85\u2028\u2029]")


def _clean(frame: str) -> str:
    """Escapes a frame for a raw line, in which ';' separates frames and a newline ends the stack."""
    return UNSAFE.sub(" ", frame).replace(";", ":") or "?"


class Profile:
    """A profile. `stacks` lists each distinct stack once, as (frames, count), outermost frame first.

    A recording in a format other than raw results in a profile that contains only a finished file: `data`, in `format`.
    You can save it, but it has no stacks to read or merge.
    """

    def __init__(
        self,
        stacks: Iterable[Tuple[Sequence[str], int]] = (),
        *,
        rate: float = 100.0,
        title: str = "",
        errors: int = 0,
    ) -> None:
        counts: Dict[Stack, int] = {}
        for frames, count in stacks:
            stack = tuple(frames)
            counts[stack] = counts.get(stack, 0) + count
        self._stacks: List[Tuple[Stack, int]] = list(counts.items())
        self.samples: int = sum(counts.values())
        self.rate = rate  # samples per second
        self.title = title  # shown in a flame graph
        self.errors = errors  # stacks that could not be read
        self.format: Format = "raw"
        self._data: Optional[bytes] = None

    @classmethod
    def _finished(cls, data: bytes, format: Format, samples: int) -> Profile:
        profile = cls()
        profile.format = format
        profile.samples = samples
        profile._data = data
        return profile

    @property
    def stacks(self) -> List[Tuple[Stack, int]]:
        if self._data is not None:
            raise ValueError("this profile is a finished %s file: record with format='raw' to get stacks"
                             % self.format)
        return self._stacks

    @property
    def data(self) -> bytes:
        """The contents of the profile file, in `format`."""
        return self.to_raw().encode("utf-8", "replace") if self._data is None else self._data

    def __repr__(self) -> str:
        if self._data is not None:
            return "<spyglass.Profile: %d samples, %s file>" % (self.samples, self.format)
        return "<spyglass.Profile: %d samples in %d stacks>" % (self.samples, len(self._stacks))

    def _repr_svg_(self) -> Optional[str]:
        """Returns a flame graph for notebooks. They show repr() instead if it is None: without the program."""
        if self._data is not None and self.format != "flamegraph":
            return None
        try:
            picture = still_picture(self.render("flamegraph"))
        except (SpyglassError, OSError):
            return None
        return picture[picture.find("<svg "):]  # without the XML declaration

    def to_raw(self) -> str:
        """Returns one line per stack: `a (x.py:6);b (x.py:3) 99`."""
        return "".join("%s %d\n" % (";".join(_clean(frame) for frame in frames) or "?", count)
                       for frames, count in self.stacks)

    @classmethod
    def from_raw(cls, text: str, *, rate: float = 100.0, title: str = "", errors: int = 0) -> Profile:
        """Parses raw lines. Raises ValueError with the number of the first invalid line."""
        stacks: List[Tuple[Stack, int]] = []
        for number, line in enumerate(text.split("\n"), 1):
            line = line.rstrip("\r")
            if not line:
                continue
            match = LINE.fullmatch(line)
            if match is None:
                raise ValueError("line %d is not a line of a raw profile: %.80r" % (number, line))
            if int(match.group(2)):  # a note has a count of 0
                stacks.append((tuple(match.group(1).split(";")), int(match.group(2))))
        return cls(stacks, rate=rate, title=title, errors=errors)

    @classmethod
    def load(cls, path: Path, *, rate: float = 100.0) -> Profile:
        """Reads a raw profile written by save() or `spyglass record -f raw`."""
        with open(path, encoding="utf-8", errors="replace", newline="") as file:
            try:
                return cls.from_raw(file.read(), rate=rate, title=os.path.basename(os.fspath(path)))
            except ValueError as error:
                raise ValueError("%s: %s" % (os.fspath(path), error)) from None

    def render(
        self, format: Format = "flamegraph", *, title: Optional[str] = None, binary: Optional[str] = None,
    ) -> bytes:
        """Returns the profile in one of the formats flamegraph, raw, speedscope, chrometrace."""
        format = check_format(format)
        if format == self.format:
            return self.data
        command = [find_binary(binary), "merge", "--output", "-", "--format", format, "--rate", repr(float(self.rate))]
        if title or self.title:
            command += ["--title=" + UNSAFE.sub(" ", title or self.title)]
        raw = self.to_raw().encode("utf-8", "replace")
        try:
            done = subprocess.run(command + ["-"], input=raw, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        except OSError as error:
            raise start_error(error, command) from None
        if done.returncode != 0:
            raise error_from(None, done.stderr.decode("utf-8", "replace"), done.returncode, command)
        return done.stdout

    def save(
        self, path: Path, format: Optional[Format] = None, *, title: Optional[str] = None, binary: Optional[str] = None,
    ) -> None:
        """Writes a file atomically. Without `format`, the extension selects the format; a path without extension is a
        flame graph. Raises ValueError if no format has the extension."""
        if format is None:
            format = format_of(path) or (self.format if self._data is not None else "flamegraph")
        data = self.render(format, title=title, binary=binary)
        place = absolute(path)
        handle, name = tempfile.mkstemp(prefix=".spyglass-", dir=os.path.dirname(place))
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(data)
            mask = os.umask(0)
            os.umask(mask)
            os.chmod(name, 0o666 & ~mask)
            os.replace(name, place)
        except BaseException:
            os.unlink(name)
            raise


def finished(data: bytes, format: Format, samples: int) -> Profile:
    """Returns a profile that contains only a finished file. For the other modules of this package."""
    return Profile._finished(data, format, samples)  # pyright: ignore[reportPrivateUsage]


def merge(parts: Iterable[Tuple[Union[str, Sequence[str]], Profile]], *, title: str = "") -> Profile:
    """Merges profiles. Each gets its own root frame or frames: `[("node 1", p), (("node 2", "w"), q)]`."""
    stacks: List[Tuple[Stack, int]] = []
    rate: Optional[float] = None
    errors = 0
    for root, profile in parts:
        above = (root,) if isinstance(root, str) else tuple(root)
        stacks += [(above + frames, count) for frames, count in profile.stacks]
        rate = rate or profile.rate
        errors += profile.errors
    return Profile(stacks, rate=rate or 100.0, title=title, errors=errors)
