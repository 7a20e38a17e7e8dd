"""record_async.py STATE TASKS asleep|busy: tasks of which half wait for a lock and half sleep. busy: 100 of them wake up every second, and one
computes and counts its rounds in slot 1."""
import asyncio
import sys

import shared

WOKEN = 100


async def query(lock):
    async with lock:
        pass


async def handler(lock):
    await query(lock)


async def sleeper(delay):
    while True:
        await asyncio.sleep(delay)


async def count():
    rounds = 0
    while True:
        for _ in range(50):
            sum(range(500))
        rounds += 1
        shared.page[1] = rounds
        await asyncio.sleep(0)


async def main(tasks, busy):
    lock = asyncio.Lock()
    await lock.acquire()
    half = tasks // 2
    jobs = [handler(lock) for _ in range(half)]
    jobs += [sleeper(1 + i / WOKEN if busy and i < WOKEN else 100000) for i in range(tasks - half)]
    started = [asyncio.ensure_future(job) for job in jobs + [count()] * busy]
    await asyncio.sleep(0)
    shared.ready()
    await asyncio.gather(*started)


asyncio.run(main(int(sys.argv[2]), sys.argv[3] == "busy"))
