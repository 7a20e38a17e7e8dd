"""dump -l: the variables of every frame, compared with what the target reports."""
import json
import re
import time

import pytest
from processes import at_rest
from program import PY_SPY, WAIT, run
from pythons import DEBIAN, PYTHONS
from stacks import parse_json

VALUES = ["numbers", "decimals", "texts", "containers", "cycles", "times", "exceptions", "subclasses", "objects"]
FRAMES = ["arguments", "many", "generators", "comprehensions"]
NEWER = {"keyword_only": (3, 0), "star_keyword_only": (3, 0), "positional_only": (3, 8), "coroutines": (3, 5),
         "deleted_cells": (3, 2)}
FRAMES += [pytest.param(name, marks=pytest.mark.since(*version)) for name, version in NEWER.items()]
SECRET = "hunter"


def frames_of(target, *flags):
    """The main thread's frames from JSON, innermost first, without the frame that blocks and <module>."""
    result = run("dump", "--pid", at_rest(target.pid), "--json", *flags).check()
    frames = parse_json(result.out)[0]["frames"]
    assert [f["name"] for f in (frames[0], frames[-1])] == ["rest", "<module>"], result
    return frames[1:-1]


def check_frame(frame, truth):
    assert frame["name"].rpartition(".")[2] == truth["name"]
    for var in frame["locals"]:
        assert set(var) == {"name", "addr", "arg", "repr"} and var["addr"] > 0, var
    order = [var["arg"] for var in frame["locals"]]
    assert order == sorted(order, reverse=True), "arguments come first"
    assert [[var["name"], var["repr"]] for var in frame["locals"] if var["arg"]] == truth["args"]
    found = {var["name"]: var["repr"] for var in frame["locals"] if not var["arg"]}
    assert len(found) == len(order) - len(truth["args"]), "a variable comes twice"
    assert found == truth["locals"]


def check_frames(target, *flags):
    frames = frames_of(target, *flags)
    assert len(frames) == len(target.truth["frames"])
    for frame, truth in zip(frames, target.truth["frames"]):
        check_frame(frame, truth)
    return frames


def text_frames(text):
    """The arguments and locals of each frame of the first thread, from text."""
    frames, block = [], None
    for line in text.split("\n"):
        if re.match(r"    \S", line):
            frames.append({"Arguments": {}, "Locals": {}})
        elif re.match(r"        (Arguments|Locals):$", line):
            block = frames[-1][line.strip(" :")]
        elif line.startswith(" " * 12):
            name, _, value = line[12:].partition(": ")
            block[name] = value
    return frames


@pytest.mark.smoke
@pytest.mark.pairwise
@pytest.mark.parametrize("kind", VALUES)
def test_repr(spawn, python, kind):
    check_frames(spawn(python, "locals_values.py", kind), "-lll" if kind != "objects" else "-l")


@pytest.mark.parametrize("kind", FRAMES)
def test_frames(spawn, python, kind):
    check_frames(spawn(python, "locals_values.py", kind), "-l")


def test_class_body(spawn, python):
    """The names of a class body are in a dict: only the variables of the enclosing scope are shown."""
    target = spawn(python, "locals_values.py", "class_body")
    body, function, main = frames_of(target, "-l")
    assert [(v["name"], v["repr"], v["arg"]) for v in body["locals"]] == [("before", "1", False)]
    check_frame(function, target.truth["frames"][1])


def test_attributes(spawn, python):
    check_frames(spawn(python, "locals_values.py", "attributes"), "-ll")


@pytest.mark.since(3, 4)
def test_enums(spawn, python):
    check_frames(spawn(python, "locals_values.py", "enums"), "-l")


@pytest.mark.since(3, 0)
@pytest.mark.until(3, 11)
def test_not_ready_text(spawn, python):
    check_frames(spawn(python, "locals_values.py", "legacy"), "-l")


def test_text(spawn, python):
    target = spawn(python, "locals_values.py", "arguments")
    result = run("dump", "--pid", at_rest(target.pid), "--locals").check()
    frame, truth = text_frames(result.out)[1], target.truth["frames"][0]
    assert list(frame["Arguments"].items()) == [tuple(pair) for pair in truth["args"]]
    assert frame["Locals"] == truth["locals"]
    assert "        Arguments:\n            a: 1\n            b: 2\n" in result.out
    plain = run("dump", "--pid", at_rest(target.pid)).check().out
    assert "Arguments:" not in plain and "Locals:" not in plain


def test_no_control_characters(spawn, python):
    target = spawn(python, "locals_values.py", "texts")
    for flags in (["-ll"], ["-ll", "--json"]):
        out = run("dump", "--pid", at_rest(target.pid), *flags).check().out
        assert not re.search(u"[\x00-\x09\x0b-\x1f\x7f-\xa0\u200e\u200f\u2028-\u202e\u2066-\u2069]", out)


def test_secrets(spawn, python):
    target = spawn(python, "locals_values.py", "secrets")
    for level in ("-l", "-ll", "-lll"):
        for flags in ([], ["--json"]):
            out = run("dump", "--pid", at_rest(target.pid), level, *flags).check().out
            assert "<masked>" in out and re.findall(r"hunter\d+", out) == ["hunter2"], out  # `closed` has it
    inner, frame, _ = frames_of(target, "-ll")
    values = {v["name"]: v["repr"] for v in frame["locals"]}
    for name in ("password", "api_key", "APIKey", "auth_token", "client_secret", "key", "passwd", "credentials"):
        assert values[name] == "<masked>", name
    assert [values[name] for name in ("monkey", "tokenizer", "keyboard")] == ["'animal'", "'tool'", "'desk'"]
    assert values["none_token"] == "None"
    assert "'user': 'me'" in values["settings"] and "'password': <masked>" in values["settings"]
    assert "password=<masked>" in values["holder"] and "password=<masked>" in values["point"]
    values = {v["name"]: v["repr"] for v in inner["locals"]}
    assert values["token"] == values["keys"] == values["tokens"] == values["password"] == "<masked>"
    out = run("dump", "--pid", at_rest(target.pid), "-lll", "--show-secrets").check().out
    assert set(re.findall(r"hunter\d+", out)) == {"hunter%d" % i for i in range(2, 18)}


LIMITS = {"-l": 256, "-ll": 2048, "-lll": 16384}


def test_lengths(spawn, python):
    """Values are short however large the object is, and show that there is more."""
    target = spawn(python, "locals_values.py", "lengths")
    found = {}
    for flag, limit in LIMITS.items():
        frame = frames_of(target, flag)[0]
        found[flag] = {v["name"]: v["repr"] for v in frame["locals"]}
        for name, value in found[flag].items():
            assert len(value.encode()) <= limit + 600, (flag, name, len(value))
    first = found["-l"]
    for name, start in {"long_list": "[0, 1, 2, ", "long_tuple": "(0, 1, 2, ", "long_text": "u'xxx", "long_bytes": "b'yyy",
                        "long_array": "bytearray(b'\\x00", "wide_nest": "[[[[0, 0], [1, 0], "}.items():
        assert first[name].startswith((start, start.lstrip("ub"))), first[name]
    for name, value in first.items():
        assert "..." in value or name in ("longer_int", "i", "_", "sparse") or len(value) < 250, (name, value)
    assert first["deep"].count("[") <= 20 and "[...]" in first["deep"]
    assert re.match(r"<int of \d+ bits>$", first["longer_int"])
    assert first["long_int"].startswith(str(7 ** 5000)[:200]) and first["long_int"].rstrip("L").endswith("...")
    assert len(re.findall(r"\d+: \d+", first["sparse"])) == 10
    assert len(first["long_list"]) < len(found["-ll"]["long_list"]) < len(found["-lll"]["long_list"])


def test_recursion(spawn, python):
    """A thousand frames of one function, each with its own values."""
    target = spawn(python, "locals_values.py", "recursion")
    frames = frames_of(target, "-l")
    assert len(frames) == 1002
    for i, frame in enumerate(frames[1:-1], 1):
        values = {v["name"]: v["repr"] for v in frame["locals"]}
        assert values == {"n": str(i), "below": "[%d]" % i}


def test_nonblocking(spawn, python):
    check_frames(spawn(python, "locals_values.py", "containers"), "-lll", "--nonblocking")


def test_running(spawn, python):
    """The variables of a running thread are from one moment."""
    target = spawn(python, "locals_busy.py")
    seen, end = set(), time.monotonic() + WAIT
    while len(seen) < 6:
        assert time.monotonic() < end, "turn() was seen only with %r" % seen
        for frame in parse_json(run("dump", "--pid", target.pid, "--json", "-l").check().out)[0]["frames"]:
            values = {v["name"]: v["repr"] for v in frame["locals"] if v["name"] != "_"}
            if frame["name"] == "turn":
                assert values == {"n": values["n"], "copies": "[%s, %s]" % (values["n"], values["n"])}, values
                seen.add(values["n"])


def test_py_spy_name(spawn):
    target = spawn(PYTHONS[0], "locals_values.py", "arguments")
    at_rest(target.pid)
    out = run("dump", "-l", "-l", "-p", target.pid, "-j", program=PY_SPY).check().out
    assert json.loads(out)[0]["frames"][1]["locals"][0] == dict(
        json.loads(out)[0]["frames"][1]["locals"][0], name="a", arg=True, repr="1")


def test_numpy(spawn, python):
    target = spawn(python, "locals_numpy.py")
    if not target.truth["module"]:
        assert python is not DEBIAN, "tools/setup brings NumPy for this one"
        pytest.skip("this Python has no NumPy")
    frames = parse_json(run("dump", "--pid", at_rest(target.pid), "--json", "-l").check().out)[0]["frames"]
    assert {v["name"]: v["repr"] for v in frames[1]["locals"]} == target.truth["values"]
