"""A function with arguments and variables of several types, for `spyglass dump --locals`."""
import time
from decimal import Decimal


class Customer:
    pass


def charge(customer, amount, api_key, retries=3):
    for attempt in range(1, retries):
        url = "https://pay.example/v1"
        seen = {"amount": [amount], "currency": "EUR"}
        time.sleep(3600)


charge(Customer(), Decimal("19.90"), "sk-5c2f81")
