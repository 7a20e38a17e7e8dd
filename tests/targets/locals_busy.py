"""Runs forever. In turn(), `copies` always holds `n` twice, at any instruction at which it is set."""
import os
import sys
import threading


def turn(n, copies):
    for _ in range(2000):
        pass


def main():
    n = 0
    while True:
        turn(n, [n, n])
        n += 1


def end_with_input():
    os.read(0, 1)
    os._exit(0)


waiter = threading.Thread(target=end_with_input)
waiter.daemon = True
waiter.start()
sys.stdout.write("{}\n")
sys.stdout.flush()
main()
