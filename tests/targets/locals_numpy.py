"""NumPy arrays and scalars as variables, and how dump should show them. Prints {"module": false} without NumPy."""
import json
import os
import sys

try:
    import numpy as np
except ImportError:
    np = None


def rest(values):
    sys.stdout.write(json.dumps({"module": True, "values": values}) + "\n")
    sys.stdout.flush()
    os.read(0, 1)
    os._exit(0)


def scalar(value):
    return "np.%s(%r)" % (type(value).__name__, value.item())


def variables():
    matrix, cube = np.zeros((2, 3)), np.ones((1, 2, 3), dtype=np.int16)
    floats, singles = np.array([1.5, 0.1, 1e20]), np.array([0.1, 2.5], dtype=np.float32)
    integers, unsigned, bools = np.array([1, -2, 3], dtype=np.int32), np.array([255], dtype=np.uint8), np.array([True, False])
    steps, backwards, empty, zero = np.arange(20)[::5], np.arange(3)[::-1], np.array([]), np.array(7)
    texts, objects = np.array(["a", "bc"]), np.array([None, 1], dtype=object)
    large = np.zeros((1000, 1000), dtype=np.float32)
    real, single, half = np.float64(2.5), np.float32(0.25), np.float16(0.5)
    number, small, true = np.int64(-3), np.uint8(200), np.bool_(True)
    nested = [np.float64(1.0), np.zeros(2)]
    kind = np.dtype("float64")
    rest({
        "matrix": "<ndarray shape=(2, 3) dtype=float64>", "cube": "<ndarray shape=(1, 2, 3) dtype=int16>",
        "floats": "<ndarray shape=(3,) dtype=float64: %r>" % floats.tolist(),
        "singles": "<ndarray shape=(2,) dtype=float32: [0.1, 2.5]>",
        "integers": "<ndarray shape=(3,) dtype=int32: %r>" % integers.tolist(),
        "unsigned": "<ndarray shape=(1,) dtype=uint8: [255]>", "bools": "<ndarray shape=(2,) dtype=bool: [True, False]>",
        "steps": "<ndarray shape=(4,) dtype=int64: [0, 5, 10, 15]>",
        "backwards": "<ndarray shape=(3,) dtype=int64: [2, 1, 0]>",
        "empty": "<ndarray shape=(0,) dtype=float64: []>", "zero": "<ndarray shape=() dtype=int64: 7>",
        "texts": "<ndarray shape=(2,) dtype=str>", "objects": "<ndarray shape=(2,) dtype=object>",
        "large": "<ndarray shape=(1000, 1000) dtype=float32>",
        "real": scalar(real), "single": scalar(single), "half": scalar(half), "number": scalar(number),
        "small": scalar(small), "true": "np.True_",
        "nested": "[np.float64(1.0), <ndarray shape=(2,) dtype=float64: [0.0, 0.0]>]", "kind": "dtype('float64')",
    })


if np is None:
    sys.stdout.write('{"module": false}\n')
    sys.stdout.flush()
else:
    variables()
