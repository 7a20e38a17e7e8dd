"""The scheduler and all workers of a Dask cluster, sampled at once, in one picture.

    from distributed import Client
    from spyglass.dask import profile_cluster, profile_scheduler, profile_workers

    client = Client(...)
    with profile_cluster("cluster.svg"):         # a root for the scheduler and for each worker
        df.set_index("id").mean().compute()

Each is an async context manager, too, for an asynchronous client. `pyspy` and `pyspy_on_scheduler` take the arguments of
dask-pyspy: to change the import is all.

Every process runs the program on itself, as its child, so that no privilege is needed. Neither this package nor the
program has to be installed on the cluster: both are sent there. Workers that come later are recorded from their start
on; one that leaves in order hands its profile to the scheduler; one that is killed is reported in `problems`.
"""
from __future__ import annotations

import asyncio
import os
import random
import uuid
import warnings
import zlib
from contextlib import contextmanager
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Awaitable, Callable, Dict, Iterable, Iterator, List, Optional, Sequence, Tuple, Type, Union

import distributed
from distributed import WorkerPlugin

from . import _cluster
from ._cluster import ClusterError, error_of, kept
from ._profile import Path, Profile, format_of
from ._record import record

__all__ = ["ClusterError", "ClusterProfiler", "Part", "profile_cluster", "profile_scheduler", "profile_workers", "pyspy",
           "pyspy_on_scheduler"]

SCHEDULER = "scheduler"
AT_ONCE = 64  # workers that are asked side by side for their files
STOP_PATIENCE = 60.0  # seconds for a program to write its file

Workers = Union[None, int, Sequence[str]]


# ---- in the scheduler, and in each worker ----

def _process_key() -> str:
    """One for each process of a cluster: an in-process cluster has many addresses and one of these."""
    try:
        with open("/proc/sys/kernel/random/boot_id") as file:
            machine = file.read().strip()
        return "%s %s %d" % (machine, os.readlink("/proc/self/ns/pid"), os.getpid())
    except OSError:
        return "%d" % os.getpid()


def _sessions() -> Dict[str, Dict[str, Any]]:
    sessions: Dict[str, Dict[str, Any]] = kept().setdefault("dask", {})
    return sessions


def _start_blocking(session: str, options: Dict[str, Any], shipped: Optional[bytes]) -> Dict[str, Any]:
    """Starts the recording of this process, once, however many workers are in it."""
    with kept()["lock"]:
        found = _sessions().get(session)
        if found is None:
            program = _cluster.program_here(shipped)
            if program is None:
                return {"key": _process_key(), "missing": True}
            found = _sessions()[session] = {"error": None, "recording": None, "data": None}
            try:
                found["recording"] = record(binary=program, **options).start()
            except Exception as error:
                found["error"] = str(error)
        return {"key": _process_key(), "error": found["error"]}


def _stop_blocking(session: str) -> Dict[str, Any]:
    """Ends it; what there is to fetch. It may be asked for again."""
    with kept()["lock"]:
        found = _sessions().get(session)
        if found is None:
            return {"key": _process_key(), "unknown": True}
        if found["data"] is None and found["error"] is None:
            try:
                profile = found["recording"].stop(STOP_PATIENCE)
                data = profile.data if profile.format != "raw" else _cluster.bounded(profile.data)
                found.update(data=zlib.compress(data, 1), samples=profile.samples, errors=profile.errors)
            except Exception as error:
                found["error"] = str(error)
        if found["error"] is not None:
            return {"key": _process_key(), "error": found["error"]}
        return {"key": _process_key(), "size": len(found["data"]), "samples": found["samples"],
                "errors": found["errors"]}


async def _start_here(session: str, options: Dict[str, Any], shipped: Optional[bytes]) -> Dict[str, Any]:
    return await asyncio.get_running_loop().run_in_executor(None, _start_blocking, session, options, shipped)


async def _stop_here(session: str) -> Dict[str, Any]:
    return await asyncio.get_running_loop().run_in_executor(None, _stop_blocking, session)


async def _read_here(session: str, at: int, size: int) -> bytes:
    data: bytes = _sessions()[session]["data"]
    return data[at:at + size]


async def _drop_here(session: str) -> None:
    await asyncio.get_running_loop().run_in_executor(None, _drop_blocking, session)


def _drop_blocking(session: str) -> None:
    with kept()["lock"]:
        found = _sessions().pop(session, None)
    if found and found["recording"] is not None and found["data"] is None and found["error"] is None:
        try:
            found["recording"].stop(STOP_PATIENCE)
        except Exception:
            pass  # nobody asks for it any more


# ---- workers that come and go ----

def _alone(worker: Any) -> bool:
    """The process ends with this worker."""
    others = [w for w in distributed.Worker._instances if w is not worker] + list(distributed.Scheduler._instances)
    return not any(other.status.name in ("init", "running", "paused") for other in others)


class _Comers(WorkerPlugin):
    """Starts the recording on a worker that joins; brings its profile to the scheduler when it leaves in order."""

    def __init__(self, session: str, options: Dict[str, Any], shipped: Optional[bytes]) -> None:
        self.name = "spyglass-" + session
        self._session = session
        self._options = options
        self._shipped = shipped

    async def setup(self, worker: Any) -> None:
        await _start_here(self._session, self._options, self._shipped)

    async def teardown(self, worker: Any) -> None:
        if self._session not in _sessions() or not _alone(worker):
            return
        answer = await _stop_here(self._session)
        for at in range(0, answer.get("size", 0), _cluster.PIECE):
            piece = await _read_here(self._session, at, _cluster.PIECE)
            await worker.scheduler.spyglass_left(session=self._session, address=worker.address, answer=answer, piece=piece)


async def _receive(session: str, limit: int, dask_scheduler: Any = None) -> None:
    """Lets the scheduler take what leaving workers bring, up to a bound."""
    taken: Dict[str, Dict[str, Any]] = kept().setdefault("dask left", {}).setdefault(session, {})

    def spyglass_left(session: str, address: str, answer: Dict[str, Any], piece: bytes) -> str:
        taken = kept().get("dask left", {}).get(session)
        if taken is not None and sum(len(entry["data"]) for entry in taken.values()) + len(piece) <= limit:
            entry = taken.setdefault(address, {"answer": answer, "data": b""})
            entry["data"] += piece
        return "OK"

    dask_scheduler.handlers["spyglass_left"] = spyglass_left
    taken.clear()


async def _received(session: str) -> Dict[str, Dict[str, Any]]:
    """Who left, without the data: that is fetched in pieces."""
    taken = kept().get("dask left", {}).get(session, {})
    return {address: dict(entry["answer"], size=len(entry["data"])) for address, entry in taken.items()
            if len(entry["data"]) == entry["answer"]["size"]}


async def _read_received(session: str, address: str, at: int, size: int) -> bytes:
    data: bytes = kept()["dask left"][session][address]["data"]
    return data[at:at + size]


async def _forget_received(session: str) -> None:
    kept().get("dask left", {}).pop(session, None)


# ---- at the client ----

@dataclass(frozen=True)
class Part:
    """The profile of one process: `addresses` are all that live in it, `scheduler` among them."""

    name: str  # "scheduler tcp://…", "worker tcp://…"
    addresses: Tuple[str, ...]
    profile: Profile


class ClusterProfiler:
    """Records scheduler, workers or both, for the time of a `with` or an `async with`. Made by profile_cluster() and
    its like. Afterwards: `profile`, `parts` (one a process), `problems` (by address)."""

    def __init__(self, output: Optional[Path], format: Optional[str], client: Optional[Any], scheduler: bool,
                 workers: Workers, all_workers: bool, options: Dict[str, Any], part_format: str, on_error: str,
                 timeout: float, save: Optional[Callable[[ClusterProfiler], None]] = None) -> None:
        if on_error not in ("raise", "warn"):
            raise ValueError("on_error must be 'raise' or 'warn', not %r" % (on_error,))
        self.output = output
        self.format = format
        self.parts: List[Part] = []
        self.problems: Dict[str, str] = {}
        self._client = client
        self._scheduler = scheduler
        self._wanted = workers
        self._all = all_workers
        self._options = dict(options, format=part_format)
        self._on_error = on_error
        self._timeout = timeout
        self._save = save
        self._session = uuid.uuid4().hex
        self._shipped: Optional[bytes] = None
        self._keys: Dict[str, str] = {}  # address -> process
        self._names: Dict[str, str] = {}  # address -> a worker's name
        self._plugin = False
        self._profile: Optional[Profile] = None

    @property
    def client(self) -> Any:
        if self._client is None:
            self._client = distributed.get_client()
        return self._client

    @property
    def profile(self) -> Profile:
        """All in one, with a root for each process."""
        if self._profile is None:
            raise RuntimeError("the recording has not ended yet")
        return self._profile

    # the two kinds of `with`

    def __enter__(self) -> ClusterProfiler:
        if self.client.asynchronous:
            raise TypeError("this client is asynchronous: use `async with`")
        self._prepare()
        self.client.sync(self._start)
        return self

    def __exit__(self, kind: Optional[Type[BaseException]], error: Optional[BaseException],
                 trace: Optional[TracebackType]) -> None:
        self.client.sync(self._stop)
        self._finish(kind is None)

    async def __aenter__(self) -> ClusterProfiler:
        self._prepare()
        await self._start()
        return self

    async def __aexit__(self, kind: Optional[Type[BaseException]], error: Optional[BaseException],
                        trace: Optional[TracebackType]) -> None:
        await self._stop()
        await asyncio.get_running_loop().run_in_executor(None, self._finish, kind is None)

    # one question to one process

    def _prepare(self) -> None:
        import cloudpickle

        import spyglass

        cloudpickle.register_pickle_by_value(spyglass)
        if self.output is not None:
            directory = os.path.dirname(os.path.abspath(os.fspath(self.output)))
            os.makedirs(directory, exist_ok=True)

    async def _ask(self, address: str, function: Callable[..., Awaitable[Any]], *args: Any) -> Any:
        """What `function` gives there; an Exception is given, not raised."""
        async def ask() -> Any:
            if address == SCHEDULER:
                return await self.client.run_on_scheduler(function, *args)
            answers = await self.client.run(function, *args, workers=[address], on_error="return")
            if address not in answers:
                raise OSError("the worker has left")
            return answers[address]

        try:
            return await asyncio.wait_for(ask(), self._timeout)
        except asyncio.TimeoutError:
            return TimeoutError("no answer within %g seconds: its event loop is busy, or it is gone" % self._timeout)
        except Exception as error:
            return error

    async def _ask_all(self, addresses: Iterable[str], function: Callable[..., Awaitable[Any]],
                       *args: Any) -> Dict[str, Any]:
        listed = list(addresses)
        answers = await asyncio.gather(*(self._ask(address, function, *args) for address in listed))
        return dict(zip(listed, answers))

    async def _workers_now(self) -> Dict[str, str]:
        """address -> name of all workers. scheduler_info() of the client may be old, or short."""
        identity = await self.client.scheduler.identity(n_workers=-1) if _tells_number() else \
            await self.client.scheduler.identity()
        return {address: str(info.get("name", "")) for address, info in identity["workers"].items()}

    # start

    async def _start(self) -> None:
        addresses = await self._choose()
        answers = await self._start_on(addresses, None)
        missing = [a for a, answer in answers.items() if isinstance(answer, dict) and answer.get("missing")]
        if missing:
            self._shipped = _cluster.shipped_program()
            answers.update(await self._start_on(missing, self._shipped))
        problems = {}
        for address, answer in answers.items():
            if isinstance(answer, dict):
                self._keys[address] = answer["key"]
            why = answer.get("error") if isinstance(answer, dict) else str(answer) or type(answer).__name__
            if why:
                problems[address] = why
        if problems and self._on_error == "raise":
            await self._drop(addresses)
            raise error_of("the profiler could not be started", problems)
        self.problems.update(problems)
        if self._all:
            await self._expect_comers()

    async def _start_on(self, addresses: Sequence[str], shipped: Optional[bytes]) -> Dict[str, Any]:
        return await self._ask_all(addresses, _start_here, self._session, self._options, shipped)

    async def _choose(self) -> List[str]:
        addresses = [SCHEDULER] if self._scheduler else []
        if self._wanted is None and not self._all:
            return addresses
        self._names = await self._workers_now()
        if isinstance(self._wanted, int):
            return addresses + random.sample(sorted(self._names), self._wanted)
        if self._wanted is not None:
            unknown = [address for address in self._wanted if address not in self._names]
            if unknown:
                raise error_of("no such worker in the cluster", {address: "it is unknown" for address in unknown})
            return addresses + list(self._wanted)
        return addresses + list(self._names)

    async def _expect_comers(self) -> None:
        await self.client.run_on_scheduler(_receive, self._session, 4 * _cluster.MAX_RAW)
        plugin = _Comers(self._session, self._options, self._shipped)
        await self.client.register_plugin(plugin, name=plugin.name)
        self._plugin = True

    # stop

    async def _stop(self) -> None:
        left: Dict[str, Dict[str, Any]] = {}
        addresses = [a for a in self._keys if a not in self.problems]
        if self._all:
            now = await self._workers_now()
            self._names.update(now)
            addresses = [a for a in addresses if a == SCHEDULER or a in now] + [a for a in now if a not in self._keys]
            left = await self.client.run_on_scheduler(_received, self._session)
            for address in self._keys:
                if address != SCHEDULER and address not in now and address not in left:
                    self.problems[address] = "the worker was gone before its profile could be taken"
        answers = await self._ask_all(addresses, _stop_here, self._session)
        await self._fetch_all(answers, left)
        if self._plugin:
            try:
                await self.client.unregister_worker_plugin("spyglass-" + self._session)
                await self.client.run_on_scheduler(_forget_received, self._session)
            except Exception as error:
                self.problems.setdefault(SCHEDULER, "the plugin could not be taken away: %s" % error)
        await self._drop(addresses)

    async def _fetch_all(self, answers: Dict[str, Any], left: Dict[str, Dict[str, Any]]) -> None:
        """One file for each process, in pieces, some processes at a time."""
        processes: Dict[str, List[str]] = {}
        wanted: Dict[str, Tuple[Dict[str, Any], Callable[..., Awaitable[Any]], Tuple[Any, ...]]] = {}
        for address, answer in list(answers.items()) + list(left.items()):
            if not isinstance(answer, dict) or answer.get("error") or answer.get("unknown"):
                why = answer.get("error") if isinstance(answer, dict) else str(answer) or type(answer).__name__
                self.problems[address] = why or "it was not recorded"
                continue
            processes.setdefault(answer["key"], []).append(address)
            if address in answers:
                wanted.setdefault(answer["key"], (answer, _read_here, (address, self._session)))
            else:
                wanted.setdefault(answer["key"], (answer, _read_received, (SCHEDULER, self._session, address)))
        gate = asyncio.Semaphore(AT_ONCE)
        await asyncio.gather(*(self._fetch(gate, processes[key], *item) for key, item in wanted.items()))
        self.parts.sort(key=lambda part: (not part.name.startswith(SCHEDULER), part.name))

    async def _fetch(self, gate: asyncio.Semaphore, addresses: List[str], answer: Dict[str, Any],
                     read: Callable[..., Awaitable[Any]], where: Tuple[Any, ...]) -> None:
        data = b""
        async with gate:
            while len(data) < answer["size"]:
                piece = await self._ask(where[0], read, *where[1:], len(data), _cluster.PIECE)
                if not isinstance(piece, bytes) or not piece:
                    self.problems[addresses[0]] = "its profile could not be fetched: %s" % (piece or "it is cut off")
                    return
                data += piece
        data = zlib.decompress(data)
        if self._options["format"] == "raw":
            profile = Profile.from_raw(data.decode("utf-8", "replace"), rate=float(self._options["rate"]),
                                       errors=answer["errors"])
        else:
            profile = Profile._finished(data, self._options["format"], answer["samples"])
        self.parts.append(Part(self._name(addresses), tuple(addresses), profile))

    def _name(self, addresses: List[str]) -> str:
        named = []
        for address in sorted(addresses, key=lambda a: a != SCHEDULER):
            if address == SCHEDULER:
                named.append("scheduler %s" % self.client.scheduler.address)
            else:
                name = self._names.get(address, "")
                named.append("worker %s%s" % (address, "" if name in ("", address) else " (%s)" % name))
        if len(named) > 3:
            named[2:] = ["%d more workers" % (len(named) - 2)]
        return " + ".join(named)

    async def _drop(self, addresses: Iterable[str]) -> None:
        await self._ask_all(addresses, _drop_here, self._session)

    def _finish(self, may_raise: bool) -> None:
        if self._save is not None:
            self._save(self)
        else:
            if self._options["format"] == "raw":
                count = len(self.parts)
                title = "Dask: %d process%s" % (count, "" if count == 1 else "es")
                parts = [(part.name, part.profile) for part in self.parts]
                self._profile = _cluster.merged(parts, title, float(self._options["rate"]))
            elif self.parts:
                self._profile = self.parts[0].profile
            if self.output is not None and self.parts:
                self.profile.save(self.output, self.format or format_of(self.output) or None)
        gone = {a: why for a, why in self.problems.items() if "gone before" in why}
        failed = {a: why for a, why in self.problems.items() if a not in gone}
        if failed and may_raise and self._on_error == "raise":
            raise error_of("not all processes could be profiled", failed)
        for address, why in self.problems.items():
            warnings.warn("%s: %s" % (address, why), RuntimeWarning, stacklevel=3)


def _tells_number() -> bool:
    """identity() shortens its list of workers in some releases, unless told not to."""
    import inspect

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
    format: Optional[str] = None,
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
    """Scheduler and workers, for the time of a `with` or an `async with`; `output` gets one picture of all.

    The extension of `output` is the format (.svg, .json for speedscope, .txt), unless `format` says otherwise. `workers`
    is None for all, with those that come later; a number for so many of them, by chance; or addresses. The other
    arguments are those of spyglass.record(). With `on_error="warn"` what fails on a process is a warning, and is in
    `problems`; else ClusterError is raised, after the rest was saved. `timeout` in seconds is for one answer.
    """
    return ClusterProfiler(output, format, client, scheduler, workers, workers is None,
                           _options(rate, native, idle, gil, threads, subprocesses, function, nonblocking, extra_args),
                           "raw", on_error, timeout)


def profile_workers(output: Optional[Path] = None, workers: Workers = None, **options: Any) -> ClusterProfiler:
    """The workers alone; the arguments are those of profile_cluster()."""
    return profile_cluster(output, scheduler=False, workers=workers, **options)


def profile_scheduler(
    output: Optional[Path] = None,
    *,
    client: Optional[Any] = None,
    format: Optional[str] = None,
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
    """The scheduler alone, in its own words: a time line where the format has one. As profile_cluster()."""
    part_format = (format or (format_of(output) if output is not None else None) or "raw").lower()
    return ClusterProfiler(output, part_format, client, True, None, False,
                           _options(rate, native, idle, gil, threads, subprocesses, function, nonblocking, extra_args),
                           part_format, on_error, timeout)


# ---- the names and arguments of dask-pyspy ----

@contextmanager
def pyspy_on_scheduler(
    output: Path,
    format: str = "speedscope",
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
    """Profiles the scheduler into the file `output`. The arguments are those of dask-pyspy; `log_level` says nothing
    to spyglass."""
    with profile_scheduler(output, client=client, format=format, rate=rate, native=native, idle=idle, gil=gil,
                           threads=threads, subprocesses=subprocesses, function=function, nonblocking=nonblocking,
                           extra_args=extra_pyspy_args) as profiler:
        yield profiler


@contextmanager
def pyspy(
    output: Path,
    workers: Workers = None,
    format: str = "speedscope",
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
    """Profiles workers, each into a file of its own in the directory `output`, named after its address. The arguments
    are those of dask-pyspy."""
    directory = os.path.abspath(os.fspath(output))
    os.makedirs(directory, exist_ok=True)
    ending = {"speedscope": "json", "flamegraph": "svg"}.get(format.lower(), "pyspy")

    def save(profiler: ClusterProfiler) -> None:
        for part in profiler.parts:
            for address in part.addresses:
                name = address.replace("://", "-").replace(".", "_").replace(":", "-").replace("/", "_")
                part.profile.save(os.path.join(directory, "%s.%s" % (name, ending)), format.lower())

    with ClusterProfiler(None, format, client, False, workers, workers is None,
                         _options(rate, native, idle, gil, threads, subprocesses, function, nonblocking,
                                  extra_pyspy_args),
                         format.lower(), "raise", 60.0, save) as profiler:
        yield profiler
