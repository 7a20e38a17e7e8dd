"""The part of spyglass.dask that runs in the scheduler and the workers. The client pickles this module by value.

The state is in kept(), once per process. `dask` holds this process's recording for each session. `dask left`, in the
scheduler, holds the profiles of workers that left. `dask over` lists the sessions that have ended, so that a delayed
start request does not start a recording that nobody would stop.
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

STOP_PATIENCE = 60.0  # seconds to wait for the program to write its file
LEAVE_PATIENCE = 5.0  # seconds until a worker that left without a message counts as killed
WATCH = 2.0  # seconds between checks that the client is still connected
OVER = 1000  # number of ended sessions to remember

Answer = Dict[str, Any]

NOT_STARTED: Dict[str, Any] = {"error": None, "advice": None, "recording": None, "data": None}


def process_key() -> str:
    """Identifies a process of the cluster. In an in-process cluster, many addresses share one key."""
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
    """Starts the recording once, however many workers this process runs."""
    with kept()["lock"]:
        found = _sessions().get(session)
        if found is None and session in _over():
            return {"key": process_key(), "error": "the recording ended before this process could start it"}
        if found is None:
            found = dict(NOT_STARTED)
            try:
                program = _cluster.program_here(shipped)
                if program is None:
                    return {"key": process_key(), "missing": True}
                found["recording"] = record(binary=program, **options).start()
            except Exception as error:
                found.update(_cluster.failure(error))
            _sessions()[session] = found
        return {"key": process_key(), "error": found["error"], "advice": found["advice"]}


def _packed(data: bytes, format: str) -> bytes:
    """Compresses a profile for sending, within the size limit. Raw stacks can be merged for that; a finished file cannot."""
    if format == "raw":
        data = _cluster.bounded(data, _cluster.MAX_RAW)
    elif len(data) > _cluster.MAX_FILE:
        raise ValueError("the %s file has %d MiB, and the limit is %d MiB: record for a shorter time, at a lower rate, "
                         "or with format='raw'" % (format, len(data) >> 20, _cluster.MAX_FILE >> 20))
    return zlib.compress(data, 1)


def _stop_blocking(session: str) -> Answer:
    """Stops the recording and describes what there is to fetch. May be called again."""
    with kept()["lock"]:
        found = _sessions().get(session)
        if found is None:
            return {"key": process_key(), "unknown": True}
        if found["data"] is None and found["error"] is None:
            try:
                profile = found["recording"].stop(STOP_PATIENCE)
                found.update(data=_packed(profile.data, profile.format), samples=profile.samples, errors=profile.errors)
            except Exception as error:
                found.update(_cluster.failure(error))
        if found["error"] is not None:
            return {"key": process_key(), "error": found["error"], "advice": found["advice"], "size": 0}
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
            pass  # nobody needs the result


async def start_here(session: str, options: Dict[str, Any], shipped: Optional[bytes]) -> Answer:
    return await asyncio.get_running_loop().run_in_executor(None, _start_blocking, session, options, shipped)


async def stop_here(session: str) -> Answer:
    return await asyncio.get_running_loop().run_in_executor(None, _stop_blocking, session)


async def read_here(session: str, at: int, size: int) -> bytes:
    data: bytes = _sessions()[session]["data"]
    return data[at:at + size]


async def drop_here(session: str) -> None:
    await asyncio.get_running_loop().run_in_executor(None, _drop_blocking, session)


# ---- workers that join and leave ----

def _alone(worker: Any) -> bool:
    """Whether the process ends with this worker."""
    others = [w for w in distributed.Worker._instances if w is not worker] + list(distributed.Scheduler._instances)
    return not any(other.status.name in ("init", "running", "paused") for other in others)


class JoinPlugin(WorkerPlugin):
    """Starts recording on a worker that joins. Sends its profile to the scheduler when it shuts down cleanly."""

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
            pass  # the worker must work even if it cannot be profiled; stop_here() tells the client

    async def teardown(self, worker: Any) -> None:
        if worker.status.name not in ("closing", "closing_gracefully"):
            await drop_here(self._session)  # the session is over, but the worker stays
        elif self._session in _sessions() and _alone(worker):
            await self._bring(worker)

    async def _bring(self, worker: Any) -> None:
        send = worker.scheduler.spyglass_left
        source = {"session": self._session, "address": worker.address}
        await send(answer=None, piece=b"", **source)  # announces the profile, so that received() waits for it
        answer = await stop_here(self._session)
        for at in range(0, max(answer["size"], 1), _cluster.PIECE):
            piece = await read_here(self._session, at, _cluster.PIECE) if answer["size"] else b""
            if await send(answer=answer, piece=piece, **source) != "OK":
                return


# ---- in the scheduler ----

def _left() -> Dict[str, Dict[str, Any]]:
    left: Dict[str, Dict[str, Any]] = kept().setdefault("dask left", {})
    return left


def _take(session: str, address: str, answer: Optional[Answer], piece: bytes) -> str:
    """Handles a piece of the profile of a worker that leaves. The limit is for all workers of a session together."""
    opened = _left().get(session)
    if opened is None:
        return "over"
    entry = opened["taken"].setdefault(address, {"answer": None, "data": b""})
    if answer is None:
        return "OK"
    if sum(len(other["data"]) for other in opened["taken"].values()) + len(piece) > opened["limit"]:
        entry.update(answer=dict(answer, size=0, error="the worker left, and the scheduler keeps at most %d MiB of such "
                                                       "profiles" % (opened["limit"] >> 20)), data=b"")
        return "full"
    entry.update(answer=answer, data=entry["data"] + piece)
    return "OK"


def _program(session: str) -> Optional[bytes]:
    opened = _left().get(session)
    return opened["program"] if opened else None


async def open_session(session: str, limit: int, program: Optional[bytes], client: str, drop: bytes,
                       dask_scheduler: Any = None) -> None:
    """Prepares the scheduler to accept profiles from workers that leave, to send the program to workers that join, and to
    end the session if the client disconnects. `drop` is drop_here, pickled for the workers."""
    _left()[session] = {"taken": {}, "limit": limit, "program": program}
    dask_scheduler.handlers["spyglass_left"] = _take
    dask_scheduler.handlers["spyglass_program"] = _program
    # Keep a reference: the event loop holds only weak references to its tasks.
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
    """Returns the workers that left, without their data, which the client fetches in pieces. Waits for profiles that are
    being sent, and briefly for the other workers in `expected`."""
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
