"""Turns a failed run of the program into an exception. The error event of --status-fd determines the type."""
from __future__ import annotations

import re
from typing import Any, Iterable, Mapping, Optional, Sequence, Tuple

from ._text import safe, safe_lines

FLAG = "--status-fd"
PREFIX = "spyglass> "  # of messages that are not errors
INCOMPATIBLE = "incompatible"  # for a program without --status-fd
MESSAGE = re.compile(r"(?:[Ee]rror|Permission Denied): ")  # how the program begins a message; advice may follow below it


class SpyglassError(RuntimeError):
    """The base class of all errors of this package. `str(error)` is the message, `code` the error code
    (docs/machine-interface.md; None if there was none), `status` the exit status, `command` the command line.

    `advice` is what the program suggests, or None. It is written for the command line: "add --subprocesses".
    """

    def __init__(self, message: str, status: int = 1, command: Sequence[str] = (), code: Optional[str] = None,
                 advice: Optional[str] = None) -> None:
        super().__init__(message)
        self.status = status
        self.command = tuple(command)
        self.code = code
        self.advice = advice

    def __reduce__(self) -> Tuple[object, ...]:
        # Pickle all fields: Ray and Dask send exceptions between processes.
        return (type(self), (str(self), self.status, self.command, self.code, self.advice))


# Each is also the built-in exception for what happened, so that `except PermissionError` works.

class AccessDenied(SpyglassError, PermissionError):
    """The kernel does not let us read the process."""


class ProcessNotFound(SpyglassError, ProcessLookupError):
    """No process has this PID."""


class TimedOut(SpyglassError, TimeoutError):
    """The program did not respond in time."""


class ProgramNotFound(SpyglassError, FileNotFoundError):
    """The program is not installed."""


class ProgramNotStarted(SpyglassError, OSError):
    """The program exists, but the system cannot start it."""


class OutputNotWritable(SpyglassError, OSError):
    """The output file cannot be written."""


class NotReachable(SpyglassError, ConnectionError):
    """No cluster answers at this address."""


TYPES = {"permission": AccessDenied, "no_process": ProcessNotFound, "no_match": ProcessNotFound}


def error_event(events: Iterable[Mapping[str, Any]]) -> Optional[Mapping[str, Any]]:
    """Returns the error that ended the run, or None."""
    return next((event for event in events if event["event"] == "error" and event.get("fatal")), None)


def start_error(error: OSError, command: Sequence[str]) -> SpyglassError:
    """Returns the exception for a program that could not be started."""
    kind = ProgramNotFound if isinstance(error, FileNotFoundError) else \
        AccessDenied if isinstance(error, PermissionError) else ProgramNotStarted
    return kind("cannot start %s: %s" % (safe(command[0]), safe(error.strerror or error)), 1, command)


def error_from(event: Optional[Mapping[str, Any]], said: str, status: int, command: Sequence[str]) -> SpyglassError:
    """Returns the exception for a run with this exit status, error event and standard error (`said`)."""
    if event is not None:
        code, advice = event.get("code"), event.get("advice")
        kind = TYPES.get(code or "", SpyglassError)
        return kind(safe(event.get("message") or ""), status, command, code, safe(advice) if advice else None)
    said = safe_lines("\n".join(line for line in said.split("\n") if not line.startswith(PREFIX)).strip())
    if FLAG in said:
        return SpyglassError(
            "%s does not support %s: it is an older spyglass, or another program. Install the program that comes with "
            "this package, or set SPYGLASS_BINARY to its path.\n%s" % (safe(command[0]), FLAG, said),
            status, command, INCOMPATIBLE)
    if not said:
        said = ("%s was killed by signal %d" % (safe(command[0]), -status) if status < 0
                else "%s exited with status %d" % (safe(command[0]), status))
    message, _, advice = said.partition("\n") if MESSAGE.match(said) else (said, "", "")
    return SpyglassError(message, status, command, None, advice or None)
