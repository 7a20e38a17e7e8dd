"""What the tests of process trees share: the truth about a tree from /proc, and profiles read back by process."""
import os
import pathlib
import re
import subprocess

import pytest
from conftest import TARGETS

# How births are noticed: told by the kernel; by the newest pid; where that is made up (as lxcfs does), by a listing;
# without the kernel's lists of children.
WORLDS = {
    "told": "exec",
    "newest": "exec %(deny)s EPERM:socket --",
    "listed": "mount --bind %(fake)s /proc/loadavg && exec %(deny)s EPERM:socket --",
    "no-lists": "mount --bind %(fake)s /proc/loadavg && exec %(deny)s EPERM:socket EACCES:/children --",
}


@pytest.fixture(scope="session")
def worlds(tmp_path_factory):
    """The command that runs a program in one of these."""
    place = tmp_path_factory.mktemp("worlds")
    (place / "loadavg").write_text("0.00 0.00 0.00 1/1 1\n")
    subprocess.run(["gcc", "-O1", "-o", place / "deny", TARGETS / "deny.c"], check=True)
    names = {"deny": place / "deny", "fake": place / "loadavg"}
    return lambda world: ["unshare", "--mount", "sh", "-c", WORLDS[world] % names + ' "$@"', "sh"]


def stat(pid):
    """The fields of /proc/PID/stat from the state on, or None."""
    try:
        return pathlib.Path("/proc/%d/stat" % pid).read_text().rsplit(")", 1)[1].split()
    except (FileNotFoundError, ProcessLookupError):
        return None


def parents():
    """pid -> parent of every process there is."""
    found = {}
    for entry in os.listdir("/proc"):
        fields = stat(int(entry)) if entry.isdigit() else None
        if fields:
            found[int(entry)] = int(fields[1])
    return found


def descendants(root):
    """The pids below `root`, as the kernel has them now."""
    up = parents()
    below = set()
    while True:
        more = {pid for pid, parent in up.items() if parent == root or parent in below} - below
        if not more:
            return below
        below |= more


def exe(pid):
    try:
        return os.readlink("/proc/%d/exe" % pid)
    except OSError:
        return ""


def is_python(pid):
    return os.path.basename(exe(pid)).startswith("python")


def cpu_seconds(pid):
    fields = stat(pid)
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK") if fields else 0.0


def descriptors(pid):
    return len(os.listdir("/proc/%d/fd" % pid))


def resident(pid):
    """Bytes."""
    return int(pathlib.Path("/proc/%d/statm" % pid).read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


PROCESS = re.compile(r'process (\d+):"(.*?)"(?:;|$)', re.S)


def read_tree(text):
    """A raw profile of --subprocesses: a list of (line of descent as [(pid, command)], functions, count)."""
    rows = []
    for line in text.splitlines():
        stack, _, count = line.rpartition(" ")
        chain = []
        while True:
            match = PROCESS.match(stack)
            if not match:
                break
            chain.append((int(match.group(1)), match.group(2)))
            stack = stack[match.end():]
        rows.append((chain, [frame.rpartition(" (")[0] for frame in stack.split(";")], int(count)))
    return rows


def functions_of(rows):
    """pid -> names of the functions seen in it."""
    found = {}
    for chain, functions, _ in rows:
        found.setdefault(chain[-1][0], set()).update(functions)
    return found


def chains_of(rows):
    """pid -> pids of its line of descent, eldest first."""
    return {chain[-1][0]: [pid for pid, _ in chain] for chain, _, _ in rows}
