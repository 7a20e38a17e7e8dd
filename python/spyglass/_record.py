"""Runs `spyglass record` as a child process and returns profiles.

The child writes to an inherited anonymous file, so nothing is left behind however we exit. On another inherited
descriptor (_status.py) it reports when sampling starts and when the file is complete. It runs in its own session, so
that Ctrl-C in the terminal reaches only us. It stops on SIGINT, after its duration, when its target exits, and when we
exit (--with-parent). PR_SET_PDEATHSIG would not do: it stops the child when the thread that started it exits.
"""
from __future__ import annotations

import os
import signal
import subprocess
import tempfile
import threading
import time
import weakref
from types import TracebackType
from typing import IO, Callable, List, Literal, Optional, Sequence, Type, Union

from ._binary import binary as find_binary
from ._errors import TimedOut, error_from, start_error
from ._formats import Format, Path, check_format, format_of
from ._profile import Profile, finished
from ._pids import Pids, joined, listed, named
from ._ptracer import allow_children
from ._status import Event, Events
from ._text import safe_lines

START_PATIENCE = 60.0  # seconds until a child that does not start sampling counts as hung
STOP_PATIENCE = 120.0  # writing a large profile takes time
EXIT_PATIENCE = 10.0  # the same if nobody needs the result


def _end(process: "subprocess.Popen[bytes]", events: Events, owner: int) -> None:
    """Finalizer of a recording, also at interpreter exit: leaves neither a profiler nor a zombie behind."""
    if os.getpid() != owner:
        return  # a copy of the recording in a forked child
    if process.poll() is None:
        process.send_signal(signal.SIGINT)
        try:
            process.wait(EXIT_PATIENCE)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
    events.close()


def _nameless_file() -> IO[bytes]:
    if hasattr(os, "memfd_create"):
        try:
            return os.fdopen(os.memfd_create("spyglass"), "w+b", buffering=0)
        except OSError:
            pass
    return tempfile.TemporaryFile(buffering=0)


def _content(file: IO[bytes]) -> bytes:
    """Reads the whole file without moving the file position, which the child shares."""
    parts: List[bytes] = []
    at = 0
    while True:
        part = os.pread(file.fileno(), 1 << 20, at)
        if not part:
            return b"".join(parts)
        parts.append(part)
        at += len(part)


class Recording:
    """A recording, created by record(). It can be started once. All methods are thread-safe."""

    def __init__(self, pid: Pids, command: Sequence[str], output: Optional[str], format: Format, rate: float) -> None:
        self._given = pid
        self._pids: List[int] = []  # once it has been started
        self._command = list(command)
        self._argv: List[str] = []
        self._output = output
        self._format: Format = format
        self._rate = rate
        self._owner = 0  # the process that started it
        self._process: Optional["subprocess.Popen[bytes]"] = None
        self._file: Optional[IO[bytes]] = None
        self._messages: Optional[IO[bytes]] = None
        self._events: Optional[Events] = None
        self._finished: Optional[Event] = None
        self._error: Optional[Event] = None  # the error that ended the child
        self._profile: Optional[Profile] = None
        self._failure: Optional[Exception] = None
        self._finalizer: Optional[Callable[[], object]] = None
        self._lock = threading.RLock()

    # ---- public methods ----

    @property
    def pid(self) -> int:
        """PID of the recorded process; of several, the first."""
        return (self._pids or listed(self._given))[0]

    @property
    def running(self) -> bool:
        """Whether the recording has started and is still sampling."""
        return self._process is not None and self._profile is None and self._process.poll() is None

    @property
    def profile(self) -> Profile:
        """The result, after the recording has stopped."""
        if self._profile is None:
            raise self._failure or RuntimeError("the recording has not stopped: call stop(), or snapshot() for the "
                                                "profile so far")
        return self._profile

    def start(self) -> Recording:
        """Starts the recording. Returns when sampling has started."""
        with self._lock:
            if self._process is not None:
                raise RuntimeError("a recording can be started only once: create another")
            self._owner = os.getpid()
            self._pids = listed(self._given)
            self._launch()
            self._wait_for_start()
        return self

    def snapshot(self, timeout: float = STOP_PATIENCE) -> Profile:
        """Returns the profile so far; the recording continues. If it has already ended, returns the complete profile."""
        self._check()
        with self._lock:
            process = self._child()
            if self._profile is not None or process.poll() is not None:
                return self.stop(timeout)
            self._drain()
            process.send_signal(signal.SIGUSR1)
            event = self._next("snapshot", timeout)
            if event is None:
                return self.stop(timeout)
            return self._result(event)

    def stop(self, timeout: float = STOP_PATIENCE) -> Profile:
        """Stops the recording and returns its profile. Further calls return the same profile."""
        self._check()
        with self._lock:
            process = self._child()
            if self._profile is None and self._failure is None and process.poll() is None:
                process.send_signal(signal.SIGINT)
            return self._collect(timeout)

    def wait(self, timeout: Optional[float] = None) -> Profile:
        """Waits until the recording ends by itself: after its duration, or when its target exits. Raises TimeoutError."""
        self._check()
        try:
            # Without the lock, so that another thread can call stop(). Nobody has to read the events: the child never
            # blocks on them.
            self._child().wait(timeout)
        except subprocess.TimeoutExpired:
            raise TimedOut("the recording of %s is still running after %g seconds"
                           % (named(self._pids), timeout or 0)) from None
        return self.stop()

    def __enter__(self) -> Recording:
        return self.start()

    def __exit__(self, kind: Optional[Type[BaseException]], error: Optional[BaseException],
                 trace: Optional[TracebackType]) -> None:
        if kind is None:
            self.stop()
            return
        try:
            self.stop()
        except Exception:
            pass  # do not hide the exception of the block

    # ---- the child ----

    def _check(self) -> None:
        if self._process is None:
            raise RuntimeError("the recording has not been started")
        if os.getpid() != self._owner:
            raise RuntimeError("the recording belongs to process %d, which forked this one" % self._owner)

    def _child(self) -> "subprocess.Popen[bytes]":
        assert self._process is not None
        return self._process

    def _launch(self) -> None:
        if self._output is None:
            self._file = _nameless_file()
            place, inherited = "/dev/fd/%d" % self._file.fileno(), [self._file.fileno()]
        else:
            place, inherited = self._output, []
        self._messages = tempfile.TemporaryFile(buffering=0)
        if os.getpid() in self._pids:
            allow_children()
        events = Events()
        self._argv = events.command(self._command) + ["--pid", joined(self._pids), "--output", place,
                                                      "--with-parent", str(os.getpid())]
        try:
            self._process = subprocess.Popen(self._argv, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                                             stderr=self._messages, pass_fds=[*inherited, events.descriptor],
                                             start_new_session=True)
        except OSError as error:
            events.close()
            raise start_error(error, self._argv) from None
        except BaseException:
            events.close()
            raise
        events.close_writer()
        self._events = events
        self._finalizer = weakref.finalize(self, _end, self._process, events, self._owner)

    def _wait_for_start(self) -> None:
        try:
            if self._next("ready", START_PATIENCE) is not None:
                return
            self._child().wait(START_PATIENCE)
        except (TimeoutError, subprocess.TimeoutExpired):
            self._child().kill()
            self._child().wait()
            self._failure = TimedOut("the profiler of %s did not start within %g seconds: %s"
                                     % (named(self._pids), START_PATIENCE, safe_lines(self._said())))
            self._release()
            raise self._failure from None
        self._fail()

    def _said(self) -> str:
        """Returns what the child has written to standard error."""
        return _content(self._messages).decode("utf-8", "replace") if self._messages else ""

    def _note(self, event: Event) -> None:
        """Stores an event that ends the recording. It may arrive while we wait for another event."""
        if event["event"] == "finished":
            self._finished = event
        elif event["event"] == "error" and event.get("fatal"):
            self._error = event

    def _drain(self) -> None:
        """Consumes pending events, so that a late reply is not mistaken for the next one."""
        assert self._events is not None
        for event in self._events.pending():
            self._note(event)

    def _next(self, wanted: str, timeout: float) -> Optional[Event]:
        """Returns the next event of this name, or None if the child has finished or failed. Raises an error that does not
        end the child: a snapshot that cannot be written."""
        assert self._events is not None
        end = time.monotonic() + timeout
        while self._finished is None:
            try:
                event = self._events.next(max(0.0, end - time.monotonic()), lambda: self._child().poll() is not None)
            except TimeoutError:
                raise TimedOut("the profiler of %s did not answer within %g seconds"
                               % (named(self._pids), timeout)) from None
            if event is None:
                return None
            self._note(event)
            if event["event"] == wanted:
                return event
            if event["event"] == "error" and not event.get("fatal") and wanted == "snapshot":
                raise error_from(event, "", 1, self._argv)
        return None

    def _collect(self, timeout: float) -> Profile:
        if self._failure is not None:
            raise self._failure
        if self._profile is not None:
            return self._profile
        try:
            self._next("finished", timeout)
            status = self._child().wait(STOP_PATIENCE)
        except subprocess.TimeoutExpired:
            raise TimedOut("the profiler of %s did not exit" % named(self._pids)) from None
        # The status is 1, too, if some of several processes could not be read.
        if self._finished is None or (status != 0 and len(self._pids) == 1):
            self._fail()
        assert self._finished is not None
        self._profile = self._result(self._finished)
        self._release()
        return self._profile

    def _result(self, event: Event) -> Profile:
        """Returns the profile that the child has just written."""
        if self._file is not None:
            data = _content(self._file)
        else:
            assert self._output is not None
            with open(self._output, "rb") as file:
                data = file.read()
        if self._format != "raw":
            return finished(data, self._format, event["samples"])
        return Profile.from_raw(data.decode("utf-8", "replace"), rate=self._rate, errors=event["errors"],
                                title=named(self._pids))

    def _fail(self) -> None:
        process = self._child()
        self._failure = error_from(self._error, self._said(), process.returncode, self._argv)
        self._release()
        raise self._failure

    def _release(self) -> None:
        if self._finalizer is not None:
            self._finalizer()
        for file in (self._file, self._messages):
            if file is not None:
                file.close()
        self._file = self._messages = None


def record(
    pid: Pids = None,
    *,
    rate: float = 100,
    duration: Optional[float] = None,
    mode: Optional[str] = None,
    native: bool = False,
    idle: bool = False,
    gil: bool = False,
    threads: bool = False,
    subprocesses: bool = False,
    function: bool = False,
    asyncio: Union[bool, Literal["all"]] = False,
    nonblocking: bool = False,
    format: Optional[Format] = None,
    output: Optional[Path] = None,
    extra_args: Sequence[str] = (),
    binary: Optional[str] = None,
) -> Recording:
    """Creates a recording of a process, or of a list of PIDs; without `pid`, of this one. start() or a `with` statement starts it:

        with spyglass.record() as recording:
            work()
        recording.profile.save("profile.svg")

    The default of `format` follows from the extension of `output`, else it is raw. Raises ValueError if no format has
    the extension. Without `output`, no file is left behind. `asyncio` shows running tasks below those that await them;
    "all" adds the waiting tasks. `extra_args` are further flags for `spyglass record`.
    """
    if asyncio not in (False, True, "all"):
        raise ValueError("asyncio is False, True or 'all', not %r" % (asyncio,))
    if format is None:
        format = (format_of(output) if output is not None else None) or "raw"
    format = check_format(format)
    command = [find_binary(binary), "record", "--hideprogress", "--format", format, "--rate", repr(float(rate))]
    command += ["--duration", repr(float(duration))] if duration is not None else []
    command += ["--mode", mode] if mode is not None else []
    for flag, wanted in (("--native", native), ("--idle", idle), ("--gil", gil), ("--threads", threads),
                         ("--subprocesses", subprocesses), ("--function", function), ("--nonblocking", nonblocking)):
        command += [flag] if wanted else []
    command += ["--async=all"] if asyncio == "all" else ["--async"] if asyncio else []
    command += list(extra_args)
    return Recording(pid, command, None if output is None else os.fspath(output), format, float(rate))
