"""Lets our children trace us if Yama forbids it. Call this before starting the program as a child."""
from __future__ import annotations

import ctypes
import os

PR_SET_PTRACER = 0x59616D61
SCOPE = "/proc/sys/kernel/yama/ptrace_scope"


def allow_children() -> None:
    """With ptrace_scope=1, only ancestors and the process set by PR_SET_PTRACER may trace us. Setting it to our own PID
    allows all our descendants.

    A process has only one such setting, and a crash handler may use it, so we change it only if needed. Errors are
    ignored: the program reports that access is denied.
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
