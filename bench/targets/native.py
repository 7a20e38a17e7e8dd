"""native.py STATE main|thread: compresses, hashes, encodes and sorts in turn, a few milliseconds each, in the main
thread or in another one; counts its rounds in slot 1."""
import base64
import hashlib
import json
import random
import sys
import threading
import zlib

import shared


def compress(data):
    return zlib.decompress(zlib.compress(data, 6))


def digest(data):
    for _ in range(8):
        for name in ("md5", "sha1", "sha256", "sha512"):
            hashlib.new(name, data).hexdigest()


def encode(rows):
    for _ in range(4):
        text = json.dumps(rows, sort_keys=True)
        json.loads(base64.b64decode(base64.b64encode(text.encode())).decode())


def last_digits(number):
    return number % 1000


def order(numbers):
    return sorted(numbers), sorted(numbers, key=last_digits)


def main():
    some = random.Random(5)
    words = [bytes(some.randrange(97, 123) for _ in range(some.randrange(3, 9))) for _ in range(500)]
    data = b" ".join(some.choice(words) for _ in range(10000))
    rows = [{"id": i, "name": "row %d" % i, "values": [some.random() for _ in range(4)]} for i in range(200)]
    numbers = [some.randrange(1 << 30) for _ in range(10000)]
    while True:
        compress(data)
        digest(data)
        encode(rows)
        order(numbers)
        shared.page[1] += 1
        shared.ready()


if sys.argv[2] == "main":
    main()
else:
    thread = threading.Thread(target=main)
    thread.start()
    thread.join()
