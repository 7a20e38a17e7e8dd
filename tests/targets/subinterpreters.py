"""A thread in two interpreters: the main one waits in main_waits while the other hashes, without the GIL, in sub_hashes.
A third interpreter does not run. sub_hashes prints a line first."""
import sys

try:
    import _interpreters as module
except ImportError:
    import _xxsubinterpreters as module

SUB = """
import hashlib, os
def sub_hashes():
    data = b"x" * (1 << 22)
    os.write(1, b"1\\n")
    while True:
        hashlib.sha256(data).hexdigest()
sub_hashes()
"""


def main_waits(interpreter):
    getattr(module, "exec", module.run_string)(interpreter, SUB)


if __name__ == "__main__":
    kind = ("legacy",) if sys.version_info >= (3, 13) else ()  # hashlib is not for isolated ones in every version
    interpreter = module.create(*kind)
    other = module.create(*kind)
    main_waits(interpreter)
