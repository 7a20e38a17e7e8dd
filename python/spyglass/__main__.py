"""python -m spyglass: the program itself, in the place of this interpreter."""
import os
import sys

from ._binary import binary

if __name__ == "__main__":
    try:
        path = binary()
    except FileNotFoundError as error:
        sys.exit("Error: %s" % error)
    os.execv(path, ["spyglass"] + sys.argv[1:])
