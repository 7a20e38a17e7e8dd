"""Tasks that never rest: each goes back and forth between two paths. With an argument, in a child process, which it starts."""
import asyncio
import os
import subprocess
import sys


async def end_left():
    await asyncio.sleep(0)


async def end_right():
    await asyncio.sleep(0)


async def left():
    await end_left()


async def right():
    await end_right()


async def worker():
    while True:
        await left()
        await right()


async def main():
    workers = [asyncio.ensure_future(worker()) for _ in range(50)]
    await asyncio.sleep(0.05)
    print('"ready"', flush=True)
    await asyncio.wait(workers)


if sys.argv[1:]:
    subprocess.Popen([sys.executable, os.path.abspath(__file__)])
    os.read(0, 1)
else:
    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    loop.run_until_complete(main())
