"""A thread for each way to wait in the kernel: `python kernel_waits.py`. The name of a thread is that of its function.

Prints what each of them waits for. The main thread reads standard input.
"""
import fcntl
import os
import select
import socket
import subprocess
import sys
import tempfile
import threading
import time

import truth

CHILD = "import sys; sys.stdin.read()"
LOCKS = "import fcntl, sys; f = open(sys.argv[1]); fcntl.flock(f, fcntl.LOCK_EX); print('locked'); sys.stdout.flush(); sys.stdin.read()"


def child(code, *args):
    return subprocess.Popen([sys.executable, "-c", code] + list(args), stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                            close_fds=True)


def port(s):
    return "127.0.0.1:%d" % s.getsockname()[1]


server = socket.socket()
server.bind(("127.0.0.1", 0))
server.listen(5)
client = socket.create_connection(server.getsockname())
accepted = server.accept()[0]
left, right = socket.socketpair()
own_pipe, full_pipe = os.pipe(), os.pipe()
writer, parent, locker = child(CHILD), child(CHILD), None
path = os.path.join(tempfile.mkdtemp(), "lock \x1b[31m")
open(path, "w").close()
locker = child(LOCKS, path)
locker.stdout.readline()
fcntl.fcntl(full_pipe[1], fcntl.F_SETFL, os.O_NONBLOCK)
try:
    while True:
        os.write(full_pipe[1], b"x" * 4096)
except OSError:
    fcntl.fcntl(full_pipe[1], fcntl.F_SETFL, 0)


def sleeps():
    time.sleep(100000)


def locks():
    lock = threading.Lock()
    lock.acquire()
    lock.acquire()


def reads_child():
    os.read(writer.stdout.fileno(), 1)


def reads_itself():
    os.read(own_pipe[0], 1)


def writes():
    os.write(full_pipe[1], b"x")


def receives():
    client.recv(1)


def receives_unix():
    left.recv(1)


def accepts():
    server.accept()


def polls():
    poll = select.poll()
    poll.register(own_pipe[0], select.POLLIN)
    poll.poll(50000000)


def selects():
    select.select([own_pipe[0], right], [], [])


def epolls():
    epoll.poll(50000)


def parents():
    os.waitpid(parent.pid, 0)


def waits_for_file_lock():
    with open(path) as file:
        fcntl.flock(file, fcntl.LOCK_EX)


epoll = select.epoll()
epoll.register(own_pipe[0], select.EPOLLIN)
this = os.getpid()
files = {
    "reads_child": [[writer.stdout.fileno(), "pipe", None, None, [writer.pid]]],
    "reads_itself": [[own_pipe[0], "pipe", None, None, [this]]],
    "writes": [[full_pipe[1], "pipe", None, None, [this]]],
    "receives": [[client.fileno(), "TCP", port(client), port(server), [this]]],
    "receives_unix": [[left.fileno(), "Unix", None, None, [this]]],
    "accepts": [[server.fileno(), "TCP", port(server), None, []]],
    "polls": [[own_pipe[0], "pipe", None, None, [this]]],
    "selects": [[fd, kind, None, None, [this]] for fd, kind in sorted([(own_pipe[0], "pipe"), (right.fileno(), "Unix")])],
    "epolls": [[epoll.fileno(), "eventpoll", None, None, []], [own_pipe[0], "pipe", None, None, [this]]],
}

if __name__ == "__main__":
    functions = (sleeps, locks, reads_child, reads_itself, writes, receives, receives_unix, accepts, polls, selects, epolls,
                 parents, waits_for_file_lock)
    for function in functions:
        thread = threading.Thread(target=function, name=function.__name__)
        thread.daemon = True
        thread.start()
    truth.say(pid=this, files=files, parent=parent.pid, locker=locker.pid, path=path)
    os.read(0, 1)
