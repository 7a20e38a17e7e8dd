"""pace.py STATE THREADS busy|asleep: one thread counts its rounds in slot 1, the others sleep."""
import sys
import threading
import time

import shared


def sleeper(started):
    started.release()
    while True:
        time.sleep(1000)


def count():
    page = shared.page
    rounds = 0
    total = 0
    while True:
        for i in range(500):
            total += i
        total = 0
        rounds += 1
        page[1] = rounds


def main(threads):
    threading.stack_size(256 * 1024)
    started = threading.Semaphore(0)
    for _ in range(threads - 1):
        threading.Thread(target=sleeper, args=(started,), daemon=True).start()
        started.acquire()
    shared.ready()
    count() if sys.argv[3] == "busy" else time.sleep(1000)


main(int(sys.argv[2]))
