"""Parses profiles of process trees by process, and provides environments that force other ways to find children."""
import re
import subprocess

import pytest
from program import TARGETS, UNATTRIBUTED

# How spyglass learns of new processes: from the process connector; from the newest PID; where /proc/loadavg is emulated
# (as by lxcfs), from a listing of /proc; and that without the kernel's lists of children.
ENVIRONMENTS = {
    "connector": "exec",
    "newest-pid": "exec %(deny)s EPERM:socket --",
    "proc-listing": "mount --bind %(fake)s /proc/loadavg && exec %(deny)s EPERM:socket --",
    "no-children-files": "mount --bind %(fake)s /proc/loadavg && exec %(deny)s EPERM:socket EACCES:/children --",
}


@pytest.fixture(scope="session")
def environments(tmp_path_factory):
    """environments(name) -> the command that runs a program in one of these environments."""
    place = tmp_path_factory.mktemp("environments")
    (place / "loadavg").write_text("0.00 0.00 0.00 1/1 1\n")
    subprocess.run(["gcc", "-O1", "-o", place / "deny", TARGETS / "deny.c"], check=True)
    names = {"deny": place / "deny", "fake": place / "loadavg"}
    return lambda environment: ["unshare", "--mount", "sh", "-c", ENVIRONMENTS[environment] % names + ' "$@"', "sh"]


PROCESS = re.compile(r'process (\d+):"(.*?)"(?:;|$)', re.S)


def read_tree(text):
    """A raw profile of --subprocesses as a list of (ancestors as [(pid, command)], functions, count)."""
    rows = []
    for line in text.splitlines():
        stack, _, count = line.rpartition(" ")
        if stack == UNATTRIBUTED or count == "0":  # a remark
            continue
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
    """pid -> PIDs of its ancestors and itself, oldest first."""
    return {chain[-1][0]: [pid for pid, _ in chain] for chain, _, _ in rows}
