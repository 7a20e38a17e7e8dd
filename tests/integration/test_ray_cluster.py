"""A Ray cluster of two nodes on one machine: `spyglass ray` and spyglass.ray profile all of its workers. The second
node has neither the package nor the program. A third node joins, and is killed."""
import json
import os
import pathlib
import re
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile

import pytest
from conftest import BIN, PACKAGE, PROGRAMS, SPYGLASS, WAIT, end_tree, run, session_of, wait_until
from readers import READ, ends_with

from spyglass import Profile

pytestmark = pytest.mark.timeout(1800)
FUNCTION = {"Alpha": "alpha_spins", "Beta": "beta_spins", "gamma": "gamma_spins"}
ROLE = {"Alpha": "actor Alpha", "Beta": 'actor Beta "beta-%s"', "gamma": "task gamma_task"}


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


class Cluster:
    def __init__(self):
        self.directory = pathlib.Path(tempfile.mkdtemp(prefix="sg-", dir="/tmp"))  # Ray's socket paths must be short
        self.port = free_port()
        self.address = "127.0.0.1:%d" % self.port
        self.log = open(self.directory / "log", "w+")
        self.processes, self.nodes = [], {}
        # With a higher nice value, workers would get no CPU time next to other work on the machine.
        self.env = dict(os.environ, HOME=str(self.directory), RAY_worker_niceness="0")
        # On a busy machine, Ray would kill workers that take more than a minute to start, and restart them forever.
        self.env["RAY_worker_register_timeout_seconds"] = "1000"

    def start(self):
        self.start_node("one", "--head", "--port", self.port, "--ray-client-server-port", free_port(),
                        "--include-dashboard", "false", "--temp-dir", self.directory / "ray")
        wait_until(self.answers, "the head node")
        self.start_node("two", "--address", self.address, bare=True)
        self.driver = subprocess.Popen([sys.executable, str(PROGRAMS / "ray_nodes.py"), self.address, str(self.directory)],
                                       stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.log, env=self.env,
                                       start_new_session=True)
        self.processes.append(self.driver)
        wait_until(self.driver_answers, "the driver", 1500)  # a node that is late takes 30 s, and is started again
        self.facts = self.read_answer()
        return self

    def start_node(self, name, *args, bare=False):
        """With `bare`, the node has a private mount namespace in which our package and our program are missing."""
        command = [sys.executable, "-m", "ray.scripts.scripts", "start", "--block", "--num-cpus", "2", "--resources",
                   json.dumps({name: 100}), "--object-store-memory", 100 << 20, "--disable-usage-stats",
                   "--dashboard-agent-listen-port", free_port(), *args]
        env = self.env
        if bare:
            env = {k: v for k, v in self.env.items() if k not in ("PYTHONPATH", "SPYGLASS_BINARY")}
            env["PATH"] = "%s:/usr/bin:/bin" % BIN
            if os.geteuid() == 0:
                hidden = "mount -t tmpfs none %s && mount -t tmpfs none %s && cd / && exec \"$@\"" % (PACKAGE, SPYGLASS.parent)
                command = ["unshare", "-m", "sh", "-c", hidden, "sh"] + command
        process = subprocess.Popen([str(c) for c in command], stdin=subprocess.DEVNULL, stdout=self.log, stderr=self.log,
                                   env=env, start_new_session=True)
        self.processes.append(process)
        self.nodes[name] = process, args, bare
        return process

    def start_late_nodes_again(self):
        """Starts a node again if Ray gave up after 30 s, which a busy machine may exceed."""
        for name, (process, args, bare) in list(self.nodes.items()):
            if process.poll() is not None:
                text = (self.directory / "log").read_text()
                assert "timed out during startup" in text, text[-3000:]
                self.processes.remove(process)
                end_tree(process)
                self.start_node(name, *args, bare=bare)

    def answers(self):
        self.start_late_nodes_again()
        try:
            socket.create_connection(("127.0.0.1", self.port), 5).close()
            return True
        except OSError:
            return False

    def driver_answers(self):
        self.start_late_nodes_again()
        return select.select([self.driver.stdout], [], [], 0)[0]

    def read_answer(self):
        ready, _, _ = select.select([self.driver.stdout], [], [], WAIT)
        line = self.driver.stdout.readline() if ready else b""
        assert line, (self.directory / "log").read_text()[-3000:]
        return json.loads(line)

    def tell(self, code):
        """Runs code in the driver; returns what it leaves in `answer`."""
        self.driver.stdin.write(json.dumps(code).encode() + b"\n")
        self.driver.stdin.flush()
        return self.read_answer()

    def workers(self, *nodes):
        """(node, kind, PID) of everything that was started on these nodes."""
        return [(name, kind, self.facts[name][kind]) for name in nodes or ("one", "two") for kind in FUNCTION]

    def command(self, *args, status=0):
        return run(SPYGLASS, "ray", *args, "--address", self.address, status=status, env=self.env)

    def close(self):
        for process in reversed(self.processes):
            end_tree(process)
        self.log.close()
        shutil.rmtree(self.directory, ignore_errors=True)


@pytest.fixture(scope="module")
def cluster():
    cluster = Cluster()
    try:
        yield cluster.start()
    finally:
        cluster.close()


def sections(text):
    """{pid: (its first line, the rest)} of a dump."""
    found = {}
    for part in text.split("==== node ")[1:]:
        head, _, body = part.partition(" ====\n")
        found[int(re.search(r"worker (\d+)", head).group(1))] = head, body
    return found


def check_profile(profile, cluster, workers):
    """Below the node, worker and role of each is its own function, and no other's."""
    for name, kind, pid in workers:
        mine = [frames for frames, _ in profile.stacks if frames[1] == "worker %d" % pid]
        assert mine, (name, kind, pid)
        for frames in mine:
            assert "(%s)" % cluster.facts[name]["node"][:8] in frames[0]
            assert frames[2] == (ROLE[kind] % name if "%" in ROLE[kind] else ROLE[kind])
        functions = {frame.partition(" (")[0] for frames in mine for frame in frames[3:]}
        assert {f for f in FUNCTION.values() if ends_with(functions, f)} == {FUNCTION[kind]}


@pytest.mark.smoke
def test_dump(cluster):
    out, err = cluster.command("dump")
    found = sections(out)
    rest = set(found) - {pid for _, _, pid in cluster.workers()}
    assert all(found[pid][0].endswith(", idle") for pid in rest)  # idle workers that Ray keeps
    for name, kind, pid in cluster.workers():
        head, body = found[pid]
        assert "(%s)" % cluster.facts[name]["node"][:8] in head
        assert (ROLE[kind] % name if "%" in ROLE[kind] else ROLE[kind]) in head
        assert body.startswith("Process %d: ray::" % pid) and FUNCTION[kind] + " (ray_nodes.py:" in body
    for what in ("is ready, 1 of 2", "is ready, 2 of 2", "is done, 2 of 2"):
        assert what in err
    assert "Skipped" not in err


def test_dump_json(cluster):
    out, err = cluster.command("dump", "--json", "--locals", "--hideprogress", "--actor", "Alpha")
    assert err == ""
    answer = json.loads(out)
    assert answer["problems"] == {}
    assert {w["pid"]: (w["node"], w["actor"], w["title"]) for w in answer["workers"]} == {
        cluster.facts[name]["Alpha"]: (cluster.facts[name]["node"], "Alpha", "Alpha.alpha_spins") for name in ("one", "two")}
    for worker in answer["workers"]:
        frames = [f for t in worker["threads"] for f in t["frames"] if f["name"].endswith("alpha_spins")]
        assert {v["name"]: v["repr"] for v in frames[0]["locals"]}["path"] == repr(str(cluster.directory / "end"))


def test_group(cluster):
    """The workers of one actor or task, on both nodes, are a section of `spyglass group`."""
    out, _ = cluster.command("dump", "--json", "--hideprogress")
    done = subprocess.run([str(SPYGLASS), "group", "-"], input=out.encode(), stdout=subprocess.PIPE, timeout=WAIT)
    lines = done.stdout.decode().splitlines()
    assert done.returncode == 0 and lines[0] == "%d processes" % len(json.loads(out)["workers"]), lines
    for name, what in (("ray::Alpha", "Alpha"), ("ray::Beta", "Beta"), ("ray::gamma_task", "gamma")):
        pids = sorted(cluster.facts[node][what] for node in ("one", "two"))
        assert any(line.startswith("MainThread of 2 workers %s: pids %d, %d (" % (name, *pids)) for line in lines), lines


def test_filters(cluster):
    """In a connected driver: it needs no address, and stays connected."""
    one, two = cluster.facts["one"], cluster.facts["two"]
    cases = [(dict(task="*s*", node=[two["node"][:10]]), [*two.values()][1:]),
             (dict(actor=["Alpha", "beta-two"]), [one["Alpha"], two["Alpha"], two["Beta"]]),
             (dict(actor="*eta*", node=one["node"]), [one["Beta"]]),
             (dict(actor="gamma_task"), []),
             (dict(task=["gamma_task", "Beta.beta_spins"]), [one["gamma"], two["gamma"], one["Beta"], two["Beta"]]),
             (dict(pid=[one["gamma"], two["Beta"]], task="beta_*"), [two["Beta"]])]
    answers = cluster.tell("import spyglass.ray\nanswer = [[w.worker.pid for w in spyglass.ray.dump(**c)] for c in %r]"
                           "\nassert ray.is_initialized()" % [case for case, _ in cases])
    for (case, wanted), found in zip(cases, answers):
        assert sorted(found) == sorted(wanted), case


@pytest.mark.parametrize("format, ending", [("raw", "txt"), ("flamegraph", "svg"), ("speedscope", "json")])
def test_record(cluster, tmp_path, format, ending):
    place = tmp_path / ("out." + ending)
    out, err = cluster.command("record", "--duration", "2", "-o", place)
    assert not out and int(re.search(r"^Wrote '%s'. Workers: (\d+) Samples: [1-9]" % place, err, re.M).group(1)) >= 6
    assert re.search(r"^recording \d+ workers, ", err, re.M) and "Skipped" not in err
    if format == "raw":
        check_profile(Profile.load(place), cluster, cluster.workers())
        return
    names, samples = READ[format](place.read_text())
    assert samples > 0
    for name, kind, pid in cluster.workers():
        assert ends_with(names, FUNCTION[kind])
        if format == "flamegraph":
            assert "worker %d" % pid in names


def test_record_flags(cluster, tmp_path):
    """The flags of `spyglass record` reach each node."""
    place = tmp_path / "out.txt"
    cluster.command("record", "-d", "1", "-f", "raw", "-o", place, "--native", "--idle", "--threads", "--function",
                    "--rate", "50", "--actor", "Alpha", "--node", cluster.facts["two"]["node"])
    profile = Profile.load(place)
    frames = {frame for stack, _ in profile.stacks for frame in stack}
    assert {stack[1] for stack, _ in profile.stacks} == {"worker %d" % cluster.facts["two"]["Alpha"]}
    assert any("ray::core::CoreWorker" in frame for frame in frames) and any("PythonGCThread" in f for f in frames)
    lines = (PROGRAMS / "ray_nodes.py").read_text().splitlines()
    place = next(i for i, line in enumerate(lines, 1) if "def alpha_spins" in line)  # of the function, not of a line in it
    assert [f.rpartition(".alpha")[2] for f in frames if "alpha_spins (" in f] == ["_spins (ray_nodes.py:%d)" % place]


def test_profile_in_a_driver(cluster, tmp_path):
    """Workers that start during the recording are recorded too."""
    place = tmp_path / "driver.txt"
    code = """
import spyglass.ray
said = []
with spyglass.ray.profile(%r, progress=said.append) as recording:
    pids = ray.get([short_task.options(resources={name: 1}).remote(4) for name in ("one", "two")])
answer = {"pids": pids, "problems": recording.problems, "said": said,
          "workers": [w.worker.pid for w in recording.result], "samples": recording.profile.samples}
""" % str(place)
    answer = cluster.tell(code)
    assert answer["problems"] == {} and len(answer["said"]) == 4
    assert set(answer["workers"]) >= set(answer["pids"]) | {pid for _, _, pid in cluster.workers()}
    profile = Profile.load(place)
    assert profile.samples == answer["samples"]
    check_profile(profile, cluster, cluster.workers())
    for pid in answer["pids"]:
        mine = [stack for stack, _ in profile.stacks if stack[1] == "worker %d" % pid]
        assert mine and all(stack[2] == "task short_task" for stack in mine)
        assert any("short_spins" in frame for stack in mine for frame in stack)


def test_no_match(cluster, tmp_path):
    _, err = cluster.command("record", "-d", "0.1", "-o", tmp_path / "x.svg", "--actor", "Nobody", status=1)
    assert err.endswith("Error: no worker of the cluster matches\n") and not list(tmp_path.iterdir())
    _, err = cluster.command("dump", "--node", "elsewhere", status=1)
    assert "Error: the cluster has no node elsewhere; it has: node " in err
    assert all(cluster.facts[name]["node"][:8] in err for name in ("one", "two"))


def test_no_cluster(cluster):
    port = free_port()
    for address in ("127.0.0.1:%d" % port, "ray://127.0.0.1:%d" % port):
        _, err = run(SPYGLASS, "ray", "dump", "--address", address, status=1, env=cluster.env)
        assert "Error: no Ray cluster answers at %s: " % address in err and "ray start --head" in err
    _, err = run(SPYGLASS, "ray", "dump", "--address", "http://127.0.0.1:8265", status=1, env=cluster.env)
    assert "Error: " in err and "Traceback" not in err and "6379" in err
    _, err = cluster.command("record", "-o", "/nowhere/x.svg", status=1)
    assert "Error: cannot write '/nowhere/x.svg': there is no such directory" in err


def test_timeout(cluster):
    _, err = cluster.command("dump", "--timeout", "0.001", status=1)
    for name in ("one", "two"):
        assert re.search(r"Skipped: node \S+ \(%s\): no answer within 0.001 seconds" % cluster.facts[name]["node"][:8], err)
    assert "Error: no worker could be read" in err


def test_no_leftovers(cluster):
    """Leaves no actor, no process and no file behind."""
    everybody = [pid for process in cluster.processes for pid in session_of(process.pid)]
    before = set(pathlib.Path(tempfile.gettempdir()).glob("spyglass-*"))
    cluster.command("dump", "--actor", "Alpha")
    assert set(pathlib.Path(tempfile.gettempdir()).glob("spyglass-*")) <= before

    def titles():
        lines = [pathlib.Path("/proc/%d/cmdline" % pid) for process in cluster.processes for pid in session_of(process.pid)]
        found = []
        for line in lines:
            try:
                found.append(line.read_bytes().replace(b"\0", b" ").decode())
            except OSError:
                pass
        return found

    assert everybody and titles()
    wait_until(lambda: not [t for t in titles() if "_SpyglassAgent" in t or "spyglass record" in t], "the end of our actors")


def test_killed_node(cluster, tmp_path):
    """A node is killed during the recording: the others are recorded. Later it is known to be dead."""
    process = cluster.start_node("three", "--address", cluster.address)
    three = cluster.tell("third = Alpha.options(resources={'three': 1}).remote()\n"
                         "there = where.options(resources={'three': 1})\n"
                         "answer = [ray.get(there.remote()), ray.get(third.pid.remote())]\n"
                         "spinning = third.alpha_spins.remote(%r)" % str(cluster.directory / "end"))
    place = tmp_path / "out.txt"
    command = subprocess.Popen([str(SPYGLASS), "ray", "record", "--address", cluster.address, "-d", "2", "--timeout", "20",
                                "-o", str(place)], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                               env=cluster.env)
    err = b""
    while b"recording " not in err:
        line = command.stderr.readline()
        assert line, err
        err += line
    for pid in session_of(process.pid):
        os.kill(pid, signal.SIGKILL)
    _, rest = command.communicate(timeout=WAIT)
    err = (err + rest).decode()
    assert command.returncode == 0, err
    assert re.search(r"Skipped: node \S+ \(%s\): \S+" % three[0][:8], err)
    assert int(re.search(r"Workers: (\d+) Samples: [1-9]", err).group(1)) >= 6
    profile = Profile.load(place)
    check_profile(profile, cluster, cluster.workers())
    assert not any(stack[1] == "worker %d" % three[1] for stack, _ in profile.stacks)
    cluster.tell("import time\nwhile next(n for n in ray.nodes() if n['NodeID'] == %r)['Alive']:\n    time.sleep(0.1)\n"
                 "answer = True" % three[0])
    out, err = cluster.command("dump", "--actor", "Alpha")
    assert re.search(r"Skipped: node \S+ \(%s\): the node is dead" % three[0][:8], err)
    assert set(sections(out)) == {cluster.facts[name]["Alpha"] for name in ("one", "two")}
