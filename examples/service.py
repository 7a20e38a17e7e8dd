"""A service with 500 requests, which wait for a database that does not answer."""
import asyncio
import socket


async def query(pool, address, sql):
    async with pool:
        reader, writer = await asyncio.open_connection(*address)
        writer.write(sql.encode())
        return await reader.readline()


async def handle(pool, address, order):
    return await query(pool, address, "SELECT * FROM orders WHERE id = %d" % order)


async def refresh_prices():
    while True:
        await asyncio.sleep(3600)


async def main():
    database = socket.create_server(("127.0.0.1", 0))  # accepts connections and is silent
    pool = asyncio.Semaphore(10)
    prices = asyncio.create_task(refresh_prices(), name="prices")
    requests = [handle(pool, database.getsockname(), order) for order in range(500)]
    await asyncio.gather(*(asyncio.create_task(one, name="order-%d" % i) for i, one in enumerate(requests)))
    await prices


asyncio.run(main())
