"""Profiles Dagster ops and assets, and adds a flame graph to the metadata of their outputs.

    from dagster import asset
    from spyglass.dagster import profiled

    @asset
    @profiled
    def report(): ...

or, for a part of an op, with a resource:

    @op
    def work(context, spyglass: Spyglass):
        with spyglass.profile(context):
            ...

The flame graph is also saved as a file in the run's storage. Its path is in the metadata; if the op fails, it is in the
log. The profile contains the op's own thread, from the op's function down, and the threads that the op started. It
includes waiting time.
"""
from __future__ import annotations

import base64
import contextlib
import functools
import inspect
import os
import re
import sys
import tempfile
import threading
from typing import Any, AsyncIterator, Callable, Dict, Iterator, List, Optional, Tuple, TypeVar, Union, cast, overload

from dagster import ConfigurableResource, MetadataValue, OpExecutionContext

from ._formats import Format, check_format, extension_of
from ._picture import still_picture
from ._profile import Profile
from ._record import Recording, record
from ._text import safe_lines

__all__ = ["Spyglass", "profiled"]

THREAD = re.compile(r"thread \((\d+)\)")
OURS = "(spyglass/dagster.py:"  # frames below the op that start and stop the recording
MARK = "_spyglass_calls"  # our function that calls the op; the frames above it are Dagster's

Function = TypeVar("Function", bound=Callable[..., Any])


def _threads_now() -> List[int]:
    return [int(name) for name in os.listdir("/proc/self/task")]


def _below(frames: Tuple[str, ...], top: Optional[str]) -> Tuple[str, ...]:
    """Returns the frames from function `top` down, or without `top` those below MARK. Empty if there is no such frame."""
    names = [frame.partition(" (")[0] for frame in frames]
    if top is not None:
        return frames[names.index(top):] if top in names else ()
    marks = [i for i, name in enumerate(names) if MARK in name]
    return frames[marks[-1] + 1:] if marks else ()


def _own_part(profile: Profile, own: int, others: List[int], top: Optional[str]) -> Profile:
    """Removes threads that existed before the op, and Dagster's frames above the op."""
    stacks: List[Tuple[Tuple[str, ...], int]] = []
    for frames, count in profile.stacks:
        found = THREAD.match(frames[0])
        thread = int(found.group(1)) if found else own
        if thread == own:
            below = _below(frames, top)
            if below and not any(OURS in frame for frame in below):
                stacks.append((below, count))
        elif thread not in others:
            stacks.append((frames, count))
    return Profile(stacks, rate=profile.rate, title=profile.title, errors=profile.errors)


class _Report:
    """One recording of one op, and its metadata."""

    def __init__(self, context: Any, name: Optional[str], whole: bool, format: str, directory: Optional[str],
                 options: Dict[str, Any], top: Optional[str] = None) -> None:
        self._context = getattr(context, "op_execution_context", context)  # an asset's context wraps it
        self._top = top
        self._name = name
        self._whole = whole
        self._format = format
        self._directory = directory
        self._options = dict(options, threads=True) if not whole else options
        self._recording: Optional[Recording] = None
        self._own = threading.get_native_id()
        self._others: List[int] = []

    def start(self) -> None:
        try:
            self._others = [thread for thread in _threads_now() if thread != self._own]
            self._recording = record(**self._options).start()
        except Exception as error:  # a failure to profile must not fail the op
            self._context.log.warning("spyglass could not profile this: %s" % safe_lines(error))

    def stop(self) -> Dict[str, Any]:
        """Stops the recording and returns the metadata. Empty if there is no profile."""
        recording, self._recording = self._recording, None
        if recording is None:
            return {}
        try:
            profile = recording.stop()
            if not self._whole:
                profile = _own_part(profile, self._own, self._others, self._top)
            profile.title = "%s, %s" % (self._context.job_name, self._step())
            return self._save(profile)
        except Exception as error:
            self._context.log.warning("spyglass could not save the profile: %s" % safe_lines(error))
            return {}

    def _step(self) -> str:
        step = self._context.get_step_execution_context().step.key if hasattr(
            self._context, "get_step_execution_context") else self._context.op_def.name
        return "%s %s" % (step, self._name) if self._name else str(step)

    def _place(self) -> str:
        """Returns the path of the file: in the run's storage, like Dagster's own files."""
        directory = self._directory
        if directory is None:
            try:
                directory = self._context.instance.storage_directory()
            except Exception:  # the instance has none, in Dagster+ or a test
                directory = tempfile.gettempdir()
        directory = os.path.join(directory, self._context.run_id, "spyglass")
        os.makedirs(directory, exist_ok=True)
        retries = getattr(self._context, "retry_number", 0)
        name = re.sub(r"[^\w.-]+", "_", self._step()) + (".retry%d" % retries if retries else "")
        return os.path.join(directory, name + extension_of(check_format(self._format)))

    def _save(self, profile: Profile) -> Dict[str, Any]:
        samples = profile.samples
        if not samples:
            profile = Profile([(("[no samples: the op was too short]",), 1)], rate=profile.rate, title=profile.title)
        place = self._place()
        profile.save(place, check_format(self._format))
        key = "spyglass %s" % self._name if self._name else "spyglass"
        metadata: Dict[str, Any] = {key + " file": MetadataValue.path(place),
                                    key + " samples": MetadataValue.int(samples)}
        encoded = base64.b64encode(still_picture(profile.render("flamegraph")).encode("utf-8")).decode("ascii")
        metadata[key] = MetadataValue.md("![flame graph](data:image/svg+xml;base64,%s)" % encoded)
        return metadata

    def attach(self, metadata: Dict[str, Any], output: Optional[str] = None, mapping_key: Optional[str] = None) -> None:
        """Adds the metadata to the named output, or to the first one."""
        names = [output] if output else list(getattr(self._context, "selected_output_names", None) or
                                             [o.name for o in self._context.op_def.output_defs])
        if not metadata or not names:
            return
        try:
            self._context.add_output_metadata(metadata, output_name=names[0], mapping_key=mapping_key)
        except Exception as error:  # Dagster already has this output
            self._context.log.warning("spyglass could not attach the profile: %s" % safe_lines(error))
            self.log(metadata)

    def log(self, metadata: Dict[str, Any]) -> None:
        for key, value in metadata.items():
            if key.endswith(" file"):
                self._context.log.info("The profile of %s: %s" % (self._step(), value.value))


def _context_of(args: Tuple[Any, ...]) -> Any:
    """Returns the op's context: its argument, or the current one. None outside of a run."""
    for argument in args[:1]:
        if hasattr(argument, "add_output_metadata"):
            return argument
    try:
        return OpExecutionContext.get()
    except Exception:
        return None


@contextlib.contextmanager
def _reported(make: Callable[[Any], Optional[_Report]], args: Tuple[Any, ...]) -> Iterator[None]:
    report = make(_context_of(args))
    if report is None:
        yield
        return
    report.start()
    try:
        yield
    except BaseException:
        report.log(report.stop())
        raise
    report.attach(report.stop())


def _wrap_plain(function: Callable[..., Any], make: Callable[[Any], Optional[_Report]]) -> Callable[..., Any]:
    @functools.wraps(function)
    def _spyglass_calls(*args: Any, **kwargs: Any) -> Any:
        with _reported(make, args):
            return function(*args, **kwargs)

    return _spyglass_calls


def _wrap_async(function: Callable[..., Any], make: Callable[[Any], Optional[_Report]]) -> Callable[..., Any]:
    @functools.wraps(function)
    async def _spyglass_calls(*args: Any, **kwargs: Any) -> Any:
        with _reported(make, args):
            return await function(*args, **kwargs)

    return _spyglass_calls


class _Events:
    """The events of a generator, each delayed until the next one arrives. The metadata goes to the last output, and
    Dagster accepts no metadata for an output that was already yielded."""

    def __init__(self, report: Optional[_Report]) -> None:
        self._report = report
        self._held: List[Any] = []
        if report is not None:
            report.start()

    def take(self, event: Any) -> List[Any]:
        ready, self._held = self._held, [event]
        return ready

    def end(self, failed: bool) -> List[Any]:
        if self._report is not None:
            metadata = self._report.stop()
            if failed:
                self._report.log(metadata)
            else:
                last = self._held[0] if self._held else None
                self._report.attach(metadata, getattr(last, "output_name", None), getattr(last, "mapping_key", None))
            self._report = None
        ready, self._held = self._held, []
        return ready


def _wrap_generator(function: Callable[..., Any], make: Callable[[Any], Optional[_Report]]) -> Callable[..., Any]:
    @functools.wraps(function)
    def _spyglass_calls(*args: Any, **kwargs: Any) -> Iterator[Any]:
        events = _Events(make(_context_of(args)))
        try:
            for event in function(*args, **kwargs):
                yield from events.take(event)
        except GeneratorExit:
            events.end(True)
            raise
        except BaseException:
            yield from events.end(True)
            raise
        yield from events.end(False)

    return _spyglass_calls


def _wrap_async_generator(function: Callable[..., Any], make: Callable[[Any], Optional[_Report]]) -> Callable[..., Any]:
    @functools.wraps(function)
    async def _spyglass_calls(*args: Any, **kwargs: Any) -> AsyncIterator[Any]:
        events = _Events(make(_context_of(args)))
        try:
            async for event in function(*args, **kwargs):
                for ready in events.take(event):
                    yield ready
        except GeneratorExit:
            events.end(True)
            raise
        except BaseException:
            for ready in events.end(True):
                yield ready
            raise
        for ready in events.end(False):
            yield ready

    return _spyglass_calls


@overload
def profiled(function: Function) -> Function: ...


@overload
def profiled(*, format: Format = ..., directory: Optional[str] = ..., whole_process: bool = ..., rate: float = ...,
             idle: bool = ..., native: bool = ..., gil: bool = ..., subprocesses: bool = ...,
             function_lines: bool = ...) -> Callable[[Function], Function]: ...


def profiled(
    function: Optional[Function] = None,
    *,
    format: Format = "flamegraph",
    directory: Optional[str] = None,
    whole_process: bool = False,
    rate: float = 100,
    idle: bool = True,
    native: bool = False,
    gil: bool = False,
    subprocesses: bool = False,
    function_lines: bool = False,
) -> Union[Function, Callable[[Function], Function]]:
    """Profiles the function of an op or asset. Put it below @op or @asset.

    `format` is the format of the file; the metadata always contains a flame graph. `directory` replaces the run's storage
    as the place for the file. `whole_process` includes all threads, also Dagster's own. `function_lines` aggregates by
    function instead of by line. The other arguments are those of spyglass.record(). Outside of Dagster, the function is
    called without profiling. If profiling fails, the log has a warning, and the op continues.
    """
    options = dict(rate=rate, idle=idle, native=native, gil=gil, subprocesses=subprocesses, function=function_lines)

    def make(context: Any) -> Optional[_Report]:
        return None if context is None else _Report(context, None, whole_process or subprocesses, format, directory, options)

    def wrap(wrapped: Function) -> Function:
        if inspect.isasyncgenfunction(wrapped):
            return cast(Function, _wrap_async_generator(wrapped, make))
        if inspect.iscoroutinefunction(wrapped):
            return cast(Function, _wrap_async(wrapped, make))
        if inspect.isgeneratorfunction(wrapped):
            return cast(Function, _wrap_generator(wrapped, make))
        return cast(Function, _wrap_plain(wrapped, make))

    format = check_format(format)
    return wrap if function is None else wrap(function)


class Spyglass(ConfigurableResource):
    """A resource: `with spyglass.profile(context): ...` profiles a part of an op. Set `enabled` in the run configuration
    to switch it on or off without changing code."""

    enabled: bool = True
    format: str = "flamegraph"
    rate: float = 100.0
    idle: bool = True
    native: bool = False
    directory: Optional[str] = None

    @contextlib.contextmanager
    def profile(self, context: Any, name: Optional[str] = None, output: Optional[str] = None) -> Iterator[None]:
        """Adds the profile to the metadata of `output`, or of the first output. `name` distinguishes several profiles."""
        if not self.enabled:
            yield
            return
        options = dict(rate=self.rate, idle=self.idle, native=self.native)
        # The function that contains the `with`: two frames up, above contextlib's __enter__. Python 3.11 and later show
        # qualified names.
        code = sys._getframe(2).f_code  # pyright: ignore[reportPrivateUsage]
        top = getattr(code, "co_qualname", code.co_name)
        report = _Report(context, name, False, self.format, self.directory, options, top)
        report.start()
        try:
            yield
        except BaseException:
            report.log(report.stop())
            raise
        report.attach(report.stop(), output)
