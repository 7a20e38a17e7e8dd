"""Tasks that compute while others await them, each in another way: `python await_chains.py`, until it has input. Prints its ways."""
import asyncio
import select
import sys

import truth


def burn():
    for _ in range(20):
        sum(range(2000))


async def query():
    burn()
    await asyncio.sleep(0)


async def handler():
    await query()


async def numbers():
    yield await handler()


async def awaits_task():
    await asyncio.ensure_future(handler())


async def awaits_gather():
    await asyncio.gather(handler(), asyncio.gather(handler()))


async def awaits_wait():
    await asyncio.wait([asyncio.ensure_future(handler())])


async def awaits_shield():
    await asyncio.shield(handler())


async def awaits_wait_for():
    await asyncio.wait_for(asyncio.ensure_future(handler()), 1000)


async def awaits_generator():
    async for _ in numbers():
        pass


async def awaits_group():
    async with asyncio.TaskGroup() as group:
        group.create_task(handler())


async def awaits_eager():
    """The task begins on the stack of this one."""
    await asyncio.eager_task_factory(asyncio.get_running_loop(), handler())


async def awaits_chain(depth=3):
    if depth:
        await asyncio.ensure_future(awaits_chain(depth - 1))
    else:
        await handler()


async def awaits_nothing():
    """Nobody awaits the task: it is its own root."""
    task = asyncio.ensure_future(handler())
    while not task.done():
        await asyncio.sleep(0)


WAYS = [awaits_task, awaits_gather, awaits_wait, awaits_shield, awaits_wait_for, awaits_generator, awaits_chain, awaits_nothing]
if hasattr(asyncio, "TaskGroup"):
    WAYS.append(awaits_group)
if hasattr(asyncio, "eager_task_factory"):
    WAYS.append(awaits_eager)


async def main():
    while not select.select([0], [], [], 0)[0]:
        for way in WAYS:
            await asyncio.ensure_future(way())


if "python" in sys.argv:
    asyncio.Task = asyncio.tasks.Task = asyncio.tasks._PyTask
    asyncio.Future = asyncio.futures.Future = asyncio.futures._PyFuture
    asyncio.tasks._enter_task, asyncio.tasks._leave_task = asyncio.tasks._py_enter_task, asyncio.tasks._py_leave_task
truth.say(ways=[way.__name__ for way in WAYS])
asyncio.run(main())
