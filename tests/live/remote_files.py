"""A FUSE file system that stops answering: tests/targets/fuse_server.c."""
import os
import pathlib
import signal
import subprocess

import pytest
from program import SPYGLASS, TARGETS, WAIT, finish, start

WORK = """
import select

def remote_block(library, fd):
    library.remote_wait(fd)

def remote_work(speak=lambda: None):
    speak()
    while not select.select([0], [], [], 0)[0]:
        sum(range(300))
    __import__("os").read(0, 1)

def remote_rest():
    while not select.select([0], [], [], 0)[0]:
        sum(range(300))
"""
LIBRARY = """
#include <unistd.h>
int remote_wait(int fd) { char c; return (int)read(fd, &c, 1) + 1; }
"""


class Remote:
    """The file system. `path` is its directory as the target sees it."""

    def __init__(self, place, path):
        self.mounted, self.path = place / "mounted", path + "/mounted"
        (place / "source" / "package").mkdir(parents=True)
        self.mounted.mkdir()
        (place / "source" / "package" / "__init__.py").touch()
        (place / "source" / "package" / "work.py").write_text(WORK)
        (place / "source" / "data").write_bytes(bytes(4096))
        (place / "library.c").write_text(LIBRARY)
        for name in ("libremote.so", "libmapped.so"):
            subprocess.run(["gcc", "-g", "-O1", "-shared", "-fPIC", "-o", place / "source" / name, place / "library.c"], check=True)
        subprocess.run(["gcc", "-O1", "-o", place / "fuse_server", TARGETS / "fuse_server.c"], check=True)
        self.server = subprocess.Popen([place / "fuse_server", place / "source", self.mounted], stdin=subprocess.PIPE,
                                       stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True)
        if self.server.stdout.readline() != b"ready\n":
            pytest.skip("no FUSE here: %s" % self.server.communicate()[1].decode().strip())

    def tell(self, command):
        self.server.stdin.write(command + b"\n")
        self.server.stdin.flush()
        assert self.server.stdout.readline() == command + b"\n"

    def die(self, how, forget=True):
        """`stopped`: it takes no request, and a process that waits can be killed. `silent`: it takes requests and does not answer
        them, and a process that waits cannot be killed. `forget`: the kernel has no page of its files in memory."""
        if forget:
            self.tell(b"forget")
        if how == "silent":
            self.tell(b"silent")
        else:
            os.kill(self.server.pid, signal.SIGSTOP)
            while os.waitid(os.P_PID, self.server.pid, os.WSTOPPED | os.WNOWAIT).si_code != os.CLD_STOPPED:
                pass

    def end(self):
        """Whoever waits for the file system gets an error."""
        self.server.kill()
        self.server.wait()
        subprocess.run(["umount", "--lazy", self.mounted], stderr=subprocess.DEVNULL)

    def finish(self, process):
        """The Result of a command. If it hangs, ends the file system first: else nobody could end the command."""
        try:
            return finish(process)
        except subprocess.TimeoutExpired:
            self.end()
            process.kill()
            process.communicate()
            raise AssertionError("%s hangs" % " ".join(map(str, process.args)))

    def run(self, *args, **options):
        return self.finish(start(*args, **options))
