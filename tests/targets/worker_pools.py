"""A parent with workers of one kind, each blocked or busy in a known place: `python worker_pools.py KIND N [busy]`.

It prints its PID, waits for a byte, starts the workers, and prints what each of them reported: PID, parent, stack.
Runs on 2.7 and on every 3.x.
"""
import json
import os
import subprocess
import sys
import time

import truth

HERE = os.path.dirname(os.path.abspath(__file__))


def report(path, frame):
    """Writes one line with one write, so that the lines of several workers do not mix."""
    rows = [dict(name=r[0], filename=r[1], line=r[2]) for r in truth.stack_of(frame)]
    line = json.dumps(dict(pid=os.getpid(), parent=os.getppid(), version=list(sys.version_info[:3]), frames=rows))
    fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    os.write(fd, (line + "\n").encode("ascii"))
    os.close(fd)


def worker_rests(path):
    ends = os.pipe()
    report(path, sys._getframe()); os.read(ends[0], 1)  # on one line, because it reports its own line number


def worker_works(path):
    report(path, sys._getframe())
    while True:
        sum(range(500))


def job(path):
    (worker_works if "busy" in path else worker_rests)(path)


def by_fork(n, path):
    for _ in range(n):
        if os.fork() == 0:
            job(path)


def by_pool(kind):
    def start(n, path):
        import multiprocessing
        context = multiprocessing.get_context(kind) if hasattr(multiprocessing, "get_context") else multiprocessing
        pool = context.Pool(n)
        for _ in range(n):
            pool.apply_async(job, (path,))
        return pool

    return start


def by_process(kind):
    def start(n, path):
        import multiprocessing
        context = multiprocessing.get_context(kind) if hasattr(multiprocessing, "get_context") else multiprocessing
        processes = [context.Process(target=job, args=(path,)) for _ in range(n)]
        for process in processes:
            process.start()
        return processes

    return start


def by_futures(n, path):
    import concurrent.futures
    executor = concurrent.futures.ProcessPoolExecutor(n)
    for _ in range(n):
        executor.submit(job, path)
    return executor


def by_subprocess(n, path):
    return [subprocess.Popen([sys.executable, __file__, "worker", path]) for _ in range(n)]


def by_shell(n, path):
    """A shell that stays in between: the worker is not its last command."""
    command = "'%s' '%s' worker '%s'; true" % (sys.executable, __file__, path)
    return [subprocess.Popen(command, shell=True) for _ in range(n)]


def by_two_shells(n, path):
    command = "sh -c \"'%s' '%s' worker '%s'; true\"; true" % (sys.executable, __file__, path)
    return [subprocess.Popen(command, shell=True) for _ in range(n)]


def by_session(n, path):
    return [subprocess.Popen([sys.executable, __file__, "worker", path], preexec_fn=os.setsid) for _ in range(n)]


KINDS = {
    "fork": by_fork,
    "pool-fork": by_pool("fork"),
    "pool-spawn": by_pool("spawn"),
    "pool-forkserver": by_pool("forkserver"),
    "process-fork": by_process("fork"),
    "process-spawn": by_process("spawn"),
    "futures": by_futures,
    "subprocess": by_subprocess,
    "shell": by_shell,
    "two-shells": by_two_shells,
    "session": by_session,
}


def read_reports(path, n):
    while True:
        try:
            with open(path) as f:
                lines = f.read().splitlines()
        except IOError:
            lines = []
        if len(lines) == n:
            return [json.loads(line) for line in lines]
        time.sleep(0.01)


def parent_rests():
    while True:
        time.sleep(1000)


if __name__ == "__main__":
    if sys.argv[1] == "worker":
        job(sys.argv[2])
    truth.say(pid=os.getpid())
    os.read(0, 1)
    mode = sys.argv[3] if len(sys.argv) > 3 else "rest"
    place = os.path.join(HERE, "pools-%s-%d.txt" % (mode, os.getpid()))
    kept = KINDS[sys.argv[1]](int(sys.argv[2]), place)
    truth.say(workers=read_reports(place, int(sys.argv[2])))
    os.unlink(place)
    parent_rests()
