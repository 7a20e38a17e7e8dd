"""What every target of the bench shares with it: a page of numbers in a file, given as the first argument.

Slot 0 says that the target is ready, the others are its own. The bench reads the page while the target runs, so
that no signal and no output disturbs what is measured. A target ends by itself in the end, whatever becomes of
the bench."""
import mmap
import signal
import sys

LIFETIME = 900
SLOTS = 64


def slots():
    signal.alarm(LIFETIME)
    with open(sys.argv[1], "r+b") as file:
        return memoryview(mmap.mmap(file.fileno(), SLOTS * 8)).cast("d")


page = slots()


def ready():
    page[0] = 1.0
