"""Real pods for the tests of deploy/: podman with runc, images made from the Debian chroot and our static program.

Storage lies in the cache, apart from the user's own images, and settings come in a file of ours: nothing of the machine
is changed. What is missing is a Missing with the reason; the tests then skip.
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
VALIDATE = "1.37.0"  # of kubernetes-validate; it carries the schemas of this Kubernetes and of older ones
PATH = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
LEFT_OUT = ("./proc/*", "./sys/*", "./tmp/*", "./var/cache/*", "./var/lib/apt/*", "./usr/include/*", "./usr/share/doc/*", "*.a")
NUMBERS = itertools.count()


class Missing(Exception):
    """What this machine lacks, in words."""


class Locked:
    """One test process at a time."""

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
    """The Python of an environment with kubernetes-validate. PyPI must answer once."""
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
    """The documents of a YAML or JSON file: new objects each time."""
    return json.loads(load_text(path, path.stat().st_mtime_ns))


def faults(manifests, *versions):
    """What the schemas of these versions of Kubernetes say against manifests."""
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
    """podman with a storage of its own, and the images."""

    def __init__(self):
        require()
        self.place = CACHE / "pods"
        self.place.mkdir(parents=True, exist_ok=True)
        settings = self.place / "containers.conf"
        settings.write_text("[containers]\ndefault_ulimits = []\n")
        self.env = dict(os.environ, CONTAINERS_CONF=str(settings))
        run = "/run/spyglass-pods"  # not on a disk: podman tells by it that the machine has booted since
        self.command = ["podman", "--root", self.place / "storage", "--runroot", run + "/run", "--tmpdir", run + "/tmp",
                        "--runtime", "runc"]
        with Locked("pods.lock"):
            self.python = {python.version: self.make_python(python) for python in chroot_pythons()}
            self.shell = self.make_spyglass("shell")
            self.bare = self.make_spyglass("bare")

    def run(self, *args, **options):
        """podman ARGS: status and both streams, as text."""
        return subprocess.run([str(part) for part in [*self.command, *args]], stdin=options.pop("stdin", subprocess.DEVNULL),
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=self.env, timeout=300, encoding="utf-8",
                              **options)

    def call(self, *args, **options):
        """The same; must succeed; gives standard output."""
        done = self.run(*args, **options)
        assert done.returncode == 0, "podman %s\n%s%s" % (" ".join(map(str, args)), done.stdout, done.stderr)
        return done.stdout

    def has(self, image):
        return self.run("image", "exists", image).returncode == 0

    def make_base(self, root):
        """The chroot as an image."""
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
        """An image in which `python3` is this one, as in the images that people use."""
        base = self.make_base(python.root)
        image = "localhost/spyglass-test-%s:%s" % (python.label.lower(), base.split(":")[1])
        if not self.has(image):
            text = "FROM %s\nRUN ln -sf %s /usr/bin/python3\n" % (base, python.command[-1])
            self.call("build", "--quiet", "--network=none", "--tag", image, "-", input=text, stdin=None)
        return image

    def make_spyglass(self, target):
        """deploy/Containerfile, with the chroot in the place of busybox."""
        file = ROOT / "deploy" / "Containerfile"
        key = hashlib.sha256(SPYGLASS.read_bytes() + file.read_bytes()).hexdigest()[:16]
        image = "localhost/spyglass-test-%s:%s" % (target, key)
        if not self.has(image):
            base = self.make_base(chroot_pythons()[0].root)
            self.call("build", "--quiet", "--network=none", "--tag", image, "--target", target, "--build-arg",
                      "SHELL_IMAGE=" + base, "--file", file, SPYGLASS.parent)
        return image


class Pod:
    """A manifest that runs. Its images are those of the tests, its name is one of a kind, the rest is as written."""

    def __init__(self, podman, manifest, tmp_path, version=None):
        self.podman = podman
        self.name = "spyglass-test-%d-%d" % (os.getpid(), next(NUMBERS))
        self.manifest = json.loads(json.dumps(manifest))
        self.manifest["metadata"] = {"name": self.name}
        spec = self.manifest["spec"]
        spec["restartPolicy"] = "Never"  # podman 4.3 would start an init container again and again
        for container in spec.get("initContainers", []) + spec["containers"]:
            ours = container["image"].startswith("spyglass:")
            container["image"] = podman.shell if ours else podman.python[version or max(podman.python)]
            container["imagePullPolicy"] = "Never"
            if not ours:
                container.setdefault("env", []).append({"name": "PYTHONUNBUFFERED", "value": "1"})
            for mount in container.get("volumeMounts", []):
                mount["name"] = "%s-%s" % (self.name, mount["name"])
        for volume in spec.get("volumes", []):  # podman 4.3 would share an emptyDir between pods by its name
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
        """Waits for a line of a container's; gives the pid of its first process as the machine sees it."""
        wait_until(lambda: text in self.logs(container), "%r from %s" % (text, container))
        return int(self.podman.call("inspect", "--format", "{{.State.Pid}}", self.container(container)))

    def serves(self, container):
        """Waits until http.server waits for requests; gives the pid as the machine sees it."""
        return at_rest(self.says(container, "Serving HTTP"))

    def logs(self, container):
        done = self.podman.run("logs", self.container(container))
        return done.stdout + done.stderr

    def run(self, container, *command, flags=()):
        """podman exec, which is what kubectl exec does."""
        return self.podman.run("exec", *flags, self.container(container), *command)

    def exec(self, container, *command, flags=()):
        """The same; must succeed; gives standard output."""
        return self.podman.call("exec", *flags, self.container(container), *command)


def flags_of(container, spec=None):
    """The securityContext and hostPID as flags of `podman run`, which kube play has no way for."""
    security = dict((spec or {}).get("securityContext", {}), **container.get("securityContext", {}))
    flags = ["--pid=host"] if (spec or {}).get("hostPID") else []
    flags += ["--user=%d:%d" % (security["runAsUser"], security.get("runAsGroup", 0))] if "runAsUser" in security else []
    flags += ["--cap-add=" + name for name in security.get("capabilities", {}).get("add", [])]
    flags += ["--cap-drop=" + name for name in security.get("capabilities", {}).get("drop", [])]
    flags += ["--security-opt=no-new-privileges"] if security.get("allowPrivilegeEscalation") is False else []
    return flags
