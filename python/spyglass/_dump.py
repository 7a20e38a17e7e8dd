"""`spyglass dump --json` -> typed objects."""
from __future__ import annotations

import json
import os
import subprocess
import unicodedata
from dataclasses import dataclass, replace
from typing import Any, Dict, Iterator, List, Optional, Tuple

from ._binary import binary as find_binary
from ._errors import SpyglassError, TimedOut, error_event, error_from
from ._pids import Pids, joined, listed, named
from ._ptracer import allow_children
from ._status import run
from ._text import safe
from ._wait import Verdict, Wait, verdict_from, wait_from, wait_text

_WAITS_FOR_GIL = "waiting for the GIL"  # as the program words it


@dataclass(frozen=True)
class Local:
    """A variable of a frame. `repr` is its value as repr() shows it, truncated if long."""

    name: str
    repr: str
    arg: bool  # an argument of the function
    addr: int  # address of the object in the target


@dataclass(frozen=True)
class Frame:
    """One call. `line` is 0 if unknown. `module` is the ELF file of a native function, None for Python.

    dump(source=True) sets `source`, the text of the line. In Python 3.11 and later, it also sets the part of the source that is
    being executed: up to `end_line`, with the columns as UTF-8 offsets, as in code.co_positions().
    """

    name: str
    filename: str
    short_filename: Optional[str]
    module: Optional[str]
    line: int
    locals: Optional[Tuple[Local, ...]]  # arguments first; None unless requested
    source: Optional[str] = None
    end_line: Optional[int] = None
    column: Optional[int] = None
    end_column: Optional[int] = None

    def __str__(self) -> str:
        name, where = safe(self.name), safe(self.short_filename or self.filename)
        return "%s (%s:%d)" % (name, where, self.line) if self.line else "%s (%s)" % (name, where)


@dataclass(frozen=True)
class Process:
    """A descendant of the requested process, with its chain of parents; or one of several requested processes."""

    pid: int
    command_line: str
    parent: Optional["Process"]


@dataclass(frozen=True)
class Thread:
    """A thread at one instant. `frames` lists the innermost call first."""

    pid: int
    thread_id: int  # threading.get_ident()
    os_thread_id: Optional[int]  # threading.get_native_id()
    name: Optional[str]
    active: bool  # in state R when sampled: running or runnable
    owns_gil: bool
    frames: Tuple[Frame, ...]
    process: Optional[Process]  # None for the requested process, if it is the only one
    waits_for_gil: bool = False  # asleep until it gets the GIL
    waits_for: Optional[Wait] = None  # None for a thread that does not sleep in the kernel
    verdict: Optional[Verdict] = None  # of the first thread of a process: why the process does not continue
    hostname: Optional[str] = None
    rank: Optional[int] = None  # the number of the process in its job
    rank_from: Optional[str] = None  # the environment variable that has it, such as RANK

    @property
    def status(self) -> str:
        """`idle`, `waiting for the GIL`, `active` or `active+gil`."""
        if self.waits_for_gil:
            return _WAITS_FOR_GIL
        if not self.active:
            return "idle"
        return "active+gil" if self.owns_gil else "active"

    def __str__(self) -> str:
        return "\n".join(thread_lines(self))


def _columns(text: str) -> int:
    """The width of the text in a terminal."""
    return sum(0 if unicodedata.combining(char) else 2 if unicodedata.east_asian_width(char) in "WF" else 1 for char in text)


def _source_lines(frame: Frame) -> Iterator[str]:
    """The source line, and carets under the part that is being executed, unless that is all of it: see src/out/dump_source.c."""
    line = (frame.source or "").lstrip(" \t\f").translate({9: " ", 11: " ", 12: " "})
    if not line:
        return
    yield "        " + safe(line)
    if frame.end_line is None or frame.column is None or frame.end_column is None or "\ufffd" in line:
        return
    data = line.encode("utf-8", "replace")
    indent = len(frame.source or "") - len(line)
    begin = max(frame.column - indent, 0)
    end = len(data) if frame.end_line > frame.line else min(max(frame.end_column - indent, 0), len(data))
    before, part = (safe(piece.decode("utf-8", "ignore")) for piece in (data[:begin], data[begin:end]))
    if part and end - begin < len(data):
        yield "        " + " " * _columns(before) + "^" * _columns(part)


def _variable_lines(frame: Frame) -> Iterator[str]:
    for heading, arg in (("Arguments", True), ("Locals", False)):
        found = [variable for variable in frame.locals or () if variable.arg == arg]
        if found:
            yield "        %s:" % heading
        for variable in found:
            yield "            %s: %s" % (safe(variable.name), safe(variable.repr))


def thread_lines(thread: Thread, full_filenames: bool = False) -> List[str]:
    """Returns the lines that `spyglass dump` prints for a thread: see src/out/dump_text.c."""
    ident = thread.os_thread_id if thread.os_thread_id is not None else "0x%X" % thread.thread_id
    name = ': "%s"' % safe(thread.name) if thread.name is not None else ""
    lines = ["Thread %s (%s)%s" % (ident, thread.status, name)]
    if thread.waits_for is not None:
        lines.append("  " + wait_text(thread.waits_for, thread.pid))
    for frame in thread.frames:
        lines.append("    %s" % (replace(frame, short_filename=None) if full_filenames else frame))
        lines += _source_lines(frame)
        lines += _variable_lines(frame)
    return lines


def _frame(fields: Dict[str, Any]) -> Frame:
    variables = fields.get("locals")
    return Frame(
        name=fields["name"],
        filename=fields["filename"],
        short_filename=fields.get("short_filename"),
        module=fields.get("module"),
        line=fields.get("line") or 0,
        locals=None if variables is None else tuple(
            Local(v["name"], v.get("repr") or "", bool(v.get("arg")), v.get("addr") or 0) for v in variables),
        source=fields.get("source"),
        end_line=fields.get("end_line"),
        column=fields.get("column"),
        end_column=fields.get("end_column"))


def _process(fields: Optional[Dict[str, Any]]) -> Optional[Process]:
    if fields is None:
        return None
    return Process(fields["pid"], fields.get("command_line") or "", _process(fields.get("parent")))


def thread_from(fields: Dict[str, Any]) -> Thread:
    return Thread(
        pid=fields["pid"],
        thread_id=fields["thread_id"],
        os_thread_id=fields.get("os_thread_id"),
        name=fields.get("thread_name"),
        active=fields["active"],
        owns_gil=fields["owns_gil"],
        frames=tuple(_frame(f) for f in fields["frames"]),
        process=_process(fields.get("process_info")),
        waits_for_gil=fields.get("state") == _WAITS_FOR_GIL,
        waits_for=wait_from(fields.get("waits_for")),
        verdict=verdict_from(fields.get("verdict")),
        hostname=fields.get("hostname"),
        rank=fields.get("rank"),
        rank_from=fields.get("rank_from"))


def dump(
    pid: Pids = None,
    *,
    native: bool = False,
    native_all: bool = False,
    locals: int = 0,
    show_secrets: bool = False,
    source: bool = False,
    subprocesses: bool = False,
    nonblocking: bool = False,
    waits: bool = True,
    timeout: Optional[float] = 60.0,
    binary: Optional[str] = None,
) -> List[Thread]:
    """Returns the current stack of every thread of a process, main thread first. Without `pid`, dumps this process. With a list
    of PIDs, dumps all of these; processes that cannot be read are left out, unless it is all of them.

    `locals` is 0 to 3: none, the variables of each frame, longer values and attributes, even longer values. `source` adds the
    source line of each frame. `waits` adds what each thread waits for, and why the process does not continue.

    Raises SpyglassError with the program's message. It is also a PermissionError, ProcessLookupError, TimeoutError, or
    FileNotFoundError if the program is missing.
    """
    pids = listed(pid)
    command = [find_binary(binary), "dump", "--json", "--pid", joined(pids)]
    command += ["--native"] * native + ["--native-all"] * native_all + ["--locals"] * int(locals)
    command += ["--show-secrets"] * show_secrets + ["--source"] * source
    command += ["--subprocesses"] * subprocesses + ["--nonblocking"] * nonblocking + ["--no-tasks"]
    command += ["--no-waits"] * (not waits)
    if os.getpid() in pids:
        allow_children()
    try:
        done, events = run(command, timeout)
    except subprocess.TimeoutExpired:
        raise TimedOut("no dump of %s within %g seconds" % (named(pids), timeout or 0)) from None
    if done.returncode != 0 and not any(event["event"] == "finished" for event in events):
        raise error_from(error_event(events), done.stderr.decode("utf-8", "replace"), done.returncode, command)
    try:
        return [thread_from(fields) for fields in json.loads(done.stdout.decode("utf-8"))]
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise SpyglassError("%s wrote a dump that cannot be parsed: %s" % (command[0], error), 0, command) from None
