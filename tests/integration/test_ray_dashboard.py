"""A real Ray with our py-spy first in PATH: "Stack Trace" and "CPU Flame Graph" of its dashboard, with every
parameter, as root, through sudo and as an unprivileged user."""
import concurrent.futures
import itertools
import json
import os
import pathlib
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.parse
import urllib.request

import pytest
from conftest import BIN, PACKAGE, PROGRAMS, SPYGLASS, WAIT, end_tree, wait_until
from readers import READ, ends_with

pytestmark = pytest.mark.timeout(900)
LIMIT = 4 << 20
ROOT_USER = os.geteuid() == 0
USER = 23456  # a uid that nobody on the machine has; in its own namespace it has a name
FORMATS = ["flamegraph", "raw", "speedscope"]
WAYS = ["root", "sudo", "user", "user-sudo"] if ROOT_USER else ["user"]

EXTRA = {WAYS[0]: ",Deep", "user-sudo": ",Closed"} if ROOT_USER else {"user": ",Deep,Closed"}


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


class Head:
    """A head node, started in one of the ways that Ray's users use."""

    def __init__(self, way):
        self.directory = pathlib.Path(tempfile.mkdtemp(prefix="sg-", dir="/tmp"))  # Ray's socket paths must be short
        self.dashboard, self.port = free_port(), free_port()
        self.env = dict(os.environ, RAY_DASHBOARD_ENABLE_PROFILING="1", HOME=str(self.directory),
                        RAY_worker_niceness="0")  # otherwise other work on the machine leaves the workers no CPU time
        self.prefix = self.make_prefix(way)
        self.log = open(self.directory / "head.log", "w+")
        self.process = subprocess.Popen(
            self.prefix + ["start", "--head", "--block", "--port", str(self.port), "--dashboard-port", str(self.dashboard),
                           "--dashboard-agent-listen-port", str(free_port()), "--ray-client-server-port", str(free_port()),
                           "--include-dashboard", "true",
                           "--num-cpus", "2", "--temp-dir", str(self.directory / "ray"),
                           "--object-store-memory", str(100 << 20), "--disable-usage-stats"],
            stdin=subprocess.DEVNULL, stdout=self.log, stderr=self.log, env=self.env, start_new_session=True)
        wait_until(self.answers, "the dashboard of Ray: " + (self.directory / "head.log").read_text())

    def make_prefix(self, way):
        """The command before `start`. An unprivileged user gets a private mount namespace: with the environment
        where it can read it, and with a name and permission for sudo, so that the machine is not changed."""
        ray = ["-m", "ray.scripts.scripts"]
        no_sudo = self.directory / "bin"
        no_sudo.mkdir()
        (no_sudo / "sudo").write_text("#!/bin/sh\nexit 1\n")
        (no_sudo / "sudo").chmod(0o755)
        os.chmod(self.directory, 0o777)
        if way in ("root", "user") :
            self.env["PATH"] = "%s:%s" % (no_sudo, self.env["PATH"])
        if not way.startswith("user") or not ROOT_USER:
            return [sys.executable] + ray
        place, tool = self.directory / "env", self.directory / "tool"
        place.mkdir()
        shutil.copytree(SPYGLASS.parent, tool, symlinks=True, ignore=lambda d, names: [
            n for n in names if n not in ("spyglass", "py-spy")])
        self.env["PATH"] = "%s:%s:%s/bin:/usr/bin:/bin" % (no_sudo if way == "user" else tool, tool, place)
        self.env["SPYGLASS_BINARY"] = str(tool / "spyglass")
        (self.directory / "passwd").write_text("root:*:0:0::/root:/bin/sh\nray:*:%d:%d::%s:/bin/sh\n" % (USER, USER, self.directory))
        (self.directory / "sudoers").write_text("root ALL=(ALL:ALL) ALL\nray ALL=(ALL:ALL) NOPASSWD: ALL\n")
        os.chmod(self.directory / "sudoers", 0o440)
        mounts = "mount --bind %s %s && mount --bind %s/passwd /etc/passwd && mount --bind %s/sudoers /etc/sudoers" % (
            BIN.parent, place, self.directory, self.directory)
        become = "exec setpriv --reuid %d --regid %d --clear-groups %s/bin/python \"$@\"" % (USER, USER, place)
        return ["unshare", "-m", "sh", "-c", "%s && %s" % (mounts, become), "sh"] + ray

    def answers(self):
        assert self.process.poll() is None, (self.directory / "head.log").read_text()
        try:
            return urllib.request.urlopen("http://127.0.0.1:%d/api/version" % self.dashboard, timeout=5).status == 200
        except OSError:
            return False

    def run_driver(self, wanted):
        script = [str(PROGRAMS / "ray_actors.py"), "127.0.0.1:%d" % self.port, wanted]
        prefix = self.prefix[:-2] if len(self.prefix) > 3 else [sys.executable]
        if len(self.prefix) > 3:
            shutil.copy(script[0], self.directory / "ray_actors.py")
            script[0] = str(self.directory / "ray_actors.py")
        self.driver = subprocess.Popen(prefix + script, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.log,
                                       env=self.env, start_new_session=True)
        line = self.driver.stdout.readline()
        assert line, (self.directory / "head.log").read_text()[-3000:]
        self.facts = json.loads(line)
        # The node's agent starts some seconds after the head.
        wait_until(lambda: self.get("worker/traceback", pid=self.facts["pids"]["Busy"])[0] != 500 or None, "the agent")
        return self

    def get(self, path, **query):
        if "ip" not in query:
            query.setdefault("node_id", self.facts["node"])
        url = "http://127.0.0.1:%d/%s?%s" % (self.dashboard, path, urllib.parse.urlencode(query))
        try:
            with urllib.request.urlopen(url, timeout=WAIT) as answer:
                body, status, kind = answer.read(), answer.status, answer.headers.get_content_type()
        except urllib.error.HTTPError as error:
            body, status, kind = error.read(), error.code, error.headers.get_content_type()
        assert len(body) < LIMIT
        return status, body.decode("utf-8"), kind

    def close(self):
        for process in (getattr(self, "driver", None), self.process):
            if process is not None:
                end_tree(process)
        self.log.close()
        shutil.rmtree(self.directory, ignore_errors=True)


@pytest.fixture(scope="module", params=WAYS)
def head(request):
    head = Head(request.param)
    head.way = request.param
    try:
        yield head.run_driver("Busy,Resting,Dead" + EXTRA.get(request.param, ""))
    finally:
        head.close()


def run_concurrently(calls):
    """Concurrent requests, as impatient people make them; returns {key: response}. Requests whose key begins with
    the same word run one after the other: Ray has one file per process and format, and mixes up two requests for it."""
    answers, lanes = {}, {}
    for key, call in calls.items():
        lanes.setdefault(key[0], []).append((key, call))

    def run_lane(lane):
        for key, call in lane:
            answers[key] = call()

    with concurrent.futures.ThreadPoolExecutor(6) as pool:
        list(pool.map(run_lane, lanes.values()))
    return answers


def flags(names):
    """Every way to set them: not at all, 0, 1."""
    for values in itertools.product((None, "0", "1"), repeat=len(names)):
        yield {name: value for name, value in zip(names, values) if value is not None}


def some_flags(head, names):
    """All combinations for root; each flag alone for the others, which differ in permissions, not in flags."""
    if head.way in ("root", "user") and len(WAYS) == 1 or head.way == "root":
        return list(flags(names))
    return [{}] + [{name: "1"} for name in names] + [{name: "1" for name in names}]


def test_worker_stack_trace(head):
    pid = head.facts["pids"]["Busy"]
    calls = {(i,) + tuple(sorted(query.items())): lambda query=query: head.get("worker/traceback", pid=pid, **query)
             for i, query in enumerate(some_flags(head, ["native", "subprocesses"]))}
    for (_, *query), (status, text, _) in run_concurrently(calls).items():
        assert status == 200, text
        query = dict(query)
        assert text.startswith("Process %d: ray::Busy.spin" % pid) and "Busy.spin (" in text
        assert ("ray::core::CoreWorker" in text) == (query.get("native") == "1")
        assert ("child_spins (" in text) == (query.get("subprocesses") == "1")


def test_worker_flame_graph(head):
    pid = head.facts["pids"]["Busy"]
    calls = {(format,) + tuple(sorted(query.items())): lambda format=format, query=query: head.get(
        "worker/cpu_profile", pid=pid, duration=1, format=format, **query)
        for format in FORMATS for query in some_flags(head, ["native", "idle", "subprocesses"])}
    for (format, *query), (status, text, kind) in run_concurrently(calls).items():
        assert status == 200, text
        assert kind == ("image/svg+xml" if format == "flamegraph" else "text/plain")
        names, samples = READ[format](text)
        query = dict(query)
        assert ends_with(names, "spin") and samples > 0, (query, names)
        assert any("ray::core::CoreWorker" in name for name in names) == (query.get("native") == "1")
        assert ends_with(names, "child_spins") == (query.get("subprocesses") == "1")
        if query.get("idle") == "1":  # without it, a thread that wakes up for a moment may be seen too
            assert "PythonGCThread.run" in names or "run" in names


def test_defaults(head):
    """What a click on the button requests: no parameter but the process, five seconds."""
    status, text, _ = head.get("worker/cpu_profile", pid=head.facts["pids"]["Busy"])
    assert status == 200 and ends_with(READ["flamegraph"](text)[0], "spin")


def test_ip(head):
    """The older way to name a node."""
    status, text, _ = head.get("worker/traceback", pid=head.facts["pids"]["Busy"], ip=head.facts["ip"])
    assert status == 200 and "Busy.spin (" in text


def test_task(head):
    query = dict(task_id=head.facts["task"], attempt_number=0)
    ways = [{}] + [{name: value} for name in ("native", "idle", "subprocesses") for value in "01"]
    ways += [dict(native="1", idle="1", subprocesses="1")]
    calls = {("trace", i): lambda way=way: head.get("task/traceback", **query, **way)
             for i, way in enumerate(ways) if "idle" not in way}
    for format in FORMATS:
        for i, way in enumerate(ways):
            calls[format, i] = lambda format=format, way=way: head.get(
                "task/cpu_profile", format=format, duration=1, **query, **way)
    for (name, i), (status, text, _) in run_concurrently(calls).items():
        assert status == 200, text
        native = "ray::core::CoreWorker" in text
        assert native == (ways[i].get("native") == "1"), (name, ways[i])
        if name == "trace":
            assert "long_running_task (" in text
        else:
            names, samples = READ[name](text)
            assert ends_with(names, "long_running_task") and samples > 0


def test_idle_worker(head):
    """Where py-spy fails with `No stack counts found`, the response says what to do."""
    pid = head.facts["pids"]["Resting"]
    for format in FORMATS:
        status, text, _ = head.get("worker/cpu_profile", pid=pid, duration=1, format=format)
        assert status == 200, text
        names, samples = READ[format](text)
        assert samples == 0 and "stacks were idle" in text and "--idle" in text
        status, text, _ = head.get("worker/cpu_profile", pid=pid, duration=1, format=format, idle=1)
        names, samples = READ[format](text)
        assert status == 200 and ends_with(names, "rests") and samples > 0
        assert any("odd_" in name for name in names)
    status, text, _ = head.get("worker/traceback", pid=pid)
    assert status == 200 and "rests (" in text and "odd_" in text


def test_dead_worker(head):
    pid = head.facts["pids"]["Dead"]
    for path in ("worker/traceback", "worker/cpu_profile"):
        status, text, _ = head.get(path, pid=pid)
        assert status == 500 and "Check that the process is running" in text and str(pid) in text
        assert ("'sudo', '-n', '" in text) == head.way.endswith("sudo"), text  # the command, as Ray shows it


def test_raylet(head):
    """Not Python; its children are."""
    for path in ("worker/traceback", "worker/cpu_profile"):
        status, text, _ = head.get(path, pid=head.facts["raylet"])
        assert status == 500 and "Failed to find python version from target process" in text and "--subprocesses" in text
    status, text, _ = head.get("worker/traceback", pid=head.facts["raylet"], subprocesses=1)
    assert status == 200 and "Busy.spin (" in text and "long_running_task (" in text


def test_process_of_root(head):
    """A process of root: an unprivileged user without sudo gets a permission error, and Ray adds how to fix it."""
    if head.way != "user" or not ROOT_USER:
        pytest.skip("for a plain user on a machine where we are root")
    with subprocess.Popen([sys.executable, "-c", "import time; print(1, flush=True); time.sleep(1000)"],
                          stdout=subprocess.PIPE) as process:
        process.stdout.readline()
        try:
            status, text, _ = head.get("worker/traceback", pid=process.pid)
        finally:
            process.kill()
    assert status == 500 and "Permission Denied" in text and "requires `py-spy` to be installed with root permissions" in text


def test_spyglass_ray_through_sudo(head):
    """A worker that its own user may not read: the actor of `spyglass ray` calls sudo, as Ray does."""
    if head.way != "user-sudo":
        pytest.skip("for a plain user who may call sudo")
    package, place = head.directory / "package", head.directory / "closed.txt"
    shutil.copytree(PACKAGE, package, ignore=shutil.ignore_patterns("__pycache__"))
    env = dict(head.env, PYTHONPATH=str(package))
    pid = head.facts["pids"]["Closed"]

    def command(*args):
        done = subprocess.run(head.prefix[:-2] + ["-m", "spyglass.ray", *args, "--actor", "Closed", "--address",
                                                  "127.0.0.1:%d" % head.port], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, env=env, timeout=WAIT)
        assert done.returncode == 0, done.stderr.decode()
        return done.stdout.decode()

    out = command("dump")
    assert "worker %d, actor Closed ====" % pid in out and "closed_spins (" in out
    command("record", "-d", "1", "-o", str(place))
    names, samples = READ["raw"](place.read_text())
    assert ends_with(names, "closed_spins") and "worker %d" % pid in names and samples > 0
    assert not [p for p in pathlib.Path("/proc").glob("[0-9]*/cmdline") if is_profiler_of(p, pid)]


def is_profiler_of(path, pid):
    try:
        return b"\0record\0" in path.read_bytes() and b"\0--pid\0%d\0" % pid in path.read_bytes()
    except OSError:
        return False


def test_large_responses(head):
    """A hundred threads with six hundred calls each: what would exceed the limit is folded, and says so."""
    if head.way != WAYS[0]:
        pytest.skip("the same for all ways")
    pid = head.facts["pids"]["Deep"]
    for format in FORMATS:
        status, text, _ = head.get("worker/cpu_profile", pid=pid, duration=1, format=format, idle=1)  # get() limits it
        assert status == 200, text[:3000]
        names, samples = READ[format](text)
        assert samples > 0 and any(name.startswith("deep_") or "a_function_with_a_name" in name for name in names)
        said = {"flamegraph": "smallest or deepest frames omitted", "raw": "reduced to stay below"}.get(format, "")
        assert said in text
    status, text, _ = head.get("worker/traceback", pid=pid)
    assert status == 200 and text.count("Thread ") > 100 and text.count("a_function_with_a_name") > 1000


def test_ray_stack(head):
    """`ray stack`: every worker of the machine. It calls sudo, which changes nothing for root."""
    if head.way != "root":
        pytest.skip("sudo would ask for a password, or the same for all ways")
    (head.directory / "bin" / "sudo").write_text('#!/bin/sh\n[ "$1" = -n ] && exit 1\nexec "$@"\n')
    out = subprocess.run(head.prefix + ["stack"], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                         env=head.env, timeout=WAIT).stdout.decode()
    for pid, name in ((head.facts["pids"]["Busy"], "Busy.spin ("), (head.facts["pids"]["Resting"], "Resting.rests (")):
        assert name in out.partition("Process %d: " % pid)[2].partition("Stack dump for")[0]
