"""Tasks of every shape, all of them waiting. Prints a line of JSON: for each task its frames as its coroutine reports them, and what it waits
for as this program arranged it.

    tasks.py [threads | python]     threads: also a loop in a second thread; python: with the tasks of asyncio that are written in Python
"""
import asyncio
import concurrent.futures
import contextlib
import gc
import json
import os
import socket
import sys
import threading
import types

NEW = sys.version_info >= (3, 11)
if sys.argv[1:] == ["python"]:
    asyncio.Task = asyncio.tasks.Task = asyncio.tasks._PyTask
    asyncio.Future = asyncio.futures.Future = asyncio.futures._PyFuture

made = {}  # task -> what it waits for: state, kind, what, other tasks
lock = threading.Lock()


def frames(awaitable):
    """Names and lines from the outermost frame to the innermost."""
    found = []
    while awaitable is not None:
        for prefix in ("cr_", "gi_", "ag_"):
            frame = getattr(awaitable, prefix + "frame", None)
            if frame is not None:
                code = frame.f_code
                found.append([getattr(code, "co_qualname", code.co_name), frame.f_lineno])
                awaitable = getattr(awaitable, "gi_yieldfrom" if prefix == "gi_" else prefix + "await")
                break
        else:
            wrapped = ("coroutine_wrapper", "async_generator_asend", "async_generator_athrow", "anext_awaitable")
            inner = gc.get_referents(awaitable) if type(awaitable).__name__ in wrapped else ()
            awaitable = next((one for one in inner if not isinstance(one, type)), None)
    return found


def start(coroutine, name, state, kind=None, what=None, *awaits):
    task = asyncio.get_event_loop().create_task(coroutine)
    if hasattr(task, "set_name"):
        task.set_name(name)
    with lock:
        made[task] = (name, state, kind, what, list(awaits))
    return task


async def through(awaitable):
    return await awaitable


async def acquire(lock):
    async with lock:
        pass


async def acquire_both(one, other):
    async with one:
        await asyncio.sleep(0)
        async with other:
            pass


async def hold(lock, future):
    async with lock:
        await future


@contextlib.asynccontextmanager
async def connection(pool):
    async with pool:
        yield


async def hold_connection(pool, future):
    async with connection(pool):
        await future


class Awaitable:
    def __init__(self, inner):
        self.inner = inner

    def __await__(self):
        return (yield from self.inner.__await__())


@types.coroutine
def by_generator(inner):
    return (yield from inner)


async def generate(inner):
    for i in (0, 1):
        await inner
        yield i


async def iterate(inner):
    async for _ in generate(inner):
        pass


async def send(inner):
    await generate(inner).asend(None)


async def argument_in_cell(delay):
    def inner():
        return delay
    await asyncio.sleep(delay)
    return inner


async def deep(n, future):
    return await (deep(n - 1, future) if n else future)


async def group(event, tasks):
    async with asyncio.TaskGroup() as members:
        for i in (0, 1):
            task = members.create_task(event.wait(), name="member-%d" % i)
            made[task] = ("member-%d" % i, "waiting", "event", "Event.wait", [])
            tasks.append(task)


async def group_body(event, tasks):
    async with asyncio.TaskGroup() as members:
        task = members.create_task(event.wait(), name="member-2")
        made[task] = ("member-2", "waiting", "event", "Event.wait", [])
        tasks.append(task)
        await event.wait()


async def many(loop):
    """Waits for something in each way that there is."""
    event, mutex, queue, full = asyncio.Event(), asyncio.Lock(), asyncio.Queue(), asyncio.Queue(1)
    semaphore, condition, pair = asyncio.Semaphore(0), asyncio.Condition(), socket.socketpair()
    pair[0].setblocking(False)
    full.put_nowait(0)
    await mutex.acquire()
    future, blocked, cycle, members = loop.create_future(), threading.Event(), {}, []
    waiting = "waiting"

    async def wait_for_condition():
        async with condition:
            await condition.wait()

    async def wait_for_other(name):
        await cycle[name]

    sleeper = start(asyncio.sleep(3600), "sleeper", waiting, "sleep")
    for i in range(30):
        start(acquire(mutex), "request-%d" % i, waiting, "lock", "Lock.acquire")
    start(argument_in_cell(7200.5), "cell", waiting, "sleep")
    start(through(sleeper), "through", waiting, "task", None, sleeper)
    start(through(Awaitable(through(sleeper))), "awaitable", waiting, "task", None, sleeper)
    start(through(by_generator(through(future))), "generator", waiting, "future", "Future")
    start(iterate(event.wait()), "async for", waiting, "event", "Event.wait")
    start(send(event.wait()), "asend", waiting, "event", "Event.wait")
    start(deep(100, future), "deep", waiting, "future", "Future")
    start(queue.get(), "get", waiting, "queue", "Queue.get")
    start(full.put(1), "put", waiting, "queue", "Queue.put")
    start(full.join(), "join", waiting, "queue", "Queue.join")
    start(acquire(semaphore), "semaphore", waiting, "lock", "Semaphore.acquire")
    start(wait_for_condition(), "condition", waiting, "event", "Condition.wait")
    start(loop.sock_recv(pair[0], 1), "socket", waiting, "socket", "socket.sock_recv")
    start(through(loop.run_in_executor(None, blocked.wait)), "executor", waiting, "executor")
    single = concurrent.futures.ThreadPoolExecutor(1)
    start(through(loop.run_in_executor(single, blocked.wait)), "started job", waiting, "executor")
    start(through(loop.run_in_executor(single, blocked.wait)), "queued job", waiting, "executor")
    if sys.version_info >= (3, 9):
        start(asyncio.to_thread(blocked.wait), "to_thread", waiting, "executor", "Event.wait")
    mutexes = asyncio.Lock(), asyncio.Lock()
    for i in (0, 1):
        start(acquire_both(mutexes[i], mutexes[1 - i]), "deadlock-%d" % i, waiting, "lock", "Lock.acquire")
    one, two = (start(event.wait(), name, waiting, "event", "Event.wait") for name in ("one", "two"))
    start(through(asyncio.gather(one, asyncio.gather(two, sleeper))), "gather", waiting, "tasks", "gather", one, two, sleeper)
    start(through(asyncio.shield(one)), "shield", waiting, "tasks", "shield", one)
    start(through(asyncio.wait([one, two])), "wait", waiting, "tasks", "wait", one, two)
    start(through(asyncio.wait_for(one, 3600)), "wait_for", waiting, *(
        ("task", None) if sys.version_info >= (3, 12) else ("tasks", "wait_for")), one)
    for name, other in (("cycle-1", "cycle-2"), ("cycle-2", "cycle-3"), ("cycle-3", "cycle-1")):
        cycle[name] = start(wait_for_other(other), name, waiting, "task", None, other)
    if NEW:
        start(group(event, members), "group", waiting, "tasks", "TaskGroup", "member-0", "member-1")
        start(group_body(event, members), "group body", waiting, "event", "Event.wait", "member-2")
    held, pool, busy = asyncio.Lock(), asyncio.Semaphore(2), asyncio.Condition()
    start(hold(held, future), "holder", waiting, "future", "Future")
    start(hold(pool, future), "pool-1", waiting, "future", "Future")
    start(hold_connection(pool, future), "pool-2", waiting, "future", "Future")
    start(hold(busy, future), "condition holder", waiting, "future", "Future")
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    for name, one, what in (("held", held, "Lock"), ("pool", pool, "Semaphore"), ("busy", busy, "Lock")):
        start(acquire(one), name, waiting, "lock", what + ".acquire")
    start(through(None), "done", "done")
    await asyncio.sleep(0.05)
    return pair, blocked, condition


def report(loop, kept):
    """Called by the loop while no task runs."""
    names = {name: task for task, (name, *_) in made.items()}
    tasks = []
    for task, (name, state, kind, what, awaits) in made.items():
        if task.done():
            continue
        tasks.append({"name": name, "named": hasattr(task, "get_name"), "address": hex(id(task)), "state": state, "kind": kind, "what": what,
                      "awaits": [hex(id(names.get(other, other))) for other in awaits],
                      "frames": frames(getattr(task, "get_coro", lambda: task._coro)())})
    everything = asyncio.all_tasks(loop)
    assert everything <= set(made), everything
    print(json.dumps({"pid": os.getpid(), "tasks": tasks, "fd": kept[0][0].fileno(), "threads": threading.active_count()}), flush=True)


def other_loop(started):
    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)

    async def main():
        start(asyncio.sleep(3600), "other-1", "waiting", "sleep")
        loop.call_later(0.05, started.set)
        await asyncio.sleep(3600)

    task = loop.create_task(main())
    with lock:
        made[task] = (task.get_name() if hasattr(task, "get_name") else "main-2", "waiting", "sleep", None, [])
    loop.run_until_complete(task)


async def unstarted():
    pass


def main():
    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    if "threads" in sys.argv:
        started = threading.Event()
        threading.Thread(target=other_loop, args=(started,), daemon=True).start()
        started.wait()
    kept = loop.run_until_complete(many(loop))
    gc.collect()
    if "stopped" in sys.argv:  # the loop has tasks, but does not run
        start(unstarted(), "new", "new")
        report(loop, kept)
        os.read(0, 1)
    loop.call_later(0.05, report, loop, kept)
    loop.run_forever()


main()
