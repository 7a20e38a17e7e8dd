"""Tasks that wait in two functions, for random times. Prints the task-seconds of each after every byte of input: `python await_shares.py N`."""
import asyncio
import os
import random
import sys
import time

import truth

began = {}  # task -> when it entered its function
spent = {"short": 0.0, "long": 0.0}


async def short():
    await asyncio.sleep(random.expovariate(1 / 0.03))


async def long():
    await asyncio.sleep(random.expovariate(1 / 0.07))


async def alternate(number):
    while True:
        for function in (short, long):
            began[number] = function.__name__, time.monotonic()
            await function()
            spent[function.__name__] += time.monotonic() - began[number][1]


def report():
    os.read(0, 1)
    now, total = time.monotonic(), dict(spent)
    for name, since in began.values():
        total[name] += now - since
    truth.say(spent=total, now=now)


async def main():
    tasks = [asyncio.ensure_future(alternate(i)) for i in range(int(sys.argv[1]))]
    asyncio.get_event_loop().add_reader(0, report)
    truth.say(ready=True)
    await asyncio.gather(*tasks)


asyncio.run(main())
