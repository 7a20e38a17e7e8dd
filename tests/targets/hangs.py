"""Programs that hang, each for a planted cause: `python hangs.py CAUSE[,CAUSE...] SEED`.

The seed decides the names, the depth of the calls, the kinds of locks, and whether the main thread takes part. Prints for each thread
what it waits for, and for each cycle which threads it consists of. With several causes, the main thread reads standard input.
Runs on 2.7 and on every 3.x.
"""
import fcntl
import multiprocessing
import os
import random
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time

import truth

try:
    import queue
except ImportError:
    import Queue as queue

cause_names, seed = sys.argv[1].split(","), int(sys.argv[2])
rng = random.Random(seed)
waits, cycles, others, truths = {}, [], {}, {}
parts = []  # the other threads
main_part = []  # what the main thread does, if it takes part
ready = []  # events that are set when each part is about to hang


def deep(depth, function):
    return deep(depth - 1, function) if depth else function()


def part(name, function):
    """The function will run, at some depth, in a thread of this name or in the main thread."""
    event = threading.Event()
    depth = rng.randrange(12)
    ready.append(event)

    def run():
        event.set()
        deep(depth, function)

    if name == "MainThread":
        main_part.append(run)
        return None
    thread = threading.Thread(target=run, name=name)
    thread.daemon = True
    parts.append(thread)
    return thread


def names(prefix, n):
    found = ["%s-%s" % (prefix, "".join(rng.choice("abcdefgh ") for _ in range(5))) + str(i) for i in range(n)]
    if len(cause_names) == 1 and rng.random() < 0.5:
        found[rng.randrange(n)] = "MainThread"
    return found


def in_with(first, second, mine, others):
    def hang():
        with first:
            mine.set()
            for event in others:
                event.wait()
            with second:
                pass
    return hang


def by_acquire(first, second, mine, others):
    def hang():
        first.acquire()
        mine.set()
        for event in others:
            event.wait()
        second.acquire()
        second.release()
        first.release()
    return hang


def cycle(n):
    reentrant = [rng.random() < 0.5 for _ in range(n)]
    if rng.random() < 0.5:
        reentrant = [True] * n
    locks = [threading.RLock() if r else threading.Lock() for r in reentrant]
    events = [threading.Event() for _ in range(n)]
    who = names("cycle%d" % n, n)
    hangs = []
    for i in range(n):
        style = in_with if rng.random() < 0.6 else by_acquire
        other = (i + 1) % n
        hangs.append(style(locks[i], locks[other], events[i], events[:i] + events[i + 1:]))
        waits[who[i]] = {"kind": "RLock" if reentrant[other] else "Lock", "name": "second", "owner": who[other],
                         "owner_certain": reentrant[other]}
    cycles.append([who, all(reentrant)])
    for name, hang in sorted(zip(who, hangs), key=lambda pair: rng.random()):
        part(name, hang)


def cycle2():
    cycle(2)


def cycle3():
    cycle(3)


def itself():
    lock = threading.Lock()
    who, = names("itself", 1)

    def hang():
        with lock:
            with lock:
                pass
    waits[who] = {"kind": "Lock", "name": "lock", "owner": who, "owner_certain": False}
    cycles.append([[who], False])
    part(who, hang)


def dead():
    lock = threading.RLock()
    threading.stack_size(256 * 1024)  # its ident is the address of its stack, which a thread with a larger one does not reuse
    dying = threading.Thread(target=lock.acquire)
    dying.start()
    dying.join()
    threading.stack_size(0)
    who, = names("dead", 1)

    def hang():
        with lock:
            pass
    waits[who] = {"kind": "RLock", "name": "lock", "owner": None, "exited": True}
    part(who, hang)


def empty_queue():
    jobs = queue.Queue()
    who, = names("queue", 1)

    def hang():
        jobs.get()
    waits[who] = {"kind": "operation", "operation": "Queue.get", "name": "jobs"}
    part(who, hang)


def full_queue():
    jobs = queue.Queue(1)
    who, = names("full", 1)

    def hang():
        jobs.put(1)
        jobs.put(2)
    waits[who] = {"kind": "operation", "operation": "Queue.put", "name": "jobs"}
    part(who, hang)


def semaphore():
    slots = threading.Semaphore(0)
    who, = names("semaphore", 1)

    def hang():
        with slots:
            pass
    waits[who] = {"kind": "operation", "operation": "Semaphore.acquire", "name": "slots"}
    part(who, hang)


def condition():
    """The waiter has released the lock that its `with` block is for; the holder has it."""
    changed = threading.Condition(threading.Lock())
    never = threading.Event()
    waiter, holder, late = ["%s-%d" % (name, rng.randrange(100)) for name in ("waiter", "holder", "late")]
    waiting, held = threading.Event(), threading.Event()

    def wait():
        with changed:
            waiting.set()
            changed.wait()

    def hold():
        waiting.wait()
        with changed:  # not before the waiter has released it
            held.set()
            never.wait()

    def come_late():
        held.wait()
        with changed:
            pass
    waits[waiter] = {"kind": "operation", "operation": "Condition.wait", "name": "changed"}
    waits[holder] = {"kind": "operation", "operation": "Event.wait", "name": "never"}
    waits[late] = {"kind": "Lock", "owner": holder, "owner_certain": False}
    for name, hang in ((waiter, wait), (holder, hold), (late, come_late)):
        part(name, hang)


def join():
    never = threading.Event()
    joined = "joined-%d" % rng.randrange(100)
    who, = names("join", 1)

    def wait():
        never.wait()
    thread = part(joined, wait)

    def hang():
        thread.join()
    waits[joined] = {"kind": "operation", "operation": "Event.wait", "name": "never"}
    waits[who] = {"kind": "thread", "owner": joined, "owner_certain": True}
    part(who, hang)


OWN_JOIN = """
import threading
class Worker(threading.Thread):
    def join(self, timeout=None):
        self.results.acquire()
        threading.Thread.join(self, timeout)
"""


def own_join():
    """A join() of the program, in a file of the same name as the library's, waits for a lock that another thread may release."""
    space = {}
    exec(compile(OWN_JOIN, "/app/package/threading.py", "exec"), space)
    gate, held = threading.RLock(), threading.Event()
    worker, who = "worker-%d" % rng.randrange(100), "joiner-%d" % rng.randrange(100)

    def work():
        held.wait()
        with gate:
            pass
    thread = space["Worker"](target=work, name=worker)
    thread.daemon = True
    thread.results = threading.Lock()
    thread.results.acquire()
    thread.start()

    def hang():
        with gate:
            held.set()
            thread.join()
    waits[worker] = {"kind": "RLock", "owner": who, "owner_certain": True}
    waits[who] = {"kind": "operation", "operation": "Worker.join"}
    part(who, hang)


def crowd():
    """Many wait for one lock, beside a thread with many frames that use acquire()."""
    lock, gate, never, held = threading.Lock(), threading.Lock(), threading.Event(), threading.Event()
    holder = "holder-%d" % rng.randrange(100)

    def hold():
        lock.acquire()
        held.set()
        never.wait()

    def busy(left):
        if left:
            busy(left - 1)
        else:
            gate.acquire()
            never.wait()

    def come():
        held.wait()
        lock.acquire()
    part(holder, hold)
    part("busy", lambda: busy(600))
    for i in range(120):
        waits["crowd-%d" % i] = {"kind": "Lock", "owner": holder, "owner_certain": False}
        part("crowd-%d" % i, come)


MODULE = """
import threading
def other():
    import %(name)s
thread = threading.Thread(target=other, name="importer")
thread.daemon = True
thread.start()
thread.join()
"""


def imports():
    """A module that, while it is imported, waits for a thread that imports it."""
    place = tempfile.mkdtemp()
    name = "slow%d" % rng.randrange(1000)
    with open(os.path.join(place, name + ".py"), "w") as file:
        file.write(MODULE % {"name": name})
    sys.path.insert(0, place)
    who, = names("imports", 1)

    def hang():
        __import__(name)
    waits[who] = {"kind": "thread", "owner": "importer", "owner_certain": True}
    waits["importer"] = {"kind": "import lock", "owner": who, "owner_certain": True}
    cycles.append([[who, "importer"], True])
    part(who, hang)


def child(code, *args):
    """A child whose standard input and output are pipes to this process. It runs when it has printed a line."""
    process = subprocess.Popen([sys.executable, "-c", code] + list(args), stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                               close_fds=True)
    process.stdout.readline()
    return process


def child_reads():
    """The child waits for input, and its parent for the child."""
    reader = child("import sys; print('ready'); sys.stdout.flush(); sys.stdin.read()")
    who, = names("parent", 1)

    def hang():
        reader.wait()
    others[who] = {"system_call": "wait4", "processes": [reader.pid]}
    truths["child"] = reader.pid
    part(who, hang)


def forked():
    """A child waits for a lock of multiprocessing that its parent holds."""
    lock = multiprocessing.Lock()
    lock.acquire()
    child = os.fork()
    if not child:
        lock.acquire()
    truths["child"] = child


def full_pipe():
    """The child does not read what it is sent."""
    sleeper = child("import sys, time; print('ready'); sys.stdout.flush(); time.sleep(100000)")
    who, = names("pipe", 1)

    def hang():
        os.write(sleeper.stdin.fileno(), b"x" * (1 << 22))
    others[who] = {"system_call": "write", "other_end": [sleeper.pid]}
    part(who, hang)


def full_pipes():
    """The child has one thread and does not read before someone reads what it has written."""
    copier = subprocess.Popen(["cat"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, close_fds=True)
    who, = names("pipes", 1)

    def hang():
        os.write(copier.stdin.fileno(), b"x" * (1 << 22))
    others[who] = {"system_call": "write", "other_end": [copier.pid]}
    truths["child"] = copier.pid
    part(who, hang)


def stopped_child():
    stopped = subprocess.Popen(["sleep", "100000"], close_fds=True)
    os.kill(stopped.pid, signal.SIGSTOP)
    os.waitpid(stopped.pid, os.WUNTRACED)
    truths["child"] = stopped.pid
    part("MainThread", stopped.wait)


def file_lock():
    path = os.path.join(tempfile.mkdtemp(), "lock")
    open(path, "w").close()
    locker = child("import fcntl, sys; f = open(sys.argv[1]); fcntl.flock(f, fcntl.LOCK_EX); print('ready'); sys.stdout.flush();"
                   "sys.stdin.read()", path)
    who, = names("flock", 1)

    def hang():
        with open(path) as file:
            fcntl.flock(file, fcntl.LOCK_EX)
    others[who] = {"system_call": "flock", "processes": [locker.pid]}
    part(who, hang)


def gil():
    """C code that sleeps and keeps the GIL."""
    import ctypes
    sleep = ctypes.PyDLL(None).sleep
    who = "keeper-%d" % rng.randrange(100)
    truths["keeper"] = who

    def hang():
        sleep(100000)

    def serve():
        while True:
            time.sleep(0.001)
    part("serve", serve)
    part(who, hang)


def dead_peer():
    """The peer accepts no connections, and its backlog is full."""
    server = socket.socket()
    server.bind(("127.0.0.1", 0))
    server.listen(0)
    address = server.getsockname()
    waiting = [server]
    for _ in range(4):
        waiting.append(socket.socket())
        waiting[-1].setblocking(False)
        waiting[-1].connect_ex(address)
    who, = names("connect", 1)

    def hang():
        waiting.append(socket.socket())
        waiting[-1].connect(address)
    others[who] = {"system_call": "connect", "peer": "127.0.0.1:%d" % address[1]}
    part(who, hang)


causes = {f.__name__: f for f in (cycle2, cycle3, itself, dead, empty_queue, full_queue, semaphore, condition, join, imports,
                                child_reads, full_pipe, full_pipes, stopped_child, file_lock, dead_peer, gil, own_join, forked,
                                crowd)}

if __name__ == "__main__":
    for cause in cause_names:
        causes[cause]()
    truth.say(pid=os.getpid(), waits=waits, cycles=cycles, others=others, **truths)  # before 2.7's import lock is taken for ever
    for thread in parts:
        thread.start()
    if main_part:
        main_part[0]()
    else:
        for event in ready:
            event.wait()
    os.read(0, 1)
