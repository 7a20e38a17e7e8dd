"""A regular expression that holds the GIL for minutes, and threads that cannot continue without it."""
import re
import threading
import time


def restock():
    while True:
        time.sleep(0.001)


def serve():
    while True:
        time.sleep(0.001)


def check(number):
    return re.match("(x+x+)+y", number)


for task in (restock, serve):
    threading.Thread(target=task, name=task.__name__, daemon=True).start()
threading.Thread(target=threading.Event().wait, name="signals", daemon=True).start()
check("x" * 34)
