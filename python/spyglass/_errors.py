"""What the program said when it failed -> an exception of Python. Called by the modules that run it."""
from __future__ import annotations

from typing import Sequence, Tuple


class SpyglassError(RuntimeError):
    """The program failed. `str(error)` is what it said, `status` its exit status, `command` how it was called.

    Two kinds have exceptions of their own: PermissionError when a process may not be read, ProcessLookupError when
    there is none with that pid.
    """

    def __init__(self, message: str, status: int = 1, command: Sequence[str] = ()) -> None:
        super().__init__(message)
        self.status = status
        self.command = tuple(command)

    def __reduce__(self) -> Tuple[object, ...]:
        # Comes back whole from a worker process, where only args would.
        return (type(self), (str(self), self.status, self.command))


def error_from(said: str, status: int, command: Sequence[str]) -> Exception:
    """The exception for a run that ended with `status` after it said `said` on standard error."""
    said = said.strip()
    if not said:
        said = ("%s was killed by signal %d" % (command[0], -status) if status < 0
                else "%s ended with status %d" % (command[0], status))
    lines = said.splitlines()
    if any(line.startswith("Permission Denied") for line in lines):
        return PermissionError(said)
    if any(line.startswith("Error: Failed to get process executable name") for line in lines):
        return ProcessLookupError(said)
    return SpyglassError(said, status, command)
