"""A parent, two Python children (one of them with a child) and two children that are not Python."""
import os
import subprocess
import sys

import truth


def child_rests():
    truth.park()


def parent_rests():
    truth.park()


def start_child(*args):
    process = subprocess.Popen([sys.executable, __file__] + list(args), stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    return process, process.stdout.readline().decode()


if __name__ == "__main__":
    role = sys.argv[1]
    if role == "parent":
        kept = [start_child("child"), start_child("middle")]
        others = [subprocess.Popen(command, stdin=subprocess.PIPE) for command in (["sleep", "1000"], ["tail", "-f"])]
        truth.start(1, extra={"children": [k[1] for k in kept], "others": [o.pid for o in others]})
        parent_rests()
    elif role == "middle":
        kept = [start_child("child")]
        truth.start(1, extra={"children": [k[1] for k in kept]})
        child_rests()
    else:
        truth.start(1)
        child_rests()
