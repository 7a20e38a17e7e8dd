"""Starts short-lived children: twenty at the first byte, N more at the second. `python short_lived_processes.py N`."""
import os
import subprocess
import sys
import time

import truth


def lives():
    end = time.time() + 0.03
    while time.time() < end:
        sum(range(300))
    os._exit(0)


def run_some(n):
    """Starts pairs: a fork of this Python, and in turn another program or a new Python."""
    pids = []
    for i in range(n // 2):
        pid = os.fork()
        if pid == 0:
            lives()
        command = [sys.executable, "-S", "-c", "pass"] if i % 2 else ["sleep", "0.01"]
        other = subprocess.Popen(command)
        pids += [pid, other.pid]
        os.waitpid(pid, 0)
        other.wait()
    return pids


if __name__ == "__main__":
    truth.say(pid=os.getpid())
    for n in (20, int(sys.argv[1])):
        os.read(0, 1)
        truth.say(pids=run_some(n))
    while True:
        time.sleep(1000)
