"""Dumps and profiles all workers of a Ray cluster.

    import spyglass.ray

    spyglass.ray.record(duration=10).save("cluster.svg")     # in a driver, or anywhere ray.init() works
    with spyglass.ray.profile("cluster.svg"):                # the same, for the duration of a block
        ray.get([work.remote() for _ in range(100)])
    print(spyglass.ray.dump())

From a shell: `spyglass ray dump --address auto`, `spyglass ray record --address auto -d 10 -o cluster.svg`.

On each node, an actor that reserves no resources finds the node's workers and runs the program on them. The driver sends
the actor's code, and the program if a node lacks it. A node that is dead or does not answer is reported and skipped.
"""
from __future__ import annotations

import argparse
import json
import os
import socket
import sys
import time
import zlib
from dataclasses import asdict, dataclass, field
from itertools import groupby
from types import TracebackType
from typing import Any, Callable, Dict, Iterator, List, NoReturn, Optional, Sequence, Tuple, Type, Union

import ray

from . import _cluster
from ._cluster import ClusterError, error_of
from ._dump import Thread, thread_from, thread_lines
from ._errors import NotReachable, OutputNotWritable, SpyglassError
from ._formats import FORMATS, Format, Path, absolute, check_format, extension_of, format_of
from ._profile import Profile
from ._ray_node import TITLE, _SpyglassAgent  # pyright: ignore[reportPrivateUsage]
from ._text import safe, safe_lines

__all__ = ["ClusterDump", "ClusterError", "ClusterProfile", "ClusterRecording", "Node", "Worker", "WorkerDump",
           "WorkerProfile", "dump", "main", "profile", "record"]

LATE = 0.8  # a worker's share of its node's timeout, so that one that hangs does not lose the others
DEAD_NAMED = 10  # maximum number of dead nodes to list; an autoscaled cluster may remember hundreds
Progress = Callable[[str], None]
Names = Union[None, str, Sequence[str]]


@dataclass(frozen=True)
class Node:
    """A node of the cluster: one raylet. One machine may run several."""

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
    """The stacks of all workers. `problems` maps each node or worker that failed to the reason, `advice` to what the
    program suggests."""

    workers: List[WorkerDump] = field(default_factory=list)
    problems: Dict[str, str] = field(default_factory=dict)
    advice: Dict[str, str] = field(default_factory=dict)

    def __iter__(self) -> Iterator[WorkerDump]:
        return iter(self.workers)

    def __str__(self) -> str:
        return "\n".join("==== %s ====\n%s" % (safe(item.worker), item.text) for item in self.workers)


@dataclass
class ClusterProfile:
    """The merged profile, with node, worker and actor as root frames. `workers` has the profile of each worker."""

    profile: Profile
    workers: List[WorkerProfile] = field(default_factory=list)
    problems: Dict[str, str] = field(default_factory=dict)
    advice: Dict[str, str] = field(default_factory=dict)

    def __iter__(self) -> Iterator[WorkerProfile]:
        return iter(self.workers)

    def save(self, path: Path, format: Optional[Format] = None) -> None:
        self.profile.save(path, format)


# ---- in the driver ----

def _listed(names: Names) -> List[str]:
    return [names] if isinstance(names, str) else list(names or ())


def _quiet(text: str) -> None:
    pass


def _check_reachable(address: str, timeout: float) -> None:
    """Fails fast if nothing listens at the address. Ray takes minutes to notice, and does not always say so."""
    host, colon, port = address.rpartition("://")[2].rpartition(":")
    if not colon or not port.isdigit() or address.startswith("http"):
        return  # a name that Ray knows, or an error that Ray explains
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout).close()
    except OSError as error:
        raise NotReachable("no Ray cluster answers at %s: %s\nUse the address of the head node, as `ray start --head` "
                           "prints it: HOST:6379, or ray://HOST:10001 from outside the cluster"
                           % (address, error)) from None


def _check_place(output: Optional[Path]) -> None:
    """Fails before the recording, not after it, if the file cannot be written."""
    if output is None:
        return
    directory = os.path.dirname(absolute(output))
    if not os.access(directory, os.W_OK):
        raise OutputNotWritable("cannot write '%s': %s" % (
            safe(output), "the directory is not writable" if os.path.isdir(directory) else "there is no such directory"))


class _Cluster:
    """The connection, and one agent on each live node that was requested."""

    def __init__(self, address: Optional[str], node: Names, timeout: float, progress: Optional[Progress]) -> None:
        self.timeout = timeout
        self.say = progress or _quiet
        self.problems: Dict[str, str] = {}
        self.advice: Dict[str, str] = {}
        self.agents: Dict[Node, Any] = {}
        self._own = not ray.is_initialized()
        if self._own:
            address = address or os.environ.get("RAY_ADDRESS") or "auto"
            _check_reachable(address, timeout)
            ray.init(address=address, log_to_driver=False, logging_level="error", namespace="spyglass")
        try:
            self._place(_listed(node))
        except BaseException:
            self.close()
            raise

    def _place(self, wanted: List[str]) -> None:
        from ray import cloudpickle
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        import spyglass

        nodes = self._living(wanted)
        shipped = ray.put(_cluster.shipped_program())
        cloudpickle.register_pickle_by_value(spyglass)
        try:
            remote = ray.remote(_SpyglassAgent)
            for node in nodes:
                strategy = NodeAffinitySchedulingStrategy(node.id, soft=False)
                self.agents[node] = remote.options(num_cpus=0, max_restarts=0, max_concurrency=4,
                                                   scheduling_strategy=strategy).remote([shipped])
        finally:
            cloudpickle.unregister_pickle_by_value(spyglass)
        self.call("ready", done="is ready")

    def _living(self, wanted: List[str]) -> List[Node]:
        """Returns the requested nodes that are alive. Adds the dead ones to `problems`."""
        living: List[Node] = []
        dead: Dict[str, str] = {}
        every: List[Node] = []
        for row in ray.nodes():
            node = Node(row["NodeID"], row["NodeManagerAddress"], row.get("NodeManagerHostname") or "")
            every.append(node)
            if wanted and not any(node.id.startswith(w) or w in (node.ip, node.hostname) for w in wanted):
                continue
            if row["Alive"]:
                living.append(node)
            else:
                why = row.get("DeathReasonMessage") or ""
                dead[str(node)] = "the node is dead" + (": " + why if why else "")
        if wanted and not living and not dead:
            raise ValueError("the cluster has no node %s; it has: %s" % (
                " or ".join(wanted), ", ".join("%s %s" % (node, node.hostname) for node in every)))
        self.problems.update(list(dead.items())[:DEAD_NAMED])
        if len(dead) > DEAD_NAMED:
            self.problems["%d more nodes" % (len(dead) - DEAD_NAMED)] = "they are dead"
        return living

    def call(self, method: str, *args: Any, done: str = "") -> Dict[Node, Any]:
        """Calls a method of all agents and returns the answers. Drops agents that fail, and reports them."""
        return self.gather({node: getattr(agent, method).remote(*args) for node, agent in self.agents.items()}, done)

    def ask(self, method: str, patience: float) -> List[Any]:
        """Returns the answers that arrive in time, and ignores errors. For progress only."""
        refs = [getattr(agent, method).remote() for agent in self.agents.values()]
        answers: List[Any] = []
        for ref in ray.wait(refs, num_returns=len(refs), timeout=patience)[0] if refs else ():
            try:
                answers.append(ray.get(ref))
            except Exception:
                pass  # stop() reports it
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
                answers[node] = ray.get(done[0], timeout=max(1.0, end - time.monotonic()))
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
            self._kill(agent)

    @staticmethod
    def _kill(agent: Any) -> None:
        try:
            ray.kill(agent)
        except Exception:
            pass  # the agent or its node is already gone

    def close(self) -> None:
        for agent in self.agents.values():
            self._kill(agent)
        self.agents = {}
        if self._own:
            self._own = False
            ray.shutdown()

    def worker(self, node: Node, row: Dict[str, Any]) -> Worker:
        return Worker(node, row["pid"], row["title"], row["actor"], row["name"])

    def fail(self, worker: Worker, row: Dict[str, Any]) -> None:
        self.problems[str(worker)] = row["error"]
        if row.get("advice"):
            self.advice[str(worker)] = row["advice"]


def _spec(actor: Names, task: Names, pid: Union[None, int, Sequence[int]], **more: Any) -> Dict[str, Any]:
    pids = [pid] if isinstance(pid, int) else list(pid or ())
    return dict(actors=_listed(actor), tasks=_listed(task), pids=pids, **more)


def _text(worker: Worker, threads: Sequence[Thread], whole: bool) -> str:
    """Formats threads as `spyglass dump` prints them. From the same JSON, so that text and objects match."""
    lines: List[str] = []
    for pid, group in groupby(threads, lambda thread: thread.pid):
        same = list(group)
        command = same[0].process.command_line if same[0].process else TITLE + worker.title
        lines.append("Process %d: %s" % (pid, safe(command)))
        for thread in same:
            lines += thread_lines(thread, whole)
        lines += ["", str(same[0].verdict)] if same[0].verdict else []
    return "\n".join(lines) + "\n"


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
    """Returns the current stacks of all workers.

    Select workers by `node` (prefix of its ID, IP or host name), `actor` (class or name), `task` (name of the running
    task or method) and `pid`. Each can be one value or several; actors and tasks may contain the wildcards * and ?.
    `address` is that of ray.init(); a connected driver needs none. `timeout` is the limit for each step, in seconds.
    """
    flags = ["--native"] * native + ["--locals"] * int(locals) + ["--subprocesses"] * subprocesses
    flags += ["--nonblocking"] * nonblocking + ["--full-filenames"] * full_filenames
    cluster = _Cluster(address, node, timeout, progress)
    try:
        result = ClusterDump(problems=cluster.problems, advice=cluster.advice)
        for at, rows in cluster.call("dump", _spec(actor, task, pid, flags=flags, timeout=LATE * timeout),
                                     done="is done").items():
            for row in rows:
                worker = cluster.worker(at, row)
                if "error" in row:
                    cluster.fail(worker, row)
                    continue
                threads = tuple(thread_from(t) for t in json.loads(zlib.decompress(row["json"]).decode("utf-8")))
                result.workers.append(WorkerDump(worker, threads, _text(worker, threads, full_filenames)))
        return result
    finally:
        cluster.close()


class ClusterRecording:
    """A recording of all workers, created by profile(). start() returns when all nodes are sampling."""

    def __init__(self, cluster: Callable[[], _Cluster], spec: Dict[str, Any], output: Optional[Path],
                 format: Optional[Format]) -> None:
        self._make = cluster
        self._spec = spec
        self._output = output
        self._format: Optional[Format] = format
        self._cluster: Optional[_Cluster] = None
        self._result: Optional[ClusterProfile] = None

    @property
    def result(self) -> ClusterProfile:
        if self._result is None:
            raise RuntimeError("the recording has not stopped")
        return self._result

    @property
    def profile(self) -> Profile:
        return self.result.profile

    @property
    def problems(self) -> Dict[str, str]:
        return self.result.problems

    def start(self) -> ClusterRecording:
        if self._cluster is not None:
            raise RuntimeError("a recording can be started only once: create another")
        _check_place(self._output)
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
        """Returns the number of recorded workers on the nodes that answer immediately."""
        return sum(self._cluster.ask("count", 0.5)) if self._cluster is not None else 0

    def stop(self) -> ClusterProfile:
        """Stops the recording on all nodes. Writes `output`, if given."""
        if self._result is not None:
            return self._result
        cluster = self._cluster
        if cluster is None:
            raise RuntimeError("the recording has not been started")
        try:
            rate = self._spec["options"]["rate"]
            self._result = _collect(cluster, cluster.call("stop", LATE * cluster.timeout, done="is done"), rate)
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
            if kind is None:  # otherwise, do not hide the exception of the block
                raise


def _collect(cluster: _Cluster, answers: Dict[Node, Any], rate: float) -> ClusterProfile:
    workers: List[WorkerProfile] = []
    for node, rows in answers.items():
        for row in sorted(rows, key=lambda row: row["pid"]):
            worker = cluster.worker(node, row)
            if "error" in row:
                cluster.fail(worker, row)
                continue
            text = zlib.decompress(row["raw"]).decode("utf-8", "replace")
            workers.append(WorkerProfile(worker, Profile.from_raw(text, rate=rate, errors=row["errors"])))
    nodes = len({item.worker.node for item in workers})
    title = "Ray: %d worker%s on %d node%s" % (len(workers), "" if len(workers) == 1 else "s", nodes,
                                               "" if nodes == 1 else "s")
    parts = [((str(item.worker.node), "worker %d" % item.worker.pid, item.worker.role), item.profile) for item in workers]
    merged = _cluster.merged(parts, title, rate)
    if not workers:  # a flame graph that says so is better than none
        merged = Profile([(("[no worker of the cluster was recorded]",), 1)], rate=rate, title=title)
        merged.samples = 0
    return ClusterProfile(merged, workers, cluster.problems, cluster.advice)


def profile(
    output: Optional[Path] = None,
    *,
    format: Optional[Format] = None,
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
    """Creates a recording of all workers, also of those that start later, for use in a `with` statement.

    The arguments that select workers are those of dump(). stop() writes `output`; its extension selects the format,
    unless `format` is given. The other arguments are those of spyglass.record().
    """
    options = dict(rate=rate, native=native, idle=idle, gil=gil, threads=threads, subprocesses=subprocesses,
                   function=function, nonblocking=nonblocking)
    if format is not None:
        format = check_format(format)
    elif output is not None:
        format = format_of(output)
    return ClusterRecording(lambda: _Cluster(address, node, timeout, progress), _spec(actor, task, pid, options=options),
                            output, format)


def record(duration: float = 10.0, output: Optional[Path] = None, **options: Any) -> ClusterProfile:
    """Records all workers for `duration` seconds. The arguments are those of profile(). Ctrl-C ends the recording early
    and keeps the samples so far."""
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
    """Progress on standard error. On a terminal, one line that is updated; otherwise one line per change."""

    def __init__(self, hide: bool) -> None:
        self._hide = hide
        self._terminal = sys.stderr.isatty()
        self._last = ""

    def __call__(self, text: str) -> None:
        text = safe(text)
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


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        super().error(safe(message))  # it quotes arguments


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(prog="spyglass ray", description="Dump or record all workers of a Ray cluster.")
    commands = parser.add_subparsers(dest="command", metavar="dump|record", required=True)
    both = _Parser(add_help=False)
    both.add_argument("--address", default=None, help="address of the cluster, as for ray.init() [default: auto]")
    both.add_argument("--node", action="append", metavar="NODE", help="only this node: ID, IP or host name")
    both.add_argument("--actor", action="append", metavar="CLASS",
                      help="only actors of this class or name; wildcards * and ?")
    both.add_argument("--task", action="append", metavar="NAME", help="only workers that run this task or method")
    both.add_argument("-p", "--pid", action="append", type=int, metavar="PID", help="only this worker")
    both.add_argument("-s", "--subprocesses", action="store_true", help="include the children of the workers")
    both.add_argument("-n", "--native", action="store_true", help="include native functions")
    both.add_argument("--nonblocking", action="store_true", help="do not pause threads")
    both.add_argument("--timeout", type=float, default=30.0, metavar="SECONDS",
                      help="limit for each answer of a node [default: 30]")
    both.add_argument("--hideprogress", action="store_true", help="do not show progress")
    one = commands.add_parser("dump", parents=[both], help="show what each worker is doing right now")
    one.add_argument("-l", "--locals", action="count", default=0, help="show local variables")
    one.add_argument("--full-filenames", action="store_true", help="show full paths")
    one.add_argument("-j", "--json", action="store_true", help="write JSON")
    two = commands.add_parser("record", parents=[both], help="profile the workers")
    two.add_argument("-o", "--output", default=None, metavar="FILE", help="output file [default: ray-TIME.svg]")
    two.add_argument("-f", "--format", default=None, type=str.lower,
                     choices=FORMATS)
    two.add_argument("-d", "--duration", type=float, default=10.0, metavar="SECONDS", help="[default: 10]")
    two.add_argument("-r", "--rate", type=float, default=100, help="samples per second [default: 100]")
    for letter, name, text in (("-i", "--idle", "include idle threads"),
                               ("-g", "--gil", "include only threads that hold the GIL"),
                               ("-t", "--threads", "show threads separately"),
                               ("-F", "--function", "aggregate by function instead of by line")):
        two.add_argument(letter, name, action="store_true", help=text)
    return parser


def _json(result: ClusterDump) -> str:
    def plain(item: WorkerDump) -> Dict[str, Any]:
        worker = item.worker
        return {"node": worker.node.id, "ip": worker.node.ip, "hostname": worker.node.hostname, "pid": worker.pid,
                "title": worker.title, "actor": worker.actor, "actor_name": worker.actor_name,
                "threads": [asdict(thread) for thread in item.threads]}

    return json.dumps({"workers": [plain(item) for item in result], "problems": result.problems}, indent=1)


def _run_dump(options: Dict[str, Any]) -> ClusterDump:
    as_json = options.pop("json")
    result = dump(**options)
    if as_json:
        print(_json(result))
    elif result.workers:
        print(result)
    return result


def _run_record(options: Dict[str, Any]) -> ClusterProfile:
    output, format = options.pop("output"), options.pop("format")
    if output is None:
        output = time.strftime("ray-%Y-%m-%dT%H:%M:%S") + extension_of(format or "flamegraph")
    _check_place(output)
    format = format or format_of(output)
    result = record(**options)
    options["progress"].end()
    if result.workers:
        result.save(output, format)
        print("Wrote '%s'. Workers: %d Samples: %d" % (safe(output), len(result.workers), result.profile.samples),
              file=sys.stderr)
    return result


def main(argv: Optional[Sequence[str]] = None) -> int:
    """Runs `spyglass ray ...`. Returns 0 if at least one worker was read, else 1."""
    options = vars(_parser().parse_args(argv))
    line = _Line(options.pop("hideprogress"))
    command = options.pop("command")
    try:
        result = (_run_dump if command == "dump" else _run_record)(dict(options, progress=line))
    except (SpyglassError, ValueError, OSError) as error:
        line.end()
        print("Error: %s" % safe_lines(error), file=sys.stderr)
        return 1
    line.end()
    for where, why in result.problems.items():
        advice = result.advice.get(where)
        print("Skipped: %s: %s" % (safe(where), safe_lines(why + ("\n" + advice if advice else ""))), file=sys.stderr)
    if not result.workers:
        print("Error: no worker of the cluster matches" if not result.problems else
              "Error: no worker could be read", file=sys.stderr)
    return 0 if result.workers else 1


if __name__ == "__main__":
    sys.exit(main())
