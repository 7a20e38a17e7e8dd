"""Profiles the scheduler and all workers of a Dask cluster, in one flame graph.

    from distributed import Client
    from spyglass.dask import profile_cluster, profile_scheduler, profile_workers

    client = Client(...)
    with profile_cluster("cluster.svg"):         # one root frame for the scheduler and for each worker
        df.set_index("id").mean().compute()

`profile_cluster`, `profile_scheduler` and `profile_workers` are also async context managers. `pyspy` and `pyspy_on_scheduler` take the arguments of dask-pyspy: change
the import and nothing else.

Each process runs the program as its child to profile itself, which needs no privileges. Neither this package nor the
program has to be installed on the cluster: the client sends both. Workers that join later are recorded from their start.
A worker that shuts down cleanly sends its profile to the scheduler. A worker that is killed is listed in `problems`. If
the client disconnects, all recordings stop.
"""
from __future__ import annotations

import asyncio
import inspect
import os
import random
import uuid
import warnings
import zlib
from contextlib import contextmanager
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Awaitable, Callable, Dict, Iterable, Iterator, List, Optional, Sequence, Tuple, Type, Union, cast

import distributed

from . import _cluster, _dask_there
from ._cluster import ClusterError, error_of
from ._formats import Format, Path, absolute, check_format, format_of
from ._profile import Profile, finished
from ._text import safe, safe_lines

__all__ = ["ClusterError", "ClusterProfiler", "Part", "profile_cluster", "profile_scheduler", "profile_workers", "pyspy",
           "pyspy_on_scheduler"]

SCHEDULER = "scheduler"
AT_ONCE = 64  # concurrent requests
GONE = "the worker exited before its profile could be fetched"
RESTARTED = "the worker was restarted: its earlier samples are lost"

Workers = Union[None, int, str, Sequence[str]]
Read = Callable[..., Awaitable[Any]]


@dataclass(frozen=True)
class Part:
    """The profile of one process. `addresses` lists all workers in it, and `scheduler` if it runs the scheduler."""

    name: str  # "scheduler tcp://…", "worker 0, tcp://…"
    addresses: Tuple[str, ...]
    profile: Profile


def _by_value() -> None:
    """Makes Dask pickle our code by value. For cloudpickle the package is enough; distributed checks the module itself."""
    import cloudpickle

    import spyglass

    cloudpickle.register_pickle_by_value(spyglass)
    cloudpickle.register_pickle_by_value(_dask_there)


def _members(answer: Any) -> Optional[_dask_there.Answer]:
    """Returns an answer that is a dict, or None if it is an Exception."""
    return cast(_dask_there.Answer, answer) if isinstance(answer, dict) else None


def _why(answer: Any) -> Optional[str]:
    """Returns the error in an answer, which is a dict or an Exception. None if there is no error."""
    members = _members(answer)
    if members is None:
        return str(answer) or type(answer).__name__
    return members.get("error") or ("it was not recorded" if members.get("unknown") else None)


class ClusterProfiler:
    """Records the scheduler, workers or both during a `with` or `async with` block. Created by profile_cluster() and the
    functions below it. Results: `profile`, `parts` (one per process), `problems` and the program's `advice` (by address).
    """

    def __init__(self, output: Optional[Path], format: Optional[Format], client: Optional[Any], scheduler: bool,
                 workers: Workers, all_workers: bool, options: Dict[str, Any], part_format: Format, on_error: str,
                 timeout: float, save: Optional[Callable[[ClusterProfiler], None]] = None) -> None:
        if on_error not in ("raise", "warn"):
            raise ValueError("on_error must be 'raise' or 'warn', not %r" % (on_error,))
        self.output = output
        self.format: Optional[Format] = check_format(format) if format is not None else \
            format_of(output) if output is not None else None
        self.parts: List[Part] = []
        self.problems: Dict[str, str] = {}
        self.advice: Dict[str, str] = {}
        self._client = client
        self._scheduler = scheduler
        self._wanted = [workers] if isinstance(workers, str) else workers
        self._all = all_workers
        self._part_format: Format = part_format
        self._options = dict(options, format=part_format)
        self._on_error = on_error
        self._timeout = timeout
        self._save = save
        self._session = uuid.uuid4().hex
        self._asked: List[str] = []  # addresses that received a start request
        self._keys: Dict[str, str] = {}  # address -> process
        self._names: Dict[str, str] = {}  # address -> a worker's name
        self._used = False
        self._plugin = False
        self._profile: Optional[Profile] = None
        self._gate: Optional[asyncio.Semaphore] = None

    @property
    def client(self) -> Any:
        if self._client is None:
            self._client = distributed.get_client()
        return self._client

    @property
    def profile(self) -> Profile:
        """The merged profile, with one root frame per process."""
        if self._profile is None:
            raise RuntimeError("there is no merged profile: the recording has not ended, has failed, or wrote one file per "
                               "process")
        return self._profile

    # with, async with

    def __enter__(self) -> ClusterProfiler:
        if self.client.asynchronous:
            raise TypeError("this client is asynchronous: use `async with`")
        self._prepare()
        self.client.sync(self._start)
        return self

    def __exit__(self, kind: Optional[Type[BaseException]], error: Optional[BaseException],
                 trace: Optional[TracebackType]) -> None:
        try:
            self.client.sync(self._stop)
            self._finish(kind is None)
        except Exception as failure:
            if kind is None:
                raise
            # Do not hide the exception of the block.
            warnings.warn("no profile: %s" % safe_lines(failure), RuntimeWarning, stacklevel=2)

    async def __aenter__(self) -> ClusterProfiler:
        if not self.client.asynchronous:  # it belongs to another event loop, or to none
            return await asyncio.get_running_loop().run_in_executor(None, self.__enter__)
        self._prepare()
        await self._start()
        return self

    async def __aexit__(self, kind: Optional[Type[BaseException]], error: Optional[BaseException],
                        trace: Optional[TracebackType]) -> None:
        loop = asyncio.get_running_loop()
        if not self.client.asynchronous:
            return await loop.run_in_executor(None, self.__exit__, kind, error, trace)
        try:
            await self._stop()
            await loop.run_in_executor(None, self._finish, kind is None)
        except Exception as failure:
            if kind is None:
                raise
            warnings.warn("no profile: %s" % safe_lines(failure), RuntimeWarning, stacklevel=2)

    def _prepare(self) -> None:
        if self._used:
            raise RuntimeError("a profiler can be used only once: create another")
        self._used = True
        _by_value()
        if self.output is not None:
            directory = os.path.dirname(absolute(self.output))
            os.makedirs(directory, exist_ok=True)

    # requests

    async def _ask(self, address: str, function: Read, *args: Any) -> Any:
        """Returns the result of `function` in that process. An Exception is returned, not raised."""
        async def ask() -> Any:
            if address == SCHEDULER:
                return await self.client.run_on_scheduler(function, *args)
            answers = await self.client.run(function, *args, workers=[address], on_error="return")
            if address not in answers:
                raise OSError("the worker has left")
            return answers[address]

        if self._gate is None:
            self._gate = asyncio.Semaphore(AT_ONCE)
        async with self._gate:
            try:
                return await asyncio.wait_for(ask(), self._timeout)
            except asyncio.TimeoutError:
                return TimeoutError("no answer within %g seconds: its event loop is busy, or it has exited" % self._timeout)
            except Exception as error:
                return error

    async def _ask_all(self, addresses: Iterable[str], function: Read, *args: Any) -> Dict[str, Any]:
        listed = list(addresses)
        answers = await asyncio.gather(*(self._ask(address, function, *args) for address in listed))
        return dict(zip(listed, answers))

    async def _workers_now(self) -> Dict[str, str]:
        """Maps each worker's address to its name. The client's scheduler_info() may be stale or incomplete."""
        identity = await self.client.scheduler.identity(n_workers=-1) if _has_n_workers() else \
            await self.client.scheduler.identity()
        return {address: str(info.get("name", "")) for address, info in identity["workers"].items()}

    # start

    async def _start(self) -> None:
        addresses = await self._choose()
        try:
            await self._open(_cluster.shipped_program() if self._all else None)
            self.problems.update(await self._start_all(addresses))
            if self._all and not (self.problems and self._on_error == "raise"):
                await self._register_plugin()
        except BaseException:
            await self._close()
            raise
        if self.problems and self._on_error == "raise":
            await self._close()
            raise error_of("the profiler could not be started", self.problems, self.advice)

    async def _start_all(self, addresses: List[str]) -> Dict[str, str]:
        """Starts all recordings and returns the errors by address. Sends the program to processes that have none."""
        self._asked = addresses
        answers = await self._ask_all(addresses, _dask_there.start_here, self._session, self._options, None)
        missing = [a for a, answer in answers.items() if (_members(answer) or {}).get("missing")]
        if missing:
            answers.update(await self._ask_all(missing, _dask_there.start_here, self._session, self._options,
                                               _cluster.shipped_program()))
        self._keys = {a: answer["key"] for a, answer in answers.items() if _members(answer) is not None}
        return self._failed(answers)

    def _failed(self, answers: Dict[str, Any]) -> Dict[str, str]:
        """Returns the errors in the answers by address, and keeps the advice."""
        found = {a: _why(answer) for a, answer in answers.items()}
        self.advice.update({a: str(answer["advice"]) for a, answer in answers.items()
                            if (_members(answer) or {}).get("advice")})
        return {a: why for a, why in found.items() if why}

    async def _choose(self) -> List[str]:
        addresses = [SCHEDULER] if self._scheduler else []
        if self._wanted is None and not self._all:
            return addresses
        self._names = await self._workers_now()
        if isinstance(self._wanted, int):
            if not 0 < self._wanted <= len(self._names):
                raise ValueError("cannot choose %d workers: the cluster has %d" % (self._wanted, len(self._names)))
            return addresses + random.sample(sorted(self._names), self._wanted)
        if self._wanted is not None:
            named = {name: address for address, name in self._names.items() if name}
            chosen = [worker if worker in self._names else named.get(str(worker), "") for worker in self._wanted]
            unknown = [str(worker) for worker, address in zip(self._wanted, chosen) if not address]
            if unknown:
                raise error_of("no such worker in the cluster", {worker: "unknown name or address" for worker in unknown})
            return addresses + list(dict.fromkeys(chosen))
        return addresses + list(self._names)

    async def _open(self, program: Optional[bytes]) -> None:
        from distributed.protocol.pickle import dumps

        answer = await self._ask(SCHEDULER, _dask_there.open_session, self._session, 4 * _cluster.MAX_RAW, program,
                                 self.client.id, dumps(_dask_there.drop_here))
        if answer is not None:
            raise error_of("the profiler could not be started", {SCHEDULER: str(_why(answer))})

    async def _register_plugin(self) -> None:
        plugin = _dask_there.JoinPlugin(self._session, self._options)
        self._plugin = True
        await self.client.register_plugin(plugin, name=plugin.name)

    # stop

    async def _stop(self) -> None:
        try:
            left: Dict[str, Any] = {}
            addresses = [a for a in self._keys if a not in self.problems]
            if self._all:
                now = await self._workers_now()
                self._names.update(now)
                gone = [a for a in addresses if a != SCHEDULER and a not in now]
                addresses = [a for a in addresses if a not in gone] + [a for a in now if a not in self._asked]
                answer = await self._ask(SCHEDULER, _dask_there.received, self._session, gone)
                left = answer if isinstance(answer, dict) else {}
                self.problems.update({a: GONE for a in gone if a not in left})
            answers = await self._ask_all(addresses, _dask_there.stop_here, self._session)
            await self._fetch_all(answers, left)
        finally:
            await self._close()

    async def _close(self) -> None:
        """Removes everything from the cluster, also after an error."""
        rest = self._asked
        if self._plugin:
            try:
                await self.client.unregister_worker_plugin("spyglass-" + self._session)
                rest = [SCHEDULER] if self._scheduler else []  # its teardown() handled the workers
            except Exception as error:
                warnings.warn("could not unregister the plugin: %s" % safe_lines(error), RuntimeWarning)
        await self._ask_all(rest, _dask_there.drop_here, self._session)
        await self._ask(SCHEDULER, _dask_there.close_session, self._session)

    async def _fetch_all(self, answers: Dict[str, Any], left: Dict[str, Any]) -> None:
        """Fetches one file per process, in pieces, AT_ONCE requests at a time."""
        processes: Dict[str, List[str]] = {}
        wanted: Dict[str, Tuple[Dict[str, Any], Read, Tuple[Any, ...]]] = {}
        for found, from_scheduler in ((answers, False), (left, True)):
            failed = self._failed(found)
            for address, answer in found.items():
                if address in failed:
                    self.problems.setdefault(address, failed[address])
                    continue
                key = answer["key"]
                processes.setdefault(key, []).append(address)
                wanted.setdefault(key, (answer, _dask_there.read_received, (SCHEDULER, self._session, address))
                                  if from_scheduler else (answer, _dask_there.read_here, (address, self._session)))
        for address, key in self._keys.items():
            if address in answers and address not in self.problems and key not in wanted:
                self.problems[address] = RESTARTED
        await asyncio.gather(*(self._fetch(processes[key], *item) for key, item in wanted.items()))
        self.parts.sort(key=lambda part: (not part.name.startswith(SCHEDULER), part.name))

    async def _fetch(self, addresses: List[str], answer: Dict[str, Any], read: Read, where: Tuple[Any, ...]) -> None:
        data = b""
        while len(data) < answer["size"]:
            piece = await self._ask(where[0], read, *where[1:], len(data), _cluster.PIECE)
            if not isinstance(piece, bytes) or not piece:
                self.problems[addresses[0]] = "its profile could not be fetched: %s" % (piece or "it is incomplete")
                return
            data += piece
        data = zlib.decompress(data)
        if self._part_format == "raw":
            profile = Profile.from_raw(data.decode("utf-8", "replace"), rate=float(self._options["rate"]),
                                       errors=answer["errors"])
        else:
            profile = finished(data, self._part_format, answer["samples"])
        self.parts.append(Part(self._name(addresses), tuple(addresses), profile))

    def _name(self, addresses: List[str]) -> str:
        """Returns the root frame of a process. Without parentheses, because `name (file)` looks like a function."""
        named: List[str] = []
        for address in sorted(addresses, key=lambda a: a != SCHEDULER):
            if address == SCHEDULER:
                named.append("scheduler %s" % self.client.scheduler.address)
            else:
                name = self._names.get(address, "").replace("(", "[").replace(")", "]")
                named.append("worker %s%s" % ("" if name in ("", address) else name + ", ", address))
        if len(named) > 3:
            named[2:] = ["%d more workers" % (len(named) - 2)]
        return " + ".join(named)

    def _finish(self, may_raise: bool) -> None:
        if self._save is not None:
            self._save(self)
        elif self.parts:
            self._merge()
            if self.output is not None:
                self.profile.save(self.output, self.format)
        failed = {a: why for a, why in self.problems.items() if why not in (GONE, RESTARTED)}
        if failed and may_raise and self._on_error == "raise":
            raise error_of("not all processes could be profiled", failed, self.advice)
        for address, why in self.problems.items():
            warnings.warn("%s: %s" % (safe(address), safe_lines(why)), RuntimeWarning, stacklevel=3)

    def _merge(self) -> None:
        if self._part_format == "raw":
            count = len(self.parts)
            title = "Dask: %d process%s" % (count, "" if count == 1 else "es")
            parts = [(part.name, part.profile) for part in self.parts]
            self._profile = _cluster.merged(parts, title, float(self._options["rate"]))
        else:
            self._profile = self.parts[0].profile


def _has_n_workers() -> bool:
    """Some releases truncate the list of workers in identity() unless n_workers is -1."""
    return "n_workers" in inspect.signature(distributed.Scheduler.identity).parameters


def _options(rate: float, native: bool, idle: bool, gil: bool, threads: bool, subprocesses: bool, function: bool,
             nonblocking: bool, extra_args: Iterable[str] = ()) -> Dict[str, Any]:
    return dict(rate=rate, native=native, idle=idle, gil=gil, threads=threads, subprocesses=subprocesses,
                function=function, nonblocking=nonblocking, extra_args=list(extra_args))


def profile_cluster(
    output: Optional[Path] = None,
    *,
    client: Optional[Any] = None,
    scheduler: bool = True,
    workers: Workers = None,
    format: Optional[Format] = None,
    rate: float = 100,
    native: bool = False,
    idle: bool = False,
    gil: bool = False,
    threads: bool = False,
    subprocesses: bool = False,
    function: bool = False,
    nonblocking: bool = False,
    extra_args: Iterable[str] = (),
    on_error: str = "raise",
    timeout: float = 60.0,
) -> ClusterProfiler:
    """Profiles the scheduler and the workers during a `with` or `async with` block, and writes one merged file to `output`.

    The extension of `output` selects the format (.svg, .json for speedscope, .txt), unless `format` is given. `workers`
    is None for all workers, also those that join later; a number for a random selection of that size; or a list of
    addresses or names. The other arguments are those of spyglass.record(). If a process cannot be profiled,
    raises ClusterError after saving the other profiles, or warns with `on_error="warn"`. A worker that was killed or
    restarted only causes a warning. `problems` lists all of them. `timeout` is the time limit for one request, in seconds.
    """
    return ClusterProfiler(output, format, client, scheduler, workers, workers is None,
                           _options(rate, native, idle, gil, threads, subprocesses, function, nonblocking, extra_args),
                           "raw", on_error, timeout)


def profile_workers(output: Optional[Path] = None, workers: Workers = None, **options: Any) -> ClusterProfiler:
    """Profiles only the workers. The arguments are those of profile_cluster()."""
    return profile_cluster(output, scheduler=False, workers=workers, **options)


def profile_scheduler(
    output: Optional[Path] = None,
    *,
    client: Optional[Any] = None,
    format: Optional[Format] = None,
    rate: float = 100,
    native: bool = False,
    idle: bool = False,
    gil: bool = False,
    threads: bool = False,
    subprocesses: bool = False,
    function: bool = False,
    nonblocking: bool = False,
    extra_args: Iterable[str] = (),
    on_error: str = "raise",
    timeout: float = 60.0,
) -> ClusterProfiler:
    """Profiles only the scheduler; formats with a timeline keep it. The arguments are those of profile_cluster()."""
    part_format = check_format(format or (format_of(output) if output is not None else None) or "raw")
    return ClusterProfiler(output, part_format, client, True, None, False,
                           _options(rate, native, idle, gil, threads, subprocesses, function, nonblocking, extra_args),
                           part_format, on_error, timeout)


# ---- the names and arguments of dask-pyspy ----

@contextmanager
def pyspy_on_scheduler(
    output: Path,
    format: Format = "speedscope",
    rate: int = 100,
    subprocesses: bool = True,
    function: bool = False,
    gil: bool = False,
    threads: bool = False,
    idle: bool = True,
    nonblocking: bool = False,
    native: bool = False,
    extra_pyspy_args: Iterable[str] = (),
    log_level: Optional[str] = None,
    client: Optional[Any] = None,
) -> Iterator[ClusterProfiler]:
    """Profiles the scheduler and writes the file `output`. The arguments are those of dask-pyspy; `log_level` is
    ignored."""
    with profile_scheduler(output, client=client, format=format, rate=rate, native=native, idle=idle, gil=gil,
                           threads=threads, subprocesses=subprocesses, function=function, nonblocking=nonblocking,
                           extra_args=extra_pyspy_args) as profiler:
        yield profiler


@contextmanager
def pyspy(
    output: Path,
    workers: Workers = None,
    format: Format = "speedscope",
    rate: int = 100,
    subprocesses: bool = True,
    function: bool = False,
    gil: bool = False,
    threads: bool = False,
    idle: bool = True,
    nonblocking: bool = False,
    native: bool = False,
    extra_pyspy_args: Iterable[str] = (),
    log_level: Optional[str] = None,
    client: Optional[Any] = None,
) -> Iterator[ClusterProfiler]:
    """Profiles workers and writes one file per worker to the directory `output`, named after its address. The arguments
    are those of dask-pyspy; `log_level` is ignored."""
    part_format = check_format(format)
    directory = absolute(output)
    os.makedirs(directory, exist_ok=True)
    ending = {"speedscope": "json", "flamegraph": "svg"}.get(part_format, "pyspy")  # as dask-pyspy names them

    def save(profiler: ClusterProfiler) -> None:
        for part in profiler.parts:
            for address in part.addresses:
                name = address.replace("://", "-").replace(".", "_").replace(":", "-").replace("/", "_")
                part.profile.save(os.path.join(directory, "%s.%s" % (name, ending)), part_format)

    with ClusterProfiler(None, part_format, client, False, workers, workers is None,
                         _options(rate, native, idle, gil, threads, subprocesses, function, nonblocking,
                                  extra_pyspy_args),
                         part_format, "raise", 60.0, save) as profiler:
        yield profiler
