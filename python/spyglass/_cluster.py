"""Shared by the cluster modules: sending the program to machines that lack it, size limits, errors by machine.

Part of this package runs on other machines. It is pickled by value, so neither the package nor the program has to be
installed there. The code that runs there uses only the standard library and keeps its state in kept().
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
from ._text import safe, safe_lines

KEPT = "_spyglass_kept"
MAX_RAW = 64 << 20  # maximum size of one process's profile; bounded() merges the rarest stacks of a larger one
MAX_FILE = 256 << 20  # maximum size of a finished file, which cannot be reduced
PIECE = 1 << 20  # bytes per message


class ClusterError(SpyglassError):
    """Something failed on other machines. `problems` maps each address to the reason."""

    def __init__(self, message: str, problems: Mapping[str, str], advice: Optional[str] = None) -> None:
        super().__init__(message, advice=advice)
        self.problems = dict(problems)

    def __reduce__(self) -> Tuple[object, ...]:
        return (type(self), (str(self), self.problems, self.advice))


def error_of(what: str, problems: Mapping[str, str], advice: Optional[Mapping[str, str]] = None) -> ClusterError:
    """`advice` has the advice by address; the error has each text once."""
    lines = ["%s: %s" % (safe(where), safe_lines(why.strip())) for where, why in problems.items()]
    texts = dict.fromkeys(text for where, text in (advice or {}).items() if where in problems)
    return ClusterError("\n".join([what] + lines), problems, "\n".join(texts) or None)


def failure(error: BaseException) -> Dict[str, Optional[str]]:
    """Returns an error as members of an answer to the client."""
    return {"error": str(error) or type(error).__name__, "advice": getattr(error, "advice", None)}


# ---- on the other machines ----

def kept() -> Dict[str, Any]:
    """Returns the state of this process, which all copies of this code in it share."""
    module = sys.modules.get(KEPT)
    if module is None:
        module = sys.modules.setdefault(KEPT, types.ModuleType(KEPT))
    state: Dict[str, Any] = vars(module).setdefault("state", {"lock": threading.RLock()})
    return state


def _nameless(program: bytes) -> str:
    """Writes the program to a memfd and returns its path. A memfd disappears when this process ends, however it ends,
    and `noexec` mounts do not affect it. The path contains our PID, because descriptors differ in a child. Raises
    OSError if the kernel is too old or refuses to execute a memfd."""
    handle = os.memfd_create("/spyglass", os.MFD_CLOEXEC)
    with open(handle, "wb", closefd=False) as file:
        file.write(program)
    path = "/proc/%d/fd/%d" % (os.getpid(), handle)
    subprocess.run([path, "--version"], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, check=True)
    return path


def _unpacked(program: bytes) -> str:
    """Returns a path at which the program can be run while this process lives. The program sets its process name itself,
    so the file name does not matter."""
    try:
        return _nameless(program)
    except (AttributeError, OSError, subprocess.SubprocessError):
        pass
    directory = tempfile.mkdtemp(prefix="spyglass-")
    # Unlike atexit, this also runs in multiprocessing children.
    multiprocessing.util.Finalize(None, shutil.rmtree, (directory, True), exitpriority=0)
    path = os.path.join(directory, "spyglass")
    with open(path, "wb") as file:
        file.write(program)
    os.chmod(path, 0o755)
    return path


def program_here(shipped: Optional[bytes] = None) -> Optional[str]:
    """Returns the path of the installed program, else of the shipped one, which is unpacked once per process, else None."""
    try:
        return find_binary()
    except FileNotFoundError:
        if shipped is None:
            return None
    state = kept()
    with state["lock"]:
        key = "program %d %s" % (os.getpid(), hashlib.sha256(shipped).hexdigest())  # a forked child unpacks its own
        if key not in state:
            state[key] = _unpacked(zlib.decompress(shipped))
        path: str = state[key]
    return path


def bounded(raw: bytes, limit: int = MAX_RAW) -> bytes:
    """Limits a raw profile to `limit` bytes: merges the rarest stacks into one line."""
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


# ---- on the client ----

def shipped_program() -> bytes:
    """Returns our own program, compressed, for machines that have none. It is a single static file."""
    with open(find_binary(), "rb") as file:
        return zlib.compress(file.read(), 6)


def merged(parts: Iterable[Tuple[Union[str, Sequence[str]], Profile]], title: str, rate: float) -> Profile:
    """Merges the profiles. If there is no sample, the profile says so: an empty flame graph looks like a failure."""
    listed = list(parts)
    profile = merge(listed, title=title)
    profile.rate = rate
    if listed and not profile.samples:
        remark = "[nothing ran in any of %d processes during the recording: use idle to see where they wait]" % len(listed)
        profile = Profile([((remark,), 1)], rate=rate, title=title)
        profile.samples = 0
    return profile
