"""Lets our own children look into us where Yama would forbid it. Called before the program is started as a child."""
from __future__ import annotations

import ctypes
import os

PR_SET_PTRACER = 0x59616D61
SCOPE = "/proc/sys/kernel/yama/ptrace_scope"


def allow_children() -> None:
    """Yama's scope 1: only ancestors and those named by prctl may trace. To name ourselves allows all our descendants.

    There is one such name a process, and a crash handler may have set it: so it is set only where it is needed. A
    failure is no news: the program then says in its own words that it was refused.
    """
    try:
        with open(SCOPE) as file:
            needed = file.read().strip() == "1"
    except FileNotFoundError:
        return  # no Yama
    except OSError:
        needed = True
    if needed:
        prctl = ctypes.CDLL(None, use_errno=True).prctl
        prctl(PR_SET_PTRACER, ctypes.c_ulong(os.getpid()), ctypes.c_ulong(0), ctypes.c_ulong(0), ctypes.c_ulong(0))
