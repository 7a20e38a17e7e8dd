"""A failed run of the program -> an exception. The error event of --status-fd decides which one."""
from __future__ import annotations

from typing import Any, Iterable, Mapping, Optional, Sequence, Tuple

FLAG = "--status-fd"
INCOMPATIBLE = "incompatible"  # the code of a program that has no --status-fd


class SpyglassError(RuntimeError):
    """The program failed. `str(error)` is its message and advice, `code` names the reason (docs/machine-interface.md;
    None if it gave none), `status` is its exit status, `command` how it was called.

    Two reasons have exceptions of their own: PermissionError when a process may not be read, ProcessLookupError when
    there is none with that pid.
    """

    def __init__(self, message: str, status: int = 1, command: Sequence[str] = (), code: Optional[str] = None) -> None:
        super().__init__(message)
        self.status = status
        self.command = tuple(command)
        self.code = code

    def __reduce__(self) -> Tuple[object, ...]:
        # Comes back whole from a worker process, where only args would.
        return (type(self), (str(self), self.status, self.command, self.code))


def error_event(events: Iterable[Mapping[str, Any]]) -> Optional[Mapping[str, Any]]:
    """The error that ended the run; None if there is none."""
    return next((event for event in events if event["event"] == "error" and event.get("fatal")), None)


def error_from(event: Optional[Mapping[str, Any]], said: str, status: int, command: Sequence[str]) -> Exception:
    """The exception for a run that ended with `status`, with the error `event`, after it wrote `said` to standard error."""
    if event is not None:
        text = "\n".join(part for part in (event.get("message"), event.get("advice")) if part)
        code = event.get("code")
        if code == "permission":
            return PermissionError(text)
        if code == "no_process":
            return ProcessLookupError(text)
        return SpyglassError(text, status, command, code)
    said = said.strip()
    if FLAG in said:
        return SpyglassError(
            "%s does not take the flag %s: it is an older spyglass than this package needs, or another program. Install "
            "the program of this package, or name it by SPYGLASS_BINARY.\n%s" % (command[0], FLAG, said),
            status, command, INCOMPATIBLE)
    if not said:
        said = ("%s was killed by signal %d" % (command[0], -status) if status < 0
                else "%s ended with status %d" % (command[0], status))
    return SpyglassError(said, status, command)
