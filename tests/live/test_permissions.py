"""Permissions: each access check of the kernel passing and failing, missing system calls, root without its capability,
setuid.

The tests simulate what this kernel does not have: tests/targets/deny.c makes calls fail as an old kernel, a seccomp
profile or Yama would, and a tmpfs over /proc/sys/kernel provides Yama's setting.
"""
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import tempfile

import pytest
from native_stacks import directory
from processes import at_rest
from profiles import Recording, profiler_in, record_enough, record_launched, seen
from program import PY_SPY, SANITIZED, SPYGLASS, TARGETS, WAIT, clean_env, finish, run, start, wait_until
from pythons import DEBIAN
from stacks import check_json, parse_json, parse_text

needs_root = pytest.mark.skipif(os.getuid() != 0, reason="needs root, to become other users")
USER, OTHER = 1000, 1001
PTRACE = 1 << 19
# The system calls that Linux 3.10 lacks, of those that spyglass or the C library uses.
OLD_KERNEL = ["ENOSYS:" + name for name in ("openat2", "pidfd_open", "getrandom", "memfd_create", "statx", "rseq", "clone3",
                                            "faccessat2", "close_range")]
RESTRICTIONS = {
    "old_kernel": OLD_KERNEL,
    "readv_eperm": ["EPERM:process_vm_readv"],
    "readv_enosys": ["ENOSYS:process_vm_readv"],
    "no_ptrace": ["EPERM:ptrace"],
    "neither": ["EPERM:process_vm_readv", "EPERM:ptrace"],
    "no_affinity": ["EPERM:sched_setaffinity", "EPERM:sched_getaffinity", "EPERM:sched_setscheduler"],
    "no_schedstat": ["EACCES:/schedstat"],
    "no_children": ["EACCES:/children"],
    "nothing": [*OLD_KERNEL, "EPERM:process_vm_readv", "EPERM:ptrace", "EPERM:sched_setaffinity"],
}


def quiet_env():
    """LeakSanitizer traces its own process, which these tests forbid."""
    return clean_env(ASAN_OPTIONS="detect_leaks=0:abort_on_error=0:exitcode=99")


def as_user(uid, *command):
    return ["setpriv", "--reuid", str(uid), "--regid", str(uid), "--clear-groups", *map(str, command)]


def without_capability(*command, drop="-sys_ptrace"):
    """Root as in a container: exec gives it the capabilities of the bounding set."""
    return ["setpriv", "--bounding-set", drop, "--inh-caps", "-all", *map(str, command)]


def run_as(prefix, *args, **options):
    return run(*prefix[1:], *args, program=prefix[0], env=options.pop("env", quiet_env()), **options)


@pytest.fixture(scope="session")
def public():
    """A directory that every user may enter, with the program in it: as it is, under its other name, and setuid
    root."""
    place = pathlib.Path(tempfile.mkdtemp(prefix="spyglass-", dir="/tmp"))
    place.chmod(0o755)
    for name in ("spyglass", "py-spy"):
        shutil.copy(SPYGLASS, place / name)
    (place / "setuid").mkdir()
    for name in ("spyglass", "py-spy"):
        shutil.copy(SPYGLASS, place / "setuid" / name)
        (place / "setuid" / name).chmod(0o4755)
    subprocess.run(["gcc", "-O1", "-o", place / "deny", TARGETS / "deny.c"], check=True)
    yield place
    shutil.rmtree(place)


@pytest.fixture
def private(request):
    """A directory that belongs to USER alone."""
    place = pathlib.Path(tempfile.mkdtemp(prefix="spyglass-", dir="/tmp"))
    os.chown(place, USER, USER)
    yield place
    shutil.rmtree(place)


@pytest.fixture
def deny(public):
    return lambda rules, *command: [str(public / "deny"), *rules, "--", *map(str, command)]


@pytest.fixture
def spawn_as(launch, script):
    """A target of another user, with Debian's Python, which everyone may execute."""
    def go(uid, *code, name="situations.py", args=("plain",)):
        return launch(as_user(uid, *DEBIAN.command, *(code or (script(DEBIAN, name), *args))))

    return go


def names(result):
    return [frame["name"] for thread in parse_json(result.out) for frame in thread["frames"]]


def check_refused(result, *words):
    result.check(1)
    assert "Permission" in result.err, result
    for word in words:
        assert re.search(word, result.err), (word, result)
    assert not parse_text(result.out), result


# ---- missing system calls


@pytest.mark.parametrize("restriction", RESTRICTIONS)
def test_missing_calls(spawn, python, deny, restriction):
    """Every stack is right, whichever calls are missing: spyglass falls back."""
    rules = RESTRICTIONS[restriction]
    if os.getuid() != 0 and any("/" in rule for rule in rules):
        pytest.skip("needs root, to answer for another process")
    target = spawn(python, "situations.py", "many_threads")
    result = run_as(deny(rules, SPYGLASS), "dump", "--json", "--pid", at_rest(target.pid)).check()
    check_json(result.out, target.truth)
    assert not result.err, result  # sleeping threads need not be stopped


@pytest.mark.parametrize("restriction", ["old_kernel", "readv_eperm", "no_ptrace", "no_affinity", "nothing"])
def test_missing_calls_record(launch, deny, tmp_path, restriction):
    """A recording of a running thread; and of a launched program with captured output."""
    code = "import time\ndef works():\n    sum(range(1000))\nprint(1, flush=True)\nwhile True: works()\n"
    target = launch([*DEBIAN.command, "-c", code])
    before = deny(RESTRICTIONS[restriction])
    record_enough(lambda text: "works" in text, "-f", "raw", "--pid", target.pid, out=tmp_path / "x.raw", wrapper=before,
                  env=quiet_env())
    result = record_launched(tmp_path / "y.raw", DEBIAN, flags=["--capture"], wrapper=before, env=quiet_env()).check()
    assert "works" in (tmp_path / "y.raw").read_text(), result


def test_native_without_ptrace(spawn, python, deny):
    """Sleeping threads have native frames without ptrace; the Python frames are complete."""
    target = spawn(python, "situations.py", "plain")
    result = run_as(deny(["EPERM:ptrace"], SPYGLASS), "dump", "--native", "--json", "--pid", at_rest(target.pid)).check()
    threads = json.loads(result.out)
    assert all(any(frame["module"] for frame in thread["frames"]) for thread in threads), result
    for thread in threads:
        thread["frames"] = [frame for frame in thread["frames"] if not frame["module"]]
    check_json(json.dumps(threads), target.truth)


@pytest.mark.parametrize("rules", [[], ["EPERM:perf_event_open"], ["EPERM:ptrace"]], ids=["all", "no perf", "no ptrace"])
def test_native_record_fallbacks(deny, spawn, tmp_path, rules):
    """Registers come from perf context-switch records or from ptrace: either is enough."""
    if os.geteuid() != 0:
        pytest.skip("perf's notes are for root")
    target = spawn(DEBIAN, "native_shares.py", directory(DEBIAN, "spy_c"))
    no_perf = rules == ["EPERM:perf_event_open"]
    core = held = 0
    first = 0.3
    while not (held if no_perf else core):  # on a busy machine the first few may all be read in the other way
        _, result = record_enough(lambda text: text.count("burn_outer (") > 1, "--native", "-v", "-r", "200", "-f", "raw", "--pid",
                                  target.pid, out=tmp_path / "out.txt", wrapper=deny(rules), env=quiet_env(), first=first)
        core, held = map(int, re.search(r"same core (\d+), ptrace (\d+)", result.messages).groups())
        first *= 2
        assert first < WAIT, result
    assert (core if no_perf else held if rules else 0) == 0, result


def test_native_without_readv(spawn, python, deny):
    target = spawn(python, "situations.py", "plain")
    result = run_as(deny(["ENOSYS:process_vm_readv"], SPYGLASS), "dump", "--native", "--json", "--pid", at_rest(target.pid)).check()
    threads = {t["thread_id"]: t for t in parse_json(result.out)}
    for true in target.truth["threads"]:
        frames = threads[true["ident"]]["frames"]
        assert [f["name"] for f in frames if f["module"] is None] == [f["name"] for f in true["frames"]]
        assert any(f["module"] for f in frames), "no native frame"


def test_exec_without_readv(launch, deny, tmp_path):
    """/proc/PID/mem refers to one address space: after an exec, spyglass opens it again."""
    code = ("import os, signal, sys\n"
            "def before():\n    sum(range(1000))\n"
            "again = 'def after():\\n    sum(range(1000))\\nwhile True: after()\\n'\n"
            "signal.signal(signal.SIGUSR2, lambda *a: os.execv(sys.executable, [sys.executable, '-c', again]))\n"
            "print(1, flush=True)\nwhile True: before()\n")
    target = launch([*DEBIAN.command, "-c", code])
    out = tmp_path / "x.raw"
    command = deny(["EPERM:process_vm_readv"], SPYGLASS)
    recorder = start(*command[1:], "record", "-f", "raw", "-o", out, "--pid", target.pid, program=command[0], env=quiet_env())
    try:
        def seen(name):
            assert recorder.poll() is None
            recorder.send_signal(signal.SIGUSR1)
            return out.exists() and name in out.read_text()

        wait_until(lambda: os.readlink("/proc/%d/exe" % recorder.pid) == str(SPYGLASS), "the filter is there")
        wait_until(lambda: b"SigCgt" in pathlib.Path("/proc/%d/status" % recorder.pid).read_bytes() and caught(recorder.pid), "its handlers")
        wait_until(lambda: seen("before"), "a sample before exec")
        os.kill(target.pid, signal.SIGUSR2)
        wait_until(lambda: seen("after"), "a sample after exec")
    finally:
        recorder.send_signal(signal.SIGINT)
        finish(recorder).check()


def caught(pid):
    """True if the process has a handler for SIGUSR1."""
    text = pathlib.Path("/proc/%d/status" % pid).read_text()
    return int(re.search(r"SigCgt:\s*(\w+)", text).group(1), 16) >> (signal.SIGUSR1 - 1) & 1


# ---- users and capabilities


@needs_root
def test_same_user(spawn_as, public, private):
    """Reading one's own process needs no capability."""
    target = spawn_as(USER)
    for flags in ([], ["--native"], ["--nonblocking"]):
        result = run_as(as_user(USER, public / "spyglass"), "dump", "--json", *flags, "--pid", at_rest(target.pid)).check()
        assert set(names(result)) >= {f["name"] for t in target.truth["threads"] for f in t["frames"]}
    out = private / "x.svg"
    run_as(as_user(USER, public / "spyglass"), "record", "-i", "-d", "0.3", "-o", out, "--pid", target.pid).check()
    assert out.stat().st_uid == USER


@needs_root
def test_root_without_capability(spawn_as, tmp_path):
    """Through sudo, as in Ray's images: spyglass reads as the target's user and writes as root."""
    target = spawn_as(USER)
    root_only = tmp_path / "root"
    root_only.mkdir(mode=0o700)
    for program in (SPYGLASS, PY_SPY):
        result = run_as(without_capability(program), "dump", "--json", "--pid", at_rest(target.pid)).check()
        check_json(result.out, target.truth)
        result = run_as(without_capability(program), "dump", "-p", target.pid, "--native").check()
        assert "Note" not in result.err, result
        out = root_only / "x.txt"
        run_as(without_capability(program), "record", "-o", out, "-p", target.pid, "-d", "0.3", "-f", "raw", "--idle",
               "--native").check()
        assert out.stat().st_uid == 0 and target.truth["threads"][0]["frames"][0]["name"] in out.read_text()
        out.unlink()


@needs_root
def test_root_without_capability_process_tree(launch, script):
    """A tree with processes of several users: spyglass reads each as its own user."""
    code = ("import os, subprocess, sys, time\n"
            "def waits():\n    time.sleep(1000)\n"
            "p = subprocess.Popen(['setpriv', '--reuid', '1001', '--regid', '1001', '--clear-groups', sys.executable, '-c',"
            " 'import time\\ndef naps():\\n    time.sleep(1000)\\nprint(1, flush=True)\\nnaps()'], stdout=subprocess.PIPE)\n"
            "p.stdout.readline()\nprint(p.pid, flush=True)\nwaits()\n")
    target = launch(without_capability(*DEBIAN.command, "-c", code))
    result = run_as(without_capability(SPYGLASS), "dump", "--json", "--subprocesses", "--pid", at_rest(target.pid)).check()
    assert {t["pid"] for t in parse_json(result.out)} == {target.pid, target.truth}
    assert "waits" in names(result) and "naps" in names(result)


@needs_root
@pytest.mark.parametrize("drop", ["-sys_ptrace,-setuid", "-sys_ptrace,-setgid", "-all"])
def test_root_cannot_switch_user(spawn_as, drop):
    target = spawn_as(USER)
    result = run_as(without_capability(SPYGLASS, drop=drop), "dump", "--pid", target.pid)
    check_refused(result, "CAP_SYS_PTRACE", "--cap-add SYS_PTRACE", "securityContext")


@needs_root
def test_not_dumpable(spawn_as, public):
    code = ("import ctypes, time\nctypes.CDLL(None).prctl(4, 0, 0, 0, 0)\nprint(1, flush=True)\n"
            "def hides():\n    time.sleep(1000)\nhides()\n")
    target = spawn_as(USER, "-c", code)
    check_refused(run_as(as_user(USER, public / "spyglass"), "dump", "--pid", target.pid), "not dumpable")
    assert "hides" in names(run("dump", "--json", "--pid", at_rest(target.pid)).check())


@needs_root
def test_hidden(spawn_as, public):
    """/proc with hidepid: the process is invisible, or only its existence is visible."""
    target = spawn_as(OTHER)
    for hide in ("1", "2"):
        script = "mount -t proc -o hidepid=%s proc /proc && exec \"$@\"" % hide
        result = run_as(["unshare", "-m", "sh", "-c", script, "sh", *as_user(USER, public / "spyglass")], "dump", "--pid", target.pid)
        assert result.status == 1 and not result.out, result
        assert "Permission" in result.err or "Check that the process is running" in result.err, result


# ---- source files


@pytest.fixture
def secrets():
    """Files of root: readable for all, in a directory that is not, for a group, and for root alone."""
    place = pathlib.Path(tempfile.mkdtemp(prefix="spyglass-", dir="/tmp"))
    place.chmod(0o755)
    (place / "closed").mkdir(mode=0o700)
    paths = {"all": place / "all.py", "closed": place / "closed" / "x.py", "group": place / "group.py", "root": place / "root.py"}
    for path in paths.values():
        path.write_text("s3cret\n")
        path.chmod(0o644)
    os.chown(paths["group"], 0, OTHER)
    paths["group"].chmod(0o640)
    paths["root"].chmod(0o600)
    yield paths
    shutil.rmtree(place)


def names_file(path):
    """Code whose file is supposed to be this one."""
    return "import os\nexec(compile('print(1, flush=True); os.read(0, 1)', %r, 'exec'))\n" % str(path)


@needs_root
@pytest.mark.parametrize("prefix", [[], ["setpriv", "--bounding-set", "-sys_ptrace", "--inh-caps", "-all"]], ids=["root", "no-ptrace"])
def test_source_of_another_user(launch, spawn_as, secrets, prefix):
    """The target names a file as its source. Root shows only what the target's user may read."""
    def shown(target):
        return "s3cret" in run_as([*prefix, SPYGLASS], "dump", "--source", "--pid", at_rest(target.pid)).check().out

    assert [shown(spawn_as(USER, "-c", names_file(path))) for path in secrets.values()] == [True, False, False, False]
    member = ["setpriv", "--reuid", str(USER), "--regid", str(USER), "--groups", str(OTHER)]
    assert shown(launch([*member, *DEBIAN.command, "-c", names_file(secrets["group"])]))
    if not prefix:
        assert shown(spawn_as(0, "-c", names_file(secrets["root"])))


def test_setuid_source(spawn_as, setuid, deny, secrets):
    """Nor does the right of the file help to read others."""
    for prefix in (as_user(USER, setuid), deny(["yama"], *as_user(USER, setuid))):
        for name, path in secrets.items():
            target = spawn_as(USER, "-c", names_file(path))
            result = run_as(prefix, "dump", "--source", "--pid", at_rest(target.pid)).check()
            assert ("s3cret" in result.out) == (name == "all"), (name, result)


# ---- user namespaces


@needs_root
def test_target_in_user_namespace(launch, script):
    """A container with its own user namespace: from outside, spyglass reads it like any other process."""
    target = launch(["unshare", "--user", "--map-root-user", "--pid", "--fork", "--kill-child", *DEBIAN.command,
                     script(DEBIAN, "situations.py"), "plain"])
    child = int(pathlib.Path("/proc/%d/task/%d/children" % (target.pid, target.pid)).read_text().split()[0])
    result = run("dump", "--json", "--pid", at_rest(child)).check()
    for thread in parse_json(result.out):
        assert thread["container"]["pid"] == 1 and thread["pid"] == child
    assert parse_json(result.out)[0]["os_thread_id"] == child
    assert names(result)
    process, = parse_text(run("dump", "--pid", child).check().out)
    assert process["container"].startswith("pid 1 inside")


@needs_root
def test_from_inside_a_user_namespace(spawn):
    target = spawn(DEBIAN, "situations.py", "plain")
    result = run_as(["unshare", "--user", "--map-root-user", SPYGLASS], "dump", "--pid", target.pid)
    check_refused(result, "another user namespace", "sudo")


@needs_root
def test_container_pid_is_not_guessed(launch, script):
    """A PID is one of our own namespace. One that exists only inside of a container gets a hint, not a guess."""
    pid_max = int(read_text(pathlib.Path("/proc/sys/kernel/pid_max")))
    inner = pid_max - 1000 - os.getpid() % 2000  # two concurrent runs of the tests use different PIDs
    while os.path.exists("/proc/%d" % inner):
        inner -= 1
    code = "echo %d >/proc/sys/kernel/ns_last_pid; exec 3<&0; \"$@\" <&3 & wait" % (inner - 1)
    target = launch(["unshare", "--pid", "--fork", "--kill-child", "--mount-proc", "sh", "-c", code, "sh", *DEBIAN.command,
                     script(DEBIAN, "situations.py"), "plain"])
    assert target.truth["pid"] == inner and not os.path.exists("/proc/%d" % inner)
    outer = [int(p.name) for p in pathlib.Path("/proc").iterdir() if p.name.isdigit()
             and re.search(r"^NSpid:.*\s%d$" % inner, read_text(p / "status"), re.M)]
    for command in (["dump"], ["record", "-d", "1"], ["doctor"]):
        result = run(*command, "--pid", inner).check(1)
        assert re.search(r"\b%d\b" % outer[0], result.err + result.out), result
    threads = parse_json(run("dump", "--json", "--pid", at_rest(outer[0])).check().out)
    assert {t["container"]["pid"] for t in threads} == {inner}
    by_ident = {t["thread_id"]: t for t in threads}
    for true in target.truth["threads"]:
        found = by_ident[true["ident"]]
        assert read_inner_tid(outer[0], found["os_thread_id"]) == true["os_id"]


def read_text(path):
    try:
        return path.read_text()
    except OSError:
        return ""


def read_inner_tid(pid, tid):
    return int(re.search(r"^NSpid:.*?(\d+)$", read_text(pathlib.Path("/proc/%d/task/%d/status" % (pid, tid))), re.M).group(1))


# ---- Yama


def with_yama(scope, *command):
    """A private /proc/sys/kernel with Yama's setting."""
    script = ("mount -t tmpfs yama /proc/sys/kernel && mkdir /proc/sys/kernel/yama && "
              "echo %d >/proc/sys/kernel/yama/ptrace_scope && exec \"$@\"" % scope)
    return ["unshare", "-m", "sh", "-c", script, "sh", *command]


@needs_root
@pytest.mark.parametrize("scope", [1, 2])
def test_yama(spawn_as, public, deny, scope):
    target = spawn_as(USER)
    program = with_yama(scope, *deny(["yama"], *as_user(USER, public / "spyglass")))
    check_refused(run_as(program, "dump", "--pid", target.pid), r"Yama \(ptrace_scope=%d\)" % scope, "sysctl|SYS_PTRACE")
    result = run_as(program, "doctor", "--pid", target.pid).check(1)
    assert "yama: ptrace_scope %d" % scope in result.out and "process_vm_readv: unavailable" in result.out, result


@needs_root
def test_yama_allows_children(public, private, deny):
    program = with_yama(1, *deny(["yama"], *as_user(USER, public / "spyglass")))
    code = "import os\ndef naps():\n    os.read(0, 1)\nnaps()"
    record_until_seen("naps", program, private / "x.raw", code)


def record_until_seen(name, program, out, code):
    """Launches a program that ends with its standard input, which is closed when the function has been seen. Returns
    the Result."""
    process = start(*program[1:], "record", "--idle", "-f", "raw", "-o", out, "--", *DEBIAN.command, "-c", code, program=program[0],
                    stdin=subprocess.PIPE, env=quiet_env())
    recording = Recording(out, process=process)
    recording.pid = profiler_in(process)
    recording.until(seen(name))
    result = finish(process).check()
    assert seen(name)(out.read_text()), result
    return result


# ---- setuid root


@pytest.fixture
def setuid(public):
    if os.getuid() != 0:
        pytest.skip("needs root, to install a program setuid")
    if SANITIZED:
        pytest.skip("the sanitizers' runtime does not work setuid")
    if os.statvfs(public).f_flag & os.ST_NOSUID:
        pytest.skip("/tmp is mounted nosuid")
    return public / "setuid" / "spyglass"


def test_setuid_own(spawn_as, setuid, private):
    target = spawn_as(USER)
    result = run_as(as_user(USER, setuid), "dump", "--json", "--pid", at_rest(target.pid)).check()
    check_json(result.out, target.truth)
    out = private / "x.svg"
    run_as(as_user(USER, setuid), "record", "-i", "-d", "0.3", "-o", out, "--pid", target.pid).check()
    assert (out.stat().st_uid, out.stat().st_gid) == (USER, USER)


def test_setuid_own_behind_yama(spawn_as, setuid, deny):
    """The reason why people install it setuid."""
    target = spawn_as(USER)
    program = deny(["yama"], *as_user(USER, setuid))
    check_json(run_as(program, "dump", "--json", "--pid", at_rest(target.pid)).check().out, target.truth)
    result = run_as(program, "dump", "--native", "--json", "--pid", at_rest(target.pid)).check()
    assert any(frame["module"] for thread in parse_json(result.out) for frame in thread["frames"]) and not result.err, result


def foreign_targets(spawn_as, launch, public, script):
    """Processes that the caller may not read, although one has the caller's uid and one was started by the caller."""
    hides = "import ctypes, time\nctypes.CDLL(None).prctl(4, 0, 0, 0, 0)\nprint(1, flush=True)\ntime.sleep(1000)\n"
    program = public / "python-setuid"
    if not program.exists():
        shutil.copy(os.path.realpath(DEBIAN.command[0]), program)
        program.chmod(0o4755)
    drops = "import os, time\nos.setresuid(1000, 1000, 1000)\nprint(1, flush=True)\ntime.sleep(1000)\n"
    yield "root's", spawn_as(0)
    yield "another user's", spawn_as(OTHER)
    yield "not dumpable", spawn_as(USER, "-c", hides)
    yield "setuid", launch(as_user(USER, program, "-c", "import time\nprint(1, flush=True)\ntime.sleep(1000)"))
    yield "was setuid", launch(as_user(USER, program, "-c", drops))
    yield "of another group", launch(["setpriv", "--reuid", str(USER), "--regid", str(OTHER), "--clear-groups",
                                      *DEBIAN.command, script(DEBIAN, "situations.py"), "plain"])
    yield "with a capability", launch(["setpriv", "--reuid", str(USER), "--regid", str(USER), "--clear-groups", "--inh-caps",
                                       "+sys_nice", "--ambient-caps", "+sys_nice", *DEBIAN.command,
                                       script(DEBIAN, "situations.py"), "plain"])


@pytest.mark.parametrize("yama", [False, True], ids=["plain", "yama"])
def test_setuid_refuses_others(spawn_as, launch, public, script, setuid, deny, tmp_path, yama):
    for kind, target in foreign_targets(spawn_as, launch, public, script):
        prefix = as_user(USER, setuid)
        if yama:
            prefix = deny(["yama"], *prefix)
        for args in (["dump"], ["dump", "--native"], ["dump", "--nonblocking"], ["record", "-d", "1", "-o", "/dev/stdout"]):
            result = run_as(prefix, *args, "--pid", target.pid)
            assert result.status == 1 and "Permission" in result.err and "Thread" not in result.out, (kind, result)


def test_setuid_drops_privileges(setuid, launch, spawn_as, private):
    """While it works: the caller's IDs, no effective capability, not traceable by the caller."""
    target = spawn_as(USER)
    command = as_user(USER, setuid)
    recorder = start(*command[1:], "record", "-i", "-f", "raw", "-o", private / "x.raw", "--pid", target.pid, program=command[0])
    try:
        wait_until(lambda: caught(recorder.pid), "its handlers")
        text = read_text(pathlib.Path("/proc/%d/status" % recorder.pid))
        assert re.search(r"^Uid:\t1000\t1000\t1000\t1000$", text, re.M) and re.search(r"^Gid:\t1000\t1000\t1000\t1000$", text, re.M), text
        assert int(re.search(r"CapEff:\s*(\w+)", text).group(1), 16) == 0
        assert int(re.search(r"CapPrm:\s*(\w+)", text).group(1), 16) & ~PTRACE == 0
        assert int(re.search(r"CapInh:\s*(\w+)", text).group(1), 16) == 0
        assert os.stat("/proc/%d/status" % recorder.pid).st_uid == 0, "it may be dumped"
        probe = run(*as_user(USER, "cat", "/proc/%d/environ" % recorder.pid)[1:], program="setpriv")
        assert probe.status == 1 and not probe.out, probe
    finally:
        recorder.send_signal(signal.SIGINT)
        finish(recorder).check()
    assert (private / "x.raw").stat().st_uid == USER


def test_setuid_writes_as_the_caller(setuid, spawn_as, private, tmp_path):
    """Neither root's directories nor links to them: nothing there changes."""
    target = spawn_as(USER)
    root_only = pathlib.Path(tempfile.mkdtemp(prefix="spyglass-", dir="/tmp"))
    victim = root_only / "victim"
    victim.write_text("as it was")
    victim.chmod(0o666)
    root_only.chmod(0o755)
    link, into = private / "link.raw", private / "into"
    for path, aim in ((link, victim), (into, root_only)):
        path.symlink_to(aim)
        os.lchown(path, USER, USER)
    try:
        for place in (root_only / "new.raw", into / "new.raw"):
            result = run_as(as_user(USER, setuid), "record", "-i", "-d", "0.2", "-f", "raw", "-o", place, "--pid", target.pid).check(1)
            assert "Permission denied" in result.err, result
        run_as(as_user(USER, setuid), "record", "-i", "-d", "0.2", "-f", "raw", "-o", link, "--pid", target.pid).check()
        assert victim.read_text() == "as it was" and [p.name for p in root_only.iterdir()] == ["victim"]
        assert not link.is_symlink() and link.stat().st_uid == USER
    finally:
        shutil.rmtree(root_only)


def test_setuid_launches_as_the_caller(setuid, private):
    code = ("import json, os, re\ntext = open('/proc/self/status').read()\n"
            "caps = re.findall(r'Cap(?:Inh|Prm|Eff|Amb):\\s*(\\w+)', text)\n"
            "print(json.dumps([os.getresuid(), os.getresgid(), os.getgroups(), caps]), flush=True)\n")
    code += "def naps():\n    os.read(0, 1)\nnaps()\n"
    result = record_until_seen("naps", as_user(USER, setuid), private / "x.raw", code)
    line = next(line for line in result.out.splitlines() if line.startswith("[["))
    uids, gids, groups, caps = json.loads(line)
    assert uids == [USER] * 3 and gids == [USER] * 3 and groups == [] and {int(c, 16) for c in caps} == {0}


def test_setuid_reads_files_as_the_caller(setuid, private):
    """A core file that only root may read stays unreadable."""
    core = private / "core"
    core.write_bytes(b"\x7fELF" + bytes(100))
    core.chmod(0o600)
    os.chown(core, 0, 0)
    result = run_as(as_user(USER, setuid), "dump", "--core", core).check(1)
    assert "Permission denied" in result.err, result


def test_setuid_ignores_the_environment(setuid, spawn_as):
    target = spawn_as(USER)
    env = quiet_env()
    env.update(TMPDIR="/nowhere", LD_PRELOAD="/nowhere.so", LD_LIBRARY_PATH="/nowhere", MALLOC_CHECK_="3", GCONV_PATH="/nowhere",
               KUBERNETES_SERVICE_HOST="no", TERM="\033[31m")
    check_json(run_as(as_user(USER, setuid), "dump", "--json", "--pid", at_rest(target.pid), env=env).check().out, target.truth)
    other = spawn_as(OTHER)
    result = run_as(as_user(USER, setuid), "dump", "--pid", other.pid, env=env)
    check_refused(result, "setuid")
    assert "kubectl" not in result.err, result


def test_root_runs_the_setuid_program(setuid, spawn_as):
    """Root keeps its own privileges."""
    target = spawn_as(OTHER)
    check_json(run("dump", "--json", "--pid", at_rest(target.pid), program=setuid).check().out, target.truth)


# ---- doctor


def facts(result):
    return dict(line.split(": ", 1) for line in result.out.splitlines())


def test_doctor():
    result = run("doctor").check()
    report = facts(result)
    assert report["kernel"].split()[1] == os.uname().release
    assert report["user"] == "uid %d, gid %d" % (os.getuid(), os.getgid())
    assert set(report) >= {"version", "capabilities", "yama", "seccomp", "namespaces", "cgroup", "container", "setuid",
                         "process_vm_readv", "/proc/PID/mem", "ptrace", "own core", "schedstat", "pidfd_open", "openat2", "dump"}
    assert json.loads(run("doctor", "--json").check().out).keys() == report.keys()


def test_doctor_of_python(spawn, python):
    target = spawn(python, "situations.py", "plain")
    report = facts(run("doctor", "--pid", target.pid).check())
    assert report["python"].startswith(python.patch), report
    assert re.search(r"found via .*python", report["python"]), report
    assert report["dump"] == "works" and report["native stacks"] == "yes"
    assert report["stacks"] == "%d read" % (len(target.truth["threads"]) + 1)


def test_doctor_not_python(launch):
    target = launch(["sh", "-c", "echo 1; exec sleep 1000"])
    at_rest(target.pid)
    assert "not Python" in facts(run("doctor", "--pid", target.pid).check(1))["dump"]
    assert "no such process" in facts(run("doctor", "--pid", 2 ** 22 + 5).check(1))["dump"]


@needs_root
def test_doctor_of_another_user(spawn_as, public):
    target = spawn_as(OTHER)
    report = facts(run_as(as_user(USER, public / "spyglass"), "doctor", "--pid", target.pid).check(1))
    assert report["process_vm_readv"].startswith("unavailable") and report["ptrace"].startswith("unavailable")
    assert "belongs to another user" in report["dump"] and re.search("sudo|SYS_PTRACE", report["help"])
    report = facts(run_as(without_capability(SPYGLASS), "doctor", "--pid", target.pid).check())
    assert "user of the process" in report["read as"] and report["dump"] == "works"


@pytest.mark.parametrize("restriction", ["old_kernel", "readv_eperm", "no_ptrace", "nothing"])
def test_doctor_missing_calls(deny, restriction):
    report = facts(run_as(deny(RESTRICTIONS[restriction], SPYGLASS), "doctor").check())
    for rule in RESTRICTIONS[restriction]:
        call = rule.split(":")[1]
        if call in report:
            assert report[call].startswith("unavailable"), (call, report[call])
