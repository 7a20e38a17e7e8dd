"""A program that orphans its children: `python daemons.py HOW`. It prints its PID, and acts at each byte that it reads.

orphan: a child that has a child; at the second byte, the process in between exits.
double, shell, session: a daemon whose parent exits at once, after two forks, a shell, or a shell and setsid(1).
exec: a child that executes the program in the arguments at the second byte. exec-self: this process does, at the
first byte.
"""
import json
import os
import signal
import subprocess
import sys
import time

import truth


def works():
    end = time.time() + 0.05
    while time.time() < end:
        sum(range(300))


def before_it_lost_its_parent(parent):
    while os.getppid() == parent:
        works()


def after_it_lost_its_parent():
    while True:
        works()


def daemon_works():
    while True:
        works()


def first_works():
    while not gone_on():
        works()


def rests():
    while True:
        time.sleep(1000)


def say_file(path, value):
    with open(path + ".tmp", "w") as f:
        f.write(str(value))
    os.rename(path + ".tmp", path)


def wait_file(path):
    while not os.path.exists(path):
        time.sleep(0.005)
    with open(path) as f:
        return int(f.read())


HERE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "daemons-%d")


def gone_on():
    return os.path.exists(os.environ["GO_ON"])


def orphan():
    place = HERE % os.getpid()
    middle = os.fork()
    if middle == 0:
        child = os.fork()
        if child == 0:
            before_it_lost_its_parent(os.getppid())
            after_it_lost_its_parent()
        say_file(place, child)
        rests()
    truth.say(middle=middle, child=wait_file(place))
    os.unlink(place)
    os.read(0, 1)
    os.kill(middle, signal.SIGKILL)
    os.waitpid(middle, 0)
    truth.say(done=True)
    rests()


def double():
    place = HERE % os.getpid()
    middle = os.fork()
    if middle == 0:
        os.setsid()
        if os.fork() == 0:
            say_file(place, os.getpid())
            daemon_works()
        os._exit(0)
    os.waitpid(middle, 0)
    truth.say(daemon=wait_file(place))
    os.unlink(place)
    rests()


def by_shell(before):
    place = HERE % os.getpid()
    command = "%s '%s' '%s' daemon '%s' &" % (before, sys.executable, os.path.abspath(__file__), place)
    subprocess.call(command, shell=True)
    truth.say(daemon=wait_file(place))
    os.unlink(place)
    rests()


def become(args):
    place = HERE % os.getpid()
    os.environ["GO_ON"] = place
    child = os.fork()
    if child == 0:
        first_works()
        os.execv(args[0], args)
    truth.say(child=child)
    os.read(0, 1)
    say_file(place, 1)
    truth.say(done=True)
    os.waitpid(child, 0)


def become_self(args):
    import threading
    place = os.environ["GO_ON"] = HERE % os.getpid()
    reader = threading.Thread(target=lambda: (os.read(0, 1), say_file(place, 1)))
    reader.start()
    first_works()
    reader.join()
    os.execv(args[0], args)


if __name__ == "__main__":
    how = sys.argv[1]
    if how == "daemon":
        say_file(sys.argv[2], os.getpid())
        daemon_works()
    truth.say(pid=os.getpid())
    if how == "exec-self":
        become_self(sys.argv[2:])
    os.read(0, 1)
    if how == "exec":
        become(sys.argv[2:])
    elif how == "orphan":
        orphan()
    elif how == "double":
        double()
    else:
        by_shell("setsid" if how == "session" else "")
