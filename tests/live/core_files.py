"""Core files: written by gdb's gcore while the process keeps running, or by the kernel when the process crashes."""
import json
import pathlib
import re
import resource
import shutil
import subprocess

import pytest
from processes import at_rest
from program import run

PATTERN = pathlib.Path("/proc/sys/kernel/core_pattern").read_text().strip()
by_gcore = pytest.mark.skipif(not shutil.which("gcore"), reason="gcore (of gdb) is not installed")
by_kernel = pytest.mark.skipif(
    "/" in PATTERN or "|" in PATTERN or "%" in PATTERN,
    reason="the kernel does not put core files into the working directory: core_pattern is %r" % PATTERN)


def gcore(target, place):
    """Lets gdb write a core file of a running process. Sets target.lossy if gdb reports lost memory."""
    done = subprocess.run(["gcore", "-o", str(place / "core"), str(at_rest(target.pid))], stdin=subprocess.DEVNULL,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, universal_newlines=True)
    core = place / ("core.%d" % target.pid)
    assert "Saved corefile" in done.stdout and core.exists(), done.stdout
    lost = re.findall("Memory read failed for corefile section, .* at (0x[0-9a-f]+)", done.stdout)
    target.lossy = set(lost) - {"0xffffffffff600000"}  # the vsyscall page, which nobody can read
    return core


def wants_core():
    """For preexec_fn."""
    resource.setrlimit(resource.RLIMIT_CORE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))


def found_core(place):
    """The core file that the kernel wrote into a directory: core, or core.PID."""
    core, = place.glob(PATTERN + "*")
    return core


def roots(python):
    return ["--root", python.root] if python.kind == "chroot" else []


def dump_core_json(core, *args):
    """The threads without the "signal" field, which only core files have, and the values of that field."""
    threads = json.loads(run("dump", "--core", core, "--json", *args).check().out)
    return threads, [thread.pop("signal") for thread in threads]
