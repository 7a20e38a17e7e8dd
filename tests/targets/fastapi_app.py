"""A service whose handlers share a lock. One holds it, and waits for a server that does not answer: $SILENT_PORT."""
import asyncio
import os

from fastapi import FastAPI

app = FastAPI()
prices = asyncio.Lock()


async def fetch_prices():
    reader, _ = await asyncio.open_connection("127.0.0.1", int(os.environ["SILENT_PORT"]))
    return await reader.read()


@app.get("/refresh")
async def refresh():
    async with prices:
        return await fetch_prices()


@app.get("/price")
async def price():
    async with prices:
        return 1
