"""What runs on each node of a Ray cluster, as an actor: finds the node's workers and runs the program on them.

spyglass.ray sends it there by value. It uses the standard library, Ray, and what of this package is sent along.
"""
from __future__ import annotations

import fnmatch
import os
import subprocess
import threading
import time
import zlib
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Dict, List, Optional, Sequence, Tuple

import ray

from . import _cluster
from ._record import Recording, record as record_process

TITLE = "ray::"  # how the command line of a worker begins; the name of what it runs follows
# Children of the raylet as well. The last is ours: one may still be ending, or belong to somebody who records, too.
NOT_WORKERS = ("ray::DashboardAgent", "ray::RuntimeEnvAgent", "ray::_SpyglassAgent")
LOOK_EVERY = 0.5  # seconds between two looks for new workers
ACTORS_EVERY = 2.0  # and for new actors, which costs a call to the head node
ACTORS_TRIES = 3  # a worker that is no actor after so many of these calls is none
AT_ONCE = 16  # programs started or stopped side by side on a node


def _command_line(pid: int) -> str:
    try:
        with open("/proc/%d/cmdline" % pid, "rb") as file:
            return file.read().split(b"\0", 1)[0].decode("utf-8", "replace").strip()
    except OSError:
        return ""


def _children() -> Dict[int, List[int]]:
    """Every process's children."""
    children: Dict[int, List[int]] = {}
    for name in os.listdir("/proc"):
        if not name.isdigit():
            continue
        try:
            with open("/proc/%s/stat" % name, "rb") as file:
                parent = int(file.read().rpartition(b")")[2].split()[1])
        except (OSError, ValueError, IndexError):
            continue
        children.setdefault(parent, []).append(int(name))
    return children


def _raylet_pid() -> int:
    told = os.environ.get("RAY_RAYLET_PID", "")
    return int(told) if told.isdigit() else os.getppid()


def _workers_here() -> Dict[int, str]:
    """pid -> title of the workers of this node. What a worker started, or a wrapper that started it, is no worker."""
    children = _children()
    found: Dict[int, str] = {}
    open_ = list(children.get(_raylet_pid(), ()))
    while open_:
        pid = open_.pop()
        line = _command_line(pid)
        if line.startswith(NOT_WORKERS):
            continue
        if line.startswith(TITLE):
            found[pid] = line[len(TITLE):]
        else:
            open_ += children.get(pid, ())
    found.pop(os.getpid(), None)
    return found


def _matches(name: Optional[str], patterns: Sequence[str]) -> bool:
    return name is not None and any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)


class _SpyglassAgent:
    """Runs on a node, as an actor."""

    def __init__(self, shipped: Any) -> None:
        self._shipped = shipped  # in a list: a reference to the packed program, fetched only if it is needed
        self._program: Optional[str] = None
        self._actors: Dict[int, Tuple[str, str]] = {}
        self._actors_at = -ACTORS_EVERY
        self._tries: Dict[int, int] = {}
        self._recordings: Dict[int, Recording] = {}
        self._failed: Dict[int, str] = {}
        self._titles: Dict[int, str] = {}
        self._stopping = threading.Event()
        self._thread: Optional[threading.Thread] = None

    def ready(self) -> str:
        self._program = _cluster.program_here()
        if self._program is None:
            self._program = _cluster.program_here(ray.get(self._shipped[0]))
        return str(self._program)

    def _refresh_actors(self, workers: Dict[int, str]) -> None:
        """Asks which workers are actors, if there are new ones: the list is the whole cluster's."""
        unknown = [pid for pid, title in workers.items()
                   if title != "IDLE" and pid not in self._actors and self._tries.get(pid, 0) < ACTORS_TRIES]
        if not unknown or time.monotonic() - self._actors_at < ACTORS_EVERY:
            return
        for pid in unknown:
            self._tries[pid] = self._tries.get(pid, 0) + 1
        node = ray.get_runtime_context().get_node_id()
        try:
            from ray._private.state import actors  # the public listing needs the dashboard, which may be missing

            for row in actors(actor_state_name="ALIVE").values():
                if row["Address"]["NodeID"] == node:
                    self._actors[row["Pid"]] = (row["ActorClassName"], row["Name"])
        except Exception:
            pass  # the titles remain
        self._actors_at = time.monotonic()

    def _find(self, spec: Dict[str, Any]) -> Dict[int, str]:
        """The workers that are asked for."""
        workers = _workers_here()
        self._refresh_actors(workers)
        chosen: Dict[int, str] = {}
        for pid, title in workers.items():
            actor, name = self._actors.get(pid, (None, None))
            if actor is None and "." in title:  # an actor that is being made, or the listing failed
                actor = title.partition(".")[0]
            if spec["pids"] and pid not in spec["pids"]:
                continue
            if spec["actors"] and not (_matches(actor, spec["actors"]) or _matches(name, spec["actors"])):
                continue
            if spec["tasks"] and not (_matches(title, spec["tasks"]) or _matches(title.rpartition(".")[2], spec["tasks"])):
                continue
            chosen[pid] = title
        return chosen

    def _describe(self, pid: int, title: str) -> Dict[str, Any]:
        actor, name = self._actors.get(pid, (None, None))
        return {"pid": pid, "title": title, "actor": actor, "name": name or None}

    # dump

    def dump(self, spec: Dict[str, Any]) -> List[Dict[str, Any]]:
        chosen = self._find(spec)
        end = time.monotonic() + spec["timeout"]
        with ThreadPoolExecutor(AT_ONCE) as pool:
            return list(pool.map(lambda item: self._dump_one(spec, end, *item), chosen.items()))

    def _dump_one(self, spec: Dict[str, Any], end: float, pid: int, title: str) -> Dict[str, Any]:
        answer = self._describe(pid, title)
        command = [str(self._program), "dump", "--pid", str(pid), "--json", *spec["flags"]]
        try:
            done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                  timeout=max(0.1, end - time.monotonic()))
            if done.returncode == 0:
                answer["json"] = zlib.compress(done.stdout, 1)
            else:
                answer["error"] = done.stderr.decode("utf-8", "replace").strip()
        except subprocess.TimeoutExpired:
            answer["error"] = "no answer within %g seconds" % spec["timeout"]
        except OSError as error:
            answer["error"] = str(error)
        return answer

    # record

    def start(self, spec: Dict[str, Any]) -> int:
        """How many workers are recorded from the start; more may follow."""
        self._look(spec)
        self._thread = threading.Thread(target=self._keep_looking, args=(spec,), name="spyglass", daemon=True)
        self._thread.start()
        return len(self._recordings)

    def _look(self, spec: Dict[str, Any]) -> None:
        new = {}
        for pid, title in self._find(spec).items():
            if title != "IDLE" or pid not in self._titles:
                self._titles[pid] = title
            if pid not in self._recordings and pid not in self._failed:
                new[pid] = title
        with ThreadPoolExecutor(AT_ONCE) as pool:
            list(pool.map(lambda pid: self._start_one(spec, pid), new))

    def _start_one(self, spec: Dict[str, Any], pid: int) -> None:
        try:
            self._recordings[pid] = record_process(pid, binary=self._program, **spec["options"]).start()
        except Exception as error:
            self._failed[pid] = str(error)

    def _keep_looking(self, spec: Dict[str, Any]) -> None:
        while not self._stopping.wait(LOOK_EVERY):
            self._look(spec)

    def count(self) -> int:
        return len(self._recordings)

    def stop(self, timeout: float) -> List[Dict[str, Any]]:
        end = time.monotonic() + timeout
        self._stopping.set()
        if self._thread is not None:
            self._thread.join(timeout / 2)  # a worker that hangs may hold it up
        self._actors_at = -ACTORS_EVERY
        self._refresh_actors(self._titles)
        with ThreadPoolExecutor(AT_ONCE) as pool:
            answers = list(pool.map(lambda pid: self._stop_one(pid, end), list(self._recordings)))
        return answers + [dict(self._describe(pid, self._titles.get(pid, "")), error=why)
                          for pid, why in list(self._failed.items()) if os.path.exists("/proc/%d" % pid)]

    def _stop_one(self, pid: int, end: float) -> Dict[str, Any]:
        answer = self._describe(pid, self._titles.get(pid, ""))
        try:
            profile = self._recordings[pid].stop(max(0.1, end - time.monotonic()))
            answer["raw"] = zlib.compress(_cluster.bounded(profile.data), 1)
            answer["errors"] = profile.errors
        except Exception as error:
            answer["error"] = str(error)
        return answer
