"""Starts and ends targets and profilers. No process that it starts outlives the benchmark."""
import os
import pathlib
import select
import signal
import struct
import subprocess
import time

running = set()  # Popen objects, each the leader of its own group


def start(command, **options):
    process = subprocess.Popen([str(c) for c in command], start_new_session=True, stdin=subprocess.DEVNULL, **options)
    running.add(process)
    return process


def kill(process):
    """Kills the whole process group, and nothing else: the group ID is ours until we have waited for its leader."""
    if process.poll() is None:
        try:
            os.killpg(process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        process.wait()
    running.discard(process)


def kill_all():
    for process in list(running):
        kill(process)


class Target:
    """A program of bench/targets; `with Target(...) as t` returns it once it is ready."""

    def __init__(self, env, python, program, *args):
        self.env, self.python, self.name = env, python, program
        self.state = env.work / f"state-{time.monotonic_ns()}"
        self.state.write_bytes(bytes(64 * 8))
        inside = [env.inside(env.work / "targets" / f"{program}.py", python.chroot),
                  env.inside(self.state, python.chroot)]
        self.run = Measured(env, [*python.command, "-B", *inside, *args])
        self.pid = self.run.pid

    def __enter__(self):
        deadline = time.monotonic() + 60
        while not self.slot(0):
            if not self.run.alive() or time.monotonic() > deadline:
                said = self.run.end(0).text
                raise RuntimeError(f"the target {self.name} did not start on {self.python.label}: {said}")
            time.sleep(0.02)
        return self

    def __exit__(self, *_):
        self.run.end(0)
        self.state.unlink()

    def slots(self):
        return read_slots(self.state)

    def slot(self, i):
        return self.slots()[i]


def read_slots(state):
    return struct.unpack("64d", state.read_bytes())


class Measured:
    """A program run by measure.c. `pid` is valid while it runs; `wall`, `cpu` (seconds), `peak` (KB) and `status` after
    end(). out() returns its standard output and standard error."""

    def __init__(self, env, command, prefix=()):
        read, write = os.pipe()
        self.report = os.fdopen(read, "r")
        self.said = env.work / f"said-{time.monotonic_ns()}"
        with open(self.said, "wb") as said:
            self.process = start([*prefix, env.measure, write, *command], stdout=said, stderr=said, pass_fds=[write])
        os.close(write)
        line = self.report.readline().split()
        self.pid = int(line[1]) if line else None
        self.status = None

    def alive(self):
        return not select.select([self.report], [], [], 0)[0]

    def out(self):
        return self.said.read_text(errors="replace")

    def wait_for(self, ready, seconds):
        """Waits until ready() is true; returns False if the program exits or the time is over first."""
        deadline = time.monotonic() + seconds
        while not ready():
            if not self.alive() or time.monotonic() > deadline:
                return False
            time.sleep(0.005)
        return True

    def interrupt(self):
        try:
            os.kill(self.pid, signal.SIGINT)
        except ProcessLookupError:
            pass

    def end(self, seconds):
        """Waits for the program to exit; kills it on a timeout. Returns self."""
        ended = select.select([self.report], [], [], seconds)[0]
        line = self.report.readline().split() if ended else []
        kill(self.process)
        self.report.close()
        if line:
            self.wall, self.cpu = int(line[1]) / 1e9, (int(line[2]) + int(line[3])) / 1e6
            self.peak, self.status = int(line[4]), int(line[5])
        else:
            self.wall, self.cpu, self.peak, self.status = seconds, 0.0, 0, -1
        self.text = self.out()
        self.said.unlink()
        return self


def on_cpu(pid):
    """CPU seconds of all threads of a process, to the nanosecond, or None if it is gone."""
    total = 0
    try:
        for task in pathlib.Path(f"/proc/{pid}/task").iterdir():
            total += int((task / "schedstat").read_text().split()[0])
    except (OSError, ValueError):
        return None
    return total / 1e9
