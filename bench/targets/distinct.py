"""distinct.py STATE BITS: goes through 2**BITS different stacks, one call of zero() or one() per bit, and works
briefly at the innermost call of each."""
import sys

import shared


def zero(number, left):
    if left:
        return (one if number & 1 else zero)(number >> 1, left - 1)
    return stay()


def one(number, left):
    if left:
        return (one if number & 1 else zero)(number >> 1, left - 1)
    return stay()


def stay():
    total = 0
    for i in range(40):
        total += i
    return total


def main(bits):
    mask = (1 << bits) - 1
    number = 0
    shared.ready()
    while True:
        number += 1
        zero(number * 0x9E3779B1 & mask, bits)  # an odd factor: every number once, far from its neighbours


main(int(sys.argv[2]))
