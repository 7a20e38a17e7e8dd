"""tasks.py STATE TASKS busy|asleep: tasks that wait, each three coroutines deep; one in ten waits for the same lock. Busy: one more task runs
all the time, and stores the longest time between two of its steps in slot 1, in seconds."""
import asyncio
import sys
import time

import shared


async def wait(event):
    await event.wait()


async def query(event):
    await wait(event)


async def handle(event):
    await query(event)


async def handle_alone(lock, event):
    async with lock:
        await query(event)


async def spin():
    page, longest, last = shared.page, 0.0, time.perf_counter()
    while True:
        await asyncio.sleep(0)
        now = time.perf_counter()
        if now - last > longest:
            page[1] = longest = now - last
        last = now


async def main(n):
    event, lock = asyncio.Event(), asyncio.Lock()
    tasks = [asyncio.ensure_future(handle_alone(lock, event) if i % 10 == 0 else handle(event)) for i in range(n)]
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    shared.ready()
    await (spin() if sys.argv[3] == "busy" else asyncio.sleep(100000))
    return tasks


asyncio.run(main(int(sys.argv[2])))
