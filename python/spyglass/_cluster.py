"""What the modules for clusters share: the program on machines that lack it, profiles in pieces, what went wrong where.

Code of this package runs on other machines, too: it is sent there by value, so that neither the package nor the program
has to be installed on them. What runs there uses the standard library alone, and keeps its state in kept().
"""
from __future__ import annotations

import hashlib
import multiprocessing.util
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import types
import zlib
from typing import Any, Dict, Iterable, List, Mapping, Optional, Sequence, Tuple, Union

from ._binary import binary as find_binary
from ._errors import SpyglassError
from ._profile import Profile, merge

KEPT = "_spyglass_kept"
MAX_RAW = 64 << 20  # bytes of one process's profile, at most; what is rarest in a larger one is added up
MAX_FILE = 256 << 20  # bytes of a finished file, which cannot be made smaller
PIECE = 1 << 20  # bytes that travel at once


class ClusterError(SpyglassError):
    """Something failed on other machines. `problems` says what, by address."""

    def __init__(self, message: str, problems: Mapping[str, str]) -> None:
        super().__init__(message)
        self.problems = dict(problems)

    def __reduce__(self) -> Tuple[object, ...]:
        return (type(self), (str(self), self.problems))


def error_of(what: str, problems: Mapping[str, str]) -> ClusterError:
    lines = ["%s: %s" % (where, why.strip()) for where, why in problems.items()]
    return ClusterError("\n".join([what] + lines), problems)


# ---- on the other machines ----

def kept() -> Dict[str, Any]:
    """State of this process, one for all copies of this code that were sent to it."""
    module = sys.modules.get(KEPT)
    if module is None:
        module = sys.modules.setdefault(KEPT, types.ModuleType(KEPT))
    state: Dict[str, Any] = vars(module).setdefault("state", {"lock": threading.RLock()})
    return state


def _nameless(program: bytes) -> str:
    """The program as a file without a name: it is gone with us however we end, and no mount forbids to run it. The path
    has our pid, since a child has other files open. Raises OSError where the kernel is old, or does not run such files."""
    handle = os.memfd_create("/spyglass", os.MFD_CLOEXEC)
    with open(handle, "wb", closefd=False) as file:
        file.write(program)
    path = "/proc/%d/fd/%d" % (os.getpid(), handle)
    subprocess.run([path, "--version"], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, check=True)
    return path


def _unpacked(program: bytes) -> str:
    """A path at which the program can be run as long as this process lives. It gives itself the name by which profilers
    know each other."""
    try:
        return _nameless(program)
    except (AttributeError, OSError, subprocess.SubprocessError):
        pass
    directory = tempfile.mkdtemp(prefix="spyglass-")
    # Unlike atexit's, this is called in the children of multiprocessing, too.
    multiprocessing.util.Finalize(None, shutil.rmtree, (directory, True), exitpriority=0)
    path = os.path.join(directory, "spyglass")
    with open(path, "wb") as file:
        file.write(program)
    os.chmod(path, 0o755)
    return path


def program_here(shipped: Optional[bytes] = None) -> Optional[str]:
    """The program on this machine: its own, else the shipped one, unpacked once a process; None if there is neither."""
    try:
        return find_binary()
    except FileNotFoundError:
        if shipped is None:
            return None
    state = kept()
    with state["lock"]:
        key = "program %d %s" % (os.getpid(), hashlib.sha256(shipped).hexdigest())  # a forked child has its own
        if key not in state:
            state[key] = _unpacked(zlib.decompress(shipped))
        path: str = state[key]
    return path


def bounded(raw: bytes, limit: int = MAX_RAW) -> bytes:
    """A raw profile of no more than `limit` bytes: the rarest stacks of a larger one become one line."""
    if len(raw) <= limit:
        return raw
    counted: List[Tuple[int, bytes]] = []
    for line in raw.splitlines():
        stack, _, number = line.rpartition(b" ")
        if stack and number.isdigit():
            counted.append((int(number), stack))
    counted.sort(key=lambda item: -item[0])
    kept_lines: List[bytes] = []
    size = left_out = left_count = 0
    for count, stack in counted:
        size += len(stack) + 24
        if size > limit - 200:
            left_out += 1
            left_count += count
        else:
            kept_lines.append(b"%s %d" % (stack, count))
    kept_lines.append(b"[%d rare stacks, left out to keep the profile small] %d" % (left_out, left_count))
    return b"\n".join(kept_lines) + b"\n"


# ---- on ours ----

def shipped_program() -> bytes:
    """Our own program, packed, for machines that have none: it is one static file."""
    with open(find_binary(), "rb") as file:
        return zlib.compress(file.read(), 6)


def merged(parts: Iterable[Tuple[Union[str, Sequence[str]], Profile]], title: str, rate: float) -> Profile:
    """One profile of all. One in which nothing ran says so, since a picture of nothing looks like a failure."""
    listed = list(parts)
    profile = merge(listed, title=title)
    profile.rate = rate
    if listed and not profile.samples:
        remark = "[nothing ran in any of %d processes while they were recorded: idle shows where they wait]" % len(listed)
        profile = Profile([((remark,), 1)], rate=rate, title=title)
        profile.samples = 0
    return profile
