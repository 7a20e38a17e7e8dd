"""Starts a Python process and one that is not Python, for `spyglass dump --subprocesses`."""
import subprocess
import sys
import time


def work():
    time.sleep(3600)


if sys.argv[1:] == ["worker"]:
    work()
else:
    subprocess.Popen(["sleep", "3600"])
    subprocess.run([sys.executable, sys.argv[0], "worker"])
