"""The profilers: how to run each, what it reports about itself, and how to parse its output.

Each runs at the requested rate, FULL being more than any can reach, and is ended with Ctrl-C, so that all are
treated alike; py-spy's own duration counts samples, not seconds."""
import collections
import re
import time

from . import env as environment
from . import procs, stacks

FULL = 1_000_000
Run = collections.namedtuple("Run", "samples errors seconds cpu peak rate_held share window failure said readings")


class Tool:
    """A profiler. `key` is its name in the results, `holds` says whether it stops the target."""

    label = key = family = ""
    holds = True
    suffix = "raw"

    def __init__(self, env):
        self.env = env

    def usable(self, python):
        return True

    def command(self, target, rate, out, threads, form):
        raise NotImplementedError

    def started(self, run):
        return "Sampling process" in run.out()

    def counted(self, text):
        """(samples without errors, errors, seconds or None) from its output, or None."""
        raise NotImplementedError

    def stacks(self, out):
        return stacks.from_raw(out.read_text(errors="replace"))


class Spyglass(Tool):
    key, label, family = "spyglass", "spyglass", "spyglass"
    flags = ()

    def command(self, target, rate, out, threads, form):
        return [self.program(), "record", "--pid", target.pid, "-r", rate, "-f", form, "-o", out, *self.flags]

    def program(self):
        return environment.SPYGLASS

    def counted(self, text):
        match = re.search(r"Samples: (\d+) Errors: (\d+)", text)
        over = re.search(r" over ([\d.]+) s", text)
        return match and (int(match[1]), int(match[2]), float(over[1]) if over else None)


class SpyglassNonblocking(Spyglass):
    key, label, holds = "spyglass-nb", "spyglass --nonblocking", False
    flags = ("--nonblocking",)


class PySpy(Spyglass):
    key, label, family = "py-spy", "py-spy", "py-spy"

    def program(self):
        return environment.VENV / "bin/py-spy"

    def usable(self, python):
        return self.program().exists()


class PySpyNonblocking(PySpy):
    key, label, holds = "py-spy-nb", "py-spy --nonblocking", False
    flags = ("--nonblocking",)


class Austin(Tool):
    """Runs in the sid tree for a target that runs there; elsewhere through the sid tree's loader, where our libc is
    too old."""

    key, label, family, holds, suffix = "austin", "austin", "austin", False, "mojo"

    def usable(self, python):
        return (environment.VENV / "bin/austin").exists() and self.env.has_sid

    def program(self, chroot):
        sid = environment.SID
        if chroot:
            return ["chroot", sid, "/mnt/austin"]
        return [sid / "lib64/ld-linux-x86-64.so.2", "--library-path", sid / "usr/lib/x86_64-linux-gnu",
                environment.VENV / "bin/austin"]

    def command(self, target, rate, out, threads, form):
        chroot = target.python.chroot
        return [*self.program(chroot), "-i", max(1, 1_000_000 // rate), "-o", self.env.inside(out, chroot), "-p",
                target.pid]

    def started(self, run):
        return "version:" in run.out()

    def counted(self, text):
        text = re.sub(r"\x1b\[[\d;]*m", "", text)
        match = re.search(r"Error rate[ .]*(\d+)/(\d+)", text)
        over = re.search(r"Total duration[ .]*([\d.]+)s", text)
        return match and (int(match[2]) - int(match[1]), int(match[1]), float(over[1]) if over else None)

    def stacks(self, out):
        return stacks.from_mojo(out.read_bytes())


class Cpython(Tool):
    """CPython's own profiler, which reads only its own version. By default it samples only the main thread."""

    key, label, family, holds, suffix = "cpython", "cpython sampling", "cpython", False, "collapsed"
    flags = ()

    def usable(self, python):
        return python.minor == "3.15" and python.chroot and self.env.has_sid

    def command(self, target, rate, out, threads, form):
        return [*target.python.command, "-m", "profiling.sampling", "attach", "-r", rate, "--no-gc",
                "--flamegraph" if form == "flamegraph" else "--collapsed", "-o", self.env.inside(out, True),
                *(["-a"] if threads else []), *self.flags, target.pid]

    def started(self, run):
        """It prints nothing when it starts sampling, so wait until it has mapped the module that reads the target."""
        try:
            with open(f"/proc/{run.pid}/maps") as maps:
                there = "_remote_debugging" in maps.read()
        except OSError:
            return False
        if there:
            time.sleep(0.15)
        return there

    def counted(self, text):
        match = re.search(r"Captured ([\d,]+) samples? in ([\d.]+) seconds", text)
        if not match:
            return None
        rate = re.search(r"Error rate: ([\d.]+)", text)
        total = int(match[1].replace(",", ""))
        errors = round(total * float(rate[1]) / 100) if rate else 0
        return total - errors, errors, float(match[2])

    def stacks(self, out):
        return stacks.from_collapsed(out.read_text(errors="replace"))


class CpythonBlocking(Cpython):
    key, label, holds = "cpython-b", "cpython sampling --blocking", True
    flags = ("--blocking",)


class WakeUp(Spyglass):
    """Not a profiler: the cost of waking up on the target's CPU and doing nothing there (wake.c)."""

    key, label, family = "wake-up", "a bare wake-up", "wake-up"

    def command(self, target, rate, out, threads, form):
        return [self.env.wake, target.pid, rate]


CLASSES = (Spyglass, SpyglassNonblocking, PySpy, PySpyNonblocking, Austin, Cpython, CpythonBlocking)


def make(env):
    return {c.key: c(env) for c in CLASSES}


def failed(run, why):
    lines = [line for line in re.sub(r"\x1b\[[\d;]*m", "", run.text).splitlines() if line.strip()]
    telling = [line for line in lines if re.search(r"cannot|error|fail|not supported|denied", line, re.I)]
    word = (telling or lines[-1:] or ["no word"])[0].strip()
    return Run(0, 0, 0.0, 0.0, run.peak, None, None, None, f"{why}: {word}", run.text, 0)


def run_tool(tool, target, rate, seconds, out=None, threads=False, form="raw", settle=0.0, watch=None, patience=30,
             during=None):
    """Runs a profiler on a target for `seconds`, or until during() returns. watch() is called at both ends of the
    window; the Run's window has its two results and the time between. share is the fraction of a CPU that the profiler used in the window."""
    out = out or target.env.work / f"out.{tool.suffix}"
    out.unlink(missing_ok=True)
    run = procs.Measured(target.env, tool.command(target, rate, out, threads, form))
    if not run.wait_for(lambda: tool.started(run), 15):
        run.interrupt()
        return failed(run.end(2), "did not start")
    begun = time.monotonic()
    time.sleep(settle)
    first = (time.monotonic(), procs.on_cpu(run.pid), watch and watch())
    during() if during else time.sleep(seconds)
    last = (time.monotonic(), procs.on_cpu(run.pid), watch and watch())
    ended = time.monotonic()
    run.interrupt()
    run.end(patience)
    counted = tool.counted(run.text)
    if counted is None:  # the status does not help: austin exits with 254 on Ctrl-C
        return failed(run, f"ended with {run.status}")
    samples, errors, lasted = counted
    span = last[0] - first[0]
    share = (last[1] - first[1]) / span if first[1] is not None and last[1] is not None else None
    held = re.search(r"Sampled ([\d.e+]+) ", run.text)
    read = re.search(r"read (\d+) stacks", run.text)  # the others report no stack twice
    return Run(samples, errors, lasted or ended - begun, run.cpu, run.peak, float(held[1]) if held else None, share,
               watch and (first[2], last[2], span), None, run.text, int(read[1]) if read else samples)
