"""Memory that is too short for the symbols of a program costs names, never samples."""
import re
import resource
import subprocess

import pytest
from profiles import record_enough, seen
from program import SANITIZED, run
from pythons import DEBIAN

FUNCTIONS = 15000
WORK = """
import ctypes, json, select
spin = ctypes.CDLL(%r).spin
print(json.dumps(0), flush=True)
def works():
    while not select.select([0], [], [], 0)[0]:
        spin(1000000)
works()
"""
MEGABYTES = range(6, 13)
KILOBYTES = range(4500, 12000, 128)  # a helper that runs out of memory dies at some of these: it depends on the files of the machine


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    """A library with much debug info."""
    place = tmp_path_factory.mktemp("library")
    functions = ["struct s%d { int a%d; struct s%d *b%d; };\nint f%d(struct s%d *p)\n{\n return p->a%d\n + %d;\n}" % ((i,) * 8)
                 for i in range(FUNCTIONS)]
    spin = "int spin(int n) { volatile int sum = 0; for (int i = 0; i < n; i++) sum += i; return sum; }"
    (place / "many.c").write_text("\n".join([*functions, spin, ""]))
    subprocess.run(["gcc", "-g", "-O0", "-shared", "-fPIC", "-o", place / "libmany.so", place / "many.c"], check=True)
    return place / "libmany.so"


def limited(kilobytes):
    return lambda: resource.setrlimit(resource.RLIMIT_AS, (kilobytes << 10, kilobytes << 10))


@pytest.mark.skipif(SANITIZED, reason="sanitizers need terabytes of address space")
def test_short_memory(launch, library, tmp_path):
    target = launch([*DEBIAN.command, "-c", WORK % str(library)])
    for megabytes in MEGABYTES:
        _, result = record_enough(seen("works"), "--native", "--pid", target.pid, "-f", "raw", out=tmp_path / "profile.txt",
                                  preexec_fn=limited(megabytes << 10))
        dump = run("dump", "--native", "--pid", target.pid, preexec_fn=limited(megabytes << 10)).check()
        assert "works" in dump.out and "libdw" not in result.err + dump.err, (result, dump)
    notes = (run("dump", "--native", "--pid", target.pid, preexec_fn=limited(kilobytes)).err for kilobytes in KILOBYTES)
    assert any(re.search("could not read the symbols of .*: some of its names and lines are missing", note) for note in notes)
    _, result = record_enough(seen("works", "spin"), "--native", "--pid", target.pid, "-f", "raw", out=tmp_path / "profile.txt")
    assert "missing" not in result.err
