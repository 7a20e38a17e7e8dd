"""A program with a worker and a stand-in for a profiler, which has a child too: `python profiler_stand_in.py DIR COMMAND...`.

COMMAND is a Python under another name, or with the arguments that start a profiler. It runs DIR/pystack or the
module of that name, which this program writes.
"""
import os
import subprocess
import sys
import time

import truth

STAND_IN = """
import os, sys, time
if os.fork() == 0:
    while True:
        time.sleep(1000)
os.write(1, b"ready\\n")
while True:
    time.sleep(1000)
"""


def start(command, cwd):
    process = subprocess.Popen(command, cwd=cwd, stdout=subprocess.PIPE, stdin=subprocess.PIPE)
    process.stdout.readline()
    return process


if __name__ == "__main__":
    truth.say(pid=os.getpid())
    os.read(0, 1)
    cwd, command = sys.argv[1], sys.argv[2:]
    if "-m" in command or os.path.basename(command[-1]) == "pystack" and len(command) > 1:
        name = "pystack.py" if "-m" in command else "pystack"
        with open(os.path.join(cwd, name), "w") as f:
            f.write(STAND_IN)
        profiler = start(command, cwd)
    else:
        profiler = start(command + ["-c", STAND_IN], cwd)
    worker = start([sys.executable, "-c", "import os, time; os.write(1, b'ready\\n')\nwhile True: time.sleep(1000)"], cwd)
    truth.say(profiler=profiler.pid, worker=worker.pid)
    while True:
        time.sleep(1000)
