"""An example program with a known mix of work. `make run` profiles it.

It spends about 50 % of its time parsing JSON, 30 % sorting and 20 % hashing. A second thread only sleeps.
"""
import hashlib
import json
import random
import sys
import threading
import time

DOCUMENT = json.dumps([{"id": i, "name": "item %d" % i, "tags": ["a", "b", "c"]} for i in range(200)])


def for_a_while(seconds, job):
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        job()


def parse():
    json.loads(DOCUMENT)


def sort():
    sorted(random.random() for _ in range(300))


def digest():
    hashlib.sha256(DOCUMENT.encode()).hexdigest()


def wait_for_work():
    time.sleep(3600)


def one_round():
    for_a_while(0.05, parse)
    for_a_while(0.03, sort)
    for_a_while(0.02, digest)


def main(seconds):
    threading.Thread(target=wait_for_work, name="waiting", daemon=True).start()
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        one_round()


if __name__ == "__main__":
    main(float(sys.argv[1]) if len(sys.argv) > 1 else 5)
