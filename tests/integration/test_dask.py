"""A real distributed: a scheduler and four workers, started by the usual commands, on a cluster that has neither our
package nor our program, except on one worker; and other kinds of clusters."""
import asyncio
import contextlib
import inspect
import json
import os
import subprocess
import sys
import warnings

import dask_pyspy
import pytest
from conftest import BIN, PACKAGE, PROGRAMS, ROOT, SPYGLASS, WAIT, end_tree, functions, wait_until
from distributed import Client, LocalCluster
from readers import read_flamegraph, read_speedscope

import spyglass
import spyglass._binary
from spyglass import _cluster, _dask_there
from spyglass import dask as sd

pytestmark = pytest.mark.timeout(1200)
SPIN = """
def {name}(flag=None):
    import os, time

    def wakes():  # of the profilers of this process
        found = {{}}
        for entry in filter(str.isdigit, os.listdir("/proc")):
            try:
                with open("/proc/%s/status" % entry, errors="replace") as status, open("/proc/%s/cmdline" % entry) as command:
                    fields = dict(line.split(":", 1) for line in status.read().split("\\n") if ":" in line)
                    if int(fields["PPid"]) == os.getpid() and "record" in command.read().split("\\0"):
                        found[entry] = int(fields["voluntary_ctxt_switches"])
            except (OSError, KeyError):
                pass
        return found

    before, end = wakes(), time.thread_time() + 0.3
    while time.thread_time() < end or (flag and os.path.exists(flag)):
        sum(range(300))
    while any(n < before.get(pid, 0) + 30 for pid, n in wakes().items()):  # a late profiler
        sum(range(30000))
    return os.getpid()
"""


def spinner(name):
    """A function that computes for a while. It is pickled by value, as from a notebook."""
    scope = {"__name__": "__main__"}
    exec(SPIN.format(name=name), scope)
    return scope[name]


class Cluster:
    """The processes of a cluster. `bare` ones have our program only under the name py-spy, and not our package."""

    def __init__(self, place, security=()):
        self.place, self.security, self.processes = place, list(security), []
        (place / "bin").mkdir(parents=True)
        (place / "bin" / "py-spy").symlink_to(SPYGLASS)
        self.file = place / "scheduler.json"
        self.scheduler = self.run("scheduler", "--scheduler-file", self.file, "--port", "0", "--no-dashboard",
                                  "--host", "tls://127.0.0.1" if security else "127.0.0.1", *self.security)
        self.address = wait_until(self.read_address, "the scheduler")

    def read_address(self):
        assert self.scheduler.poll() is None, (self.place / "scheduler.log").read_text()
        with contextlib.suppress(OSError, ValueError):
            return json.loads(self.file.read_text())["address"]

    def run(self, kind, *args, log=None, bare=True, **env):
        full = {k: v for k, v in os.environ.items() if not k.startswith(("PYTEST", "SPYGLASS", "PYTHONPATH"))}
        full.update(PATH=":".join([str(self.place / "bin"), str(BIN), "/usr/bin:/bin"]), TMPDIR=str(self.place))
        if not bare:
            full.update(PYTHONPATH=str(PACKAGE), SPYGLASS_BINARY=str(SPYGLASS))
        full.update(env)
        out = open(self.place / ("%s.log" % (log or kind)), "w")
        process = subprocess.Popen([sys.executable, "-m", "distributed.cli.dask_" + kind, *map(str, args)], env=full,
                                   stdin=subprocess.DEVNULL, stdout=out, stderr=out, cwd=self.place, start_new_session=True)
        out.close()
        self.processes.append(process)
        return process

    def worker(self, name, *args, **options):
        return self.run("worker", self.address, "--name", name, "--nthreads", "2", "--no-dashboard", "--local-directory",
                        self.place, *self.security, *args, log=name, **options)

    def end(self):
        for process in reversed(self.processes):
            end_tree(process, 10)


@pytest.fixture(autouse=True)
def elsewhere(monkeypatch):
    """Our code knows where it is installed and would find the program there; on other machines it would not."""
    monkeypatch.setattr(spyglass._binary, "__file__", "/nowhere/spyglass/_binary.py")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    made = Cluster(tmp_path_factory.mktemp("cluster"))
    try:
        for i in range(4):
            made.worker("w%d" % i, bare=i != 3)
        yield made
    finally:
        made.end()


@pytest.fixture
def client(cluster):
    with Client(cluster.address, set_as_default=True) as made:
        made.wait_for_workers(4, timeout=WAIT)
        yield made
        assert left_over(made) == []


def worker_names(client):
    return {info["name"]: address for address, info in client.scheduler_info(n_workers=-1)["workers"].items()}


def children():
    import os
    found = []
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                with open("/proc/%s/stat" % entry, errors="replace") as file:
                    if int(file.read().rpartition(")")[2].split()[1]) == os.getpid():
                        with open("/proc/%s/cmdline" % entry) as file:
                            found.append(file.read().split("\0"))
            except OSError:
                pass
    return found


def left_over(client):
    """Profilers and sessions that still exist in any process."""
    def look():
        import sys
        kept = sys.modules.get("_spyglass_kept")
        state = kept.state if kept else {}
        return [c for c in children() if "record" in c] + list(state.get("dask", {})) + list(state.get("dask left", {}))

    import cloudpickle
    cloudpickle.register_pickle_by_value(sys.modules[__name__])
    return sum(client.run(look).values(), []) + client.run_on_scheduler(look)


def spin_all(client, names=None):
    """Runs a different function on each worker, and one on the scheduler; returns {address: function}."""
    wanted = {address: "known_%s" % name for name, address in worker_names(client).items() if not names or name in names}
    futures = [client.submit(spinner(name), workers=[address], pure=False) for address, name in wanted.items()]
    client.run_on_scheduler(spinner("known_scheduler"))
    client.gather(futures)
    return wanted


def by_root(profile):
    roots = {}
    for frames, count in profile.stacks:
        roots.setdefault(frames[0], []).append((frames[1:], count))
    return {root: functions(spyglass.Profile(stacks)) for root, stacks in roots.items()}


def check_roots(profiler, wanted, scheduler=True):
    """Each worker's function is below its own root, and nowhere else."""
    roots = by_root(profiler.profile)
    for address, name in wanted.items():
        holders = [root for root, names in roots.items() if name in names]
        assert len(holders) == 1 and holders[0].endswith(address) and holders[0].startswith("worker "), (name, roots)
        assert roots[holders[0]][name] > 10
    holders = [root for root, names in roots.items() if "known_scheduler" in names]
    assert len(holders) == scheduler and (not scheduler or holders[0] == "scheduler " + profiler.client.scheduler.address)


# ---- a cluster started by commands ----

@pytest.mark.smoke
def test_cluster(client, tmp_path):
    """Scheduler and workers in one flame graph, with a root for each, in all graphical formats."""
    with sd.profile_cluster(tmp_path / "new" / "cluster.json") as profiler:
        wanted = spin_all(client)
    assert len(wanted) == 4 and len(profiler.parts) == 5 and profiler.problems == {}
    check_roots(profiler, wanted)
    shown = json.loads((tmp_path / "new" / "cluster.json").read_text())
    names = {p["name"] for p in shown["profiles"]}
    assert names >= set(by_root(profiler.profile)) and any(n.startswith("worker w3, tcp://") for n in names)
    assert read_speedscope((tmp_path / "new" / "cluster.json").read_text())[0] >= {*wanted.values(), "known_scheduler"}
    profiler.profile.save(tmp_path / "cluster.svg")
    names, total = read_flamegraph((tmp_path / "cluster.svg").read_text())
    assert names >= {*wanted.values(), "known_scheduler"} and total == profiler.profile.samples


def test_workers_need_no_install(client):
    """This cluster has neither package nor program: the client sent everything."""
    def installed():
        import importlib.util
        import shutil
        return bool(importlib.util.find_spec("spyglass")), shutil.which("spyglass")

    import cloudpickle
    cloudpickle.register_pickle_by_value(sys.modules[__name__])
    there = client.run(installed)
    names = worker_names(client)
    assert [there[names["w%d" % i]][0] for i in range(4)] == [False, False, False, True]
    assert client.run_on_scheduler(installed) == (False, None) and there[names["w0"]][1] is None


def test_workers_by_thread(client, tmp_path):
    with sd.profile_workers(tmp_path / "workers.svg", threads=True, idle=True) as profiler:
        wanted = spin_all(client)
    check_roots(profiler, wanted, scheduler=False)
    assert len(profiler.parts) == 4
    assert all(any(f.startswith("thread (") for f in frames) for frames, _ in profiler.profile.stacks)
    assert read_flamegraph((tmp_path / "workers.svg").read_text())[0] >= set(wanted.values())


def test_scheduler(client, tmp_path):
    with sd.profile_scheduler() as profiler:
        wanted = spin_all(client)
    names = functions(profiler.profile)
    assert names["known_scheduler"] > 10 and not set(wanted.values()) & set(names)
    with sd.profile_scheduler(tmp_path / "scheduler.json", rate=200, function=True) as profiler:
        client.run_on_scheduler(spinner("known_scheduler"))
    assert "known_scheduler" in read_speedscope((tmp_path / "scheduler.json").read_text())[0]


def test_chosen_workers(client):
    names = worker_names(client)
    for workers, count in ((2, 2), (list(names.values())[:3], 3), ([names["w1"]] * 2, 1), (names["w2"], 1), (["w0", "w3"], 2)):
        with sd.profile_workers(workers=workers) as profiler:
            spin_all(client)
        assert len(profiler.parts) == count, workers
        if workers == ["w0", "w3"]:
            assert {a for part in profiler.parts for a in part.addresses} == {names["w0"], names["w3"]}
            assert {"known_w0", "known_w3"} == {n.partition(".")[0] for n in functions(profiler.profile) if n.startswith("known_")}
    for workers, what in ((5, ValueError), (0, ValueError), (["tcp://127.0.0.1:1"], sd.ClusterError)):
        with pytest.raises(what, match="cannot choose 5 workers: the cluster has 4" if workers == 5 else None):
            with sd.profile_workers(workers=workers):
                raise AssertionError("it began")


def test_async(cluster, tmp_path):
    async def go():
        async with Client(cluster.address, asynchronous=True, set_as_default=False) as client:
            await client.wait_for_workers(4, timeout=WAIT)
            addresses = list((await client.scheduler.identity(n_workers=-1))["workers"])

            async def work():
                futures = [client.submit(spinner("known_async"), workers=[a], pure=False) for a in addresses]
                await client.run_on_scheduler(spinner("known_scheduler"))
                await client.gather(futures)

            async with sd.profile_cluster(tmp_path / "c.svg", client=client) as both:
                await work()
            async with sd.profile_workers(client=client) as workers:
                await work()
            async with sd.profile_scheduler(tmp_path / "s.svg", client=client):
                await work()
            with pytest.raises(TypeError, match="async with"):
                with sd.profile_cluster(client=client):
                    pass
            return both, workers

    both, workers = asyncio.run(go())
    assert sum("known_async" in names for names in by_root(both.profile).values()) == 4
    assert len(both.parts) == 5 and len(workers.parts) == 4
    assert functions(workers.profile)["known_async"] > 40
    assert read_flamegraph((tmp_path / "c.svg").read_text())[0] >= {"known_async", "known_scheduler"}
    assert "known_scheduler" in read_flamegraph((tmp_path / "s.svg").read_text())[0]


def test_async_with_sync_client(client):
    """In an event loop that is not the client's, as in a notebook."""
    async def go():
        async with sd.profile_scheduler() as profiler:
            await asyncio.get_running_loop().run_in_executor(None, client.run_on_scheduler, spinner("known_scheduler"))
        return profiler

    assert functions(asyncio.run(go()).profile)["known_scheduler"] > 10


def test_exception_in_block(client, tmp_path):
    """The exception propagates; the samples so far are saved."""
    with pytest.raises(ZeroDivisionError):
        with sd.profile_cluster(tmp_path / "c.txt"):
            wanted = spin_all(client)
            1 / 0
    assert set(functions(spyglass.Profile.load(tmp_path / "c.txt"))) >= set(wanted.values())


def test_profiler_is_single_use(client):
    profiler = sd.profile_scheduler()
    with pytest.raises(RuntimeError, match="has not ended"):
        profiler.profile
    with profiler:
        pass
    with pytest.raises(RuntimeError, match="only once"):
        with profiler:
            pass


def test_concurrent_profiles(client):
    """Two nested profiles of the same processes."""
    with sd.profile_cluster(rate=50) as outer:
        first = spin_all(client)
        with sd.profile_cluster() as inner:
            second = spin_all(client)
    check_roots(inner, second)
    assert first == second
    check_roots(outer, first)


def test_bounds(client, monkeypatch):
    """Files are transferred in chunks, up to a limit, and an error reports what exceeds it."""
    asked = []
    monkeypatch.setattr(_cluster, "PIECE", 300)
    plain = sd.ClusterProfiler._ask

    async def ask(self, address, function, *args):
        answer = await plain(self, address, function, *args)
        if function is _dask_there.read_here:
            asked.append(len(answer))
        return answer

    monkeypatch.setattr(sd.ClusterProfiler, "_ask", ask)
    with sd.profile_cluster(idle=True) as profiler:
        wanted = spin_all(client)
    check_roots(profiler, wanted)
    assert len(asked) > 10 and max(asked) <= 300
    monkeypatch.setattr(_cluster, "PIECE", 1 << 20)
    monkeypatch.setattr(_cluster, "MAX_RAW", 2000)
    with sd.profile_workers(idle=True, threads=True) as profiler:
        wanted = spin_all(client)
    for part in profiler.parts:
        assert len(part.profile.data) <= 2000 and "left out to keep the profile small" in part.profile.to_raw()
    monkeypatch.setattr(_cluster, "MAX_FILE", 1000)
    with pytest.raises(sd.ClusterError, match=r"the limit is 0 MiB") as caught:
        with sd.profile_scheduler(format="speedscope"):
            spin_all(client)
    assert list(caught.value.problems) == ["scheduler"]


def test_idle(client, tmp_path):
    """A cluster in which nothing ran: a flame graph that says so, not an error."""
    with sd.profile_workers(tmp_path / "idle.svg", gil=True) as profiler:
        pass
    text = (tmp_path / "idle.svg").read_text()
    assert ("nothing ran in any of 4 processes" in text) == (profiler.profile.samples == 0), profiler.profile.samples


# ---- dask-pyspy: its names, itself, and the example of its predecessor ----

def test_same_arguments():
    for ours, theirs in ((sd.pyspy, dask_pyspy.pyspy), (sd.pyspy_on_scheduler, dask_pyspy.pyspy_on_scheduler)):
        shape = [[(p.name, p.default, p.kind) for p in inspect.signature(f).parameters.values()] for f in (ours, theirs)]
        assert shape[0] == shape[1]


@pytest.mark.parametrize("package", [sd, dask_pyspy], ids=["ours", "dask-pyspy"])
def test_names_of_dask_pyspy(package, client, tmp_path):
    """The same code with either import: dask-pyspy itself runs our program, since it is the py-spy in PATH."""
    with package.pyspy_on_scheduler(tmp_path / "a" / "profile.json", native=True, log_level="warn", client=client):
        client.run_on_scheduler(spinner("known_scheduler"))
    names, _ = read_speedscope((tmp_path / "a" / "profile.json").read_text())
    assert "known_scheduler" in names
    assert json.loads((tmp_path / "a" / "profile.json").read_text())["exporter"].find("spyglass") >= 0
    with package.pyspy(tmp_path / "b"):
        wanted = spin_all(client)
    files = {a: tmp_path / "b" / (a.replace("://", "-").replace(".", "_").replace(":", "-") + ".json") for a in wanted}
    assert sorted((tmp_path / "b").iterdir()) == sorted(files.values())
    for address, file in files.items():
        assert wanted[address] in read_speedscope(file.read_text())[0]
    with package.pyspy(tmp_path / "c", workers=2, format="flamegraph", rate=50, subprocesses=False, function=True, gil=True,
                       threads=True, idle=False, nonblocking=True, extra_pyspy_args=["--full-filenames"]):
        spin_all(client)
    assert len(list((tmp_path / "c").glob("*.svg"))) == 2
    for file in (tmp_path / "c").iterdir():
        assert any(name.startswith("known_w") for name in read_flamegraph(file.read_text())[0])
    one = next(iter(wanted))
    with package.pyspy(tmp_path / "d", workers=[one], format="raw"):
        spin_all(client)
    (file,) = (tmp_path / "d").iterdir()
    assert file.suffix == ".pyspy" and wanted[one] in functions(spyglass.Profile.load(file))


EXAMPLE = """
import dask
import distributed
from {package} import pyspy_on_scheduler


client = distributed.Client()

df = dask.datasets.timeseries(
    start="2000-01-01",
    end="2000-01-02",
    partition_freq="1h",
    freq="60s",
)

with pyspy_on_scheduler("profile.json"):
    df.set_index("id").mean(numeric_only=True).compute()
"""


def test_example(tmp_path):
    """The example of distributed-pyspy, line by line; only the import changes. (Current pandas refuses the mean of a
    string column, so `numeric_only` was added, which it needs without a profiler too; and one day is enough.)"""
    subprocess.run([sys.executable, "-c", EXAMPLE.format(package="spyglass.dask")], cwd=tmp_path, check=True, timeout=WAIT,
                   stdin=subprocess.DEVNULL)
    names, samples = read_speedscope((tmp_path / "profile.json").read_text())
    assert samples > 20 and any("Scheduler." in name for name in names), names


# ---- other clusters ----

def test_in_process(tmp_path):
    """Everything is in one process: it is recorded once, under the names of all its parts."""
    with LocalCluster(n_workers=2, threads_per_worker=1, processes=False, dashboard_address=None) as local, \
            Client(local) as client:
        with sd.profile_cluster(tmp_path / "c.svg") as profiler:
            client.gather([client.submit(spinner("known_%d" % i), workers=[a], pure=False)
                           for i, a in enumerate(client.scheduler_info(n_workers=-1)["workers"])])
        (part,) = profiler.parts
        assert len(part.addresses) == 3 and part.name.startswith("scheduler inproc://") and " + worker 0, inproc://" in part.name
        assert set(functions(profiler.profile)) >= {"known_0", "known_1"}
        with sd.pyspy(tmp_path / "files"):
            client.submit(spinner("known_again")).result()
        assert len(list((tmp_path / "files").iterdir())) == 2
        assert left_over(client) == []


def test_local_cluster(tmp_path):
    with LocalCluster(n_workers=2, threads_per_worker=2, processes=True, dashboard_address=None) as local, \
            Client(local) as client:
        with sd.profile_cluster(tmp_path / "c.json") as profiler:
            wanted = spin_all(client)
        check_roots(profiler, wanted)
        assert len(profiler.parts) == 3


def test_tls(tmp_path):
    from distributed.security import Security
    security = Security.temporary()
    paths = {}
    for name in ("tls_ca_file", "tls_scheduler_cert", "tls_scheduler_key"):
        paths[name] = tmp_path / (name + ".pem")
        paths[name].write_text(getattr(security, name))
    flags = ["--tls-ca-file", paths["tls_ca_file"], "--tls-cert", paths["tls_scheduler_cert"], "--tls-key",
             paths["tls_scheduler_key"]]
    cluster = Cluster(tmp_path / "cluster", flags)
    try:
        cluster.worker("secret")
        assert cluster.address.startswith("tls://")
        with Client(cluster.address, security=security) as client:
            client.wait_for_workers(1, timeout=WAIT)
            with sd.profile_cluster(tmp_path / "c.svg") as profiler:
                wanted = spin_all(client)
            check_roots(profiler, wanted)
            assert len(profiler.parts) == 2 and all(a.startswith("tls://") for a in wanted)
    finally:
        cluster.end()


@pytest.fixture
def small(tmp_path):
    """A cluster to break: a scheduler and two workers."""
    made = Cluster(tmp_path / "cluster")
    try:
        made.first, made.second = made.worker("first"), made.worker("second", "--no-nanny")
        with Client(made.address) as made.client:
            made.client.wait_for_workers(2, timeout=WAIT)
            yield made
    finally:
        made.end()


def test_workers_join_and_leave(small, tmp_path):
    """One worker joins, one is retired, one is ended by SIGTERM as Kubernetes does: all are in the flame graph."""
    client = small.client
    names = worker_names(client)
    with sd.profile_cluster(tmp_path / "c.json") as profiler:
        wanted = spin_all(client)
        small.worker("comer")
        client.wait_for_workers(3, timeout=WAIT)
        wanted.update(spin_all(client, {"comer"}))
        client.retire_workers([names["first"]])
        small.second.terminate()
        wait_until(lambda: len(client.scheduler_info(n_workers=-1)["workers"]) == 1, "the second to be gone")
    assert profiler.problems == {} and len(wanted) == 3
    check_roots(profiler, wanted)
    assert left_over(client) == []


def test_killed_worker(small, tmp_path):
    client = small.client
    names = worker_names(client)
    with pytest.warns(RuntimeWarning, match="%s: the worker exited" % names["second"]):
        with sd.profile_cluster(tmp_path / "c.json") as profiler:
            wanted = spin_all(client)
            small.second.kill()
            wait_until(lambda: len(client.scheduler_info(n_workers=-1)["workers"]) == 1, "the second to be gone")
    assert list(profiler.problems) == [names["second"]]
    del wanted[names["second"]]
    check_roots(profiler, wanted)


def test_restarted_workers(small, tmp_path):
    """client.restart(): new processes, at other addresses."""
    client = small.client
    small.second.terminate()
    wait_until(lambda: len(client.scheduler_info(n_workers=-1)["workers"]) == 1, "the second to be gone")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the nanny kills the old process, which may be missed
        with sd.profile_cluster(tmp_path / "c.json") as profiler:
            client.restart(timeout=WAIT)
            wanted = spin_all(client)
    check_roots(profiler, wanted)


def test_errors_name_the_worker(small, tmp_path):
    """Raised at the client, with the address; or a warning, and the rest is there."""
    client = small.client
    broken = tmp_path / "broken"
    broken.write_text("#!/bin/sh\nprintf 'Error: it is broken\\nAdd --repair\\n' >&2\nexit 1\n")
    broken.chmod(0o755)
    small.worker("broken", SPYGLASS_BINARY=str(broken))
    client.wait_for_workers(3, timeout=WAIT)
    address = worker_names(client)["broken"]
    for make in (sd.profile_cluster, sd.profile_workers, lambda: sd.profile_workers(workers=[address])):
        with pytest.raises(sd.ClusterError, match=r"%s: Error: it is broken" % address) as caught:
            with make():
                raise AssertionError("it began")
        assert list(caught.value.problems) == [address] and caught.value.advice == "Add --repair"
        assert isinstance(caught.value, spyglass.SpyglassError) and "repair" not in str(caught.value)
    with pytest.raises(sd.ClusterError, match=address):
        with sd.pyspy(tmp_path / "files"):
            raise AssertionError("it began")
    with pytest.warns(RuntimeWarning, match=address):
        with sd.profile_cluster(tmp_path / "c.json", on_error="warn") as profiler:
            wanted = spin_all(client)
    assert profiler.problems == {address: "Error: it is broken"} and len(profiler.parts) == 3
    assert profiler.advice == {address: "Add --repair"}
    del wanted[address]
    check_roots(profiler, wanted)
    assert left_over(client) == []


def test_lost_client(client, cluster, started):
    """A notebook that is killed inside of the block: no profiler keeps running in the cluster."""
    code = ("import sys, time\nfrom distributed import Client\nfrom spyglass.dask import profile_cluster\n"
            "client = Client(%r)\nwith profile_cluster():\n    print('begun', flush=True)\n    time.sleep(1000)\n")
    other = started(sys.executable, "-c", code % cluster.address, stdout=subprocess.PIPE)
    assert other.stdout.readline() == b"begun\n"
    assert len(left_over(client)) >= 10  # a profiler and a session each
    other.kill()
    wait_until(lambda: left_over(client) == [], "the profilers to end")
    assert client.run_on_scheduler(lambda dask_scheduler: [n for n in dask_scheduler.worker_plugins if "spyglass" in n]) == []


# ---- every Python that has a distributed, and the documentation ----

def pythons():
    """Commands that start the Pythons of the environments that tools/platforms created, except the current one, and
    the path at which they see the given directory. In a chroot, everything needed is mounted in a private mount
    namespace."""
    def listed(what):
        done = subprocess.run([ROOT / "tools" / "platforms", what], stdout=subprocess.PIPE, check=True)
        return done.stdout.decode().splitlines()

    def plain(path):
        return lambda place: ([path, str(PROGRAMS / "dask_local.py"), str(place)], dict(os.environ))

    def inside(root, python, packages):
        mounts = " && ".join(["mount -t tmpfs none $0/mnt", "mkdir $0/mnt/lib $0/mnt/tree $0/mnt/out",
                              "mount --bind %s $0/mnt/lib" % packages, "mount --bind %s $0/mnt/tree" % ROOT,
                              "mount --bind $1 $0/mnt/out", "mount --rbind /proc $0/proc", "mount --rbind /dev $0/dev",
                              "exec chroot $0 %s /mnt/tree/tests/integration/programs/dask_local.py /mnt/out" % python])
        env = dict(PATH="/usr/bin:/bin:/usr/sbin:/sbin", PYTHONPATH="/mnt/lib:/mnt/tree/python", PYTHONDONTWRITEBYTECODE="1",
                   SPYGLASS_BINARY="/mnt/tree/" + str(SPYGLASS.relative_to(ROOT)), TMPDIR="/mnt/out", HOME="/mnt/out")
        return lambda place: (["unshare", "--mount", "--propagation", "private", "sh", "-c", mounts, root, str(place)], env)

    found = [pytest.param(plain(path), id=path.split("/")[-3]) for path in listed("list") if os.path.dirname(path) != str(BIN)]
    if os.geteuid() == 0 and ROOT in SPYGLASS.parents:
        found += [pytest.param(inside(*line.split()), id=line.split("/")[-1]) for line in listed("chroots")]
    return found


@pytest.mark.parametrize("python", pythons())
def test_other_pythons(python, tmp_path):
    """A cluster of processes on each Python, its profile compared with what it ran."""
    command, env = python(tmp_path)
    done = subprocess.run(command, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, cwd=tmp_path, timeout=WAIT)
    assert done.returncode == 0
    facts = json.loads(done.stdout)
    assert facts["problems"] == {} and len(facts["roots"]) == 3, facts
    for address, name in facts["wanted"].items():
        assert [root for root, names in facts["roots"].items() if name in names and root.endswith(address)], facts
    assert set(facts["wanted"].values()) <= read_flamegraph((tmp_path / "cluster.svg").read_text())[0]


def test_documentation(cluster, tmp_path):
    """The first code block of docs/dask.md, as written."""
    text = (ROOT / "docs" / "dask.md").read_text()
    lines = text.split("```python\n")[1].split("```")[0]
    (tmp_path / "own.py").write_text("from distributed import Client\nclient = Client(%r)\n%s\n%s" % (
        cluster.address, SPIN.format(name="work"), lines.replace("...", "client.submit(work).result()")))
    subprocess.run([sys.executable, "own.py"], cwd=tmp_path, check=True, timeout=WAIT, stdin=subprocess.DEVNULL)
    assert "work" in read_flamegraph((tmp_path / "cluster.svg").read_text())[0]
