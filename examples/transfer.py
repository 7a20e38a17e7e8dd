"""Two transfers that lock the same two accounts in opposite order, and wait for each other."""
import asyncio


async def transfer(source, target):
    async with source:
        await asyncio.sleep(0.1)
        async with target:
            pass


async def main():
    checking, savings = asyncio.Lock(), asyncio.Lock()
    async with asyncio.TaskGroup() as group:
        group.create_task(transfer(checking, savings), name="deposit")
        group.create_task(transfer(savings, checking), name="withdrawal")


asyncio.run(main())
