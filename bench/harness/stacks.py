"""Parses the output of a profiler into a Counter of stacks, each a tuple of function names, root first; and checks
them.

Pure functions over bytes and tuples; `bench/run --self-test` tests them."""
import collections
import re

CHAIN = re.compile(r"c(\d\d)_f(\d)$")
ROOT = ("<module>", "main")
DISPATCH = ("dispatch_plain", "dispatch_generator", "dispatch_coroutine")
# Frames that are not functions: of the garbage collector, of native code, or a placeholder for frames that the profiler
# left out because it could not verify them.
MARKS = re.compile(r"<GC>$|<native>$|<gc>$|\[.*\]$|\.\.\.$|…$")


def bare(name):
    """A function's name without its class: not all tools show qualified names."""
    return name.rsplit(".", 1)[-1]


def without_marks(names):
    return tuple(bare(n) for n in names if not MARKS.match(n))


def from_raw(text):
    """`<module> (a.py:6);f (a.py:3) 99`, as py-spy and spyglass write it."""
    counts = collections.Counter()
    for line in text.splitlines():
        stack, _, count = line.rpartition(" ")
        names = (frame.rsplit(" (", 1)[0] for frame in stack.split(";"))
        counts[without_marks(names)] += int(count)
    return counts


def from_collapsed(text):
    """`tid:1;a.py:<module>:8;a.py:f:3 12`, as CPython's profiler writes it."""
    counts = collections.Counter()
    for line in text.splitlines():
        stack, _, count = line.rpartition(" ")
        frames = [f for f in stack.split(";") if not f.startswith("tid:")]
        counts[without_marks(f.rsplit(":", 2)[-2] if f.count(":") >= 2 else f for f in frames)] += int(count)
    return counts


NUMBER = rb"[\x80-\xff]*[\x00-\x7f]"
EVENTS = re.compile(  # austin's binary format: one alternative for each event between stacks or inside of them
    rb"(?P<stack>\x02" + NUMBER + NUMBER + rb"[^\0]*\0)"
    rb"|(?P<refs>(?:\x05" + NUMBER + rb")+)"
    rb"|(?P<end>\x09" + NUMBER + rb")"
    rb"|\x0b(?P<key>" + NUMBER + rb")(?P<text>[^\0]*)\0"
    rb"|\x03(?P<frame>" + NUMBER + rb")" + NUMBER + rb"(?P<scope>" + NUMBER + rb")" + NUMBER * 4 +
    rb"|(?P<invalid>\x04)|\x06[^\0]*\0|\x07|\x08|\x0a" + NUMBER + rb"|\x01[^\0]*\0[^\0]*\0|\x0c" + NUMBER, re.DOTALL)
REF = re.compile(rb"\x05(" + NUMBER + rb")", re.DOTALL)


def from_mojo(data):
    """austin's binary format: it defines strings and frames on first use, then refers to them by key. The keys stay
    bytes: nothing here needs their value."""
    strings, scopes = {}, {}
    seen = collections.Counter()
    parts, at = None, 4
    while match := EVENTS.match(data, at):
        at = match.end()
        kind = match.lastgroup
        if kind == "refs":
            parts.append(match["refs"])
        elif kind == "end" and parts is not None:
            seen[b"".join(parts)] += 1
            parts = None
        elif kind == "stack":
            parts = []
        elif kind == "text":
            strings[match["key"]] = match["text"].decode(errors="replace")
        elif kind == "scope":
            scopes[match["frame"]] = match["scope"]
        elif kind == "invalid":
            parts.append(b"\x05\x04")
    if len(data) - at > 65536:  # the last stack may be truncated, by as much as one buffer
        raise ValueError(f"austin's file is not understood at byte {at}")
    counts = collections.Counter()
    for refs, count in seen.items():
        names = (strings.get(scopes.get(key), "(invalid)") for key in REF.findall(refs))
        counts[without_marks(names)] += count
    return counts


def judge_chain(names):
    """Classifies a stack of targets/chains.py: "outside" of all chains, "ok", or the way in which it is impossible."""
    head = names[:2]
    if head != ROOT[:len(names)]:
        return "rootless"
    if len(names) <= 2:
        return "outside"
    if names[2] not in DISPATCH:
        return "gap" if CHAIN.match(names[2]) else "outside" if len(names) == 3 and names[2] == "ready" else "other"
    links = [CHAIN.match(name) for name in names[3:]]
    if not links:
        return "outside"
    if not all(links):
        return "other"
    if len({link[1] for link in links}) > 1:
        return "mixed"
    steps = [int(link[2]) for link in links]
    if steps == list(range(len(steps))):
        return "ok"
    return "gap" if steps == sorted(set(steps)) else "order"


def check_chains(counts):
    """Counter of stacks -> dict: total (samples), inside (those in chains), impossible, ppm (of all), depth (mean
    number of chain frames in the possible ones, including those cut down to the dispatcher), kinds (number of each
    kind)."""
    kinds = collections.Counter()
    frames = 0
    for names, count in counts.items():
        kind = judge_chain(names)
        kinds[kind] += count
        frames += count * (len(names) - 3) if kind == "ok" else 0
    good = kinds.pop("ok", 0)
    outside = kinds.pop("outside", 0)
    bad = sum(kinds.values())
    inside, total = good + bad, good + bad + outside
    return {"total": total, "inside": inside, "impossible": bad, "ppm": bad * 1e6 / total if total else None,
            "depth": frames / (good + outside) if good else 0.0, "kinds": dict(kinds)}


def shares(counts, parts):
    """The percentage of samples that have a function of each part, among those that have any."""
    totals = [0] * len(parts)
    for names, count in counts.items():
        for i, part in enumerate(parts):
            if part in names:
                totals[i] += count
                break
    whole = sum(totals)
    return [100 * t / whole for t in totals] if whole else None


def self_test():
    root = ("<module>", "main", "dispatch_plain")
    cases = [(root + ("c03_f0", "c03_f1"), "ok"), (root + ("c03_f0",), "ok"), (root, "outside"), (root[:1], "outside"),
             (root + ("c03_f0", "c04_f1"), "mixed"), (root + ("c03_f0", "c03_f2"), "gap"),
             (root + ("c03_f1", "c03_f2"), "gap"), (root + ("c03_f1", "c03_f0"), "order"),
             (root + ("c03_f0", "c03_f0"), "order"), (("c03_f0", "c03_f1"), "rootless"), ((), "outside"),
             (root[1:] + ("c03_f0",), "rootless"), (root[:2] + ("c03_f0",), "gap"), (root + ("(invalid)",), "other")]
    for names, want in cases:
        assert judge_chain(names) == want, (names, want, judge_chain(names))
    raw = ("<module> (a.py:1);main (a.py:2);dispatch_plain (a.py:3);Chain03.c03_f0 (a.py:4) 7\n"
           "<module> (a.py:1);main (a.py:2);dispatch_plain (a.py:3);c03_f0 (a.py:4);c03_f2 (a.py:4) 1\n")
    got = check_chains(from_raw(raw))
    assert (got["inside"], got["impossible"], got["ppm"], got["depth"]) == (8, 1, 125000.0, 1.0), got
    got = from_collapsed("tid:5;a.py:<module>:8;a.py:K.f:3;<GC> 12\n")
    assert got == {("<module>", "f"): 12}, got
    mojo = (b"MOJ\x03\x01mode\0wall\0" b"\x02\x98\xd9\x03\x007658\0" b"\x0b\xb0\x01a.py\0\x0b\x05f\0\x0b\x06g\0"
            b"\x03\x0a\xb0\x01\x05\x01\x01\x01\x01\x03\x0b\xb0\x01\x06\x02\x02\x02\x02\x05\x0a\x05\x0b\x09\x0b"
            b"\x02\x98\xd9\x03\x007658\0\x05\x0a\x05\x0b\x09\x0b" b"\x02\x98\xd9\x03\x007658\0\x05\x0a\x04\x09\x0b")
    got = from_mojo(mojo)
    assert got == {("f", "g"): 2, ("f", "(invalid)"): 1}, got
    assert shares(collections.Counter({("m", "a"): 3, ("m", "b", "x"): 1, ("m",): 9}), ("a", "b")) == [75.0, 25.0]
