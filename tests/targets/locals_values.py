# -*- coding: utf-8 -*-
"""Frames with many kinds of variables, and what the target itself says about them.

    locals_values.py KIND       one of the functions below: main() calls it, and it blocks in rest()

Prints one line of JSON: {"frames": [{"name", "args": [[name, text]...], "locals": {name: text}}...]}, innermost
frame first. Each text is the repr() or, where dump shows more or less than that, what dump should show. Then it
waits until standard input is closed. Runs on 2.7 and on every 3.x.
"""
import array
import collections
import ctypes
import datetime
import decimal
import json
import os
import re
import sys
import time

PY2 = sys.version_info[0] == 2
INF = float("inf")
shown = {}  # id of an object -> the text that dump shows for it; keeps the object alive
kept = []

if not PY2:
    long, unicode, unichr = int, str, chr


def show(value, text):
    """Records how dump shows the value; returns the value."""
    shown[id(value)] = text
    kept.append(value)
    return value


def text_of(value):
    if id(value) in shown:
        return shown[id(value)]
    return re.sub("^<([^<> ]*) object at (0x[0-9a-f]+)>$", r"<\1 at \2>", repr(value))


def count_args(code):
    n = code.co_argcount + getattr(code, "co_kwonlyargcount", 0)
    return n + bool(code.co_flags & 4) + bool(code.co_flags & 8)


def tell(frame):
    """A frame's variables, as the interpreter reports them."""
    code, variables = frame.f_code, dict(frame.f_locals)
    names = code.co_varnames[:count_args(code)]
    args = [[name, text_of(variables.pop(name))] for name in names if name in variables]
    return {"name": code.co_name, "args": args, "locals": {name: text_of(value) for name, value in variables.items()}}


def rest():
    frames, frame = [], sys._getframe(1)
    while frame.f_code.co_name != "<module>":
        frames.append(tell(frame))
        frame = frame.f_back
    sys.stdout.write(json.dumps({"frames": frames}) + "\n")
    sys.stdout.flush()
    del frames, frame
    os.read(0, 1)
    os._exit(0)


# ---- values that dump shows differently from repr() ----

class Plain(object):
    def __init__(self):
        self.first = 1
        self.second = "two"
        self.third = [3.0]

    def method(self):
        return self


class Slotted(object):
    __slots__ = ("left", "right", "unset")

    def __init__(self):
        self.left = 1
        self.right = (2, 3)


class SlottedMore(Slotted):
    __slots__ = ("more", "__dict__")

    def __init__(self):
        Slotted.__init__(self)
        self.more = None
        self.attribute = u"x"


class Old:
    def __init__(self):
        self.name = "old"


class MyInt(int):
    pass


class MyFloat(float):
    pass


class MyStr(str):
    pass


class MyBytes(bytes):
    pass


class MyTuple(tuple):
    pass


class MyList(list):
    pass


class MyDict(dict):
    pass


class MySet(set):
    pass


class MyError(ValueError):
    pass


class IntWithDict(int):
    pass


class Shadow(object):
    """Has the name of a builtin, but is none."""
    def __init__(self):
        self.real = False


Shadow.__name__ = "int"


class Meta(type):
    pass


WithMeta = Meta("WithMeta", (object,), {})


def plain(value):
    return show(value, "<%s at 0x%x>" % (value.__class__.__name__, id(value)))


def define(source, name="f"):
    """A function in a syntax that not every Python has."""
    space = {"rest": rest}
    exec(source, space)
    return space[name]


# ---- kinds ----

def numbers():
    none, yes, no = None, True, False
    zero, one, minus = 0, 1, -1
    small, large, larger = 12345, 2 ** 31, 2 ** 62
    edge_a, edge_b, edge_c, edge_d = 2 ** 30 - 1, 2 ** 30, 2 ** 60 - 1, 2 ** 60
    minimal, maximal = -sys.maxsize - 1, sys.maxsize
    huge, huge_minus, googol = 3 ** 300, -7 ** 222, 10 ** 100
    nines = 10 ** 45 - 1
    long_zero, long_one, long_minus = long(0), long(1), -long(99999999999)
    floats = [0.0, -0.0, 1.0, -1.5, 0.1, 1e15, 1e16, 1e17, 123456789012345680.0, 0.0001, 0.00001, 1e-5, 1.5e-7]
    more_floats = [3.141592653589793, 1 / 3.0, 2.0 / 3, 1e100, 1e-100, 5e-324, 1.7976931348623157e308, 2.0 ** 172]
    powers = [2.0 ** 182, 2.0 ** -44, 2.0 ** 398, 2.0 ** -1022, 9007199254740993.0, 4.35, 100.0, 1e22, 1e23]
    infinite, negative_infinite, not_a_number = INF, -INF, float("nan")
    plain_float = 2.5
    complexes = [1j, 0j, 1 + 2j, -1.5 - 2.5j, complex(0, -1), complex(-0.0, 1), complex(INF, -INF), 1e20 + 1e-9j]
    odd_complex = complex(float("nan"), float("nan"))
    rest()


def decimals():
    if PY2:
        return rest()  # there it is a class written in Python
    texts = ["0", "1", "-1", "3.14", "1E+5", "1E-7", "0.000001", "-0.00", "123456789012345678901234567890.123",
             "Infinity", "-Infinity", "NaN", "sNaN", "NaN123", "1E+1000", "0E-10", "12345678901234567890", "10E+3"]
    d0, d1, d2, d3, d4, d5, d6, d7, d8, d9, d10, d11, d12, d13, d14, d15, d16, d17 = map(decimal.Decimal, texts)
    many = [decimal.Decimal(10) ** n for n in range(-10, 30, 7)]
    product = decimal.Decimal(3) ** 50
    del texts
    rest()


def texts():
    empty, ascii_text, quotes, both = "", "plain", "it's", "it's \"both\""
    double, backslash = 'say "no"', "a\\b"
    controls = "\t\n\r\x00\x01\x1b[31m\x7f"
    latin = u"caf\xe9 \xa0\xad\xff\x85"
    wide = u"\u0141\u00f3d\u017a \u4e2d\u6587 \u202e\u2028\u200b\ufeff\ue000"
    astral = u"\U0001f600 \U0001d518 \U000e0001 \U0010ffff"
    surrogates = u"\udc80 \ud800 x"
    unicode_empty, unicode_ascii, unicode_quotes = u"", u"abc", u"it's"
    latin_only, kana = u"\xe4", u"\u304b"
    raw, raw_quotes, raw_all = b"bytes", b"it's", bytes(bytearray(range(0, 256, 7)))
    raw_empty = b""
    array_of_bytes, empty_array = bytearray(b"ab\x00\xff'"), bytearray()
    shifted = bytearray(b"0123456789")
    del shifted[:3]
    interned = sys.intern("interned") if not PY2 else intern("interned")
    rest()


def containers():
    empty_list, empty_tuple, empty_dict, empty_set, empty_frozen = [], (), {}, set(), frozenset()
    one_tuple, pair, triple = (1,), (1, "two"), (1, (2, (3,)))
    flat, nested = [1, 2.5, "x", None, True], [[1, [2, [3, []]]], {"a": [1]}]
    mapping, mixed = {"a": 1}, {1: "one", (2, 3): [4], None: {"x": {}}, b"b": 1.5}
    grown = {"n%d" % i: i for i in range(20)}
    shrunk = dict(grown)
    for i in range(15):
        del shrunk["n%d" % i]
    integers = {i: i * i for i in range(8)}
    one_set, small_set, text_set, frozen = {1}, {1, 2, 3}, {"x"}, frozenset([7, 8])
    removed = {1, 2, 3, 4, 5, 6, 7}
    removed.discard(3)
    removed.discard(5)
    large_set = set(range(0, 200, 9))
    sequence, counted, stepped = range(5), range(1, 10), range(0, 20, 3)
    if PY2:
        sequence, counted, stepped = xrange(5), xrange(1, 10), xrange(0, 20, 3)
        backwards, nothing = xrange(10, 0, -4), xrange(0)
    else:
        backwards, huge_range = range(10, 0, -4), range(2 ** 70, 2 ** 71)
    a_slice, half_slice = slice(1, 2, None), slice(None, "x", 3)
    dots, not_implemented = Ellipsis, NotImplemented
    own_dict = Plain().__dict__
    if not PY2:
        queue, bounded = collections.deque([1, "a"]), collections.deque(range(5), maxlen=3)
        long_queue = collections.deque(range(100))
        for _ in range(70):
            long_queue.popleft()
        ordered = collections.OrderedDict([("z", 1), ("a", 2), ("m", 3)])
        ordered.move_to_end("z")
        ordered_empty = collections.OrderedDict()
    defaults = collections.defaultdict(list, {"k": [1]})
    no_defaults = collections.defaultdict(None, {1: 2})
    numbers_array, letters = array.array("d", [1.0, 2.5]), array.array("i", [-1, 2])
    empty_numbers = array.array("b")
    rest()


def cycles():
    ring = [1]
    ring.append(ring)
    table = {"self": None}
    table["self"] = table
    first, second = [1], [2]
    first.append(second)
    second.append(first)
    inside = ([],)
    inside[0].append(inside)
    rest()


def times():
    day = datetime.date(2024, 2, 29)
    moment, with_seconds = datetime.datetime(2024, 2, 29, 13, 5), datetime.datetime(1, 1, 1, 0, 0, 59)
    with_micros = datetime.datetime(9999, 12, 31, 23, 59, 59, 999999)
    clock, clock_seconds, clock_micros = datetime.time(1, 2), datetime.time(1, 2, 3), datetime.time(0, 0, 0, 4)
    nothing, days, negative = datetime.timedelta(0), datetime.timedelta(5), datetime.timedelta(microseconds=-1)
    mixed, seconds = datetime.timedelta(1, 2, 3), datetime.timedelta(seconds=7)
    if not PY2:
        utc, named = datetime.timezone.utc, datetime.timezone(datetime.timedelta(hours=1), "CET")
        unnamed = datetime.timezone(datetime.timedelta(hours=-5))
        aware = datetime.datetime(2024, 2, 29, 13, 5, tzinfo=datetime.timezone.utc)
        folded = datetime.datetime(2024, 10, 27, 2, 30, fold=1)
        clock_aware = datetime.time(1, 2, tzinfo=unnamed)
    rest()


def exceptions():
    empty, one, two = ValueError(), ValueError("message"), KeyError("k", 2)
    own = MyError("mine")
    system = OSError(2, "No such file")
    try:
        {}["missing"]
    except KeyError as e:
        caught = e
    try:
        raise RuntimeError([1, {"a": "b"}])
    except RuntimeError as e:
        nested = e
    group = ExceptionGroup("several", [ValueError(1), TypeError("t")]) if sys.version_info >= (3, 11) else None
    if sys.version_info >= (3, 15):
        group = None  # has its own repr()
    rest()


def subclasses():
    my_int = show(MyInt(5), "MyInt(5)")
    if not PY2:
        my_big = show(MyInt(-2 ** 70), "MyInt(%d)" % -2 ** 70)
    my_float = show(MyFloat(1.5), "MyFloat(1.5)")
    my_str, my_wide = show(MyStr("text"), "MyStr('text')"), None
    my_bytes = show(MyBytes(b"by"), "MyBytes(%r)" % b"by")
    if not PY2:
        my_wide = show(MyStr(u"\u4e2d\U0001f600"), u"MyStr('\u4e2d\U0001f600')")
    my_tuple = show(MyTuple([1, 2]), "MyTuple((1, 2))")
    my_list, my_dict = show(MyList([1, 2]), "MyList([1, 2])"), show(MyDict(a=1), "MyDict({'a': 1})")
    my_set = show(MySet([1]), "MySet([1])" if PY2 else "MySet({1})")
    point = collections.namedtuple("Point", "x y")(1, "two")
    if not PY2:
        moment = time.gmtime(0)
        usage = os.times()
    counter = show(collections.Counter("aab"), None)
    shown[id(counter)] = "Counter(%s)" % dict.__repr__(counter)
    rest()


def objects():
    instance, slotted, more = plain(Plain()), plain(Slotted()), plain(SlottedMore())
    old = plain(Old())
    not_an_int = show(Shadow(), None)
    shown[id(not_an_int)] = "<int at 0x%x>" % id(not_an_int)
    bare = show(object(), None)
    shown[id(bare)] = "<object at 0x%x>" % id(bare)
    kind, builtin_kind, error_kind, with_meta = Plain, int, ValueError, WithMeta
    module_kind, stamp_kind = decimal.Decimal, datetime.datetime
    local_kind = type("Local", (), {})
    module = show(json, "<module 'json'>")
    builtin_module = show(sys, "<module 'sys'>")

    def inner():
        pass

    function, lambda_function, global_function = inner, lambda: 0, rest
    builtin, builtin_method = len, [].append
    method = show(Plain().method, None)
    me = method.__self__
    shown[id(me)] = "<Plain at 0x%x>" % id(me)
    name = "Plain.method" if not PY2 else "method"
    shown[id(method)] = "<bound method %s of %s>" % (name, shown[id(me)])
    descriptor, wrapper, attribute = str.upper, int.__add__, (lambda: 0).__code__.__class__.co_name
    generator = (i for i in ())
    code = inner.__code__
    rest()


def described(value, names):
    """A plain object with its attributes."""
    pairs = ["%s=%s" % (name, text_of(getattr(value, name))) for name in names if hasattr(value, name)]
    return show(value, "<%s at 0x%x: %s>" % (value.__class__.__name__, id(value), ", ".join(pairs)))


def attributes():
    """For dumps with -ll."""
    instance, old = Plain(), Old()
    described(instance, instance.__dict__)
    described(old, old.__dict__)
    late = Plain()
    del late.first
    late.first = "again"
    late.more = None
    described(late, late.__dict__)
    slotted, more = described(Slotted(), ["left", "right"]), SlottedMore()
    described(more, ["left", "right", "more", "attribute"])
    empty = described(SlottedMore.__mro__[2](), [])
    shown[id(empty)] = "<object at 0x%x>" % id(empty)
    inner = Plain()
    outer = Plain()
    outer.inner = described(inner, inner.__dict__)
    described(outer, outer.__dict__)
    many = Plain()
    for i in range(40):
        setattr(many, "a%d" % i, i)
    described(many, many.__dict__)
    taken = Plain()
    own = taken.__dict__  # from here on it has its own dict
    taken.fourth = 4
    described(taken, own)
    itself = Plain()
    itself.me = itself
    shown[id(itself)] = "<Plain at 0x%x: %s>" % (id(itself), ", ".join(
        "%s=%s" % (k, "<Plain at 0x%x>" % id(itself) if k == "me" else repr(v)) for k, v in itself.__dict__.items()))
    listed = [inner, 1]
    shown[id(listed)] = "[%s, 1]" % shown[id(inner)]
    rest()


def secrets():
    password, api_key, APIKey, auth_token, client_secret = "hunter2", "hunter3", "hunter4", b"hunter5", ["hunter6"]
    key, passwd, credentials, none_token = 4711, "hunter7", ("hunter8",), None
    monkey, tokenizer, keyboard = "animal", "tool", "desk"
    settings = {"user": "me", "password": "hunter9", "deep": {"SECRET_KEY": "hunter10"}, b"token": "hunter11"}
    holder = Plain()
    holder.password = "hunter12"
    point = collections.namedtuple("Login", "user password")("me", "hunter13")

    def inner(token, *keys, **tokens):
        closed = password
        rest()
    inner("hunter14", "hunter15", x="hunter16", password="hunter17")


def lengths():
    long_list, long_tuple, long_set = list(range(100000)), tuple(range(100000)), set(range(100000))
    long_dict = {i: i for i in range(300000)}
    long_text, long_bytes, long_array = u"x" * 1000000, b"y" * 1000000, bytearray(1000000)
    long_wide = u"\U0001f600" * 100000
    deep = []
    for _ in range(2000):
        deep = [deep]
    deep_dict = {}
    for _ in range(2000):
        deep_dict = {"d": deep_dict}
    long_int, longer_int = 7 ** 5000, 1 << 10000000
    sparse = {i: i for i in range(100000)}
    for i in range(99990):
        del sparse[i]
    wide_nest = [[[[i, j] for i in range(30)] for j in range(30)] for k in range(30)]
    objects = [Plain() for _ in range(1000)]
    shown.update((id(v), "") for v in list(locals().values()))
    rest()


def legacy():
    """A str that is not "ready", created by a legacy interface: up to 3.11."""
    make = ctypes.pythonapi.PyUnicode_FromUnicode
    make.restype = ctypes.c_void_p
    data = ctypes.pythonapi.PyUnicode_AsUnicode
    data.restype = ctypes.c_void_p
    data.argtypes = [ctypes.c_void_p]
    address = make(None, ctypes.c_ssize_t(6))
    ctypes.memmove(data(address), (ctypes.c_wchar * 6)(*u"ab\u4e2d\xe9'\n"), 24)
    make = data = None
    holder = [None]  # sets the item behind Python's back: using the str would make it ready
    shown[id(holder)] = "[%r]" % u"ab\u4e2d\xe9'\n"
    items = ctypes.c_void_p.from_address(id(holder) + 24).value
    ctypes.c_void_p.from_address(items).value = address
    rest()


def enums():
    import enum
    color = enum.Enum("Color", "RED GREEN")
    order = enum.IntEnum("Order", "FIRST SECOND")
    member, number = color.RED, order.SECOND
    shown[id(member)], shown[id(number)] = "<Color.RED: 1>", "<Order.SECOND: 2>"
    both = [color.GREEN]
    shown[id(both)] = "[<Color.GREEN: 2>]"
    del color, order, enum
    rest()


def recursion(n=1000):
    sys.setrecursionlimit(5000)
    if n == 0:
        rest()
    below = [n]
    recursion(n - 1)


# ---- frames ----

def arguments(a, b=2, *args, **kwargs):
    c = a + b
    rest()


def many():
    """Arguments that are cells, cells, free variables, deleted and unset variables."""
    def enclose(used, unused, *cell_args):
        local, cell = "local", "cell"
        gone = 1
        del gone

        def reads():
            own = used, cell, len(cell_args)
            if own is None:
                never = 1
            rest()
            return never
        used = used + 1
        reads()
    enclose(10, 20, 30)


def generators():
    def generate(n):
        inside = n * 2
        for i in range(n):
            yield rest() if i == 2 else i
    for value in generate(5):
        last = value


def comprehensions():
    outer = 7
    return [rest() for item in [outer] if item]


def keyword_only():
    define("def f(a, *, b, c=3, **more):\n    d = b\n    rest()\n")(1, b=2, z=26)


def star_keyword_only():
    define("def f(a, *args, b, c=3):\n    rest()\n")(1, 2, 3, b=2)


def positional_only():
    define("def f(a, b, /, c, *, d):\n    e = d\n    rest()\n")(1, 2, 3, d=4)


def coroutines():
    source = "async def f(a):\n    b = a\n    await g(b)\nasync def g(c):\n    d = c + 1\n    rest()\n"
    define(source)(1).send(None)


def deleted_cells():
    define("def f(a):\n    b, c = a, 2\n    def g():\n        rest()\n        return b, c\n    del b\n    g()\n")(1)


def class_body():
    before = 1

    class Body(object):
        inside = before
        rest()


def main():
    kind = sys.argv[1]
    if kind == "arguments":
        arguments(1, 2, 3, 4, x=5, y=[6])
    globals()[kind]()


main()
