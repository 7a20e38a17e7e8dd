"""Turns a failed run of the program into an exception. The error event of --status-fd determines the type."""
from __future__ import annotations

from typing import Any, Iterable, Mapping, Optional, Sequence, Tuple

from ._text import safe, safe_lines

FLAG = "--status-fd"
PREFIX = "spyglass> "  # of messages that are not errors
INCOMPATIBLE = "incompatible"  # for a program without --status-fd


class SpyglassError(RuntimeError):
    """The program failed. `str(error)` is its message and advice, `code` the error code (docs/machine-interface.md; None
    if there was none), `status` the exit status, `command` the command line.

    Two failures raise built-in exceptions instead: PermissionError if access is denied, ProcessLookupError if the PID
    does not exist.
    """

    def __init__(self, message: str, status: int = 1, command: Sequence[str] = (), code: Optional[str] = None) -> None:
        super().__init__(message)
        self.status = status
        self.command = tuple(command)
        self.code = code

    def __reduce__(self) -> Tuple[object, ...]:
        # Pickle all fields: Ray and Dask send exceptions between processes.
        return (type(self), (str(self), self.status, self.command, self.code))


def error_event(events: Iterable[Mapping[str, Any]]) -> Optional[Mapping[str, Any]]:
    """Returns the error that ended the run, or None."""
    return next((event for event in events if event["event"] == "error" and event.get("fatal")), None)


def error_from(event: Optional[Mapping[str, Any]], said: str, status: int, command: Sequence[str]) -> Exception:
    """Returns the exception for a run with this exit status, error event and standard error (`said`)."""
    if event is not None:
        text = "\n".join(safe(part) for part in (event.get("message"), event.get("advice")) if part)
        code = event.get("code")
        if code == "permission":
            return PermissionError(text)
        if code == "no_process":
            return ProcessLookupError(text)
        return SpyglassError(text, status, command, code)
    said = safe_lines("\n".join(line for line in said.split("\n") if not line.startswith(PREFIX)).strip())
    if FLAG in said:
        return SpyglassError(
            "%s does not support %s: it is an older spyglass, or another program. Install the program that comes with "
            "this package, or set SPYGLASS_BINARY to its path.\n%s" % (safe(command[0]), FLAG, said),
            status, command, INCOMPATIBLE)
    if not said:
        said = ("%s was killed by signal %d" % (safe(command[0]), -status) if status < 0
                else "%s exited with status %d" % (safe(command[0]), status))
    return SpyglassError(said, status, command)
