"""Reads the events that the program reports with `--status-fd`, as dicts. docs/machine-interface.md lists them."""
from __future__ import annotations

import fcntl
import json
import os
import select
import subprocess
import time
from typing import Any, Callable, Dict, List, Optional, Sequence, Tuple, cast

from ._errors import start_error

Event = Dict[str, Any]

LOOK = 0.1  # seconds between checks that the program is still running


def parse(line: bytes) -> Optional[Event]:
    """Parses a line; returns None if it is not an event. Later versions may add members and events."""
    try:
        event: Any = json.loads(line.decode("utf-8", "replace"))
    except ValueError:
        return None
    if not isinstance(event, dict):
        return None
    members = cast(Event, event)
    return members if isinstance(members.get("event"), str) else None


class Events:
    """The events of one run of the program.

        events = Events()
        try:
            process = subprocess.Popen(events.command([binary, "record", ...]), pass_fds=[events.descriptor])
        finally:
            events.close_writer()
        event = events.next(10.0, lambda: process.poll() is not None)
    """

    def __init__(self) -> None:
        self._reader, writer = os.pipe()
        # A daemon may have closed its standard streams. The child uses descriptors 0 to 2, so avoid them.
        self.descriptor = writer if writer > 2 else fcntl.fcntl(writer, fcntl.F_DUPFD_CLOEXEC, 3)
        if self.descriptor != writer:
            os.close(writer)
        os.set_blocking(self._reader, False)
        self._heard = b""
        self._at_end = False

    def command(self, command: Sequence[str]) -> List[str]:
        """Adds --status-fd as the first flag, so that errors in the other flags are reported too."""
        return [*command[:2], "--status-fd", str(self.descriptor), *command[2:]]

    def close_writer(self) -> None:
        """Call this when the program has its own copy."""
        if self.descriptor >= 0:
            os.close(self.descriptor)
            self.descriptor = -1

    def close(self) -> None:
        self.close_writer()
        if self._reader >= 0:
            os.close(self._reader)
            self._reader = -1

    def _read(self) -> bool:
        """Reads what is available. Returns False if there is nothing."""
        try:
            data = os.read(self._reader, 1 << 16)
        except BlockingIOError:
            return False
        self._heard += data
        self._at_end = not data
        return bool(data)

    def _parsed(self) -> Optional[Event]:
        while b"\n" in self._heard:
            line, self._heard = self._heard.split(b"\n", 1)
            event = parse(line)
            if event is not None:
                return event
        return None

    def pending(self) -> List[Event]:
        """Returns the events that have arrived."""
        while self._reader >= 0 and self._read():
            pass
        events: List[Event] = []
        while True:
            event = self._parsed()
            if event is None:
                return events
            events.append(event)

    def next(self, timeout: float, ended: Callable[[], bool]) -> Optional[Event]:
        """Returns the next event, or None if the program has exited and all events are read. Raises TimeoutError.

        Waiting for the end of the pipe is not enough: a child forked by another thread may keep it open.
        """
        end = time.monotonic() + timeout
        poll = select.poll()
        poll.register(self._reader, select.POLLIN)
        while True:
            event = self._parsed()
            if event is not None:
                return event
            if self._at_end:
                return None
            left = end - time.monotonic()
            if left <= 0:
                raise TimeoutError("no answer within %g seconds" % timeout)
            if poll.poll(int(min(left, LOOK) * 1000) + 1):
                self._read()
            elif ended() and not self._read():
                return None


def run(command: Sequence[str], timeout: Optional[float]) -> "Tuple[subprocess.CompletedProcess[bytes], List[Event]]":
    """Runs the program until it exits, and captures its output. Its events fit into the pipe buffer. Raises
    subprocess.TimeoutExpired."""
    events = Events()
    try:
        done = subprocess.run(events.command(command), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, timeout=timeout, pass_fds=[events.descriptor])
        return done, events.pending()
    except OSError as error:
        raise start_error(error, command) from None
    finally:
        events.close()
