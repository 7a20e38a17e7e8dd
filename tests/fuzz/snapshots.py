"""Makes inputs of fuzz_process from real interpreters: starts one and keeps the memory that spyglass reads of it."""
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "live"))
from processes import at_rest  # noqa: E402

SNAPSHOT = ROOT / "build" / "tests" / "snapshot"
# Two threads, a generator, a method, and values of many types. Runs on 2.7, too.
PROGRAM = """
import os, sys, threading
class Thing(object):
    def __init__(self):
        self.numbers, self.text = [1, -2, 3.5, 10 ** 30], u"caf\\u00e9 \\U0001f40d"
    def method(self, *args, **more):
        pair = {"name": (None, True, b"bytes"), 7: set([1, 2])}
        for item in self.generator(pair):
            pass
    def generator(self, given):
        yield 1
        loop = [given]
        loop.append(loop)
        os.write(1, b"x")
        os.read(0, 1)
def works(thing):
    thing.method(1, two=2)
thread = threading.Thread(target=works, args=(Thing(),), name="worker")
thread.daemon = True
thread.start()
os.read(os.pipe()[0], 1)
"""


def prefix(python):
    """The directory of its libraries, as it sees it."""
    return subprocess.run([*python.command, "-c", "import sys; print(sys.prefix)"], check=True, stdout=subprocess.PIPE,
                          universal_newlines=True).stdout.strip()


def anonymous(data, path):
    """Replaces a directory of this machine with another name of the same length."""
    return data.replace(path.encode(), b"/usr".ljust(len(path), b"_")) if path != "/usr" else data


def make(python, grain, odds):
    """The bytes of an input: see snapshot.c. Raises CalledProcessError if the interpreter cannot be read."""
    process = subprocess.Popen([*python.command, "-c", PROGRAM], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        process.stdout.read(1)
        at_rest(process.pid)
        data = subprocess.run([str(SNAPSHOT), str(process.pid), str(grain), str(odds)], check=True,
                              stdout=subprocess.PIPE).stdout
    finally:
        process.kill()
        process.communicate()
    return anonymous(data, prefix(python))
