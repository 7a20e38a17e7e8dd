"""What a thread waits for, and why a process does not continue: `waits_for` and `verdict` of `spyglass dump --json`.

The text is the one that the program prints: see src/out/dump_wait.c.
"""
from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Dict, List, Optional, Sequence, Tuple

from ._text import safe

_FILES_SHOWN = 3
_COMMAND_MAX = 76  # bytes
_STOPPED = {"T": ", which is stopped by a signal", "t": ", which is stopped, traced by ", "Z": ", which has exited"}
_OPERATIONS = {"operation": "waits in ", "GPU": "waits for the GPU: ", "collective": "waits for other ranks: "}
_KINDS = {"import lock": "the import lock of module", "multiprocessing lock": "the multiprocessing lock",
          "thread": "the end of thread"}


@dataclass(frozen=True)
class WaitProcess:
    """A process that a thread waits for: a child, the other end of a pipe or socket, the holder of a file lock."""

    pid: int
    state: Optional[str]  # a letter, as ps shows it: S sleeps, T is stopped, Z has exited
    command_line: Optional[str]
    system_call: Optional[str] = None  # of a single process that sleeps
    waits_for_this_process: bool = False  # that process waits for the one that waits for it
    traced_by: Optional["WaitProcess"] = None  # of a process in state t


@dataclass(frozen=True)
class WaitFile:
    """A file, pipe or socket that a thread waits for."""

    fd: int
    kind: Optional[str]  # "file", "pipe", "TCP", "UDP", "Unix", or the word that the kernel uses
    name: Optional[str]
    local: Optional[str]  # the addresses of a socket
    peer: Optional[str]
    state: Optional[str]  # of a TCP connection
    other_end: Tuple[WaitProcess, ...]


@dataclass(frozen=True)
class WaitOwner:
    """The thread that holds a lock, or whose end a thread waits for."""

    thread_id: int
    os_thread_id: Optional[int]
    thread_name: Optional[str]
    certain: bool  # False: likely
    exited: bool  # no thread has this thread_id any more

    def __str__(self) -> str:
        if self.thread_name is not None:
            return safe(self.thread_name)
        return "thread %d" % self.os_thread_id if self.os_thread_id is not None else "thread 0x%X" % self.thread_id


@dataclass(frozen=True)
class WaitObject:
    """The lock, thread or operation that a thread waits for. `kind` is "Lock", "RLock", "import lock",
    "multiprocessing lock", "thread", "operation", "GPU", "collective", or one that a later release has added."""

    kind: str
    operation: Optional[str]  # "Queue.get": what the program called
    name: Optional[str]  # of the object in the program, or the module of an import lock
    address: Optional[str]  # "0x7f1c2a00"
    certain: bool
    owner: Optional[WaitOwner]

    def __str__(self) -> str:
        name = "" if self.name is None else safe(self.name)
        if self.operation and self.kind in _OPERATIONS:
            return safe(self.operation) + (" (%s)" % name if name else "")
        if self.kind == "import lock" and not name:  # Python 2.7 has one for all modules
            return "the import lock"
        return "%s %s" % (_KINDS.get(self.kind) or safe(self.kind), name or "at %s" % safe(self.address or "0x0"))


@dataclass(frozen=True)
class Wait:
    """Why a thread sleeps in the kernel. What is unknown is None. `str()` is the line that `spyglass dump` prints."""

    what: str  # "waits for I/O", "sleeps", ...
    system_call: Optional[str]
    kernel_function: Optional[str]  # in state D
    seconds_left: Optional[float]  # of a sleep or timeout that ends at a point in time
    seconds_at_most: Optional[float]  # of one that was given a duration
    n_files: int  # there may be more than `files` has
    files: Tuple[WaitFile, ...]
    processes: Tuple[WaitProcess, ...]  # children, or the holder of a file lock
    object: Optional[WaitObject]

    def __str__(self) -> str:
        return wait_text(self, 0)


@dataclass(frozen=True)
class Verdict:
    """Why a process does not continue. `str()` is the sentence that `spyglass dump` ends with."""

    kind: str  # "deadlock", "child", "exited holder", "GIL", "stopped", "no cycle", or one that a later release has added
    certain: bool
    text: str
    threads: Tuple[int, ...]  # each thread_id: each waits for the next, in a deadlock the last one for the first
    others: int  # how many more threads wait for these

    def __str__(self) -> str:
        return safe(self.text)


def _shortened(text: str) -> str:
    """Escapes and cuts a command line where the program does."""
    kept: List[str] = []
    left = _COMMAND_MAX
    for piece in map(safe, text):
        left -= len(piece.encode("utf-8"))
        if left < 0:
            return "".join(kept) + "..."
        kept.append(piece)
    return "".join(kept)


def _process_text(process: WaitProcess, pid: int) -> str:
    if process.pid == pid:
        return "this process"
    text = "process %d" % process.pid
    if process.command_line is not None:
        text += " (%s)" % _shortened(process.command_line)
    if process.state == "t":
        tracer = process.traced_by
        return text + _STOPPED["t"] + ("a debugger" if tracer is None else _process_text(tracer, pid))
    if process.state in _STOPPED:
        return text + _STOPPED[process.state]
    if process.system_call is None:
        return text
    return text + ", which waits in %s%s" % (safe(process.system_call),
                                             " for this process" if process.waits_for_this_process else "")


def _processes_text(processes: Sequence[WaitProcess], pid: int) -> str:
    return " and ".join(_process_text(process, pid) for process in processes)


def _file_text(file: WaitFile, pid: int) -> str:
    text = "fd %d" % file.fd
    if file.kind is None:
        return text
    if file.kind == "file":
        return text + (" " + safe(file.name) if file.name is not None else "")
    for before, word in ((" ", file.kind), (" ", file.name), (" ", file.local), (" -> ", file.peer), (" ", file.state)):
        text += before + safe(word) if word is not None else ""
    return text + (", other end in " + _processes_text(file.other_end, pid) if file.other_end else "")


def _call_text(wait: Wait, pid: int) -> str:
    text = safe(wait.what)
    if wait.system_call is not None:
        text += " (%s)" % safe(wait.system_call)
    if wait.kernel_function is not None:
        text += " in " + safe(wait.kernel_function)
    if wait.files:
        text += ": " + "; ".join(_file_text(file, pid) for file in wait.files[:_FILES_SHOWN])
    if wait.n_files > _FILES_SHOWN:
        text += "; and %d more" % (wait.n_files - _FILES_SHOWN)
    stopped = wait.what == "is stopped"
    if stopped and not wait.processes:
        text += " by a signal"
    if wait.processes:
        text += ", traced by " if stopped else ", held by " if wait.files else ": "
        text += _processes_text(wait.processes, pid)
    return text


def _object_text(item: WaitObject) -> str:
    owner = item.owner
    text = _OPERATIONS.get(item.kind, "waits for ")
    if owner is None:
        return text + str(item)
    if item.kind == "thread":
        text += "the end of thread %s" % owner
    else:
        text += "%s, %sheld by %s" % (item, "" if owner.certain else "likely ", owner)
    return text + (", which no longer exists" if owner.exited else "")


def _duration(seconds: float) -> str:
    if seconds < 10:
        return "%.1f s" % seconds
    whole = int(seconds)
    if whole < 60:
        return "%d s" % whole
    if whole < 3600:
        return "%d min %d s" % (whole // 60, whole % 60)
    return "%d h %d min" % (whole // 3600, whole // 60 % 60)


def wait_text(wait: Wait, pid: int) -> str:
    """The line that `spyglass dump` prints below a thread of the process `pid`."""
    text = _object_text(wait.object) if wait.object is not None else _call_text(wait, pid)
    if wait.seconds_left is not None:
        return text + ", for another " + _duration(wait.seconds_left)
    if wait.seconds_at_most is not None:
        return text + ", for at most " + _duration(wait.seconds_at_most)
    return text


def _process_from(fields: Dict[str, Any]) -> WaitProcess:
    tracer = fields.get("traced_by")
    return WaitProcess(fields["pid"], fields.get("state"), fields.get("command_line"), fields.get("system_call"),
                       bool(fields.get("waits_for_this_process")),
                       None if tracer is None else WaitProcess(tracer["pid"], None, tracer.get("command_line")))


def _processes_from(items: Optional[List[Dict[str, Any]]]) -> Tuple[WaitProcess, ...]:
    return tuple(_process_from(p) for p in items or ())


def _file_from(fields: Dict[str, Any]) -> WaitFile:
    return WaitFile(fields["fd"], fields.get("kind"), fields.get("name"), fields.get("local"), fields.get("peer"),
                    fields.get("state"), _processes_from(fields.get("other_end")))


def _object_from(fields: Optional[Dict[str, Any]]) -> Optional[WaitObject]:
    if fields is None:
        return None
    owner = fields.get("owner")
    return WaitObject(
        kind=fields["kind"],
        operation=fields.get("operation"),
        name=fields.get("name"),
        address=fields.get("address"),
        certain=bool(fields.get("certain")),
        owner=None if owner is None else WaitOwner(owner["thread_id"], owner.get("os_thread_id"), owner.get("thread_name"),
                                                   bool(owner.get("certain")), bool(owner.get("exited"))))


def wait_from(fields: Optional[Dict[str, Any]]) -> Optional[Wait]:
    if fields is None:
        return None
    files = tuple(_file_from(file) for file in fields.get("files") or ())
    return Wait(
        what=fields["what"],
        system_call=fields.get("system_call"),
        kernel_function=fields.get("kernel_function"),
        seconds_left=fields.get("seconds_left"),
        seconds_at_most=fields.get("seconds_at_most"),
        n_files=fields.get("n_files", len(files)),
        files=files,
        processes=_processes_from(fields.get("processes")),
        object=_object_from(fields.get("object")))


def verdict_from(fields: Optional[Dict[str, Any]]) -> Optional[Verdict]:
    if fields is None:
        return None
    return Verdict(fields["kind"], bool(fields.get("certain")), fields["text"], tuple(fields.get("threads") or ()),
                   fields.get("others") or 0)
