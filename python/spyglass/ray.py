"""All workers of a Ray cluster: where they are, and where their time goes, in one picture.

    import spyglass.ray

    spyglass.ray.record(duration=10).save("cluster.svg")     # in a driver, or anywhere that ray.init() reaches
    with spyglass.ray.profile("cluster.svg"):                # the same for as long as something takes
        ray.get([work.remote() for _ in range(100)])
    print(spyglass.ray.dump())

and from a shell: `spyglass ray dump --address auto`, `spyglass ray record --address auto -d 10 -o cluster.svg`.

On each node an actor that takes no resources finds the node's workers and runs the program on them. It is sent there
whole, with the program where that is missing. A node that is dead or does not answer is reported and passed over.
"""
from __future__ import annotations

import argparse
import fnmatch
import json
import os
import subprocess
import sys
import threading
import time
import zlib
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Callable, Dict, Iterator, List, Optional, Sequence, Tuple, Type, Union

import ray

from . import _cluster
from ._cluster import ClusterError, error_of
from ._dump import Thread, _thread
from ._profile import Path, Profile, format_of
from ._record import Recording, record as record_process

__all__ = ["ClusterDump", "ClusterError", "ClusterProfile", "ClusterRecording", "Node", "Worker", "WorkerDump",
           "WorkerProfile", "dump", "main", "profile", "record"]

TITLE = "ray::"  # how the command line of a worker begins; the name of what it runs follows
NOT_WORKERS = ("ray::DashboardAgent", "ray::RuntimeEnvAgent")  # children of the raylet as well
LOOK_EVERY = 0.5  # seconds between two looks for new workers
ACTORS_EVERY = 2.0  # and for new actors, which costs a call to the head node
AT_ONCE = 16  # programs started or stopped side by side on a node
Progress = Callable[[str], None]
Names = Union[None, str, Sequence[str]]


@dataclass(frozen=True)
class Node:
    """A machine of the cluster, or rather a raylet: there may be several on one."""

    id: str
    ip: str
    hostname: str

    def __str__(self) -> str:
        return "node %s (%s)" % (self.ip, self.id[:8])


@dataclass(frozen=True)
class Worker:
    """A worker process. `title` is what Ray shows for it: `Actor.method`, the name of a task, or IDLE."""

    node: Node
    pid: int
    title: str
    actor: Optional[str]  # the actor's class
    actor_name: Optional[str]

    def __str__(self) -> str:
        return "%s, worker %d, %s" % (self.node, self.pid, self.role)

    @property
    def role(self) -> str:
        if self.actor is not None:
            return "actor %s" % self.actor + (' "%s"' % self.actor_name if self.actor_name else "")
        return "idle" if self.title == "IDLE" else "task %s" % self.title


@dataclass(frozen=True)
class WorkerDump:
    worker: Worker
    threads: Tuple[Thread, ...]
    text: str  # as `spyglass dump` prints it


@dataclass(frozen=True)
class WorkerProfile:
    worker: Worker
    profile: Profile


@dataclass
class ClusterDump:
    """The stacks of all workers. `problems` says where some could not be had, and why."""

    workers: List[WorkerDump] = field(default_factory=list)
    problems: Dict[str, str] = field(default_factory=dict)

    def __iter__(self) -> Iterator[WorkerDump]:
        return iter(self.workers)

    def __str__(self) -> str:
        return "\n".join("==== %s ====\n%s" % (item.worker, item.text) for item in self.workers)


@dataclass
class ClusterProfile:
    """One profile of all workers, with node, worker and actor as its roots, and theirs one by one in `workers`."""

    profile: Profile
    workers: List[WorkerProfile] = field(default_factory=list)
    problems: Dict[str, str] = field(default_factory=dict)

    def __iter__(self) -> Iterator[WorkerProfile]:
        return iter(self.workers)

    def save(self, path: Path, format: Optional[str] = None) -> None:
        self.profile.save(path, format)


# ---- on a node ----

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


class _NodeAgent:
    """Runs on a node, as an actor."""

    def __init__(self, shipped: Any) -> None:
        self._shipped = shipped  # in a list: a reference to the packed program, fetched only if it is needed
        self._program: Optional[str] = None
        self._actors: Dict[int, Tuple[str, str]] = {}
        self._actors_at = 0.0
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

    def _refresh_actors(self) -> None:
        if time.monotonic() - self._actors_at < ACTORS_EVERY:
            return
        node = ray.get_runtime_context().get_node_id()
        try:
            from ray._private.state import actors  # the public listing needs the dashboard, which may be missing

            for row in actors().values():
                if row["Address"]["NodeID"] == node and row["State"] == "ALIVE":
                    self._actors[row["Pid"]] = (row["ActorClassName"], row["Name"])
        except Exception:
            pass  # the titles remain
        self._actors_at = time.monotonic()

    def _find(self, spec: Dict[str, Any]) -> Dict[int, str]:
        """The workers that are asked for."""
        self._refresh_actors()
        chosen: Dict[int, str] = {}
        for pid, title in _workers_here().items():
            actor, name = self._actors.get(pid, (None, None))
            if spec["pids"] and pid not in spec["pids"]:
                continue
            if spec["actors"] and not (_matches(actor, spec["actors"]) or _matches(name, spec["actors"])
                                       or _matches(title.partition(".")[0], spec["actors"])):
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
        with ThreadPoolExecutor(AT_ONCE) as pool:
            return list(pool.map(lambda item: self._dump_one(spec, *item), chosen.items()))

    def _dump_one(self, spec: Dict[str, Any], pid: int, title: str) -> Dict[str, Any]:
        answer = self._describe(pid, title)
        try:
            for kind, flags in (("json", ["--json"]), ("text", [])):
                done = subprocess.run([str(self._program), "dump", "--pid", str(pid), *flags, *spec["flags"]],
                                      stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                      timeout=spec["timeout"])
                if done.returncode != 0:
                    answer["error"] = done.stderr.decode("utf-8", "replace").strip()
                    break
                answer[kind] = zlib.compress(done.stdout, 1)
        except (OSError, subprocess.TimeoutExpired) as error:
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

    def stop(self) -> List[Dict[str, Any]]:
        self._stopping.set()
        if self._thread is not None:
            self._thread.join()
        self._actors_at = 0.0
        self._refresh_actors()
        with ThreadPoolExecutor(AT_ONCE) as pool:
            answers = list(pool.map(self._stop_one, self._recordings))
        return answers + [dict(self._describe(pid, self._titles.get(pid, "")), error=why)
                          for pid, why in self._failed.items() if os.path.exists("/proc/%d" % pid)]

    def _stop_one(self, pid: int) -> Dict[str, Any]:
        answer = self._describe(pid, self._titles.get(pid, ""))
        try:
            profile = self._recordings[pid].stop()
            answer["raw"] = zlib.compress(_cluster.bounded(profile.data), 1)
            answer["errors"] = profile.errors
        except Exception as error:
            answer["error"] = str(error)
        return answer


# ---- on the driver ----

def _listed(names: Names) -> List[str]:
    return [names] if isinstance(names, str) else list(names or ())


def _quiet(text: str) -> None:
    pass


class _Cluster:
    """The connection, and an agent on each living node that was asked for."""

    def __init__(self, address: Optional[str], node: Names, timeout: float, progress: Optional[Progress]) -> None:
        self.timeout = timeout
        self.say = progress or _quiet
        self.problems: Dict[str, str] = {}
        self.agents: Dict[Node, Any] = {}
        self._own = not ray.is_initialized()
        if self._own:
            ray.init(address=address or "auto", log_to_driver=False, logging_level="error", namespace="spyglass")
        try:
            self._place(_listed(node))
        except BaseException:
            self.close()
            raise

    def _place(self, wanted: List[str]) -> None:
        from ray import cloudpickle
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        import spyglass

        cloudpickle.register_pickle_by_value(spyglass)
        shipped = ray.put(_cluster.shipped_program())
        remote = ray.remote(_NodeAgent)
        pending = {}
        for row in ray.nodes():
            node = Node(row["NodeID"], row["NodeManagerAddress"], row.get("NodeManagerHostname") or "")
            if wanted and not any(node.id.startswith(w) or w in (node.ip, node.hostname) for w in wanted):
                continue
            if not row["Alive"]:
                why = row.get("DeathReasonMessage") or ""
                self.problems[str(node)] = "the node is dead" + (": " + why if why else "")
                continue
            agent = remote.options(num_cpus=0, max_restarts=0, max_concurrency=4, scheduling_strategy=(
                NodeAffinitySchedulingStrategy(node.id, soft=False))).remote([shipped])
            self.agents[node] = agent
            pending[node] = agent.ready.remote()
        self.gather(pending, "is ready")

    def call(self, method: str, *args: Any, done: str = "") -> Dict[Node, Any]:
        """The answers of all agents; one without is reported and dropped."""
        return self.gather({node: getattr(agent, method).remote(*args) for node, agent in self.agents.items()}, done)

    def ask(self, method: str, patience: float) -> List[Any]:
        """The answers that come at once: nothing depends on them."""
        refs = [getattr(agent, method).remote() for agent in self.agents.values()]
        answers = []
        for ref in ray.wait(refs, num_returns=len(refs), timeout=patience)[0] if refs else ():
            try:
                answers.append(ray.get(ref))
            except Exception:
                pass  # stop() will tell
        return answers

    def gather(self, pending: Dict[Node, Any], done_what: str) -> Dict[Node, Any]:
        answers: Dict[Node, Any] = {}
        timeout = self.timeout
        end = time.monotonic() + timeout
        while pending:
            done, _ = ray.wait(list(pending.values()), num_returns=1, timeout=max(0.0, end - time.monotonic()))
            if not done:
                break
            node = next(n for n, ref in pending.items() if ref == done[0])
            del pending[node]
            try:
                answers[node] = ray.get(done[0])
                if done_what:
                    self.say("%s %s, %d of %d" % (node, done_what, len(answers), len(answers) + len(pending)))
            except Exception as error:
                self._drop(node, str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__)
        for node in pending:
            self._drop(node, "no answer within %g seconds" % timeout)
        return answers

    def _drop(self, node: Node, why: str) -> None:
        self.problems[str(node)] = why
        self.say("%s: %s" % (node, why))
        agent = self.agents.pop(node, None)
        if agent is not None:
            ray.kill(agent)

    def close(self) -> None:
        for agent in self.agents.values():
            try:
                ray.kill(agent)
            except Exception:
                pass
        self.agents = {}
        if self._own:
            self._own = False
            ray.shutdown()

    def worker(self, node: Node, row: Dict[str, Any]) -> Worker:
        return Worker(node, row["pid"], row["title"], row["actor"], row["name"])


def _spec(actor: Names, task: Names, pid: Union[None, int, Sequence[int]], **more: Any) -> Dict[str, Any]:
    pids = [pid] if isinstance(pid, int) else list(pid or ())
    return dict(actors=_listed(actor), tasks=_listed(task), pids=pids, **more)


def dump(
    *,
    address: Optional[str] = None,
    node: Names = None,
    actor: Names = None,
    task: Names = None,
    pid: Union[None, int, Sequence[int]] = None,
    native: bool = False,
    locals: int = 0,
    subprocesses: bool = False,
    nonblocking: bool = False,
    full_filenames: bool = False,
    timeout: float = 30.0,
    progress: Optional[Progress] = None,
) -> ClusterDump:
    """The stacks of all workers right now.

    Chosen by `node` (the beginning of its id, its IP or host name), `actor` (class or name), `task` (name of the task or
    method that runs), `pid`; each one or several, actors and tasks with * and ? as in file names. `address` as
    ray.init() takes it; a driver that is connected needs none. `timeout` is in seconds, for each step.
    """
    flags = ["--native"] * native + ["--locals"] * int(locals) + ["--subprocesses"] * subprocesses
    flags += ["--nonblocking"] * nonblocking + ["--full-filenames"] * full_filenames
    cluster = _Cluster(address, node, timeout, progress)
    try:
        result = ClusterDump(problems=cluster.problems)
        # The program's own end comes before ours.
        for at, rows in cluster.call("dump", _spec(actor, task, pid, flags=flags, timeout=0.8 * timeout),
                                     done="is done").items():
            for row in rows:
                worker = cluster.worker(at, row)
                if "error" in row:
                    result.problems[str(worker)] = row["error"]
                    continue
                threads = json.loads(zlib.decompress(row["json"]).decode("utf-8"))
                result.workers.append(WorkerDump(worker, tuple(_thread(t) for t in threads),
                                                 zlib.decompress(row["text"]).decode("utf-8")))
        return result
    finally:
        cluster.close()


class ClusterRecording:
    """A recording of all workers, made by profile(). start() returns when sampling has begun on all nodes."""

    def __init__(self, cluster: Callable[[], _Cluster], spec: Dict[str, Any], output: Optional[Path],
                 format: Optional[str]) -> None:
        self._make = cluster
        self._spec = spec
        self._output = output
        self._format = format
        self._cluster: Optional[_Cluster] = None
        self._result: Optional[ClusterProfile] = None

    @property
    def result(self) -> ClusterProfile:
        if self._result is None:
            raise RuntimeError("the recording was not stopped yet")
        return self._result

    @property
    def profile(self) -> Profile:
        return self.result.profile

    @property
    def problems(self) -> Dict[str, str]:
        return self.result.problems

    def start(self) -> ClusterRecording:
        self._cluster = self._make()
        try:
            self._cluster.call("start", self._spec)
            if not self._cluster.agents:
                raise error_of("no node of the cluster could be reached", self._cluster.problems)
        except BaseException:
            self._cluster.close()
            raise
        return self

    def count(self) -> int:
        """How many workers are recorded, on the nodes that answer at once."""
        return sum(self._cluster.ask("count", 0.5)) if self._cluster is not None else 0

    def stop(self) -> ClusterProfile:
        """Ends the recording everywhere; saves the picture, if a place was given."""
        if self._result is not None:
            return self._result
        cluster = self._cluster
        if cluster is None:
            raise RuntimeError("the recording was not started")
        try:
            rate = self._spec["options"]["rate"]
            self._result = _collect(cluster, cluster.call("stop", done="is done"), rate)
        finally:
            cluster.close()
        if self._output is not None:
            self._result.save(self._output, self._format)
        return self._result

    def __enter__(self) -> ClusterRecording:
        return self.start()

    def __exit__(self, kind: Optional[Type[BaseException]], error: Optional[BaseException],
                 trace: Optional[TracebackType]) -> None:
        try:
            self.stop()
        except Exception:
            if kind is None:  # else what the block raised is what matters
                raise


def _collect(cluster: _Cluster, answers: Dict[Node, Any], rate: float) -> ClusterProfile:
    workers: List[WorkerProfile] = []
    problems = cluster.problems
    for node, rows in answers.items():
        for row in sorted(rows, key=lambda row: row["pid"]):
            worker = cluster.worker(node, row)
            if "error" in row:
                problems[str(worker)] = row["error"]
                continue
            text = zlib.decompress(row["raw"]).decode("utf-8", "replace")
            workers.append(WorkerProfile(worker, Profile.from_raw(text, rate=rate, errors=row["errors"])))
    nodes = len({item.worker.node for item in workers})
    title = "Ray: %d worker%s on %d node%s" % (len(workers), "" if len(workers) == 1 else "s", nodes,
                                               "" if nodes == 1 else "s")
    parts = [((str(item.worker.node), "worker %d" % item.worker.pid, item.worker.role), item.profile) for item in workers]
    return ClusterProfile(_cluster.merged(parts, title, rate), workers, problems)


def profile(
    output: Optional[Path] = None,
    *,
    format: Optional[str] = None,
    address: Optional[str] = None,
    node: Names = None,
    actor: Names = None,
    task: Names = None,
    pid: Union[None, int, Sequence[int]] = None,
    rate: float = 100,
    native: bool = False,
    idle: bool = False,
    gil: bool = False,
    threads: bool = False,
    subprocesses: bool = False,
    function: bool = False,
    nonblocking: bool = False,
    timeout: float = 30.0,
    progress: Optional[Progress] = None,
) -> ClusterRecording:
    """A recording of all workers, also of those that come while it runs, for the time of a `with`.

    Workers are chosen as dump() does. `output` is where the picture goes at the end; its extension is the format, unless
    `format` says otherwise. The other arguments are those of spyglass.record().
    """
    options = dict(rate=rate, native=native, idle=idle, gil=gil, threads=threads, subprocesses=subprocesses,
                   function=function, nonblocking=nonblocking)
    return ClusterRecording(lambda: _Cluster(address, node, timeout, progress), _spec(actor, task, pid, options=options),
                            output, format)


def record(duration: float = 10.0, output: Optional[Path] = None, **options: Any) -> ClusterProfile:
    """Records all workers for `duration` seconds. The arguments are those of profile(). Ctrl-C ends it early, with what
    there is so far."""
    recording = profile(output, **options).start()
    say: Progress = options.get("progress") or _quiet
    end = time.monotonic() + duration
    try:
        while time.monotonic() < end:
            workers = recording.count()
            say("recording %d workers, %.0f s to go" % (workers, max(0.0, end - time.monotonic())))
            time.sleep(max(0.0, min(1.0, end - time.monotonic())))
    except KeyboardInterrupt:
        say("stopped early")
    return recording.stop()


# ---- the command ----

class _Line:
    """Progress on standard error: one line that changes on a terminal, else a line for each new thing."""

    def __init__(self, hide: bool) -> None:
        self._hide = hide
        self._terminal = sys.stderr.isatty()
        self._last = ""

    def __call__(self, text: str) -> None:
        shown = text if self._terminal else text.split(", ")[0]
        if self._hide or shown == self._last:
            return
        self._last = shown
        if self._terminal:
            sys.stderr.write("\r\033[K" + text)
        else:
            sys.stderr.write(text + "\n")
        sys.stderr.flush()

    def end(self) -> None:
        if self._terminal and not self._hide and self._last:
            sys.stderr.write("\r\033[K")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="spyglass ray", description="Dump or record all workers of a Ray cluster.")
    commands = parser.add_subparsers(dest="command", metavar="dump|record", required=True)
    both = argparse.ArgumentParser(add_help=False)
    both.add_argument("--address", default=None, help="as ray.init() takes it [default: auto]")
    both.add_argument("--node", action="append", metavar="NODE", help="only this one: id, IP or host name")
    both.add_argument("--actor", action="append", metavar="CLASS", help="only actors of this class or name; * and ? work")
    both.add_argument("--task", action="append", metavar="NAME", help="only workers that run this task or method")
    both.add_argument("-p", "--pid", action="append", type=int, metavar="PID", help="only this worker")
    both.add_argument("-s", "--subprocesses", action="store_true", help="include the children of the workers")
    both.add_argument("-n", "--native", action="store_true", help="include native functions")
    both.add_argument("--nonblocking", action="store_true", help="read without holding threads still")
    both.add_argument("--timeout", type=float, default=30.0, metavar="SECONDS", help="for an answer of a node [default: 30]")
    both.add_argument("--hideprogress", action="store_true", help="no progress")
    one = commands.add_parser("dump", parents=[both], help="where each worker is right now")
    one.add_argument("-l", "--locals", action="count", default=0, help="show local variables")
    one.add_argument("--full-filenames", action="store_true", help="show whole paths")
    one.add_argument("-j", "--json", action="store_true", help="write JSON")
    two = commands.add_parser("record", parents=[both], help="where the time of the workers goes")
    two.add_argument("-o", "--output", default=None, metavar="FILE", help="where to write [default: ray-TIME.svg]")
    two.add_argument("-f", "--format", default=None, type=str.lower,
                     choices=["flamegraph", "raw", "speedscope", "chrometrace"])
    two.add_argument("-d", "--duration", type=float, default=10.0, metavar="SECONDS", help="[default: 10]")
    two.add_argument("-r", "--rate", type=float, default=100, help="samples a second [default: 100]")
    for letter, name, text in (("-i", "--idle", "include threads that wait"),
                               ("-g", "--gil", "only threads that hold the GIL"), ("-t", "--threads", "keep threads apart"),
                               ("-F", "--function", "add up by function, not by line")):
        two.add_argument(letter, name, action="store_true", help=text)
    return parser


def _json(result: ClusterDump) -> str:
    def plain(item: WorkerDump) -> Dict[str, Any]:
        worker = item.worker
        return {"node": worker.node.id, "ip": worker.node.ip, "pid": worker.pid, "title": worker.title,
                "actor": worker.actor, "actor_name": worker.actor_name,
                "threads": [{"thread_id": t.thread_id, "os_thread_id": t.os_thread_id, "name": t.name, "pid": t.pid,
                             "active": t.active, "owns_gil": t.owns_gil,
                             "frames": [{"name": f.name, "filename": f.filename, "line": f.line, "module": f.module}
                                        for f in t.frames]} for t in item.threads]}

    return json.dumps({"workers": [plain(item) for item in result], "problems": result.problems}, indent=1)


def _run_dump(options: Dict[str, Any]) -> Tuple[int, Dict[str, str]]:
    as_json = options.pop("json")
    result = dump(**options)
    if as_json:
        print(_json(result))
    elif result.workers:
        print(result)
    return len(result.workers), result.problems


def _run_record(options: Dict[str, Any]) -> Tuple[int, Dict[str, str]]:
    output, format = options.pop("output"), options.pop("format")
    if output is None:
        ending = {"raw": "txt", "speedscope": "json", "chrometrace": "trace.json"}.get(format or "", "svg")
        output = time.strftime("ray-%Y-%m-%dT%H:%M:%S.") + ending
    result = record(**options)
    options["progress"].end()
    if result.workers:
        result.save(output, format or format_of(output))
        print("Wrote '%s'. Workers: %d Samples: %d" % (output, len(result.workers), result.profile.samples))
    return len(result.workers), result.problems


def main(argv: Optional[Sequence[str]] = None) -> int:
    """`spyglass ray ...`: 0 when there is something to show, whatever could not be had; 1 when there is nothing."""
    options = vars(_parser().parse_args(argv))
    line = _Line(options.pop("hideprogress"))
    command = options.pop("command")
    try:
        taken, problems = (_run_dump if command == "dump" else _run_record)(dict(options, progress=line))
    except (ConnectionError, ClusterError, ValueError, OSError) as error:
        line.end()
        print("Error: %s" % error, file=sys.stderr)
        return 1
    line.end()
    for where, why in problems.items():
        print("Passed over: %s: %s" % (where, why), file=sys.stderr)
    if not taken:
        print("Error: no worker of the cluster was found that fits" if not problems else
              "Error: no worker could be read", file=sys.stderr)
    return 0 if taken else 1


if __name__ == "__main__":
    sys.exit(main())
