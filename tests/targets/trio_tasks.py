"""Tasks of trio, all of them waiting. Prints a line of JSON: the tasks of the runner as trio reports them, and what each waits for as this
program arranged it."""
import functools
import gc
import json
import os
import socket
import threading
import time

import trio
import trio.testing

expected = {}  # name -> kind, what
blocked = threading.Event()
WRAPPERS = "coroutine_wrapper", "async_generator_asend", "async_generator_athrow", "anext_awaitable"


def frames(coroutine):
    """Names and lines from the outermost frame to the innermost."""
    found = []
    while coroutine is not None:
        prefix = next((p for p in ("cr_", "gi_", "ag_") if hasattr(coroutine, p + "frame")), None)
        if prefix is None:
            inner = gc.get_referents(coroutine) if type(coroutine).__name__ in WRAPPERS else ()
            coroutine = next((one for one in inner if not isinstance(one, type)), None)
            continue
        frame = getattr(coroutine, prefix + "frame")
        code = frame.f_code
        found.append([getattr(code, "co_qualname", code.co_name), frame.f_lineno])
        coroutine = getattr(coroutine, "gi_yieldfrom" if prefix == "gi_" else prefix + "await")
    return found


def job():
    blocked.wait()


async def with_lock(lock):
    async with lock:
        pass


async def holder(lock, event):
    async with lock:
        await event.wait()


async def with_deadline(event):
    with trio.move_on_after(3600):
        await event.wait()


async def in_nursery(event):
    async with trio.open_nursery() as nursery:
        nursery.start_soon(event.wait, name="inner-1")
        nursery.start_soon(event.wait, name="inner-2")


async def busy_parent(event):
    """Waits for something else while its children run."""
    async with trio.open_nursery() as nursery:
        nursery.start_soon(event.wait, name="sibling")
        await trio.sleep(1800)


async def shielded(event):
    with trio.CancelScope() as outer:
        with trio.CancelScope(shield=True):
            outer.cancel()
            await event.wait()


async def cancelled(event):
    with trio.CancelScope() as scope:
        scope.cancel()
        await trio.lowlevel.wait_task_rescheduled(lambda _: trio.lowlevel.Abort.FAILED)


async def with_semaphore(semaphore, event):
    async with semaphore:
        await event.wait()


async def generate(event):
    await event.wait()
    yield 1


async def iterate(event):
    async for _ in generate(event):
        pass


def report(runner_tasks, fd):
    all_tasks = []
    for task in runner_tasks:
        kind, what = expected.get(task.name, (None, None))
        children = [child for nursery in task.child_nurseries for child in nursery.child_tasks]
        all_tasks.append({"name": task.name, "address": hex(id(task)), "frames": frames(task.coro), "expected": task.name in expected,
                          "kind": kind, "what": what, "children": [hex(id(child)) for child in children]})
    print(json.dumps({"pid": os.getpid(), "tasks": all_tasks, "fd": fd, "threads": threading.active_count()}), flush=True)


async def main():
    event, lock, semaphore, limiter = trio.Event(), trio.Lock(), trio.Semaphore(0), trio.CapacityLimiter(1)
    condition, pair = trio.Condition(), socket.socketpair()
    receive, full = trio.open_memory_channel(0), trio.open_memory_channel(0)
    ours = trio.socket.from_stdlib_socket(pair[0])
    await limiter.acquire_on_behalf_of("somebody")

    async def wait_for_condition():
        async with condition:
            await condition.wait()

    async with trio.open_nursery() as nursery:
        def start(function, name, kind, what=None, *args):
            expected[name] = (kind, what)
            nursery.start_soon(functools.partial(function, *args), name=name)

        start(holder, "holder", "event", "Event.wait", lock, event)
        await trio.testing.wait_all_tasks_blocked()
        for i in range(20):
            start(with_lock, "request-%d" % i, "lock", "Lock.acquire", lock)
        start(trio.sleep, "sleeper", "sleep", None, 3600)
        start(trio.sleep_forever, "forever", "sleep")
        start(with_lock, "semaphore", "lock", "Semaphore.acquire", semaphore)
        start(with_lock, "limiter", "lock", "CapacityLimiter.acquire_on_behalf_of", limiter)
        start(wait_for_condition, "condition", "event", "Condition.wait")
        start(receive[1].receive, "receive", "queue", "MemoryReceiveChannel.receive")
        start(full[0].send, "send", "queue", "MemorySendChannel.send", 1)
        start(ours.recv, "socket", "socket", None, 1)
        start(trio.to_thread.run_sync, "thread", "thread", "job", job)
        start(with_deadline, "deadline", "event", "Event.wait", event)
        start(in_nursery, "nursery", "tasks", "Nursery", event)
        expected.update({"inner-1": ("event", "Event.wait"), "inner-2": ("event", "Event.wait"), "sibling": ("event", "Event.wait")})
        start(busy_parent, "parent", "sleep", None, event)
        start(shielded, "shielded", "event", "Event.wait", event)
        start(cancelled, "cancelled", None, None, event)
        one = trio.Semaphore(1)
        start(with_semaphore, "first", "event", "Event.wait", one, event)
        await trio.testing.wait_all_tasks_blocked()
        start(with_semaphore, "second", "lock", "Semaphore.acquire", one, event)
        start(iterate, "async for", "event", "Event.wait", event)
        await trio.testing.wait_all_tasks_blocked()
        everything = [trio.lowlevel.current_root_task()]
        for task in everything:
            everything.extend(child for nursery in task.child_nurseries for child in nursery.child_tasks)
        expected["__main__.main"] = ("tasks", "Nursery")
        watch = threading.Thread(target=watcher, args=(everything, pair[0].fileno()), daemon=True)
        watch.start()


def watcher(everything, fd):
    """Reports once the main task waits, too."""
    main_task = next(task for task in everything if task.name == "__main__.main")
    while not frames(main_task.coro)[-1][0].endswith("async_yield"):
        time.sleep(0.01)
    report(everything, fd)
    threading.Event().wait()


trio.run(main)
