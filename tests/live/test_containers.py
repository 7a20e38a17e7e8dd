"""Real containers, with podman and runc: from the host, inside, from a sidecar; with and without SYS_PTRACE; as other
users; in an image that contains only our binary.

The image is made from the Debian sid chroot of tools/pythons and cached outside of the tree; the tests remove
containers and everything else. podman gets its own storage, and flags instead of any configuration.
"""
import fcntl
import json
import os
import pathlib
import re
import shutil
import subprocess
import tempfile
import uuid

import pytest
from processes import at_rest
from program import SANITIZED, SPYGLASS, TARGETS, clean_env, run
from pythons import PYTHONS
from stacks import parse_json, parse_text

CACHE = pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache") / "spyglass"
SID = [p for p in PYTHONS if p.kind == "chroot"]
PYENV = [p for p in PYTHONS if p.kind == "host" and "/.pyenv/" in p.command[0]]
NEWEST = max(SID, key=lambda p: p.version, default=None)
PROGRAM = "/spy/spyglass"
inside = pytest.mark.skipif(SANITIZED, reason="a build with sanitizers is not static: it does not run in an image without libc")


class Podman:
    """podman with its own storage. Everything it starts is removed at the end of the test."""

    def __init__(self, cache):
        self.config = cache / "containers.conf"
        self.command = ["podman", "--root", str(cache / "storage"), "--runroot", "/run/spyglass-podman", "--tmpdir",
                        "/run/spyglass-podman/tmp", "--runtime", "runc", "--cgroup-manager", "cgroupfs", "--events-backend", "none"]
        self.env = dict(clean_env(), CONTAINERS_CONF=str(self.config))

    def call(self, *args, **options):
        return subprocess.run([*self.command, *map(str, args)], env=self.env, stdin=options.pop("stdin", subprocess.DEVNULL),
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=300, **options)

    def check(self, *args, **options):
        done = self.call(*args, **options)
        assert done.returncode == 0, (args, done.stderr[-1000:])
        return done.stdout.decode()


def prepare(cache):
    """The images: `sid` is the chroot, `bare` contains only our binary."""
    cache.mkdir(parents=True, exist_ok=True)
    podman = Podman(cache)
    podman.config.write_text("[containers]\ndefault_ulimits = []\n")
    mark = cache / "made-of"
    made_of = " ".join("%s:%d" % (p.patch, (p.root / "usr/bin" / p.command[2]).stat().st_mtime_ns) for p in SID)
    if podman.call("image", "exists", "sid").returncode or not mark.exists() or mark.read_text() != made_of:
        tar = subprocess.Popen(["tar", "-C", SID[0].root, "--exclude=./proc/*", "--exclude=./sys/*", "--exclude=./tmp/*",
                                "--exclude=./var/cache/*", "--exclude=./var/lib/*", "--exclude=./usr/share/doc", "--exclude=./usr/include",
                                "--exclude=./root/*", "-c", "."], stdout=subprocess.PIPE)
        podman.check("import", "-", "sid", stdin=tar.stdout)
        assert tar.wait() == 0
        mark.write_text(made_of)
    return podman


def make_bare(podman):
    """An image with nothing but an empty directory to mount the program at."""
    with tempfile.TemporaryDirectory() as place:
        os.mkdir(os.path.join(place, "spy"))
        tar = subprocess.run(["tar", "-C", place, "-c", "spy"], stdout=subprocess.PIPE, check=True)
    if podman.call("image", "exists", "bare").returncode:
        done = subprocess.run([*podman.command, "import", "-", "bare"], input=tar.stdout, env=podman.env, stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE)
        assert done.returncode == 0, done.stderr


@pytest.fixture(scope="session")
def podman():
    if os.getuid() != 0:
        pytest.skip("needs root")
    if not SID:
        pytest.skip("needs the chroot with Debian sid, see tools/pythons")
    for program in ("podman", "runc"):
        if not shutil.which(program, path=os.environ["PATH"] + ":/usr/sbin:/sbin"):
            pytest.skip("needs %s, see tools/setup" % program)
    cache = CACHE / "podman"
    CACHE.mkdir(parents=True, exist_ok=True)
    with open(CACHE / "podman.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        made = prepare(cache)
        make_bare(made)
    probe = made.call("run", "--rm", "--ulimit", "host", "--network=none", "sid", "true")
    if probe.returncode:
        pytest.skip("no container can be run here: %s" % probe.stderr.decode()[-300:])
    return made


@pytest.fixture(scope="session")
def program():
    """A directory to mount that contains only the program."""
    place = pathlib.Path("/tmp/spyglass-" + uuid.uuid4().hex)
    place.mkdir(mode=0o755)
    shutil.copy(SPYGLASS, place / "spyglass")
    shutil.copy(SPYGLASS, place / "py-spy")
    shutil.copytree(TARGETS, place / "targets", ignore=shutil.ignore_patterns("__pycache__"))
    yield place
    shutil.rmtree(place)


class Container:
    def __init__(self, podman, name, target):
        self.podman, self.name = podman, name
        report = json.loads(podman.check("inspect", name))[0]
        self.pid, self.id = report["State"]["Pid"], report["Id"]
        if isinstance(target.truth, dict) and target.truth.get("repeats_on_input"):
            target.refresh_truth(self.pid)
        self.truth = target.truth

    def exec(self, *args, user=None):
        flags = ["--user", str(user)] if user is not None else []
        return self.podman.call("exec", *flags, self.name, *args)


@pytest.fixture
def container(podman, program, launch):
    """container("python3.14", "/spy/targets/situations.py", "plain", flags=[...]) -> Container that has printed its
    first line."""
    names = []

    def go(*command, flags=(), image="sid"):
        name = "spyglass-" + uuid.uuid4().hex[:12]
        names.append(name)
        target = launch([*podman.command, "run", "--rm", "--interactive", "--name", name, "--ulimit", "host", "--network=none",
                         "--volume", "%s:/spy:ro" % program, *flags, image, *command], env={"CONTAINERS_CONF": podman.env["CONTAINERS_CONF"]})
        return Container(podman, name, target)

    yield go
    for name in names:
        podman.call("rm", "--force", "--time", "0", name)


@pytest.fixture
def sidecar(podman, program):
    """sidecar(container, "dump", ...) runs our binary in another container that shares only the PID namespace."""
    def go(of, *args, flags=(), image="bare"):
        return podman.call("run", "--rm", "--ulimit", "host", "--network=none", "--read-only", "--pid", "container:" + of.name,
                           "--volume", "%s:/spy:ro" % program, *flags, image, PROGRAM, *args)

    return go


def plain(version=None):
    return ["python3.%d" % (version or NEWEST.version)[1], "/spy/targets/situations.py", "plain"]


def check_threads(text, truth, pid, main=None):
    """Compares frames with the target's report, and PIDs with those of our own PID namespace."""
    found = {t["thread_id"]: t for t in parse_json(text)}
    assert len(found) == len(truth["threads"]) + 1
    for true in truth["threads"]:
        thread = found[true["ident"]]
        assert [(f["name"], f["filename"], f["line"]) for f in thread["frames"] if f["module"] is None] == [
            (f["name"], f["filename"], f["line"] or 0) for f in true["frames"]]
        assert thread["pid"] == pid and thread["thread_name"] == true["name"]
        if true["main"]:
            assert thread["os_thread_id"] == pid
    return list(found.values())


def check_done(done, status=0):
    assert done.returncode == status, (done.returncode, done.stdout[-2000:], done.stderr[-2000:])
    return done.stdout.decode()


def inner_tid(pid, tid):
    text = pathlib.Path("/proc/%d/task/%d/status" % (pid, tid)).read_text()
    return int(re.search(r"^NSpid:.*?(\d+)$", text, re.M).group(1))


def from_host(box):
    """Dumps the first process of a container from outside."""
    threads = check_threads(run("dump", "--json", "--pid", at_rest(box.pid)).check().out, box.truth, box.pid)
    for thread in threads:
        assert thread["container"] == {"pid": 1, "runtime": "podman", "id": box.id}
    by_ident = {t["thread_id"]: t for t in threads}
    for true in box.truth["threads"]:
        if true["os_id"]:
            assert inner_tid(box.pid, by_ident[true["ident"]]["os_thread_id"]) == true["os_id"]
    process, = parse_text(run("dump", "--pid", box.pid).check().out)
    assert process["pid"] == box.pid and process["container"] == "pid 1 inside, podman/" + box.id[:12]


# ---- from the host


@pytest.mark.parametrize("newer", SID, ids=repr)
def test_host(container, newer, tmp_path):
    box = container(*plain(newer.version))
    from_host(box)
    result = run("dump", "--native", "--json", "--pid", at_rest(box.pid)).check()
    threads = check_threads(result.out, box.truth, box.pid)
    assert any(f["module"] and "libc" in f["module"] for t in threads for f in t["frames"]), "no native frame"
    out = tmp_path / "x.raw"
    run("record", "--idle", "--native", "-d", "0.3", "-f", "raw", "-o", out, "--pid", box.pid).check()
    assert box.truth["threads"][0]["frames"][0]["name"] in out.read_text()


@pytest.mark.full
@pytest.mark.parametrize("older", PYENV, ids=repr)
def test_host_of_every_version(container, older):
    """Runs the interpreters of this machine in a container with another libc."""
    home = pathlib.Path(older.command[0]).parents[3]
    box = container(older.command[0], "/spy/targets/situations.py", "many_threads", flags=["--volume", "%s:%s:ro" % (home, home)])
    from_host(box)


@pytest.mark.parametrize("flags", [["--user", "1234:1234"], ["--uidmap", "0:100000:65536"], ["--cap-drop", "ALL", "--read-only"],
                                   ["--pid", "host"], ["--cap-add", "SYS_PTRACE"]], ids=" ".join)
def test_host_other_users(container, flags):
    """Other users, a user namespace, the host's PID namespace."""
    box = container(*plain(), flags=flags)
    if "host" in flags:
        thread = check_threads(run("dump", "--json", "--pid", at_rest(box.pid)).check().out, box.truth, box.pid)[0]
        assert thread["container"] == {"pid": None, "runtime": "podman", "id": box.id}
    else:
        from_host(box)


def test_host_pid_is_not_container_pid(container):
    """PID 1 is the host's own first process, whatever runs in containers."""
    box = container(*plain())
    result = run("dump", "--pid", "1")
    assert box.id[:12] not in result.out and str(box.pid) not in result.out, result
    if "Failed to find python version" in result.err:
        assert re.search(r"PID 1 in the container is PID .*\b%d \(podman/%s\)" % (box.pid, box.id[:12]), result.err), result


BINARIES = {
    # In each case the path of the running program names something other than its file.
    "deleted": "cp {python} /tmp/p && exec /tmp/p -c \"import os; os.unlink('/tmp/p'); exec(open('/spy/targets/{script}').read())\"",
    "replaced": "cp {python} /tmp/p && exec /tmp/p -c \"import os; os.rename('/bin/sh', '/tmp/p'); exec(open('/spy/targets/{script}').read())\"",
    "link to the host": "cp {python} /opt/real && ln -s /opt/real /opt/p && exec /opt/p -c \"exec(open('/spy/targets/{script}').read())\"",
}


@pytest.mark.parametrize("kind", BINARIES)
def test_host_binary(container, tmp_path, kind):
    """The program is in the overlay's upper layer, deleted, replaced, or behind a link relative to the container's
    root."""
    python = os.path.realpath(NEWEST.root / "usr/bin" / NEWEST.command[2])[len(str(NEWEST.root)):]
    (tmp_path / "go.py").write_text("import json, os, time\nprint(json.dumps(os.getpid()), flush=True)\n"
                                    "def waits():\n    time.sleep(1000)\nwaits()\n")
    line = BINARIES[kind].replace("/spy/targets/{script}", "/go/go.py").format(python=python)
    box = container("sh", "-c", line, flags=["--volume", "%s:/go:ro" % tmp_path])
    for flags in ([], ["--native"]):
        names = [f["name"] for t in parse_json(run("dump", "--json", *flags, "--pid", at_rest(box.pid)).check().out) for f in t["frames"]]
        assert "waits" in names


def test_host_memfd(container, tmp_path):
    code = ("import json, os, sys\n"
            "fd = os.memfd_create('hidden')\n"
            "with open(os.path.realpath(sys.executable), 'rb') as f: os.write(fd, f.read())\n"
            "again = 'import os, time\\nprint(os.getpid(), flush=True)\\ndef waits():\\n    time.sleep(1000)\\nwaits()\\n'\n"
            "os.execv('/proc/self/fd/%d' % fd, ['python', '-c', again])\n")
    box = container("python3.%d" % NEWEST.version[1], "-c", code)
    for flags in ([], ["--native"]):
        names = [f["name"] for t in parse_json(run("dump", "--json", *flags, "--pid", at_rest(box.pid)).check().out) for f in t["frames"]]
        assert "waits" in names


def test_host_does_not_follow_links_out(container, tmp_path):
    """spyglass does not follow a link inside of the container to a file of the host. The short file name shows that."""
    package = tmp_path / "pack"
    package.mkdir()
    (package / "__init__.py").write_text("")
    code = ("import os\nos.makedirs('{0}')\nos.symlink('{0}/__init__.py', '/opt/link')\nos.makedirs('/opt/pack')\n"
            "os.symlink('{0}/__init__.py', '/opt/pack/__init__.py')\nimport time\n"
            "source = 'import time\\ndef waits():\\n    print(1, flush=True)\\n    time.sleep(1000)\\nwaits()'\n"
            "exec(compile(source, '/opt/pack/module.py', 'exec'))\n").format(package)
    box = container("python3.%d" % NEWEST.version[1], "-c", code)
    frame = next(f for t in parse_json(run("dump", "--json", "--pid", at_rest(box.pid)).check().out) for f in t["frames"]
                 if f["name"] == "waits")
    assert frame["filename"] == "/opt/pack/module.py"
    assert frame["short_filename"] == "module.py", "the host's __init__.py was taken for the container's"


# ---- inside


@inside
@pytest.mark.parametrize("flags", [[], ["--cap-drop", "ALL"], ["--cap-add", "SYS_PTRACE"], ["--read-only", "--security-opt", "no-new-privileges"],
                                   ["--user", "1234:1234"], ["--user", "1234:1234", "--cap-drop", "ALL"]], ids=" ".join)
def test_inside(container, flags):
    """The same user: spyglass needs no capability, whether it is PID 1 or not."""
    box = container(*plain(), flags=flags)
    at_rest(box.pid)
    threads = check_threads(check_done(box.exec(PROGRAM, "dump", "--json", "--pid", "1")), box.truth, 1)
    assert all("container" not in t for t in threads)
    for true in box.truth["threads"]:
        assert next(t for t in threads if t["thread_id"] == true["ident"])["os_thread_id"] == true["os_id"]
    out = check_done(box.exec(PROGRAM, "dump", "--native", "--json", "--pid", "1"))
    assert any(f["module"] for t in parse_json(out) for f in t["frames"])
    out = check_done(box.exec(PROGRAM, "record", "--idle", "-d", "0.3", "-f", "raw", "-o", "-", "--pid", "1"))
    assert box.truth["threads"][0]["frames"][0]["name"] in out
    assert "dump: works" in check_done(box.exec(PROGRAM, "doctor", "--pid", "1"))


@inside
def test_inside_ray(container):
    """A worker of another user, the profiler through sudo: root without SYS_PTRACE. Root owns the output file, as
    with sudo."""
    box = container(*plain(), flags=["--user", "1000:1000"])
    at_rest(box.pid)
    for flags in ([], ["--native"], ["--subprocesses"], ["--native", "--subprocesses"]):
        out = check_done(box.exec("/spy/py-spy", "dump", "-p", "1", *flags, user=0))
        assert out.startswith("Process 1: python")
    check_done(box.exec("/spy/py-spy", "record", "-o", "/tmp/x.svg", "-p", "1", "-d", "1", "-f", "flamegraph", "--native", "--idle",
                        "--subprocesses", user=0))
    assert "<!DOCTYPE svg" in check_done(box.exec("cat", "/tmp/x.svg"))
    assert check_done(box.exec("stat", "-c", "%u", "/tmp/x.svg")).strip() == "0"


@inside
def test_inside_as_another_user(container):
    box = container(*plain(), flags=["--user", "1000:1000"])
    done = box.exec(PROGRAM, "dump", "--pid", "1", user=1001)
    assert done.returncode == 1 and not done.stdout
    text = done.stderr.decode()
    assert "Permission" in text and "belongs to another user (uid 1000; you are uid 1001)" in text
    assert "--cap-add SYS_PTRACE" in text and "securityContext" in text and "--user 1000" in text
    done = box.exec(PROGRAM, "doctor", "--pid", "1", user=1001)
    assert done.returncode == 1 and b"container: podman/" + box.id.encode() in done.stdout


@inside
def test_inside_strict_seccomp(container, tmp_path):
    """A seccomp profile without process_vm_readv and ptrace, like Docker's before 20.10.6."""
    profile = tmp_path / "seccomp.json"
    profile.write_text(json.dumps({"defaultAction": "SCMP_ACT_ALLOW", "syscalls": [
        {"names": ["process_vm_readv", "ptrace", "openat2", "pidfd_open"], "action": "SCMP_ACT_ERRNO", "errnoRet": 1}]}))
    box = container(*plain(), flags=["--security-opt", "seccomp=%s" % profile])
    at_rest(box.pid)
    check_threads(check_done(box.exec(PROGRAM, "dump", "--json", "--pid", "1")), box.truth, 1)
    text = check_done(box.exec(PROGRAM, "doctor", "--pid", "1"))
    assert "process_vm_readv is blocked; ptrace is blocked" in text and "native stacks: no" in text


# ---- rootless


@pytest.fixture
def rootless(podman, program, launch):
    """A container that an unprivileged user created in a user namespace: runc alone, on the chroot itself."""
    place = pathlib.Path("/tmp/spyglass-" + uuid.uuid4().hex)
    for part in ("root", "bundle", "state"):
        (place / part).mkdir(parents=True)
        os.chown(place / part, 1000, 1000)
    user = ["setpriv", "--reuid", "1000", "--regid", "1000", "--clear-groups"]
    runc = [*user, shutil.which("runc", path=os.environ["PATH"] + ":/usr/sbin"), "--root", str(place / "state")]
    subprocess.run(["mount", "--bind", SID[0].root, place / "root"], check=True)
    try:
        subprocess.run([*runc, "spec", "--rootless", "--bundle", place / "bundle"], check=True)
        file = place / "bundle" / "config.json"
        config = json.loads(file.read_text())
        config["root"] = {"path": str(place / "root"), "readonly": True}
        config["process"].update(terminal=False, args=["python3.%d" % NEWEST.version[1], "/mnt/targets/situations.py", "plain"], rlimits=[])
        config["mounts"].append({"destination": "/mnt", "source": str(program), "type": "bind", "options": ["rbind", "ro"]})
        file.write_text(json.dumps(config))
        target = launch([*runc, "run", "--bundle", place / "bundle", "--pid-file", place / "state" / "pid", "box"])
        target.inner = int((place / "state" / "pid").read_text())
        target.refresh_truth(target.inner)
        target.exec = lambda *args: subprocess.run([*runc, "exec", "box", *args], stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=300)
        yield target
        subprocess.run([*runc, "delete", "--force", "box"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    finally:
        subprocess.run(["umount", "--lazy", place / "root"], check=True)
        shutil.rmtree(place)


def test_rootless(rootless, program):
    """From the host as root, as the owner and as another user; and inside."""
    pid, truth = at_rest(rootless.inner), rootless.truth
    threads = check_threads(run("dump", "--json", "--pid", pid).check().out, truth, pid)
    assert {t["container"]["pid"] for t in threads} == {1}
    run("dump", "--native", "--pid", pid).check()
    if SANITIZED:
        return
    owner = ["--reuid", "1000", "--regid", "1000", "--clear-groups", program / "spyglass"]
    check_threads(run(*owner, "dump", "--json", "--pid", at_rest(pid), program="setpriv").check().out, truth, pid)
    stranger = ["--reuid", "1001", "--regid", "1001", "--clear-groups", program / "spyglass"]
    result = run(*stranger, "dump", "--pid", pid, program="setpriv").check(1)
    assert "Permission" in result.err and re.search("sudo|SYS_PTRACE", result.err), result
    at_rest(pid)
    check_threads(check_done(rootless.exec("/mnt/spyglass", "dump", "--json", "--pid", "1")), truth, 1)
    assert "dump: works" in check_done(rootless.exec("/mnt/spyglass", "doctor", "--pid", "1"))


# ---- from a sidecar


@inside
def test_sidecar(container, sidecar):
    """Like `kubectl debug --target`: the target's PID namespace, but our own root file system, with one file."""
    box = container(*plain())
    at_rest(box.pid)
    for flags in ([], ["--cap-add", "SYS_PTRACE"]):
        threads = check_threads(check_done(sidecar(box, "dump", "--json", "--pid", "1", flags=flags)), box.truth, 1)
        for thread in threads:
            assert thread["container"] == {"pid": None, "runtime": "podman", "id": box.id}
        out = check_done(sidecar(box, "dump", "--native", "--json", "--pid", "1", flags=flags))
        assert any(f["module"] for t in parse_json(out) for f in t["frames"])
        out = check_done(sidecar(box, "record", "--idle", "-d", "0.3", "-f", "raw", "-o", "/dev/stdout", "--pid", "1", flags=flags))
        assert box.truth["threads"][0]["frames"][0]["name"] in out


@pytest.mark.full
@inside
@pytest.mark.parametrize("flags, works", [
    ([], True),  # root, which reads as the user
    (["--cap-drop", "SETUID"], False),
    (["--cap-drop", "SETUID", "--cap-add", "SYS_PTRACE"], True),
    (["--user", "1000:1000", "--cap-drop", "ALL", "--security-opt", "no-new-privileges"], True),  # the restricted standard
    (["--user", "1001:1001"], False),
], ids=lambda v: " ".join(v) if isinstance(v, list) else None)
def test_sidecar_of_a_user(container, sidecar, flags, works):
    box = container(*plain(), flags=["--user", "1000:1000"])
    at_rest(box.pid)
    done = sidecar(box, "dump", "--json", "--pid", "1", flags=flags)
    if works:
        check_threads(check_done(done), box.truth, 1)
    else:
        assert done.returncode == 1 and b"Permission" in done.stderr and b"SYS_PTRACE" in done.stderr, done
    assert sidecar(box, "doctor", "--pid", "1", flags=flags).returncode == (0 if works else 1)


@pytest.mark.full
@inside
def test_empty_image(podman, program):
    """No libc, no /etc/passwd, no terminfo, no /tmp, no shell, and no writable directory."""
    def go(*args):
        return podman.call("run", "--rm", "--ulimit", "host", "--network=none", "--read-only", "--volume", "%s:/spy:ro" % program,
                           "bare", PROGRAM, *args)

    assert re.match(r"spyglass \d", check_done(go("--version")))
    check_done(go("--help"))
    text = check_done(go("doctor"))
    assert "dump: works" in text and "container: podman/" in text
    done = go("dump", "--pid", "1")  # it is its own PID 1
    assert done.returncode == 1 and b"Failed to find python version" in done.stderr
    done = go("record", "-d", "1", "--", "python3")
    assert done.returncode == 1 and done.stderr, done
