"""The `pid` argument of dump() and record(): one process, several, or this one."""
from __future__ import annotations

import os
from typing import List, Sequence, SupportsIndex, Union

Pids = Union[None, int, Sequence[int]]


def listed(pid: Pids) -> List[int]:
    """Returns the PIDs; without `pid`, that of this process."""
    pids = [os.getpid()] if pid is None else [pid.__index__()] if isinstance(pid, SupportsIndex) else list(pid)
    if not pids:
        raise ValueError("the list of PIDs is empty")
    return pids


def joined(pids: Sequence[int]) -> str:
    """Returns the value of --pid."""
    return ",".join(map(str, pids))


def named(pids: Sequence[int]) -> str:
    """Returns what messages call the processes."""
    return "process %d" % pids[0] if len(pids) == 1 else "%d processes" % len(pids)
