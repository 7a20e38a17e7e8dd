"""The program in the README's picture: reads orders, works out statistics, writes a report, over and over.

    python3 examples/report.py 30 &
    build/spyglass record --pid $! --function --rate 200 --duration 15 --output docs/images/flamegraph.svg
"""
import configparser
import csv
import io
import json
import random
import statistics
import sys
import textwrap
import time

random.seed(7)
ROWS = [(n, random.choice("ABCDEF"), "%.2f" % random.uniform(1, 99)) for n in range(400)]
ORDERS = "\n".join("%d,%s,%s" % row for row in ROWS)
SETTINGS = "\n".join("[store %d]\ncurrency = EUR\nopen = yes\n" % n for n in range(40))
TEXT = "The quick brown fox jumps over the lazy dog. " * 40


def read_orders():
    orders = {}
    for _, product, price in csv.reader(io.StringIO(ORDERS)):
        orders.setdefault(product, []).append(float(price))
    return orders


def read_settings():
    settings = configparser.ConfigParser()
    settings.read_string(SETTINGS)
    return settings


def summarise(prices):
    return {"mean": statistics.mean(prices), "spread": statistics.stdev(prices), "quarters": statistics.quantiles(prices)}


def write_page(summary):
    body = textwrap.fill(TEXT, width=72)
    return json.dumps({"body": body, "summary": summary}, indent=2)


def make_report():
    orders = read_orders()
    read_settings()
    summary = {product: summarise(prices) for product, prices in orders.items()}
    return [write_page(summary) for _ in range(3)]


def main(seconds):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        make_report()


if __name__ == "__main__":
    main(float(sys.argv[1]) if len(sys.argv) > 1 else 20)
