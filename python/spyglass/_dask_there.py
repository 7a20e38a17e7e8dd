"""What spyglass.dask runs in the scheduler and in the workers of a cluster; the client sends this module there by value.

State lives in kept(), one for a process: `dask` has the recording of this process for each session, `dask left` (in the
scheduler) what leaving workers brought, `dask over` the sessions that have ended, so that a late start does not begin one
that nobody would stop.
"""
from __future__ import annotations

import asyncio
import collections
import os
import zlib
from typing import Any, Dict, List, Optional

import distributed
from distributed import WorkerPlugin

from . import _cluster
from ._cluster import kept
from ._record import record

STOP_PATIENCE = 60.0  # seconds for a program to write its file
LEAVE_PATIENCE = 5.0  # seconds until a worker that has left, and said nothing, counts as killed
WATCH = 2.0  # seconds between two looks at whether the client is still there
OVER = 1000  # sessions that are remembered as ended

Answer = Dict[str, Any]


def process_key() -> str:
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


def _over() -> "collections.deque[str]":
    over: "collections.deque[str]" = kept().setdefault("dask over", collections.deque(maxlen=OVER))
    return over


# ---- the recording of this process ----

def _start_blocking(session: str, options: Dict[str, Any], shipped: Optional[bytes]) -> Answer:
    """Starts it, once, however many workers are in this process."""
    with kept()["lock"]:
        found = _sessions().get(session)
        if found is None and session in _over():
            return {"key": process_key(), "error": "the profiling was over before it began here"}
        if found is None:
            found = {"error": None, "recording": None, "data": None}
            try:
                program = _cluster.program_here(shipped)
                if program is None:
                    return {"key": process_key(), "missing": True}
                found["recording"] = record(binary=program, **options).start()
            except Exception as error:
                found["error"] = str(error) or type(error).__name__
            _sessions()[session] = found
        return {"key": process_key(), "error": found["error"]}


def _packed(data: bytes, format: str) -> bytes:
    """What travels: bounded. Raw stacks can be added up for that; a finished file cannot."""
    if format == "raw":
        data = _cluster.bounded(data, _cluster.MAX_RAW)
    elif len(data) > _cluster.MAX_FILE:
        raise ValueError("its %s file has %d MiB, more than the %d that are sent: record for a shorter time, at a lower "
                         "rate, or with format='raw'" % (format, len(data) >> 20, _cluster.MAX_FILE >> 20))
    return zlib.compress(data, 1)


def _stop_blocking(session: str) -> Answer:
    """Ends it; what there is to fetch. It may be asked for again."""
    with kept()["lock"]:
        found = _sessions().get(session)
        if found is None:
            return {"key": process_key(), "unknown": True}
        if found["data"] is None and found["error"] is None:
            try:
                profile = found["recording"].stop(STOP_PATIENCE)
                found.update(data=_packed(profile.data, profile.format), samples=profile.samples, errors=profile.errors)
            except Exception as error:
                found["error"] = str(error) or type(error).__name__
        if found["error"] is not None:
            return {"key": process_key(), "error": found["error"], "size": 0}
        return {"key": process_key(), "size": len(found["data"]), "samples": found["samples"],
                "errors": found["errors"]}


def _drop_blocking(session: str) -> None:
    with kept()["lock"]:
        if session not in _over():
            _over().append(session)
        found = _sessions().pop(session, None)
    if found and found["recording"] is not None and found["data"] is None:
        try:
            found["recording"].stop(STOP_PATIENCE)
        except Exception:
            pass  # nobody asks for it any more


async def start_here(session: str, options: Dict[str, Any], shipped: Optional[bytes]) -> Answer:
    return await asyncio.get_running_loop().run_in_executor(None, _start_blocking, session, options, shipped)


async def stop_here(session: str) -> Answer:
    return await asyncio.get_running_loop().run_in_executor(None, _stop_blocking, session)


async def read_here(session: str, at: int, size: int) -> bytes:
    data: bytes = _sessions()[session]["data"]
    return data[at:at + size]


async def drop_here(session: str) -> None:
    await asyncio.get_running_loop().run_in_executor(None, _drop_blocking, session)


# ---- workers that come and go ----

def _alone(worker: Any) -> bool:
    """The process ends with this worker."""
    others = [w for w in distributed.Worker._instances if w is not worker] + list(distributed.Scheduler._instances)
    return not any(other.status.name in ("init", "running", "paused") for other in others)


class Comers(WorkerPlugin):
    """Starts the recording on a worker that joins; brings its profile to the scheduler when it leaves in order."""

    def __init__(self, session: str, options: Dict[str, Any]) -> None:
        self.name = "spyglass-" + session
        self._session = session
        self._options = options

    async def setup(self, worker: Any) -> None:
        try:
            answer = await start_here(self._session, self._options, None)
            if answer.get("missing"):
                shipped = await worker.scheduler.spyglass_program(session=self._session)
                await start_here(self._session, self._options, shipped)
        except Exception:
            pass  # a worker that cannot be profiled must work all the same; the client is told at the end

    async def teardown(self, worker: Any) -> None:
        if worker.status.name not in ("closing", "closing_gracefully"):
            await drop_here(self._session)  # the profiling is over; the worker stays
        elif self._session in _sessions() and _alone(worker):
            await self._bring(worker)

    async def _bring(self, worker: Any) -> None:
        send = worker.scheduler.spyglass_left
        told = {"session": self._session, "address": worker.address}
        await send(answer=None, piece=b"", **told)  # that there is something to wait for
        answer = await stop_here(self._session)
        for at in range(0, max(answer["size"], 1), _cluster.PIECE):
            piece = await read_here(self._session, at, _cluster.PIECE) if answer["size"] else b""
            if await send(answer=answer, piece=piece, **told) != "OK":
                return


# ---- in the scheduler ----

def _left() -> Dict[str, Dict[str, Any]]:
    left: Dict[str, Dict[str, Any]] = kept().setdefault("dask left", {})
    return left


def _take(session: str, address: str, answer: Optional[Answer], piece: bytes) -> str:
    """A piece of the profile of a worker that leaves. All of a session have one bound."""
    opened = _left().get(session)
    if opened is None:
        return "over"
    entry = opened["taken"].setdefault(address, {"answer": None, "data": b""})
    if answer is None:
        return "OK"
    if sum(len(other["data"]) for other in opened["taken"].values()) + len(piece) > opened["limit"]:
        entry.update(answer=dict(answer, size=0, error="it left, and the scheduler holds no more than %d MiB of profiles "
                                                       "of workers that did" % (opened["limit"] >> 20)), data=b"")
        return "full"
    entry.update(answer=answer, data=entry["data"] + piece)
    return "OK"


def _program(session: str) -> Optional[bytes]:
    opened = _left().get(session)
    return opened["program"] if opened else None


async def open_session(session: str, limit: int, program: Optional[bytes], client: str, drop: bytes,
                       dask_scheduler: Any = None) -> None:
    """Lets the scheduler take what leaving workers bring, give the program to those that come, and end it all if the
    client is lost. `drop` is drop_here(session) as the workers take it."""
    _left()[session] = {"taken": {}, "limit": limit, "program": program}
    dask_scheduler.handlers["spyglass_left"] = _take
    dask_scheduler.handlers["spyglass_program"] = _program
    # Held, since the loop itself holds its tasks only weakly.
    _left()[session]["watch"] = asyncio.ensure_future(_watch(session, client, drop, dask_scheduler))


async def _watch(session: str, client: str, drop: bytes, scheduler: Any) -> None:
    while client in scheduler.clients:
        await asyncio.sleep(WATCH)
        if session not in _left():
            return
    _left().pop(session, None)
    scheduler.worker_plugins.pop("spyglass-" + session, None)
    await drop_here(session)
    from distributed.protocol.pickle import dumps

    await scheduler.broadcast(msg={"op": "run", "function": drop, "args": dumps((session,)), "kwargs": dumps({}),
                                   "wait": True}, on_error="ignore")


async def received(session: str, expected: List[str]) -> Dict[str, Answer]:
    """Who left, without the data: that is fetched in pieces. Waits for those who are at it, and shortly for the others
    of `expected`."""
    taken = _left()[session]["taken"]
    loop = asyncio.get_running_loop()
    begin = loop.time()

    def on_its_way(address: str) -> bool:
        entry = taken.get(address)
        if entry is None:
            return loop.time() < begin + LEAVE_PATIENCE
        return (entry["answer"] is None or len(entry["data"]) < entry["answer"]["size"]) and \
            loop.time() < begin + STOP_PATIENCE / 2

    while any(on_its_way(address) for address in set(expected) | set(taken)):
        await asyncio.sleep(0.05)
    return {address: entry["answer"] for address, entry in taken.items()
            if entry["answer"] is not None and len(entry["data"]) == entry["answer"]["size"]}


async def read_received(session: str, address: str, at: int, size: int) -> bytes:
    data: bytes = _left()[session]["taken"][address]["data"]
    return data[at:at + size]


async def close_session(session: str) -> None:
    opened = _left().pop(session, None)
    if opened is not None:
        opened["watch"].cancel()
