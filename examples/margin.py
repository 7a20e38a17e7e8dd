"""Two calls of one function in a line, for `spyglass dump --source`."""
import time


def rate(currency):
    time.sleep(3600 if currency == "USD" else 0)
    return 1.1


def margin(price, cost):
    return price * rate("EUR") - cost * rate("USD")


print("margin:", margin(price=20, cost=12))
