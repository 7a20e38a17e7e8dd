"""Rows 13 and 14: names that mean something to a terminal, a browser or a parser."""
import json
import os
import pathlib
import pty
import re
import subprocess
import xml.etree.ElementTree as xml

from common import DEBIAN, Figure, ROOT, SPYGLASS, Target, WAIT, plural, run
from profiles import EXTENSION, FORMATS

# A function, file, thread, class, local variable and process name made of the text in argv[1]. argv stays visible, too.
PROGRAM = """
import os, sys, threading, time
name = sys.argv[1]
def f(x):
    held = name
    os.write(1, b"ready\\n")
    while True:
        time.sleep(0.001); sum(range(500))
f.__code__ = f.__code__.replace(co_name=name, co_qualname=name, co_filename="/tmp/" + name + ".py")
try:
    open("/proc/self/comm", "wb").write(os.fsencode(name)[:15])
except OSError:
    pass
try:
    value = type(name, (), {})()
except UnicodeEncodeError:
    value = None
threading.Thread(target=f, args=(value,), name=name).start()
"""
MARK = "//mark"  # the end of each name; shows that the name has reached the output. A comment in JavaScript.
TERMINAL = ["\x1b[31mred", "\x1b]0;title\x07", "\rover", "line\nfeed", "\x9b31m", "\x9dOSC\x9c", "\u202eltr", "\u2066iso\u2069", "\x7f\x08\x08",
            "\udcff\udcfe", "\udc9b31m"]
MARKUP = ["</script><script>alert(1)</script>", "]]><script>alert(2)</script>", "\" onload=\"alert(3)", "' onclick='alert(4)",
          "<img src=x onerror=alert(5)>", "&lt;b&gt;&#x0;", "</text></svg><svg onload=alert(6)>", "\\\";alert(7);//", "--><!--",
          "javascript:alert(8)", "\u2028alert(9)\u2029"]
# Bytes that no output may have. A newline ends a line, and a tab is used in none.
RAW = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]")


def start_named(name):
    target = Target([*DEBIAN.command, "-c", PROGRAM, name + MARK])
    target.line()
    return target


def on_terminal(*args):
    """What a command writes to a terminal, as bytes."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen([str(SPYGLASS), *map(str, args)], stdin=subprocess.DEVNULL, stdout=theirs, stderr=theirs, close_fds=True)
    os.close(theirs)
    data = b""
    while True:
        try:
            part = os.read(ours, 65536)
        except OSError:  # the other end is closed
            break
        if not part:
            break
        data += part
    os.close(ours)
    process.wait(WAIT)
    return data


# What spyglass itself sends to a terminal: colours, and a line that replaces the last one.
OWN = re.compile(rb"\x1b\[[0-9;]*[mK]|\r\n|\r")


def raw_bytes(data):
    """The control characters in the output of a command."""
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        return repr(error)
    found = RAW.search(text)
    return repr(text[max(0, found.start() - 20):found.end() + 20]) if found else None


def terminal(ctx):
    """Row 13."""
    checks, problems = 0, []

    def check(what, data, shows=False):
        nonlocal checks
        checks += 1
        if shows and MARK.encode() not in data:
            problems.append("%s: it does not show the name: %r" % (what, data[-200:]))
        found = raw_bytes(data)
        if found:
            problems.append("%s: %s" % (what, found))

    for name in TERMINAL:
        with start_named(name) as target:
            out = ctx.work / ("x" + name.replace("/", "")[:20])
            commands = [["dump", "-p", target.pid], ["dump", "-l", "-p", target.pid], ["dump", "-j", "-p", target.pid],
                        ["dump", "--native", "--full-filenames", "-p", target.pid, "--log-level", "debug"],
                        ["record", "-d", "0.2", "-p", target.pid, "-f", "raw", "-o", out, "--log-level", "debug"],
                        ["record", "-d", "0.2", "-p", target.pid, "-o", out / "missing"],
                        ["doctor", "-p", target.pid], ["dump", "--core", out], ["merge", "-o", "-", out.with_name(out.name + "-missing")],
                        [name], ["dump", "--" + name]]
            for command in commands:
                ended = run(*command)
                check(" ".join(map(str, command[:2])), ended.out + b"\n" + ended.err, command[:2] in (["dump", "-p"], ["dump", "-l"], ["dump", "-j"]))
            for command in (["dump", "-p", target.pid], ["record", "-d", "0.5", "-p", target.pid, "-o", out]):
                check("on a terminal: " + command[0], OWN.sub(b"", on_terminal(*command)), command[0] == "dump")
    for problem in problems:
        print("row 13:", problem)
    return Figure("%s of %d commands with names of %d kinds: %s%s" % (
        plural(checks, "output"), checks // len(TERMINAL), len(TERMINAL), plural(len(problems), "fault"), ": " + problems[0] if problems else ""), not problems)


def valid(format, path):
    text = path.read_text(encoding="utf-8")
    if format == "flamegraph":
        text = "".join(xml.fromstring(text).itertext())
    elif format != "raw":
        text = json.dumps(json.loads(text))
    if MARK not in text:
        raise ValueError("it does not have the name")


def in_browser(path):
    """Opens a flame graph in Chromium. Returns what is wrong with it, or None; False if there is no browser."""
    cache = pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache") / "spyglass" / "node"
    if not (cache / "node_modules" / "playwright-core").is_dir():
        return False
    done = subprocess.run(["node", "tests/trust/opens.mjs", str(path), str(cache)], cwd=str(ROOT), stdin=subprocess.DEVNULL,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=WAIT)
    return None if done.returncode == 0 else done.stdout.decode(errors="replace").strip()[-300:]


def markup(ctx):
    """Row 14."""
    files, opened, problems, names = 0, 0, [], MARKUP[:ctx.count(len(MARKUP), 2)]
    for i, name in enumerate(names):
        with start_named(name) as target:
            for format in FORMATS:
                out = ctx.work / ("markup-%d.%s" % (i, EXTENSION[format]))
                ended = run("record", "-p", target.pid, "-d", "0.5", "--mode", "wall", "-t", "--subprocesses", "-f", format, "-o", out)
                try:
                    valid(format, out)
                    files += 1
                except (OSError, ValueError, xml.ParseError) as error:
                    problems.append("%s, %r: %r, status %s" % (format, name, error, ended.status))
                    continue
                if format == "flamegraph":
                    found = in_browser(out)
                    opened += found is not False
                    if found:
                        problems.append("%r: %s" % (name, found))
            try:
                json.loads(run("dump", "-j", "-l", "-p", target.pid).out.decode("utf-8"))
                files += 1
            except ValueError as error:
                problems.append("dump --json, %r: %r" % (name, error))
    text = "%s with %d names: %s opened in Chromium, %s%s" % (
        plural(files, "valid file"), len(names), opened, plural(len(problems), "fault"), ": " + problems[0] if problems else "")
    return Figure(text if opened else text + "; no browser", not problems if opened else (False if problems else None))
