"""Two threads that wait for each other's lock: what `spyglass dump` shows of a program that hangs."""
import threading
import time

stock, till = threading.Lock(), threading.Lock()


def sell():
    with stock:
        time.sleep(0.2)
        with till:
            print("sold")


def restock():
    with till:
        time.sleep(0.2)
        with stock:
            print("restocked")


threading.Thread(target=restock, name="restock").start()
sell()
