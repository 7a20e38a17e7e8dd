"""What the kernel reports about a process: states, run counts, CPU time, descendants, file descriptors."""
import os
import pathlib
import re
import time

from program import WAIT


def stat(pid):
    """The fields of /proc/PID/stat from the state on, or None if there is no such process."""
    try:
        return pathlib.Path("/proc/%d/stat" % pid).read_text(errors="replace").rsplit(")", 1)[1].split()
    except (FileNotFoundError, ProcessLookupError):
        return None


def is_known_as(pid, inner):
    """True if the process has the PID `inner` in its own PID namespace."""
    try:
        status = pathlib.Path("/proc/%d/status" % pid).read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False
    return bool(re.search(r"^NSpid:.*\b%d$" % inner, status, re.M))


def process_state(pid):
    """The state letter in /proc/PID/stat: R, S, T, t or Z. None if there is no such process."""
    fields = stat(pid)
    return fields and fields[0]


def task_runs(pid):
    """{tid: (state, run count)} of all threads. The run count increases each time the thread gets a CPU."""
    runs = {}
    for task in pathlib.Path("/proc/%d/task" % pid).iterdir():
        try:
            state = (task / "stat").read_text().rsplit(")", 1)[1].split()[0]
            runs[task.name] = state, (task / "schedstat").read_text().split()[2]
        except (FileNotFoundError, ProcessLookupError):
            pass
    return runs


def task_states(pid):
    """The state letters of all threads, as one string."""
    return "".join(state for state, _ in task_runs(pid).values())


def at_rest(pid):
    """Waits until every thread blocks: no thread is runnable, and two reads give the same run counts. Returns the PID.

    A target may print before it blocks, and a thread that `dump` paused must re-enter its system call. If no thread
    is runnable, none can wake another.
    """
    end = time.monotonic() + WAIT
    before = None
    while True:
        now = task_runs(pid)
        assert now, "process %d has exited" % pid
        if now == before and all(state in "STZ" for state, _ in now.values()):
            return pid
        assert time.monotonic() < end, "process %d does not come to rest: %r" % (pid, now)
        before = now
        time.sleep(0.01)


def cpu_seconds(pid):
    """User and system time of the process so far, in the kernel's ticks of 10 ms."""
    fields = stat(pid)
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK") if fields else 0.0


def run_seconds(pid):
    """The CPU time of the main thread, exact, from schedstat."""
    return int(pathlib.Path("/proc/%d/schedstat" % pid).read_text().split()[0]) / 1e9


def age(pid):
    """Seconds since the process started."""
    up = float(pathlib.Path("/proc/uptime").read_text().split()[0])
    return up - int(stat(pid)[19]) / os.sysconf("SC_CLK_TCK")


def parents():
    """{pid: parent's pid} of all processes."""
    found = {}
    for entry in os.listdir("/proc"):
        fields = stat(int(entry)) if entry.isdigit() else None
        if fields:
            found[int(entry)] = int(fields[1])
    return found


def descendants(root):
    """The PIDs of all current descendants of `root`."""
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


def command_line(pid):
    return pathlib.Path("/proc/%d/cmdline" % pid).read_text().replace("\0", " ").split()


def descriptors(pid):
    return len(os.listdir("/proc/%d/fd" % pid))


def resident(pid):
    """The resident memory in bytes."""
    return int(pathlib.Path("/proc/%d/statm" % pid).read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
