"""deploy/ and docs/kubernetes*.md: manifests are valid, pods run, and commands work as documented.

kubernetes-validate from PyPI provides the schemas. Pods run in podman, with the Debian chroot as the user's image
and our program as `spyglass:latest`; `podman exec` replaces `kubectl exec`.
"""
import os
import pty
import re
import select
import shlex
import signal
import stat
import subprocess
import tarfile
import time

import pods
import pytest
from processes import at_rest
from profiles import Recording, catches, read_raw, read_speedscope, run_enough, seen_in_place
from program import PY_SPY, SPYGLASS, WAIT, finish, run, start, wait_until
from pythons import DEBIAN, ROOT

DEPLOY = ROOT / "deploy"
DOCS = [ROOT / "docs" / "kubernetes.md", ROOT / "docs" / "kubernetes.zh.md"]
VERSIONS = ["1.25", "1.30", "latest"]
TOOL = "/opt/spyglass/spyglass"
WAITS = ["select (selectors.py:", "serve_forever (socketserver.py:", "<module> (http/server.py:"]  # innermost first
BUSY = """def leaf(n):
    return sum(range(n))
def branch():
    while True:
        leaf(1000)
print('ready')
branch()
"""
FAMILY = """import subprocess, sys, time
def child_waits():
    print('ready')
    time.sleep(1000)
def parent_waits():
    subprocess.Popen(['tail', '-f', '/dev/null'])
    subprocess.Popen([sys.executable, '-c', sys.argv[1], sys.argv[1], 'child']).wait()
child_waits() if sys.argv[2:] else parent_waits()
"""


def pod(name, spec):
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}


def dagster_pod(name, container, spec):
    """The Pod that Dagster creates from its two dicts."""
    main = {"name": "dagster", "image": "my-registry/my-location:latest", "args": ["dagster", "api"]}
    return pod(name, dict(spec, containers=[dict(main, **container)]))


def named(file):
    """The manifests of a file in deploy/, as Kubernetes sees them: {name: manifest}."""
    documents = pods.load(DEPLOY / file)
    first = documents[0]
    if file == "raycluster.yaml":
        groups = {"head": first["spec"]["headGroupSpec"]}
        groups.update({group["groupName"]: group for group in first["spec"]["workerGroupSpecs"]})
        return {name: pod(name, group["template"]["spec"]) for name, group in groups.items()}
    if file == "dagster-values.yaml":
        config = first["runLauncher"]["config"]["k8sRunLauncher"]["runK8sConfig"]
        return {"run": dagster_pod("run", config["containerConfig"], config["podSpecConfig"])}
    if file == "dagster-container-context.yaml":
        k8s = first["locations"][0]["container_context"]["k8s"]
        return {name: dagster_pod(name, k8s[name + "_k8s_config"]["container_config"],
                                  k8s[name + "_k8s_config"]["pod_spec_config"]) for name in ("server", "run")}
    if file == "ephemeral-container.json":
        whole = pods.load(DEPLOY / "pod.yaml")[0]
        return {"app": pod("app", dict(whole["spec"], **first["spec"]))}
    if file == "debug-user.yaml":
        return {"user": pod("user", {"containers": [dict(first, name="debugger", image="spyglass:latest")]})}
    return {document["metadata"]["name"] + "/" + document["kind"]: document for document in documents}


MANIFESTS = sorted(path.name for path in DEPLOY.iterdir() if path.suffix in (".yaml", ".json"))


# Schemas and rules


@pytest.mark.parametrize("file", MANIFESTS)
def test_valid(file):
    """The strict schemas of an old, a middle and the newest Kubernetes accept every field."""
    manifests = list(named(file).values())
    assert manifests and pods.faults(manifests, *VERSIONS) == []


@pytest.mark.parametrize("wrong", [{"capabilites": {"add": ["SYS_PTRACE"]}}, {"runAsUser": "1000"},
                                   {"capabilities": {"add": "SYS_PTRACE"}}], ids=["unknown", "string", "no list"])
def test_invalid_is_detected(wrong):
    """The check above can fail."""
    manifest = named("pod.yaml")["app/Pod"]
    manifest["spec"]["containers"][0]["securityContext"] = wrong
    assert [index for index, _ in pods.faults([manifest], *VERSIONS)] == [0] * len(VERSIONS)


def test_raycluster():
    """The fields around the templates, which the schemas here do not cover: those of ray.io/v1."""
    cluster, = pods.load(DEPLOY / "raycluster.yaml")
    assert (cluster["apiVersion"], cluster["kind"]) == ("ray.io/v1", "RayCluster")
    assert set(cluster["spec"]) == {"rayVersion", "headGroupSpec", "workerGroupSpecs"}
    assert set(cluster["spec"]["headGroupSpec"]) == {"rayStartParams", "template"}
    for group in cluster["spec"]["workerGroupSpecs"]:
        assert set(group) == {"groupName", "replicas", "minReplicas", "maxReplicas", "rayStartParams", "template"}
    for manifest in named("raycluster.yaml").values():
        container, = manifest["spec"]["containers"]
        assert container["image"].split(":")[1] == cluster["spec"]["rayVersion"]
        assert container["securityContext"]["capabilities"]["add"] == ["SYS_PTRACE"]
    head, = named("raycluster.yaml")["head"]["spec"]["containers"]
    assert {"name": "RAY_DASHBOARD_ENABLE_PROFILING", "value": "1"} in head["env"]


def violations(spec):
    """Violations of the baseline and the restricted Pod Security Standards; only the rules that concern us."""
    baseline, restricted = set(), set()
    if any(spec.get(name) for name in ("hostPID", "hostNetwork", "hostIPC")):
        baseline.add("host namespaces")
    for container in spec["containers"] + spec.get("initContainers", []) + spec.get("ephemeralContainers", []):
        security = dict(spec.get("securityContext", {}), **container.get("securityContext", {}))
        capabilities = security.get("capabilities", {})
        if "SYS_PTRACE" in capabilities.get("add", []):
            baseline.add("non-default capabilities")
        if "ALL" not in capabilities.get("drop", []) or set(capabilities.get("add", [])) - {"NET_BIND_SERVICE"}:
            restricted.add("unrestricted capabilities")
        if security.get("allowPrivilegeEscalation") is not False:
            restricted.add("allowPrivilegeEscalation != false")
        if not security.get("runAsNonRoot") or security.get("runAsUser") == 0:
            restricted.add("runAsNonRoot != true")
        if security.get("seccompProfile", {}).get("type") not in ("RuntimeDefault", "Localhost"):
            restricted.add("seccompProfile")
    return baseline, baseline | restricted


def test_standards():
    """restricted.yaml meets the restricted standard; a pod with SYS_PTRACE does not even meet baseline."""
    assert violations(named("restricted.yaml")["restricted/Pod"]["spec"]) == (set(), set())
    for file in ("pod.yaml", "raycluster.yaml", "dagster-values.yaml", "dagster-container-context.yaml",
                 "ephemeral-container.json"):
        for manifest in named(file).values():
            assert violations(manifest["spec"])[0] == {"non-default capabilities"}, file
    documents = named("daemonset.yaml")
    template = documents["spyglass/DaemonSet"]["spec"]["template"]
    assert violations(template["spec"])[0] == {"host namespaces", "non-default capabilities"}
    assert documents["spyglass/Namespace"]["metadata"]["labels"]["pod-security.kubernetes.io/enforce"] == "privileged"
    assert template["metadata"]["labels"] == documents["spyglass/DaemonSet"]["spec"]["selector"]["matchLabels"]


# Pods that run


@pytest.fixture(scope="module")
def podman():
    try:
        return pods.Podman()
    except pods.Missing as missing:
        pytest.skip(str(missing))


@pytest.fixture
def play(podman, tmp_path):
    """play(manifest, version=None) -> a running Pod; removed after the test."""
    running = []

    def go(manifest, version=None):
        running.append(pods.Pod(podman, manifest, tmp_path, version))
        return running[-1].start()

    yield go
    for one in running:
        one.stop()


def check_waits(text, pid):
    """Dumps http.server while it waits."""
    assert re.search(r"^Process %d\b" % pid, text, re.M) and "\nPython v3." in text, text
    places = [text.find(frame) for frame in WAITS]
    assert -1 not in places and places == sorted(places), text


def check_busy(raw):
    stacks, total = read_raw(raw)
    assert total > 0 and stacks["branch"] > 0, raw


def test_bare_image(podman, tmp_path):
    """The image has only our program, under both names, and it runs."""
    files = tmp_path / "bare.tar"
    name = "spyglass-test-bare-%d" % os.getpid()
    podman.call("create", "--name", name, podman.bare)
    podman.call("export", "--output", files, name)
    podman.call("rm", name)
    with tarfile.open(files) as tar:
        kept = {entry.name: entry for entry in tar if entry.isreg() and entry.size}
    assert set(kept) == {"usr/bin/spyglass", "usr/bin/py-spy"}
    assert all(entry.mode & stat.S_IXOTH for entry in kept.values())
    flags = ["run", "--rm", "--network=none", podman.bare]
    assert podman.call(*flags).startswith("spyglass ")  # without a command it prints the help
    assert podman.call(*flags, "py-spy", "--version").startswith("py-spy ")


def test_nonroot_image(podman):
    image = podman.make_spyglass("nonroot")
    assert podman.call("inspect", "--format", "{{.Config.User}}", image).strip() == "65532:65532"
    assert podman.call("run", "--rm", "--network=none", image, "spyglass", "--version").startswith("spyglass ")


def newest_in_test(versions):
    """Only the newest one in every tier, because starting a pod takes seconds."""
    newest = max(versions, default=None)
    return [pytest.param(v, id="%d.%d" % v, marks=[] if v == newest else [pytest.mark.full]) for v in versions]


@pytest.mark.parametrize("version", newest_in_test([python.version for python in pods.chroot_pythons()]))
def test_pod(play, version):
    """The commands in the header of pod.yaml and in the walk-through."""
    app = play(named("pod.yaml")["app/Pod"], version)
    app.serves("app")
    check_waits(app.exec("app", TOOL, "dump", "--pid", "1"), 1)
    check_waits(app.exec("app", "/opt/spyglass/py-spy", "dump", "--pid", "1"), 1)
    raw = app.exec("app", TOOL, "record", "--pid", "1", "--idle", "--duration", "1", "--format", "raw", "--output", "-")
    assert read_raw(raw)[1] > 0 and WAITS[1] in raw
    svg = app.exec("app", TOOL, "record", "--pid", "1", "--idle", "--duration", "1", "--output", "-")
    assert "<!DOCTYPE svg" in svg and svg.rstrip().endswith("</svg>")


@pytest.mark.full
def test_pod_busy(play):
    manifest = named("pod.yaml")["app/Pod"]
    manifest["spec"]["containers"][0]["command"] = ["python3", "-c", BUSY]
    app = play(manifest)
    app.says("app", "ready")
    check_busy(app.exec("app", TOOL, "record", "--pid", "1", "-d", "1", "-f", "raw", "-o", "-"))


@pytest.mark.full
def test_copied(play):
    """The shortest way: copy the one file into a container without extra privileges."""
    manifest = named("pod.yaml")["app/Pod"]
    del manifest["spec"]["initContainers"], manifest["spec"]["volumes"]
    del manifest["spec"]["containers"][0]["securityContext"], manifest["spec"]["containers"][0]["volumeMounts"]
    app = play(manifest)
    app.serves("app")
    app.podman.call("cp", SPYGLASS, app.container("app") + ":/tmp/spyglass")
    check_waits(app.exec("app", "/tmp/spyglass", "dump", "--pid", "1"), 1)
    with open(SPYGLASS, "rb") as program:
        app.podman.call("exec", "-i", app.container("app"), "sh", "-c", "cat > /tmp/two && chmod +x /tmp/two", stdin=program)
    check_waits(app.exec("app", "/tmp/two", "dump", "--pid", "1"), 1)


def debug(app, flags, *command):
    """What kubectl debug --target=app does: adds a container to the pod that shares the PID namespace of `app`."""
    pids = "container:" + app.container("app")
    return app.podman.run("run", "--rm", "--pod", app.name, "--pid", pids, *flags, app.podman.bare, *command)


@pytest.mark.full
def test_ephemeral(play):
    """The container of the patch, from the bare image: the same PID namespace, other mounts."""
    app = play(named("pod.yaml")["app/Pod"])
    app.serves("app")
    extra, = named("ephemeral-container.json")["app"]["spec"]["ephemeralContainers"]
    assert extra["targetContainerName"] == "app"
    done = debug(app, pods.flags_of(extra), *extra["command"])
    assert done.returncode == 0, done
    check_waits(done.stdout, 1)
    done = debug(app, pods.flags_of(extra), "spyglass", "record", "--pid", "1", "--idle", "-d", "1", "-f", "raw", "-o", "-")
    assert done.returncode == 0 and WAITS[1] in done.stdout, done
    done = debug(app, ["--user=1000:1000"], *extra["command"])
    assert done.returncode == 1 and "Permission Denied" in done.stderr, done


@pytest.mark.full
def test_ephemeral_baseline(play):
    """--profile=baseline: the same user, and the target has no more capabilities than we do."""
    manifest = named("pod.yaml")["app/Pod"]
    del manifest["spec"]["containers"][0]["securityContext"]
    app = play(manifest)
    app.serves("app")
    done = debug(app, [], "spyglass", "dump", "--pid", "1")
    assert done.returncode == 0, done
    check_waits(done.stdout, 1)


@pytest.mark.full
def test_ephemeral_restricted(play):
    """--profile=restricted --custom=deploy/debug-user.yaml: no capabilities, the same user and group."""
    manifest = named("pod.yaml")["app/Pod"]
    custom, = named("debug-user.yaml")["user"]["spec"]["containers"]
    strict = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
    user = dict(strict, **custom["securityContext"])
    manifest["spec"]["containers"][0]["securityContext"] = user
    app = play(manifest)
    app.serves("app")
    done = debug(app, pods.flags_of({"securityContext": user}), "spyglass", "dump", "--pid", "1")
    assert done.returncode == 0, done
    check_waits(done.stdout, 1)
    done = debug(app, pods.flags_of({"securityContext": dict(user, runAsUser=1001)}), "spyglass", "dump", "--pid", "1")
    assert done.returncode == 1 and "Permission Denied" in done.stderr, done


def in_terminal(app, container, *command):
    """Runs podman exec -it on a pseudoterminal; returns what it displayed."""
    ours, theirs = pty.openpty()
    args = [*app.podman.command, "exec", "-it", app.container(container), *command]
    process = subprocess.Popen([str(part) for part in args], stdin=theirs, stdout=theirs, stderr=theirs, env=app.podman.env)
    os.close(theirs)
    text, end = b"", time.monotonic() + WAIT
    while select.select([ours], [], [], max(0, end - time.monotonic()))[0]:
        try:
            chunk = os.read(ours, 65536)
        except OSError:  # the other end is closed
            chunk = b""
        if not chunk:
            break
        text += chunk
    os.close(ours)
    process.wait(timeout=WAIT)
    return text.decode("utf-8", "replace")


def test_restricted(play):
    """No capabilities, no root: the list of Pythons, a dump and a recording from the second container. Another user
    is refused."""
    app = play(named("restricted.yaml")["restricted/Pod"])
    app.serves("app")
    status = app.exec("spyglass", "cat", "/proc/self/status")
    assert re.search(r"^CapBnd:\t0+$", status, re.M) and re.search(r"^Seccomp:\t2$", status, re.M), status
    assert re.search(r"^NoNewPrivs:\t1$", status, re.M) and re.search(r"^Uid:\t1000\t1000", status, re.M), status
    shown = in_terminal(app, "spyglass", "spyglass", "dump")
    pid = int(re.search(r"^\s*(\d+)  3\.\d+\.\d+\S* .*python3 -m http\.server", shown, re.M).group(1))
    assert pid != 1
    check_waits(app.exec("spyglass", "spyglass", "dump", "--pid", pid), pid)
    raw = app.exec("spyglass", "spyglass", "record", "--pid", pid, "--idle", "-d", "1", "-f", "raw", "-o", "-")
    assert WAITS[1] in raw
    done = app.run("spyglass", "spyglass", "dump", "--pid", pid, flags=["--user=1001:1001"])
    assert done.returncode == 1 and "Permission Denied" in done.stderr, done


@pytest.mark.full
def test_restricted_busy(play):
    manifest = named("restricted.yaml")["restricted/Pod"]
    manifest["spec"]["containers"][0]["command"] = ["python3", "-c", BUSY]
    app = play(manifest)
    app.says("app", "ready")
    pid = next(int(pid) for pid, name in re.findall(r"/proc/(\d+)/comm:(.*)",
               app.exec("spyglass", "sh", "-c", "grep . /proc/[0-9]*/comm")) if name.startswith("python3"))
    check_busy(app.exec("spyglass", "spyglass", "record", "--pid", pid, "-d", "1", "-f", "raw", "-o", "-"))


AGENT = """
import shutil, subprocess, sys
found = shutil.which('py-spy')
for args in (['--version'], ['dump', '-p', '1', '--native', '--subprocesses'],
             ['record', '-o', '/tmp/p.txt', '-p', '1', '-d', '1', '-f', 'raw', '--idle', '--subprocesses']):
    done = subprocess.run([found] + args, stdout=subprocess.PIPE, stderr=subprocess.PIPE, universal_newlines=True)
    print(done.stdout)
    if done.returncode:
        sys.exit(done.stderr)
print(found)
print(open('/tmp/p.txt').read())
"""


@pytest.mark.full
@pytest.mark.parametrize("group", ["head", "workers"])
def test_ray(play, group):
    """Does what Ray's agent does: finds py-spy in PATH and runs it. It finds ours."""
    manifest = named("raycluster.yaml")[group]
    container, = manifest["spec"]["containers"]
    container["command"] = ["python3", "-c", BUSY]
    container.pop("ports", None)
    app = play(manifest)
    app.says(container["name"], "ready")
    out = app.exec(container["name"], "python3", "-c", AGENT)
    assert "\n/opt/spyglass/py-spy\n" in out and out.startswith("py-spy ") and "Process 1" in out, out
    assert "branch (<string>:" in out.split("/opt/spyglass/py-spy\n")[1], out


@pytest.mark.full
@pytest.mark.parametrize("file, name", [("dagster-values.yaml", "run"), ("dagster-container-context.yaml", "run"),
                                        ("dagster-container-context.yaml", "server")])
def test_dagster(play, file, name):
    """A run that works in a child process, with a sibling that is not Python: all Pythons are shown, and the status
    is 0."""
    manifest = named(file)[name]
    manifest["spec"]["containers"][0].update(command=["python3", "-c", FAMILY, FAMILY], args=[])
    app = play(manifest)
    app.says("dagster", "ready")
    out = app.exec("dagster", TOOL, "dump", "--pid", "1", "--subprocesses")
    assert "parent_waits (<string>:" in out and "child_waits (<string>:" in out, out


def node_flags(way):
    """The DaemonSet's pod, or what `kubectl debug node/NODE --profile=sysadmin` creates."""
    spec = named("daemonset.yaml")["spyglass/DaemonSet"]["spec"]["template"]["spec"]
    container, = spec["containers"]
    assert container["command"] == ["sleep", "infinity"]
    return pods.flags_of(container, spec) if way == "daemonset" else ["--pid=host", "--privileged"]


@pytest.mark.full
@pytest.mark.parametrize("way", ["daemonset", "debug"])
def test_node(play, podman, spawn, way):
    """From a pod in the node's PID namespace: a Python on the node itself, and one in another pod, found by its
    name."""
    name = "spyglass-test-%s-%d" % (way, os.getpid())
    podman.call("run", "--detach", "--name", name, "--network=none", *node_flags(way), podman.shell, "sleep", "infinity")
    try:
        node = spawn(DEBIAN, "busy.py")
        out = podman.call("exec", name, "spyglass", "dump", "--pid", node.pid)
        assert re.search(r"^Process %d\b" % node.pid, out, re.M) and "root (busy.py:" in out, out
        raw = podman.call("exec", name, "spyglass", "record", "--pid", node.pid, "-d", "1", "-f", "raw", "-o", "-")
        assert read_raw(raw)[0]["root"] > 0
        app = play(named("pod.yaml")["app/Pod"])
        inside = app.serves("app")
        found = podman.call("exec", name, "sh", "-c", "grep -lsxz HOSTNAME=%s /proc/[0-9]*/environ; true" % app.name)
        assert "/proc/%d/environ" % inside in found.split()
        check_waits(podman.call("exec", name, "spyglass", "dump", "--pid", inside), inside)
    finally:
        podman.run("rm", "--force", "--time", "0", name)


# Documentation


def blocks(path):
    """The fenced blocks of a document: [(language, text)]."""
    return re.findall(r"^```(\w*)\n(.*?)^```$", path.read_text(encoding="utf-8"), re.M | re.S)


def known_flags(command):
    """The flags in a command's help: {"--pid", "-p", ...}."""
    help_text = run(command, "--help").check().out.split("Flags:")[1].split("Examples:")[0]
    return set(re.findall(r"(?<![\w-])(--?[a-zA-Z][\w-]*)", "\n".join(re.findall(r"^  .{22,24}", help_text, re.M))))


CALL = re.compile(r"(?:^|[\s/'\"(`])(?:spyglass|py-spy) (dump|record)\b([^|>#`'\"\n]*)")


def calls(text):
    """The calls of our program in a text: [(command, [flag, ...])]. What follows `--` is not ours."""
    found = []
    for command, rest in CALL.findall(text):
        words = rest.split(" -- ")[0].split()
        found.append((command, [word.split("=")[0] for word in words if word.startswith("-") and word != "-"]))
    return found


@pytest.mark.parametrize("path", DOCS + sorted(DEPLOY.iterdir()), ids=lambda path: path.name)
def test_flags_in_documents(path):
    """The help knows each flag that a document or a manifest passes to our program."""
    found = calls(path.read_text(encoding="utf-8"))
    assert path not in DOCS or len(found) > 10
    for command, flags in found:
        assert set(flags) <= known_flags(command), (command, flags)


def test_unknown_flags_are_detected():
    assert calls("kubectl exec x -- spyglass dump --pid 1 --nosuch > y")[0][1] == ["--pid", "--nosuch"]
    assert "--nosuch" not in known_flags("dump") and {"--pid", "-p", "--subprocesses", "-s"} <= known_flags("dump")


@pytest.mark.parametrize("path", DOCS, ids=lambda path: path.name)
def test_paths_in_documents(path):
    """Each file of ours that a document names exists, and each link has a target."""
    text = path.read_text(encoding="utf-8")
    names = re.findall(r"(?<![\w/.-])((?:deploy|docs|tests|tools|examples)/[\w./-]*\w)", text)
    assert set(MANIFESTS) | {"Containerfile"} <= {os.path.basename(name) for name in names}
    for name in names:
        assert (ROOT / name).exists(), name
    heads = {slug(head) for head in re.findall(r"^#+ (.*)$", text, re.M)}
    for link, anchor in re.findall(r"\]\(([^)#:]*)(#[^)]*)?\)", text):
        assert (path.parent / link).exists(), link
        assert link or anchor[1:] in heads, anchor


def slug(head):
    """The anchor that GitHub creates for a heading."""
    return re.sub(r"[^\w -]", "", head).replace(" ", "-").lower()


def test_same_code_blocks():
    """Both languages show the same commands and the same output."""
    english, chinese = (blocks(path) for path in DOCS)
    assert english and english == chinese


def test_yaml_in_documents(tmp_path):
    """The YAML that the documents tell readers to paste matches the manifests and is valid in a Pod."""
    parts = [text for language, text in blocks(DOCS[0]) if language == "yaml"]
    assert parts
    for text in parts:
        file = tmp_path / "part.yaml"
        file.write_text(text)
        part, = pods.load(file)
        assert pods.faults([pod("x", {"containers": [dict(part, name="x", image="x")]})], *VERSIONS) == []


@pytest.mark.parametrize("path", [ROOT / "README.md", *DOCS], ids=lambda path: path.name)
def test_documents_link_each_other(path):
    """Each document links to the others."""
    text = path.read_text(encoding="utf-8")
    for other in DOCS:
        assert path == other or re.search(r"\]\((?:docs/)?%s" % re.escape(other.name), text), other


# Commands from the guides of Dagster, KubeRay, Ray and Dask, as people type them today


TODAY = [
    "dump --pid {pid}",
    "dump -p {pid}",
    "dump -p {pid} --native",
    "dump -p {pid} --subprocesses",
    "dump -p {pid} --native --subprocesses",
    "record -o {out}.svg -p {pid} -d 1 -f flamegraph",
    "record -o {out}.svg -p {pid} -d 1 -f flamegraph --native --idle --subprocesses",
    "record -o {out}.txt -p {pid} -d 1 -f raw --idle",
    "record -o {out}.txt -p {pid} -d 1 -f speedscope --subprocesses",
]


@pytest.mark.parametrize("line", TODAY)
def test_guide_commands(spawn, tmp_path, line):
    target = spawn(DEBIAN, "busy.py")
    out = tmp_path / "profile"
    args = line.format(pid=target.pid, out=out).split()
    if args[0] == "record":
        args[args.index("-d") + 1] = "SECONDS"
        text, _ = run_enough(lambda text: "chain_a" in text or "chain_b" in text, args[args.index("-o") + 1], *args, program=PY_SPY)
        assert "flamegraph" not in args or "<!DOCTYPE svg" in text
    else:
        result = run(*args, program=PY_SPY).check()
        assert "Process %d" % target.pid in result.out and "root (busy.py:" in result.out


def test_guide_dagster(tmp_path):
    """`py-spy record -f speedscope --idle -- dagster definitions validate`: found in PATH; writes a file to this
    directory."""
    program = tmp_path / "bin" / "dagster"
    program.parent.mkdir()
    program.write_text("#!%s\nimport sys\ndef imports_slowly():\n    sys.stdin.read()\n"
                       "assert sys.argv[1:] == ['definitions', 'validate']\nimports_slowly()\n" % DEBIAN.command[0])
    program.chmod(0o755)
    env = {"PATH": "%s:%s" % (program.parent, os.environ["PATH"])}
    line = shlex.split("record -f speedscope --idle -- dagster definitions validate")
    process = start(*line, program=PY_SPY, cwd=tmp_path, env=env, stdin=subprocess.PIPE)

    def shown():
        """Asks for a snapshot. The file has a default name."""
        process.send_signal(signal.SIGUSR1)
        return any("imports_slowly" in path.read_text() for path in tmp_path.glob("*.json"))

    wait_until(lambda: catches(process.pid, signal.SIGUSR1), "record to start")
    wait_until(shown, "samples")
    finish(process).check()
    profile, = [path for path in tmp_path.iterdir() if path.is_file()]
    assert read_speedscope(profile.read_text())[0]["imports_slowly"] > 0


def test_guide_dask(spawn, tmp_path):
    """The way distributed-pyspy runs it: an existing temporary file, and SIGINT at the end."""
    target = spawn(DEBIAN, "busy.py")
    out = tmp_path / "profile.json"
    out.touch()
    process = start("record", "--pid", target.pid, "--output", out, "--format", "speedscope", "--rate", "100", program=PY_SPY)
    recording = Recording(out, process=process)
    recording.until(seen_in_place("root"))
    assert read_speedscope(recording.stop())[0]["root"] > 0


def test_guide_idle(spawn, tmp_path):
    """Where the guides mention an error, spyglass writes a flame graph that says that all threads waited. The flag
    that they recommend works."""
    target = spawn(DEBIAN, "situations.py", "plain")
    args = ["record", "-p", at_rest(target.pid), "-d", "1", "-o", tmp_path / "x.svg"]
    idle = run(*args, program=PY_SPY).check()
    assert "--idle" in idle.out + idle.err
    assert "<!DOCTYPE svg" in (tmp_path / "x.svg").read_text()
    run(*args, "--idle", program=PY_SPY).check()
    assert "<!DOCTYPE svg" in (tmp_path / "x.svg").read_text()
