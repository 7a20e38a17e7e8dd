"""Definitions that are slow to import, like those of people who look for a profiler."""
import time

from dagster import Definitions, asset


def known_slow_import():
    end = time.thread_time() + 0.5
    while time.thread_time() < end:
        sum(range(300))


known_slow_import()


@asset
def numbers():
    return [1, 2]


defs = Definitions(assets=[numbers])
