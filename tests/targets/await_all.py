"""Tasks that wait for each other and for ever, in two loops. Prints their stacks, from the outermost coroutine to what it waits for, and
how many tasks have each: `python await_all.py`."""
import asyncio
import threading

import truth

kept = []


def start(coroutine):
    task = asyncio.ensure_future(coroutine)
    kept.append(task)
    return task


async def sleeps():
    await asyncio.sleep(10000)


async def acquires(lock):
    async with lock:
        pass


async def gets(queue):
    await queue.get()


async def waits_for_event(event):
    await event.wait()


async def awaits(future):
    await future


async def first_of_two(task):
    await task


async def in_circle(others):
    while not others:
        await asyncio.sleep(0)
    await others[0]


async def link(depth):
    await (start(link(depth - 1)) if depth else asyncio.sleep(10000))


async def gathers():
    lock = asyncio.Lock()
    await lock.acquire()
    await asyncio.gather(sleeps(), sleeps(), sleeps(), acquires(lock), acquires(lock), gets(asyncio.Queue()), waits_for_event(asyncio.Event()),
                         awaits(asyncio.get_event_loop().create_future()))


def circle():
    others = [[], []]
    for i in (0, 1):
        others[1 - i].append(start(in_circle(others[i])))


STACKS = {
    "gathers sleeps [sleeping]": 3,
    "gathers acquires [waiting for a lock]": 2,
    "gathers gets [waiting for a queue]": 1,
    "gathers waits_for_event [waiting for an event]": 1,
    "gathers awaits [waiting for a future]": 1,
    "first_of_two sleeps [sleeping]": 1,
    "first_of_two [waiting for a task]": 1,
    "in_circle in_circle [waiting for a task]": 1,
    "link " * 33 + "[sleeping]": 1,  # the tasks below are cut off
    "main [waiting for a future]": 1,
}


async def main(report):
    start(gathers())
    shared = start(sleeps())
    for _ in range(2):
        start(first_of_two(shared))
    circle()
    start(link(40))
    for _ in range(50):  # until all of them wait
        await asyncio.sleep(0)
    report()
    await asyncio.get_event_loop().create_future()


def in_thread():
    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    loop.run_until_complete(main(ready.set))


idle = asyncio.new_event_loop()
kept.append(idle.create_task(sleeps()))  # nobody runs its loop
ready = threading.Event()
threading.Thread(target=in_thread, daemon=True).start()
ready.wait()
asyncio.run(main(lambda: truth.say(stacks={stack: 2 * n for stack, n in STACKS.items()})))
