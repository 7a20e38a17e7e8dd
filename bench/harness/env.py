"""Paths, interpreters, the other profilers, facts about the machine; installs what is missing.

The other profilers are in a venv in the cache, outside the tree. Everything runs in a private mount namespace, in
which the sid tree has /proc and, under /mnt, the benchmark's work directory. Both mounts end with the benchmark."""
import os
import pathlib
import platform
import shutil
import subprocess
import sys
import tempfile

TREE = pathlib.Path(__file__).resolve().parents[2]
SPYGLASS = TREE / "build/spyglass"
CACHE = pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache") / "spyglass"
VENV = CACHE / "bench/venv"
SID = pathlib.Path(os.environ.get("SPYGLASS_SID") or CACHE / "sid")
PACKAGES = ("py-spy", "austin-dist", "pystack")
INSIDE = "SPYGLASS_BENCH_INSIDE"


class Python:
    """An interpreter of build/pythons.txt."""

    def __init__(self, line):
        self.label, self.version, kind, *self.command = line.split()
        self.minor = ".".join(self.version.split(".")[:2])
        self.chroot = kind == "chroot"


def say(text):
    print(text, file=sys.stderr, flush=True)


def enter_namespace():
    """Restarts the benchmark in a private mount namespace. Without root there is no chroot either, and no need for
    it."""
    if os.geteuid() != 0 or os.environ.get(INSIDE) or not (SID / "proc").is_dir():
        return
    unshare = ["unshare", "--mount", "--propagation", "private"]
    if subprocess.run([*unshare, "true"], stderr=subprocess.DEVNULL).returncode:
        say("bench: cannot create a mount namespace; continuing without the Pythons and tools that need one")
        return
    os.environ[INSIDE] = "1"
    os.execvp("unshare", [*unshare, sys.executable, *sys.argv])


class Env:
    def __init__(self):
        self.has_sid = bool(os.environ.get(INSIDE))
        self.pythons = [p for p in self.find_pythons() if self.has_sid or not p.chroot]
        self.work = pathlib.Path(tempfile.mkdtemp(prefix="spyglass-bench-"))
        self.work.chmod(0o755)
        if self.has_sid:
            subprocess.run(["mount", "-t", "proc", "proc", SID / "proc"], check=True)
            subprocess.run(["mount", "--bind", self.work, SID / "mnt"], check=True)
        shutil.copytree(TREE / "bench/targets", self.work / "targets", ignore=shutil.ignore_patterns("__pycache__"))
        self.install_tools()
        self.measure = self.work / "measure"
        self.wake = self.work / "wake"
        for program in (self.measure, self.wake):
            source = TREE / "bench/harness" / f"{program.name}.c"
            subprocess.run(["cc", "-O2", "-static", "-o", program, source], check=True)

    def close(self):
        if self.has_sid:
            subprocess.run(["umount", SID / "mnt", SID / "proc"], check=False, stderr=subprocess.DEVNULL)
        shutil.rmtree(self.work, ignore_errors=True)

    @staticmethod
    def find_pythons():
        path = TREE / "build/pythons.txt"
        if not path.exists():
            subprocess.run(["make", "-s", "-C", TREE, "pythons"], check=True, stdout=sys.stderr)
        return [Python(line) for line in path.read_text().splitlines()]

    def python(self, minor):
        """The first interpreter of that minor version, or None."""
        return next((p for p in self.pythons if p.minor == minor), None)

    def inside(self, path, chroot):
        """A file of the work directory, as seen by a process in the sid tree or outside of it."""
        return "/mnt/" + str(path.relative_to(self.work)) if chroot else str(path)

    def install_tools(self):
        """Installs one package at a time: a package that fails does not affect the others."""
        if not (VENV / "bin/python").exists():
            say(f"bench: creating {VENV}")
            VENV.parent.mkdir(parents=True, exist_ok=True)
            subprocess.run([sys.executable, "-m", "venv", VENV], check=True)
        for package in PACKAGES:
            if not (VENV / "bin" / package.removesuffix("-dist")).exists():
                say(f"bench: installing {package}")
                done = subprocess.run([VENV / "bin/pip", "install", "--quiet", "--disable-pip-version-check", package])
                if done.returncode:
                    say(f"bench: {package} could not be installed; continuing without it")
        if self.has_sid and (VENV / "bin/austin").exists():
            shutil.copy(VENV / "bin/austin", self.work / "austin")


def first_line(*command):
    done = subprocess.run([str(c) for c in command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    return done.stdout.strip().splitlines()[0] if done.returncode == 0 and done.stdout.strip() else "?"


def git_state():
    commit = first_line("git", "-C", TREE, "rev-parse", "--short", "HEAD")
    dirty = subprocess.run(["git", "-C", TREE, "status", "--porcelain", "src"], stdout=subprocess.PIPE).stdout
    return commit + (" with changes" if dirty else "")


def machine(env):
    """What the figures depend on, as (name, value)."""
    cpu = next((line.split(":")[1].strip() for line in open("/proc/cpuinfo") if line.startswith("model name")), "?")
    memory = int(next(line.split()[1] for line in open("/proc/meminfo") if line.startswith("MemTotal")))
    packages = first_line(VENV / "bin/python", "-c", (
        "import importlib.metadata as m\n"
        "print(', '.join(f\"{d.metadata['Name']} {d.version}\" for d in m.distributions()"
        f" if d.metadata['Name'] in {PACKAGES!r}))"))
    load = os.getloadavg()
    busy = "" if load[0] < 0.5 else ": **not idle, so do not trust these figures**"
    return [("CPU", f"{cpu}, {len(os.sched_getaffinity(0))} cores"), ("Memory", f"{memory / 2**20:.1f} GiB"),
            ("Kernel", platform.release()), ("Load before", " ".join(f"{x:.2f}" for x in load) + busy),
            ("spyglass", f"{first_line(SPYGLASS, '--version')}, commit {git_state()}, {SPYGLASS.stat().st_size} bytes"),
            ("Others", packages + "".join(f", CPython {p.version}'s profiling.sampling" for p in env.pythons
                                          if p.minor == "3.15"))]
