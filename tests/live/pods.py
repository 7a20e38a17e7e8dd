"""Real pods for the tests of deploy/: podman with runc, and images made from the Debian chroot and our static program.

Images are stored in the cache, apart from the user's own, and podman gets its settings from our own file: the tests
do not change the machine. They raise Missing with a reason if something is not installed, and the tests are skipped.
"""
import fcntl
import functools
import hashlib
import itertools
import json
import os
import pathlib
import shutil
import subprocess

from processes import at_rest
from program import SANITIZED, SPYGLASS, wait_until
from pythons import PYTHONS, ROOT

CACHE = pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache") / "spyglass"
VALIDATE = "1.37.0"  # version of kubernetes-validate; it ships the schemas of this Kubernetes release and of older ones
PATH = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
LEFT_OUT = ("./proc/*", "./sys/*", "./tmp/*", "./var/cache/*", "./var/lib/apt/*", "./usr/include/*", "./usr/share/doc/*", "*.a")
NUMBERS = itertools.count()


class Missing(Exception):
    """Says what this machine lacks."""


class Locked:
    """Lets one test process in at a time."""

    def __init__(self, name):
        CACHE.mkdir(parents=True, exist_ok=True)
        self.file = open(CACHE / name, "w")

    def __enter__(self):
        fcntl.flock(self.file, fcntl.LOCK_EX)

    def __exit__(self, *args):
        self.file.close()


def call(command, **options):
    done = subprocess.run([str(part) for part in command], stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=300,
                          universal_newlines=True, **options)
    assert done.returncode == 0, "%s\n%s%s" % (" ".join(map(str, command)), done.stdout, done.stderr)
    return done.stdout


def validator():
    """The Python of an environment with kubernetes-validate. The first call needs PyPI."""
    place = CACHE / ("kubernetes-validate-" + VALIDATE)
    with Locked("kubernetes-validate.lock"):
        if not (place / "done").exists():
            shutil.rmtree(place, ignore_errors=True)
            call(["/usr/bin/python3", "-m", "venv", place])
            try:
                call([place / "bin" / "pip", "install", "--quiet", "kubernetes-validate==" + VALIDATE])
            except AssertionError as error:
                raise AssertionError("kubernetes-validate could not be had: did PyPI answer?\n%s" % error)
            (place / "done").touch()
    return place / "bin" / "python"


@functools.lru_cache(maxsize=None)
def load_text(path, changed):
    return call([validator(), ROOT / "tests" / "live" / "kube_validate.py", "load", path])


def load(path):
    """The documents of a YAML or JSON file, as new objects on each call."""
    return json.loads(load_text(path, path.stat().st_mtime_ns))


def faults(manifests, *versions):
    """What the schemas of these versions of Kubernetes object to."""
    script = ROOT / "tests" / "live" / "kube_validate.py"
    return json.loads(call([validator(), script, "check", *versions], input=json.dumps(manifests)))


def require():
    """Raises Missing unless pods can run here."""
    if os.getuid() != 0:
        raise Missing("pods need root")
    for program in ("podman", "runc"):
        if not shutil.which(program):
            raise Missing("no %s on this machine" % program)
    if SANITIZED:
        raise Missing("the program with sanitizers is not static: it runs in no image but its own")
    if not chroot_pythons():
        raise Missing("no chroot with a Python to make an image of")


def chroot_pythons():
    return [python for python in PYTHONS if python.kind == "chroot"]


class Podman:
    """podman with its own storage, and the images."""

    def __init__(self):
        require()
        self.place = CACHE / "pods"
        self.place.mkdir(parents=True, exist_ok=True)
        settings = self.place / "containers.conf"
        settings.write_text("[containers]\ndefault_ulimits = []\n")
        self.env = dict(os.environ, CONTAINERS_CONF=str(settings))
        run = "/run/spyglass-pods"  # on a tmpfs: podman uses it to detect that the machine has rebooted
        self.command = ["podman", "--root", self.place / "storage", "--runroot", run + "/run", "--tmpdir", run + "/tmp",
                        "--runtime", "runc"]
        with Locked("pods.lock"):
            self.python = {python.version: self.make_python(python) for python in chroot_pythons()}
            self.shell = self.make_spyglass("shell")
            self.bare = self.make_spyglass("bare")

    def run(self, *args, **options):
        """Runs podman ARGS; returns the status and both streams as text."""
        return subprocess.run([str(part) for part in [*self.command, *args]], stdin=options.pop("stdin", subprocess.DEVNULL),
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=self.env, timeout=300, encoding="utf-8",
                              **options)

    def call(self, *args, **options):
        """Runs podman ARGS, which must succeed; returns standard output."""
        done = self.run(*args, **options)
        assert done.returncode == 0, "podman %s\n%s%s" % (" ".join(map(str, args)), done.stdout, done.stderr)
        return done.stdout

    def has(self, image):
        return self.run("image", "exists", image).returncode == 0

    def make_base(self, root):
        """Makes an image of the chroot."""
        image = "localhost/spyglass-test-base:%d" % int((root / "usr" / "bin").stat().st_mtime)
        if not self.has(image):
            self.run("image", "prune", "--all", "--force", "--filter", "until=168h")
            tar = ["tar", "-C", root, "--one-file-system", *("--exclude=" + left for left in LEFT_OUT), "-c", "."]
            with subprocess.Popen([str(part) for part in tar], stdout=subprocess.PIPE) as pack:
                self.call("import", "--change", "ENV " + PATH, "-", image, stdin=pack.stdout)
            done = self.run("run", "--rm", "--network=none", image, "true")
            if done.returncode != 0:
                raise Missing("podman cannot run a container here: " + done.stderr.strip())
        return image

    def make_python(self, python):
        """Makes an image in which `python3` is this Python, as in the images that people use."""
        base = self.make_base(python.root)
        image = "localhost/spyglass-test-%s:%s" % (python.label.lower(), base.split(":")[1])
        if not self.has(image):
            text = "FROM %s\nRUN ln -sf %s /usr/bin/python3\n" % (base, python.command[-1])
            self.call("build", "--quiet", "--network=none", "--tag", image, "-", input=text, stdin=None)
        return image

    def make_spyglass(self, target):
        """Builds deploy/Containerfile, with the chroot instead of busybox."""
        file = ROOT / "deploy" / "Containerfile"
        key = hashlib.sha256(SPYGLASS.read_bytes() + file.read_bytes()).hexdigest()[:16]
        image = "localhost/spyglass-test-%s:%s" % (target, key)
        if not self.has(image):
            base = self.make_base(chroot_pythons()[0].root)
            self.call("build", "--quiet", "--network=none", "--tag", image, "--target", target, "--build-arg",
                      "SHELL_IMAGE=" + base, "--file", file, SPYGLASS.parent)
        return image


class Pod:
    """Makes a manifest that can run here: with the images of the tests and a unique name. The rest is as written."""

    def __init__(self, podman, manifest, tmp_path, version=None):
        self.podman = podman
        self.name = "spyglass-test-%d-%d" % (os.getpid(), next(NUMBERS))
        self.manifest = json.loads(json.dumps(manifest))
        self.manifest["metadata"] = {"name": self.name}
        spec = self.manifest["spec"]
        spec["restartPolicy"] = "Never"  # podman 4.3 would restart an init container forever
        for container in spec.get("initContainers", []) + spec["containers"]:
            ours = container["image"].startswith("spyglass:")
            container["image"] = podman.shell if ours else podman.python[version or max(podman.python)]
            container["imagePullPolicy"] = "Never"
            if not ours:
                container.setdefault("env", []).append({"name": "PYTHONUNBUFFERED", "value": "1"})
            for mount in container.get("volumeMounts", []):
                mount["name"] = "%s-%s" % (self.name, mount["name"])
        for volume in spec.get("volumes", []):  # podman 4.3 would share an emptyDir between pods, by its name
            volume["name"] = "%s-%s" % (self.name, volume["name"])
        self.file = tmp_path / (self.name + ".json")

    def start(self):
        self.file.write_text(json.dumps(self.manifest))
        self.podman.call("kube", "play", "--network=none", self.file)
        return self

    def stop(self):
        self.podman.run("pod", "rm", "--force", "--time", "0", self.name)
        for volume in self.manifest["spec"].get("volumes", []):
            self.podman.run("volume", "rm", "--force", volume["name"])

    def container(self, name):
        return "%s-%s" % (self.name, name)

    def says(self, container, text):
        """Waits for a line of a container's output; returns the host PID of its first process."""
        wait_until(lambda: text in self.logs(container), "%r from %s" % (text, container))
        return int(self.podman.call("inspect", "--format", "{{.State.Pid}}", self.container(container)))

    def serves(self, container):
        """Waits until http.server waits for requests; returns its host PID."""
        return at_rest(self.says(container, "Serving HTTP"))

    def logs(self, container):
        done = self.podman.run("logs", self.container(container))
        return done.stdout + done.stderr

    def run(self, container, *command, flags=()):
        """Runs podman exec, as kubectl exec does."""
        return self.podman.run("exec", *flags, self.container(container), *command)

    def exec(self, container, *command, flags=()):
        """Runs podman exec, which must succeed; returns standard output."""
        return self.podman.call("exec", *flags, self.container(container), *command)


def flags_of(container, spec=None):
    """Converts securityContext and hostPID to flags of `podman run`, because kube play does not support them."""
    security = dict((spec or {}).get("securityContext", {}), **container.get("securityContext", {}))
    flags = ["--pid=host"] if (spec or {}).get("hostPID") else []
    flags += ["--user=%d:%d" % (security["runAsUser"], security.get("runAsGroup", 0))] if "runAsUser" in security else []
    flags += ["--cap-add=" + name for name in security.get("capabilities", {}).get("add", [])]
    flags += ["--cap-drop=" + name for name in security.get("capabilities", {}).get("drop", [])]
    flags += ["--security-opt=no-new-privileges"] if security.get("allowPrivilegeEscalation") is False else []
    return flags
