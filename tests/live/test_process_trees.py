"""Process trees: each kind of pool with the stack of every worker; reparenting, exec, daemons; many children."""
import json
import os
import pathlib
import resource
import shutil
import signal
import subprocess

import pytest
from processes import (age, at_rest, command_line, cpu_seconds, descendants, descriptors, is_python, process_state, resident, stat)
from profiles import Recording, profiler_in, record_enough, seen
from program import SANITIZED, SPYGLASS, clean_env, finish, run, start, wait_until
from pythons import DEBIAN, NEWEST_HOST, PYTHON_2, of_version
from stacks import parse_json, parse_text, rows, same
from process_trees import ENVIRONMENTS, chains_of, functions_of, read_tree

SOME = [p for p in (PYTHON_2, of_version(3, 8), DEBIAN, NEWEST_HOST) if p]
def kinds(*names):
    """Ways to start workers. Python 2 lacks some."""
    return [pytest.param(name, marks=pytest.mark.since(3, 0)) if name in ONLY_3 else name for name in names]


ONLY_3 = {"pool-spawn", "pool-forkserver", "process-spawn", "futures"}
KINDS = kinds("fork", "pool-fork", "pool-spawn", "pool-forkserver", "process-fork", "process-spawn", "futures", "subprocess",
              "shell", "two-shells", "session")


@pytest.fixture(autouse=True)
def kill_leftovers(launch):
    """Kills workers in their own sessions, which outlive the target. It does so before the target ends, because a
    PID may be reused."""
    yield
    kill(*OURS)
    OURS.clear()


OURS = set()


def workers_of(target):
    """Makes the target start its workers; returns what each reported."""
    workers = target.next_report()["workers"]
    OURS.update(worker["pid"] for worker in workers)
    return workers


def seen_in(pid, *names):
    """For Recording.until(): true if these functions were seen in this process."""
    return lambda text: set(names) <= set(functions_of(read_tree(text)).get(pid, ()))


def at_work(workers):
    """For Recording.until(): true if each worker was seen working, at its place in the tree."""
    def enough(text):
        found = functions_of(read_tree(text))
        return all("worker_works" in found.get(worker["pid"], ()) for worker in workers)

    return enough


# --- the stack of each worker ---

@pytest.mark.parametrize("kind", KINDS)
def test_pool(spawn, python, kind):
    """JSON: every frame of every worker, its parent and its command line. Text: PIDs, parents, commands."""
    target = spawn(python, "worker_pools.py", kind, "3")
    workers = workers_of(target)
    below = {pid for pid in descendants(target.pid) if is_python(pid)}
    for pid in below:  # also the resource tracker, which may start later than the workers
        at_rest(pid)
    assert {w["pid"] for w in workers} <= below
    result = run("dump", "--subprocesses", "--json", "--pid", target.pid).check()
    threads = parse_json(result.out)
    assert {t["pid"] for t in threads} == below | {target.pid}, result
    by_pid = {}
    for thread in threads:
        by_pid.setdefault(thread["pid"], []).append(thread)
    for worker in workers:
        thread = by_pid[worker["pid"]][0]
        same(rows(thread["frames"]), rows(worker["frames"]), "%s, worker %d" % (kind, worker["pid"]))
        info = thread["process_info"]
        assert info["pid"] == worker["pid"] and info["parent"]["pid"] == worker["parent"], info
        assert info["command_line"].split() == command_line(worker["pid"]), info
    for process in parse_text(run("dump", "-s", "-p", target.pid).check().out):
        if process["pid"] != target.pid:
            assert process["parent"] == int(stat(process["pid"])[1])
        assert process["command"].split() == command_line(process["pid"])


@pytest.mark.parametrize("kind", kinds("pool-fork", "pool-spawn", "pool-forkserver", "futures", "two-shells"))
@pytest.mark.parametrize("host", SOME, ids=repr)
def test_record_pool(spawn, tmp_path, host, kind):
    """Workers that start during the recording: each is seen working, below its parent and nowhere else."""
    target = spawn(host, "worker_pools.py", kind, "2", "busy")
    recording = Recording(tmp_path / "out.txt", "--pid", target.pid, "--subprocesses", "-f", "raw", "--function")
    recording.snapshot()
    workers = workers_of(target)
    recording.until(at_work(workers))
    tree = read_tree(recording.stop())
    found, chains = functions_of(tree), chains_of(tree)
    for worker in workers:
        assert "worker_works" in found.get(worker["pid"], ()), (worker["pid"], found)
        chain = chains[worker["pid"]]
        assert chain[0] == target.pid and chain[-2] == worker["parent"], chain
    assert {pid for pid in found if "worker_works" in found[pid]} == {w["pid"] for w in workers}


def test_label_of_fork_server(spawn, tmp_path):
    """The command line of the fork server contains sys.path. The label of the process does not; JSON does."""
    target = spawn(DEBIAN, "worker_pools.py", "pool-forkserver", "2", "busy", env={"PYTHONPATH": "/somewhere/else:" * 50})
    workers = workers_of(target)
    shown = {t["process_info"]["command_line"] for t in parse_json(run("dump", "-s", "-j", "--pid", target.pid).check().out) if t["process_info"]}
    assert any("'sys_path': [" in command for command in shown), shown
    recording = Recording(tmp_path / "tree.txt", "--pid", target.pid, "--subprocesses", "-f", "raw", "--function")
    recording.until(at_work(workers))
    commands = {command for chain, _, _ in read_tree(recording.stop()) for _, command in chain}
    assert any("main(...)" in command for command in commands), commands
    assert not any("sys_path" in command for command in commands)


def record_in(environments, environment, target, out):
    """A Recording of a tree in an environment that forces another way to find children."""
    recording = Recording(out, "--pid", target.pid, "--subprocesses", "-f", "raw", "--function", wrapper=environments(environment))
    recording.pid = profiler_in(recording.process)
    recording.snapshot()
    return recording


@pytest.mark.skipif(os.getuid() != 0, reason="environments are made with mount(8)")
@pytest.mark.parametrize("kind", ["pool-fork", "pool-spawn", "two-shells"])
@pytest.mark.parametrize("environment", ENVIRONMENTS)
def test_discovery(spawn, environments, tmp_path, environment, kind):
    """Workers that already run and workers that start later, with each way to find new processes."""
    early, late = (spawn(DEBIAN, "worker_pools.py", kind, "2", "busy") for _ in range(2))
    before = workers_of(early)
    recordings = [record_in(environments, environment, early, tmp_path / "early.txt"), record_in(environments, environment, late, tmp_path / "late.txt")]
    for recording, workers in zip(recordings, (before, workers_of(late))):
        recording.until(at_work(workers))
        tree = read_tree(recording.stop())
        for worker in workers:
            assert chains_of(tree)[worker["pid"]][-2] == worker["parent"]


@pytest.mark.skipif(os.getuid() != 0, reason="environments are made with mount(8)")
@pytest.mark.parametrize("how", ["double", "shell"])
def test_daemon_without_process_connector(spawn, environments, tmp_path, how):
    """Without the process connector: a fork has its parent's addresses, and an executed program its process group."""
    target = spawn(DEBIAN, "daemons.py", how)
    recording = record_in(environments, "newest-pid", target, tmp_path / "out.txt")
    daemon = target.next_report()["daemon"]
    OURS.add(daemon)
    recording.until(seen_in(daemon, "daemon_works"))
    assert chains_of(read_tree(recording.stop()))[daemon][0] == target.pid


def test_low_rate(spawn, tmp_path):
    """Children are found promptly even at a low rate: spyglass attaches to them long before the second sample."""
    target = spawn(DEBIAN, "forks.py", "1")
    errors = tmp_path / "errors"
    with open(errors, "w") as log:
        process = subprocess.Popen([SPYGLASS, "record", "--pid", str(target.pid), "-s", "-r", "0.0001", "-f", "raw", "-o", tmp_path / "x",
                                    "--log-level", "debug"], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=log, env=clean_env())
    try:
        Recording(tmp_path / "x", process=process).snapshot()
        forked, started, _ = target.next_report()["children"]
        wait_until(lambda: process.poll() is not None or all(
            "process: pid %d: attach" % pid in errors.read_text() for pid in (forked, started)), "the children found")
    finally:
        process.send_signal(signal.SIGINT)
        process.wait()
    assert process.returncode == 0, errors.read_text()


# --- reparenting, daemons, exec ---

def record_tree(target, tmp_path, *flags):
    """A Recording of the target and its descendants, which has begun to sample."""
    recording = Recording(tmp_path / "tree.txt", "--pid", target.pid, "--subprocesses", "-f", "raw", "--function", *flags)
    recording.snapshot()
    return recording


def kill(*pids):
    for pid in pids:
        assert pid > 1
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            pass


@pytest.mark.parametrize("host", SOME, ids=repr)
def test_reparented(spawn, tmp_path, host):
    """When its parent exits, a child is reparented to init and keeps its place below its old parent."""
    target = spawn(host, "daemons.py", "orphan")
    recording = record_tree(target, tmp_path)
    report = target.next_report()
    OURS.add(report["child"])
    recording.until(seen_in(report["child"], "before_it_lost_its_parent"))
    target.next_report()  # now its parent exits
    wait_until(lambda: int(stat(report["child"])[1]) != report["middle"], "re-parented")
    recording.until(seen_in(report["child"], "before_it_lost_its_parent", "after_it_lost_its_parent"))
    tree = read_tree(recording.stop())
    assert chains_of(tree)[report["child"]] == [target.pid, report["middle"], report["child"]]


@pytest.mark.parametrize("how", ["double", "shell", "session"])
@pytest.mark.parametrize("host", SOME, ids=repr)
def test_daemon(spawn, tmp_path, host, how):
    """The process in between exits at once: the daemon is still found, below the program that it came from."""
    target = spawn(host, "daemons.py", how)
    recording = record_tree(target, tmp_path)
    daemon = target.next_report()["daemon"]
    OURS.add(daemon)
    recording.until(seen_in(daemon, "daemon_works"))
    assert daemon not in descendants(target.pid)
    chain = chains_of(read_tree(recording.stop()))[daemon]
    assert chain[0] == target.pid and chain[-1] == daemon


def test_unrelated_daemon_is_excluded(spawn, tmp_path):
    """A daemon of another process, running the same program, is not part of the tree."""
    target = spawn(DEBIAN, "busy.py")
    other = spawn(DEBIAN, "daemons.py", "double")
    recording = record_tree(target, tmp_path)
    daemon = other.next_report()["daemon"]
    OURS.add(daemon)
    wait_until(lambda: cpu_seconds(daemon) > 0.5, "the daemon at work")
    assert set(functions_of(read_tree(recording.stop()))) == {target.pid}


@pytest.mark.parametrize("first", [p for p in (PYTHON_2, DEBIAN) if p], ids=repr)
@pytest.mark.parametrize("second", [p for p in (PYTHON_2, DEBIAN, NEWEST_HOST) if p], ids=repr)
def test_exec(spawn, script, tmp_path, first, second):
    """A child executes another Python: both are seen, each under its own command line."""
    code = "def second_works():\n while True: sum(range(300))\nsecond_works()\n"
    path = pathlib.Path(script(first, "child_processes.py")).parent / ("second-%d.py" % os.getpid())
    path.write_text(code)
    target = spawn(first, "daemons.py", "exec", second.command[0], str(path))

    recording = record_tree(target, tmp_path)
    child = target.next_report()["child"]
    recording.until(seen_in(child, "first_works"))
    target.next_report()
    recording.until(seen_in(child, "first_works", "second_works"))
    tree = read_tree(recording.stop())
    by_command = {}
    for chain, functions, count in tree:
        if chain[-1][0] == child:
            by_command.setdefault(chain[-1][1], set()).update(functions)
    ran = {command: names for command, names in by_command.items() if "first_works" in names or "second_works" in names}
    assert len(ran) == 2, by_command
    for command, names in ran.items():
        assert ("second_works" in names) == ("daemons.py" not in command), by_command
        assert ("first_works" in names) == ("daemons.py" in command), by_command


def test_exec_of_the_root(spawn, script, tmp_path):
    """The recorded process executes another Python, without --subprocesses."""
    path = pathlib.Path(script(DEBIAN, "child_processes.py")).parent / ("root-%d.py" % os.getpid())
    path.write_text("def second_works():\n while True: sum(range(300))\nsecond_works()\n")
    target = spawn(DEBIAN, "daemons.py", "exec-self", NEWEST_HOST.command[0], str(path))
    recording = Recording(tmp_path / "out.txt", "--pid", target.pid, "-f", "raw", "--function")
    recording.until(seen("first_works"))
    target.resume()
    recording.until(seen("first_works", "second_works"))
    recording.stop()


def test_late_exec(launch, script, tmp_path):
    """A shell that was skipped long ago becomes Python."""
    path = script(DEBIAN, "busy.py")
    target = launch(["sh", "-c", "echo {}; read line; exec %s %s" % (DEBIAN.command[0], path)])
    wait_until(lambda: age(target.pid) > 3, "a shell that is not new")
    recording = record_tree(target, tmp_path)
    target.resume(b"go\n")
    recording.until(seen_in(target.pid, "root"))
    recording.stop()


def test_python_scripts_of_a_shell(tmp_path):
    """A shell runs Python scripts one after the other: at times the tree has no Python, and the recording continues."""
    work = "import os, select\ndef %s():\n    while not select.select([0], [], [], 0)[0]: sum(range(300))\n%s()\nos.read(0, 1)"
    names = ("one", "two", "three")
    scripts = "; ".join("%s -c '%s'; read line" % (DEBIAN.command[0], work % (name, name)) for name in names)
    out = tmp_path / "out.txt"
    process = start("record", "-s", "-f", "raw", "--function", "-o", out, "--", "sh", "-c", scripts, stdin=subprocess.PIPE)
    recording = Recording(out, process=process)

    def type_(text):
        process.stdin.write(text)
        process.stdin.flush()

    for name in names:
        recording.until(lambda text: name in set().union(*functions_of(read_tree(text)).values()))
        type_(b"x")  # ends the script
        wait_until(lambda: not any(is_python(pid) for pid in descendants(recording.pid)), "a tree without Python")
        recording.snapshot()
        type_(b"\n")  # ends the pause
    result = finish(process).check()
    found = functions_of(read_tree(out.read_text()))
    assert set(names) <= set().union(*found.values()), (found, result)


# --- which processes are left out, which are skipped ---

@pytest.mark.parametrize("name", ["py-spy", "spyglass", "austin", "pystack"])
def test_profilers_are_excluded(spawn, tmp_path, name):
    """A profiler below the program, and what it started, are left out. It is recognised by its file name."""
    program = tmp_path / name
    shutil.copy(os.path.realpath(DEBIAN.command[0]), program)
    check_excluded(spawn, [str(program)])


@pytest.mark.parametrize("args", [["pystack"], ["-m", "pystack"], ["-X", "utf8", "-m", "pystack"]], ids=" ".join)
def test_profilers_excluded_by_argument(spawn, tmp_path, args):
    """Profilers that a Python runs: recognised by the script or module."""
    (tmp_path / "pystack").write_text("")
    check_excluded(spawn, [DEBIAN.command[0], *[str(tmp_path / a) if a == "pystack" and "-m" not in args else a for a in args]],
                   cwd=str(tmp_path))


def check_excluded(spawn, command, cwd="/"):
    """The stand-in is Python with a child of its own: if it were not left out, both would appear."""
    target = spawn(DEBIAN, "profiler_stand_in.py", cwd, *command)
    report = target.next_report()
    result = run("dump", "-s", "-j", "-p", target.pid).check()
    assert {t["pid"] for t in parse_json(result.out)} == {target.pid, report["worker"]}, (report, result)
    assert str(report["profiler"]) not in result.err, result


def test_shell_that_starts_spyglass(launch, tmp_path):
    """The shell that starts spyglass is below the program too: there is no note about it."""
    code = ("import subprocess, json, os\n"
            "p = subprocess.run(['sh', '-c', %r + ' dump -s -j -p %%d; true' %% os.getpid()], stdout=-1, stderr=-1)\n"
            "print(json.dumps([p.returncode, p.stdout.decode(), p.stderr.decode()]), flush=True)\n")
    target = launch([*DEBIAN.command, "-c", code % str(SPYGLASS)])
    status, out, err = target.truth
    assert status == 0 and "skipped" not in err, err
    assert [t["pid"] for t in json.loads(out)] == [target.pid]


@pytest.mark.smoke
def test_non_python_children(spawn):
    """Children that are not Python: a note for each, and status 0."""
    target = spawn(DEBIAN, "child_processes.py", "parent")
    for other in target.truth["extra"]["others"]:
        at_rest(other)
    result = run("dump", "-s", "-p", target.pid).check()
    for other in target.truth["extra"]["others"]:
        assert len([line for line in result.err.splitlines() if "process %d " % other in line]) == 1, result
    assert len(result.err.splitlines()) == 2, result


ODD = ["new\nline", "es\x1b[31mcape", "\x9b31m", "a;b", 'quo"te', "caf\u00e9", "\u202egnirts"]


def test_odd_command_lines(launch):
    """Control characters in a child's arguments: escaped in text, intact in JSON."""
    code = ("import subprocess, sys, json\n"
            "p = subprocess.Popen([sys.executable, '-c', 'import os; os.write(1, b\"x\"); os.read(0, 1)'] + %r + [b'\\xff\\xfe'],"
            " stdin=subprocess.PIPE, stdout=subprocess.PIPE)\n"
            "p.stdout.read(1); print(p.pid, flush=True); sys.stdin.read()\n")
    target = launch([*DEBIAN.command, "-c", code % ODD])
    child = target.truth
    result = run("dump", "-s", "-p", target.pid).check()
    assert not set(result.out) & set("\x1b\x9b\u202e\r"), result
    assert [p["pid"] for p in parse_text(result.out)] == [target.pid, child]
    threads = parse_json(run("dump", "-s", "-j", "-p", target.pid).check().out)
    command, = {t["process_info"]["command_line"] for t in threads if t["pid"] == child}
    for word in ODD:
        assert word in command, command


# --- depth ---

@pytest.mark.parametrize("depth", [1, 2, 3, 9])
def test_depth(spawn, tmp_path, depth):
    """--depth counts generations; a shell in between counts too."""
    target = spawn(DEBIAN, "process_chain.py", "5")
    pids = target.next_report()["pids"]
    threads = parse_json(run("dump", "--subprocess-depth", depth, "-j", "-p", target.pid).check().out)
    assert [t["pid"] for t in threads] == pids[: depth + 1]
    text, _ = record_enough(lambda text: set(functions_of(read_tree(text))) >= set(pids[: depth + 1]), "--subprocess-depth", depth,
                            "--idle", "-f", "raw", "-p", target.pid, out=tmp_path / "out.txt")
    assert set(functions_of(read_tree(text))) == set(pids[: depth + 1])


def test_depth_of_new_processes(spawn, tmp_path):
    target = spawn(DEBIAN, "process_chain.py", "4")
    recording = record_tree(target, tmp_path, "--idle", "--subprocess-depth", "2")
    pids = target.next_report()["pids"]
    recording.until(lambda text: set(pids[:3]) <= set(functions_of(read_tree(text))))
    assert set(functions_of(read_tree(recording.stop()))) == set(pids[:3])


@pytest.mark.parametrize("value", ["0", "-1", "x", "1.5", ""])
def test_bad_depth(value):
    assert run("dump", "--subprocess-depth=" + value, "-p", os.getpid()).status == 2


# --- many ---

def test_short_lived(spawn, tmp_path):
    """200 short-lived children: spyglass leaks no file descriptor and no memory."""
    target = spawn(DEBIAN, "short_lived_processes.py", "200")
    out = tmp_path / "out.txt"
    recording = Recording(out, "--pid", target.pid, "--subprocesses", "-f", "raw")
    process = recording.process
    for _ in range(3):  # so that it has sampled, and opened what it needs for that
        recording.snapshot()
    most = descriptors(process.pid) + 8  # of the target's own threads, some files are opened only if they compete for cores
    pids = target.next_report()["pids"]  # the first twenty may take what memory they need
    wait_until(lambda: descriptors(process.pid) <= most, "descriptors of the first ones closed")
    memory = resident(process.pid)
    pids += target.next_report()["pids"]
    assert len(set(pids)) == 220
    wait_until(lambda: descriptors(process.pid) <= most, "descriptors closed")
    grown = resident(process.pid) - memory
    recording.stop()
    # Sanitizers keep freed memory, and look for leaks themselves.
    assert SANITIZED or grown < 5 << 20, grown


def test_thousand_children(spawn, tmp_path):
    """dump and record of a thousand children with a low limit of file descriptors: all are shown, and the busy ones
    are seen."""
    target = spawn(DEBIAN, "many_children.py", "1000")
    report = target.next_report()
    wait_until(lambda: all(process_state(pid) == "S" for pid in report["idle"]), "the idle children asleep")
    limit = lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (256, 256))
    result = run("dump", "-s", "-j", "--deadline", "unlimited", "-p", target.pid, preexec_fn=limit).check()
    threads = parse_json(result.out)
    assert {t["pid"] for t in threads} == {target.pid, *report["idle"], *report["busy"]}, result.err
    for thread in threads:
        if thread["pid"] in report["idle"]:
            assert [f["name"] for f in thread["frames"]][:2] == ["child_rests", "start_all"]
    out = tmp_path / "out.txt"
    text, result = record_enough(lambda text: all("child_works" in functions_of(read_tree(text)).get(pid, ()) for pid in report["busy"]),
                                 "-s", "-r", "50", "--function", "-f", "raw", "-p", target.pid, out=out, first=4, preexec_fn=limit)
    found = functions_of(read_tree(text))
    assert set(found) == set(report["busy"]), (set(found) ^ set(report["busy"]), result)


def test_descriptor_limit_is_not_inherited(tmp_path):
    """A launched program keeps the soft limit of file descriptors that spyglass was started with."""
    code = "import resource, sys; print(resource.getrlimit(resource.RLIMIT_NOFILE)[0], flush=True); sum(range(3 * 10 ** 7))"
    limit = lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (300, 4000))
    result = run("record", "-f", "raw", "-o", tmp_path / "x", "--", *DEBIAN.command, "-c", code, preexec_fn=limit)
    assert "300" in result.out.split(), result
