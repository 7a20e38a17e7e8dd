"""Spends its time in a C library, for `spyglass dump --native`."""
import os
import zlib


def pack(data):
    return zlib.compress(data, 9)


def backup(data):
    while True:
        pack(data)


backup(os.urandom(1 << 24))
