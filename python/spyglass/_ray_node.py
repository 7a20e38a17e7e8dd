"""The actor that runs on each node of a Ray cluster: finds the node's workers and runs the program on them.

spyglass.ray pickles it by value. It uses the standard library, Ray, and the parts of this package that are pickled with
it.
"""
from __future__ import annotations

import fnmatch
import os
import subprocess
import tempfile
import threading
import time
import zlib
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, Dict, List, Optional, Sequence, Tuple, Union

import ray

from . import _cluster, _status
from ._binary import which
from ._errors import TimedOut, error_event, error_from
from ._profile import Profile
from ._record import Recording, record as record_process

TITLE = "ray::"  # prefix of a worker's command line, followed by the name of the task or actor
# Other children of the raylet. The last one is ours: another instance may be exiting, or belong to another user.
NOT_WORKERS = ("ray::DashboardAgent", "ray::RuntimeEnvAgent", "ray::_SpyglassAgent")
LOOK_EVERY = 0.5  # seconds between searches for new workers
ACTORS_EVERY = 2.0  # the same for actors, which takes a call to the head node
ACTORS_TRIES = 3  # a worker that none of this many calls lists is not an actor
AT_ONCE = 16  # programs started or stopped concurrently on a node


def _sudo() -> str:
    return which("sudo") or "/usr/bin/sudo"


def _command_line(pid: int) -> str:
    try:
        with open("/proc/%d/cmdline" % pid, "rb") as file:
            return file.read().split(b"\0", 1)[0].decode("utf-8", "replace").strip()
    except OSError:
        return ""


def _children() -> Dict[int, List[int]]:
    """Maps each PID to its children."""
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
    given = os.environ.get("RAY_RAYLET_PID", "")
    return int(given) if given.isdigit() else os.getppid()


def _workers_here() -> Dict[int, str]:
    """Maps the PID of each worker on this node to its title. Excludes their children, and wrappers that start them."""
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


class _SudoRecording:
    """A recording as root, for when Yama forbids Ray's user to read its own workers but sudo works. Ray does the same.

    We cannot signal a process of root. The script stops the program when its standard input closes, so it also ends if
    we die. Then it prints the profile. sudo closes all other descriptors, so the events of --status-fd go to standard
    output.
    """

    MARK = b"\n==== raw ====\n"
    SCRIPT = r"""
        exec 3<&0
        d=$(mktemp -d) || exit 1
        "$@" --output "$d/raw" 4>&1 >/dev/null 3<&- &
        profiler=$!
        { read -r _; kill -TERM $profiler; } <&3 >/dev/null 2>&1 &
        reader=$!
        wait $profiler
        status=$?
        kill $reader 2>/dev/null
        printf '\n==== raw ====\n'
        cat "$d/raw"
        rm -rf "$d"
        exit $status
    """

    def __init__(self, program: str, pid: int, options: Dict[str, Any]) -> None:
        flags = ["--" + name for name, value in options.items() if value is True]
        command = [program, "record", "--status-fd", "4", "--hideprogress", "--format", "raw", "--rate",
                   repr(float(options["rate"])), *flags, "--pid", str(pid)]
        self._rate = float(options["rate"])
        self._said = tempfile.TemporaryFile()
        self._process = subprocess.Popen([_sudo(), "-n", "sh", "-c", self.SCRIPT, "sh", *command], stdin=subprocess.PIPE,
                                         stdout=subprocess.PIPE, stderr=self._said, start_new_session=True,
                                         bufsize=0)  # communicate() does not return buffered data
        assert self._process.stdout is not None
        events: List[_status.Event] = []
        for line in self._process.stdout:
            event = _status.parse(line)
            if event is not None and event["event"] == "ready":
                return
            events += [event] if event is not None else []
        self._process.wait()
        raise self._error(events)

    def _error(self, events: List[_status.Event]) -> Exception:
        self._said.seek(0)
        said = self._said.read().decode("utf-8", "replace")
        return error_from(error_event(events), said, self._process.returncode, ["sudo"])

    def stop(self, timeout: float) -> Profile:
        try:
            out, _ = self._process.communicate(b"\n", timeout)
        except subprocess.TimeoutExpired:
            raise TimedOut("the profiler did not exit within %g seconds" % timeout) from None
        head, _, raw = out.partition(self.MARK)
        events = [event for event in map(_status.parse, head.splitlines()) if event is not None]
        if self._process.returncode != 0:
            raise self._error(events)
        errors = sum(event["errors"] for event in events if event["event"] == "finished")
        return Profile.from_raw(raw.decode("utf-8", "replace"), rate=self._rate, errors=errors)


class _SpyglassAgent:  # pyright: ignore[reportUnusedClass]
    """The actor, one per node."""

    def __init__(self, shipped: Any) -> None:
        self._shipped = shipped  # reference to the program; in a list, so that Ray fetches it only on demand
        self._program: Optional[str] = None
        self._actors: Dict[int, Tuple[str, str]] = {}
        self._actors_at = -ACTORS_EVERY
        self._tries: Dict[int, int] = {}
        self._recordings: Dict[int, Union[Recording, _SudoRecording]] = {}
        self._sudo_works: Optional[bool] = None
        self._failed: Dict[int, Dict[str, Optional[str]]] = {}
        self._titles: Dict[int, str] = {}
        self._stopping = threading.Event()
        self._thread: Optional[threading.Thread] = None

    def ready(self) -> str:
        self._program = _cluster.program_here()
        if self._program is None:
            self._program = _cluster.program_here(ray.get(self._shipped[0]))
        return str(self._program)

    def _refresh_actors(self, workers: Dict[int, str]) -> None:
        """Finds out which workers are actors. Only if there are new workers, because Ray lists the whole cluster."""
        unknown = [pid for pid, title in workers.items()
                   if title != "IDLE" and pid not in self._actors and self._tries.get(pid, 0) < ACTORS_TRIES]
        if not unknown or time.monotonic() - self._actors_at < ACTORS_EVERY:
            return
        for pid in unknown:
            self._tries[pid] = self._tries.get(pid, 0) + 1
        node = ray.get_runtime_context().get_node_id()
        try:
            from ray._private.state import actors  # the public API needs the dashboard, which may be missing

            for row in actors(actor_state_name="ALIVE").values():
                if row["Address"]["NodeID"] == node:
                    self._actors[row["Pid"]] = (row["ActorClassName"], row["Name"])
        except Exception:
            pass  # the titles are still known
        self._actors_at = time.monotonic()

    def _find(self, spec: Dict[str, Any]) -> Dict[int, str]:
        """Returns the workers that match the request."""
        workers = _workers_here()
        self._refresh_actors(workers)
        chosen: Dict[int, str] = {}
        for pid, title in workers.items():
            actor, name = self._actors.get(pid, (None, None))
            if actor is None and "." in title:  # the actor is being created, or Ray could not list it
                actor = title.partition(".")[0]
            if spec["pids"] and pid not in spec["pids"]:
                continue
            if spec["actors"] and not (_matches(actor, spec["actors"]) or _matches(name, spec["actors"])):
                continue
            if spec["tasks"] and not (_matches(title, spec["tasks"]) or _matches(title.rpartition(".")[2], spec["tasks"])):
                continue
            chosen[pid] = title
        return chosen

    def _can_sudo(self) -> bool:
        """Whether sudo works without a password."""
        if self._sudo_works is None:
            try:
                self._sudo_works = subprocess.run([_sudo(), "-n", "true"], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                                                  stderr=subprocess.DEVNULL, timeout=10).returncode == 0
            except (OSError, subprocess.TimeoutExpired):
                self._sudo_works = False
        return self._sudo_works

    def _describe(self, pid: int, title: str) -> Dict[str, Any]:
        actor, name = self._actors.get(pid, (None, None))
        return {"pid": pid, "title": title, "actor": actor, "name": name or None}

    # dump

    def dump(self, spec: Dict[str, Any]) -> List[Dict[str, Any]]:
        chosen = self._find(spec)
        end = time.monotonic() + spec["timeout"]
        with ThreadPoolExecutor(AT_ONCE) as pool:
            return list(pool.map(partial(self._dump_one, spec, end), chosen.keys(), chosen.values()))

    def _dump_one(self, spec: Dict[str, Any], end: float, pid: int, title: str) -> Dict[str, Any]:
        answer = self._describe(pid, title)
        command = [str(self._program), "dump", "--pid", str(pid), "--json", *spec["flags"]]
        try:
            done, events = _status.run(command, max(0.1, end - time.monotonic()))
            failure = error_event(events)
            if failure is not None and failure["code"] == "permission" and self._can_sudo():
                again = self._run([_sudo(), "-n"] + command, end)
                done = again if again.returncode == 0 else done
            if done.returncode == 0:
                answer["json"] = zlib.compress(done.stdout, 1)
            else:
                said = done.stderr.decode("utf-8", "replace")
                answer.update(_cluster.failure(error_from(failure, said, done.returncode, command)))
        except subprocess.TimeoutExpired:
            answer["error"] = "no answer within %g seconds" % spec["timeout"]
        except OSError as error:
            answer.update(_cluster.failure(error))
        return answer

    @staticmethod
    def _run(command: List[str], end: float) -> "subprocess.CompletedProcess[bytes]":
        return subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                              timeout=max(0.1, end - time.monotonic()))

    # record

    def start(self, spec: Dict[str, Any]) -> int:
        """Starts recording. Returns the number of workers; more may join later."""
        self._look(spec)
        self._thread = threading.Thread(target=self._keep_looking, args=(spec,), name="spyglass", daemon=True)
        self._thread.start()
        return len(self._recordings)

    def _look(self, spec: Dict[str, Any]) -> None:
        new: List[int] = []
        for pid, title in self._find(spec).items():
            if title != "IDLE" or pid not in self._titles:
                self._titles[pid] = title
            if pid not in self._recordings and pid not in self._failed:
                new.append(pid)
        with ThreadPoolExecutor(AT_ONCE) as pool:
            list(pool.map(partial(self._start_one, spec), new))

    def _start_one(self, spec: Dict[str, Any], pid: int) -> None:
        try:
            self._recordings[pid] = record_process(pid, binary=self._program, **spec["options"]).start()
        except PermissionError as error:
            self._start_as_root(spec, pid, error)
        except Exception as error:
            self._failed[pid] = _cluster.failure(error)

    def _start_as_root(self, spec: Dict[str, Any], pid: int, why: PermissionError) -> None:
        try:
            if self._can_sudo():
                self._recordings[pid] = _SudoRecording(str(self._program), pid, spec["options"])
                return
        except Exception:
            pass  # report the first error
        self._failed[pid] = _cluster.failure(why)

    def _keep_looking(self, spec: Dict[str, Any]) -> None:
        while not self._stopping.wait(LOOK_EVERY):
            self._look(spec)

    def count(self) -> int:
        return len(self._recordings)

    def stop(self, timeout: float) -> List[Dict[str, Any]]:
        end = time.monotonic() + timeout
        self._stopping.set()
        if self._thread is not None:
            self._thread.join(timeout / 2)  # a hanging worker may block it
        self._actors_at = -ACTORS_EVERY
        self._refresh_actors(self._titles)
        with ThreadPoolExecutor(AT_ONCE) as pool:
            answers = list(pool.map(partial(self._stop_one, end), list(self._recordings)))
        return answers + [dict(self._describe(pid, self._titles.get(pid, "")), **why)
                          for pid, why in list(self._failed.items()) if os.path.exists("/proc/%d" % pid)]

    def _stop_one(self, end: float, pid: int) -> Dict[str, Any]:
        answer = self._describe(pid, self._titles.get(pid, ""))
        try:
            profile = self._recordings[pid].stop(max(0.1, end - time.monotonic()))
            answer["raw"] = zlib.compress(_cluster.bounded(profile.data), 1)
            answer["errors"] = profile.errors
        except Exception as error:
            answer.update(_cluster.failure(error))
        return answer
