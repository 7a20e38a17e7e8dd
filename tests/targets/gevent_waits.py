"""Greenlets of gevent that sleep, wait for a lock and read a socket. Needs the package gevent."""
import os

import gevent
from gevent import monkey, socket

monkey.patch_all()

import threading  # noqa: E402

import truth  # noqa: E402

LOCK = threading.Lock()
OURS, THEIRS = socket.socketpair()


def naps():
    gevent.sleep(5400.0)


def locks():
    with LOCK:
        pass


def reads():
    OURS.recv(1)


if __name__ == "__main__":
    LOCK.acquire()
    jobs = [gevent.spawn(job) for job in [naps, reads] + [locks] * 7]
    for i, job in enumerate(jobs[2:]):
        job.name = "locks-%d" % i
    gevent.sleep(0)
    truth.say(pid=os.getpid(), fd=OURS.fileno(), lock=id(LOCK))
    gevent.sleep(100000)
