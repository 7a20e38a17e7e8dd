"""Runs `record` until it has the samples that a test needs, and parses its formats.

A test never records for a fixed time: record_enough() doubles the duration, Recording polls snapshots.
"""
import collections
import json
import os
import pathlib
import re
import signal
import subprocess
import time
import xml.etree.ElementTree as xml

from processes import descendants, exe, parents
from program import SPYGLASS, UNATTRIBUTED, WAIT, finish, run, start, wait_until

FORMATS = ["raw", "flamegraph", "speedscope", "chrometrace"]
EXTENSION = {"raw": "txt", "flamegraph": "svg", "speedscope": "json", "chrometrace": "json"}
SVG = "{http://www.w3.org/2000/svg}"

# Works until its standard input is closed or has data, so that a late profiler still finds it at work.
WORK_UNTIL_INPUT = ("import select\ndef works():\n    while not select.select([0], [], [], 0)[0]: sum(range(300))\nworks()\n")
# Works for that many seconds of CPU time, however busy the machine is.
WORK = ("import time\nclock = getattr(time, 'process_time', None) or time.clock\ndef works():\n    end = clock() + %s\n"
        "    while clock() < end: sum(range(300))\nworks()\n")


# ---- parsers: {function name: samples in which it is on the stack}, and the number of samples (or their time) ----

def read_raw(text):
    counts, total = collections.Counter(), 0
    for line in text.splitlines():
        stack, _, n = line.rpartition(" ")
        total += int(n)
        for name in {part.partition(" (")[0] for part in stack.split(";")}:
            counts[name] += int(n)
    return counts, total


def read_flamegraph(text):
    assert text.lstrip().startswith(("<?xml", "<!DOCTYPE svg")) and "<!DOCTYPE svg" in text
    assert not re.search(r"""(href|src)=["']https?:""", text), "the picture must work offline"
    counts, total = collections.Counter(), 0
    for title in xml.fromstring(text).iter(SVG + "title"):
        match = re.match(r"^(.*) \(([\d,.]+) (?:samples?|s), ([\d.]+)%\)$", title.text or "")
        if match:
            n = float(match.group(2).replace(",", ""))
            counts[match.group(1).partition(" (")[0]] += n
            total = max(total, n)
    return counts, total


def read_speedscope(text):
    data = json.loads(text)
    assert set(data) == {"$schema", "profiles", "shared", "exporter", "name"}
    frames = data["shared"]["frames"]
    counts, total = collections.Counter(), 0
    for profile in data["profiles"]:
        assert profile["type"] == "sampled" and profile["unit"] == "seconds"
        assert len(profile["samples"]) == len(profile["weights"])
        assert profile["startValue"] <= profile["endValue"]
        for sample, weight in zip(profile["samples"], profile["weights"]):
            total += weight if sample else 0
            for name in {frames[i]["name"] for i in sample}:
                counts[name] += weight
    py_spy = data["exporter"].startswith("py-spy")
    for frame in frames:
        assert set(frame) == {"name", "file", "line"} | ({"col"} if py_spy else set())
    return counts, total


def read_chrometrace(text):
    """Returns time instead of samples: microseconds between B and E events, which nest within each thread."""
    counts, total, open_frames = collections.Counter(), 0, collections.defaultdict(list)
    for event in json.loads(text):
        if event["ph"] not in "BE":
            continue
        stack = open_frames[event["pid"], event["tid"]]
        if event["ph"] == "B":
            assert set(event["args"]) >= {"filename", "line"}
            stack.append((event["name"], event["ts"]))
        else:
            name, begin = stack.pop()
            assert name == event["name"] and begin <= event["ts"]
            if name not in [n for n, _ in stack]:
                counts[name] += event["ts"] - begin
            if not stack:
                total += event["ts"] - begin
    assert not any(open_frames.values()), "a B without its E"
    return counts, total


READ = {"raw": read_raw, "flamegraph": read_flamegraph, "speedscope": read_speedscope, "chrometrace": read_chrometrace}


# ---- parsers: {stack of names, root first: its samples, or its time} ----

def raw_stacks(text):
    stacks = collections.Counter()
    for line in text.splitlines():
        stack, _, n = line.rpartition(" ")
        if stack == UNATTRIBUTED or n == "0":  # a remark
            continue
        stacks[tuple(part.rpartition(" (")[0] if part.endswith(")") else part for part in stack.split(";"))] += int(n)
    return stacks


def speedscope_stacks(text):
    data = json.loads(text)
    names = [frame["name"] for frame in data["shared"]["frames"]]
    stacks = collections.Counter()
    for profile in data["profiles"]:
        for sample, weight in zip(profile["samples"], profile["weights"]):
            if sample:
                stacks[tuple(names[i] for i in sample)] += weight
    return stacks


def chrometrace_stacks(text):
    """Time between two events belongs to the frames that are open then."""
    stacks, open_frames, last = collections.Counter(), collections.defaultdict(list), {}
    for event in json.loads(text):
        if event["ph"] not in "BE":
            continue
        thread = event["pid"], event["tid"]
        if open_frames[thread]:
            stacks[tuple(open_frames[thread])] += event["ts"] - last[thread]
        last[thread] = event["ts"]
        if event["ph"] == "B":
            open_frames[thread].append(event["name"])
        else:
            assert open_frames[thread].pop() == event["name"]
    return stacks


def flamegraph_stacks(text):
    """Each box is above its caller's. The part that its callees do not cover is its self time."""
    boxes = []
    for group in xml.fromstring(text).iter(SVG + "g"):
        title, rect = group.find(SVG + "title"), group.find(SVG + "rect")
        match = title is not None and re.match(r"^(.*) \(([\d,.]+) (?:samples?|s), [\d.]+%\)$", title.text or "")
        if match and rect is not None:
            x, width = (float(rect.get(key).rstrip("%")) for key in ("x", "width"))
            boxes.append((int(rect.get("y")), x + width / 2, x, x + width, match.group(1).partition(" (")[0],
                          float(match.group(2).replace(",", ""))))
    root = next(box for box in boxes if box[4] == "all")
    rows = sorted({box[0] for box in boxes}, key=lambda y: abs(y - root[0]))
    stacks = collections.Counter()
    for box in boxes:
        below = [next(b for b in boxes if b[0] == y and b[2] <= box[1] < b[3]) for y in rows[:rows.index(box[0])]]
        stack = tuple(b[4] for b in below[1:]) + (box[4],)
        if box is not root:
            stacks[stack] += box[5]
            stacks[stack[:-1]] -= box[5] if len(stack) > 1 else 0
    return stacks


STACKS = {"raw": raw_stacks, "speedscope": speedscope_stacks, "chrometrace": chrometrace_stacks,
          "flamegraph": flamegraph_stacks}


# ---- recording ----

def read_none(result):
    """True if a short recording on a busy machine had a few ticks, and each came while the interpreter was changing."""
    return result.status == 1 and "stacks could be read" in result.err


def record_enough(enough, *args, out, program=SPYGLASS, wrapper=(), first=0.3, **options):
    """Records with -d, doubling the duration, until enough(text of the file) holds. Returns the text and the Result.
    `wrapper` is a command that runs the program."""
    seconds = first
    while True:
        command = [*wrapper, program, "record", *args, "-d", seconds, "-o", out]
        result = run(*command[1:], program=command[0], **options)
        if not read_none(result):
            result.check()
        text = "" if read_none(result) else pathlib.Path(out).read_text(encoding="utf-8")
        if not read_none(result) and enough(text):
            return text, result
        seconds *= 2
        assert seconds < WAIT, "not enough samples: %s\n%s" % (result, text[-2000:])


def run_enough(enough, out, *args, program=SPYGLASS):
    """Like record_enough(), for a whole command line in which SECONDS stands for the duration."""
    seconds = 1
    while True:
        result = run(*(str(arg).replace("SECONDS", str(seconds)) for arg in args), program=program).check()
        text = pathlib.Path(out).read_text(encoding="utf-8")
        if enough(text):
            return text, result
        seconds *= 2
        assert seconds < WAIT, "not enough samples: %s\n%s" % (result, text[-2000:])


def may_vanish(text):
    """True for a raw profile of less than one sample: it has one stack, which a later snapshot may omit."""
    return re.fullmatch(r"[^\n]* 1\n(\[[^\n]*\] 0\n)?", text) is not None


def seen(*names, format="raw"):
    """For record_enough() and Recording.until(): true if each of these functions is in the profile."""
    return lambda text: all(READ[format](text)[0][name] > 0 for name in names)


def seen_in_place(name):
    """Like seen(), for a speedscope profile that record writes into an existing file: it may be read half-written."""
    def enough(text):
        try:
            return seen(name, format="speedscope")(text)
        except ValueError:  # not JSON
            return False

    return enough


def some_samples(text):
    return read_raw(text)[1] > 0


def record_native(target, out, format, enough, *flags):
    """Adds up recordings of doubling duration until there are `enough` samples, or until enough(stacks) holds.
    Returns the stacks and the number of samples."""
    stacks, samples, seconds = collections.Counter(), 0, 0.3
    while True:
        result = run("record", "--native", "--pid", target.pid, "-d", seconds, "-f", format, "-o", out, *flags)
        if not read_none(result):
            samples += int(re.search(r"Samples: (\d+)", result.check().messages).group(1))
            stacks.update(STACKS[format](out.read_text()))
        if samples and (enough(stacks) if callable(enough) else samples >= enough):
            return stacks, samples
        seconds *= 2
        assert seconds < WAIT, "not enough samples: %s\n%s" % (result, stacks)


def catches(pid, number):
    """True if the process has a handler for the signal; None if the process is gone."""
    try:
        text = pathlib.Path("/proc/%d/status" % pid).read_text()
    except (FileNotFoundError, ProcessLookupError):
        return None
    return bool(int(re.search(r"^SigCgt:\s*([0-9a-f]+)$", text, re.M).group(1), 16) >> (number - 1) & 1)


def profiler_in(process):
    """The PID of a started profiler. Wrappers such as deny run it with exec or as a child."""
    found = []

    def look():
        all_ = {p for p in [process.pid, *descendants(process.pid)] if os.path.basename(exe(p)) in ("spyglass", "py-spy")}
        up = parents()
        found[:] = [p for p in all_ if up.get(p) not in all_]  # not its helper, nor a child that has not called exec yet
        return found or process.poll() is not None

    wait_until(look, "the profiler below its wrapper")
    assert found, finish(process)
    return found[0]


class Recording:
    """`record` in the background. SIGUSR1 makes it write a snapshot, so a test can wait for what it needs.

        recording = Recording(out, "--pid", target.pid, "-f", "raw")
        recording.until(seen("works"))
        text = recording.stop()
    """

    def __init__(self, out, *args, program=SPYGLASS, wrapper=(), process=None, **options):
        """Starts a recording, unless `process` is one that already runs."""
        self.out = pathlib.Path(out)
        command = [*wrapper, program, "record", *args, "-o", self.out]
        self.process = process or start(*command[1:], program=command[0], **options)
        self.pid = self.process.pid

    def snapshot(self):
        """The text of a snapshot; None if the recording has exited."""
        wait_until(lambda: self.process.poll() is not None or catches(self.pid, signal.SIGUSR1), "record to start")
        before, end = self.identity(), time.monotonic() + WAIT
        while self.process.poll() is None and self.identity() == before:
            assert time.monotonic() < end, "no snapshot after SIGUSR1"
            self.send(signal.SIGUSR1)  # keep asking: record writes no flame graph before the first sample
            soon = time.monotonic() + 0.5
            while self.process.poll() is None and self.identity() == before and time.monotonic() < soon:
                time.sleep(0.005)
        return self.out.read_text(encoding="utf-8") if self.process.poll() is None else None

    def identity(self):
        try:
            found = self.out.stat()
        except FileNotFoundError:
            return None
        return found.st_ino, found.st_mtime_ns, found.st_size

    def send(self, number):
        os.kill(self.pid, number)

    def until(self, enough):
        """Waits until enough(snapshot) holds; returns the snapshot."""
        end, pause, text = time.monotonic() + WAIT, 0.03, None
        while True:
            time.sleep(pause)
            text = self.snapshot()
            if text is None:
                raise AssertionError("record exited: %s" % finish(self.process))
            if enough(text) and not may_vanish(text):
                return text
            pause = min(2 * pause, 1)
            assert time.monotonic() < end, "not enough samples:\n" + text[-2000:]

    def stop(self, number=signal.SIGINT, status=0):
        """Ends the recording with a signal; returns the text of the file. The Result is in .result."""
        self.send(number)
        self.result = finish(self.process).check(status)
        return self.out.read_text(encoding="utf-8")


def wait_samples(process, out):
    """Waits until a recording in the raw format has seen works(), not only imports. Removes that snapshot."""
    recording = Recording(out, process=process)
    recording.pid = profiler_in(process)
    recording.until(seen("works"))
    out.unlink()


def record_launched(out, python, after="", flags=(), wrapper=(), program=SPYGLASS, **options):
    """Records a program in works() until a snapshot shows works(), then lets it run the code `after`. Returns the
    Result."""
    command = [*wrapper, program, "record", "-f", "raw", "-o", out, *flags, "--", *python.command, "-c", WORK_UNTIL_INPUT + after]
    process = start(*command[1:], program=command[0], stdin=subprocess.PIPE, **options)
    wait_samples(process, out)
    return finish(process)  # closes standard input, which ends works()


def wait_sampling(process):
    """Waits until a running record handles signals and has then slept and woken ten times."""
    status = pathlib.Path("/proc/%d/status" % process.pid)

    def wakes():
        return int(re.search(r"^voluntary_ctxt_switches:\s*(\d+)", status.read_text(), re.M).group(1))

    wait_until(lambda: catches(process.pid, signal.SIGUSR1), "record to start")
    enough = wakes() + 10
    wait_until(lambda: wakes() >= enough, "record to sample")
