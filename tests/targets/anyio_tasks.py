"""Tasks of anyio, all of them waiting. Prints a line of JSON: what each waits for.

    anyio_tasks.py asyncio | trio
"""
import json
import os
import sys
import threading
import time

import anyio
import anyio.to_thread

waits = {"holder": ["event", "Event.wait"], "waiter": ["lock", "Lock.acquire"], "receive": ["queue", "MemoryObjectReceiveStream.receive"],
         "send": ["queue", "MemoryObjectSendStream.send"], "sleeper": ["sleep", None], "thread": ["thread", "job"]}


def job():
    threading.Event().wait()


async def hold(lock, event):
    async with lock:
        await event.wait()


def report():
    while len(threading.enumerate()) < 3:  # the main thread, this one and the job
        time.sleep(0.01)
    print(json.dumps({"pid": os.getpid(), "threads": threading.active_count(), "waits": waits}), flush=True)
    threading.Event().wait()


async def main():
    lock, event = anyio.Lock(), anyio.Event()
    streams = [anyio.create_memory_object_stream(0) for _ in range(2)]
    async with anyio.create_task_group() as group:
        group.start_soon(hold, lock, event, name="holder")
        await anyio.wait_all_tasks_blocked()
        group.start_soon(hold, lock, event, name="waiter")
        group.start_soon(streams[0][1].receive, name="receive")
        group.start_soon(streams[1][0].send, 1, name="send")
        group.start_soon(anyio.sleep, 3600, name="sleeper")
        group.start_soon(anyio.to_thread.run_sync, job, name="thread")
        await anyio.wait_all_tasks_blocked()
        threading.Thread(target=report, daemon=True).start()


anyio.run(main, backend=sys.argv[1])
