"""Creates and cancels 5,000 tasks a second, if the machine is fast enough. At most 600 are alive; each waits for an event, or to be cancelled."""
import asyncio
import collections


async def end(event):
    await event.wait()


async def step(event):
    try:
        await end(event)
    finally:
        await asyncio.sleep(0)


async def worker(event):
    await step(event)


async def churn(event):
    alive = collections.deque()
    while True:
        for _ in range(50):
            alive.append(asyncio.ensure_future(worker(event)))
        while len(alive) > 500:
            alive.popleft().cancel()
        await asyncio.sleep(0.01)


async def main():
    task = asyncio.ensure_future(churn(asyncio.Event()))
    await asyncio.sleep(0.2)
    print('"ready"', flush=True)
    await task


loop = asyncio.new_event_loop()
asyncio.set_event_loop(loop)
loop.run_until_complete(main())
