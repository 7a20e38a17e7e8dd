"""record: its formats parsed back against what the target did, its ends, its flags, its files."""
import collections
import json
import os
import pathlib
import re
import signal
import stat
import subprocess
import time
import xml.etree.ElementTree as xml

import pytest
from conftest import DEBIAN, NEWEST_HOST, PY_SPY, SANITIZED, SPYGLASS, at_rest, finish, run, start, task_states, wait_until

FORMATS = ["raw", "flamegraph", "speedscope", "chrometrace"]
EXTENSION = {"raw": "txt", "flamegraph": "svg", "speedscope": "json", "chrometrace": "json"}
SVG = "{http://www.w3.org/2000/svg}"


# Each reader gives: function name -> how many samples it is on the stack in, and of how many (or their time).

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
        match = re.match(r"^(.*) \(([\d,]+) samples?, ([\d.]+)%\)$", title.text or "")
        if match:
            n = int(match.group(2).replace(",", ""))
            counts[match.group(1).partition(" (")[0]] += n
            total = max(total, n)
    return counts, total


def read_speedscope(text):
    data = json.loads(text)
    assert set(data) >= {"$schema", "profiles", "shared", "activeProfileIndex", "exporter", "name"}
    frames = data["shared"]["frames"]
    counts, total = collections.Counter(), 0
    for profile in data["profiles"]:
        assert profile["type"] == "sampled" and profile["unit"] == "seconds"
        assert len(profile["samples"]) == len(profile["weights"])
        assert profile["startValue"] <= profile["endValue"]
        for sample, weight in zip(profile["samples"], profile["weights"]):
            total += weight
            for name in {frames[i]["name"] for i in sample}:
                counts[name] += weight
    for frame in frames:
        assert set(frame) == {"name", "file", "line", "col"}
    return counts, total


def read_chrometrace(text):
    """Time instead of samples: microseconds between B and E, for each thread a balanced nest."""
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


def same_shares(counts, total, spent, samples):
    """The shares in the profile are those the target measured, as nearly as so many samples can tell."""
    whole = sum(spent.values())
    for name, seconds in spent.items():
        assert abs(counts[name] / total - seconds / whole) < 0.04 + 1.5 / samples ** 0.5, (counts, total, spent)
    assert not counts["sleeper"] and not counts["wait"]


def record_shares(spawn, python, out, *flags):
    """Profiles shares.py for three seconds, at a rate that is in no step with its rounds of 40 ms."""
    target = spawn(python, "shares.py", "1000")
    wait_until(lambda: task_states(target.pid).count("S") >= 3, "the sleepers asleep")
    result = run("record", "--pid", target.pid, "-d", "3", "-r", "173", "-o", out, *flags).check()
    os.kill(target.pid, signal.SIGTERM)
    samples = int(re.search(r"Samples: (\d+) Errors: 0", messages(result)).group(1))
    assert samples > 20, result
    return target.read_line()["spent"], samples, result


@pytest.mark.parametrize("format", FORMATS)
def test_shares(spawn, tmp_path, format):
    """one : two : three = 1 : 2 : 5, as the target measured it itself; sleepers are never counted."""
    out = tmp_path / ("out." + EXTENSION[format])
    spent, samples, _ = record_shares(spawn, NEWEST_HOST, out, "-f", format)
    same_shares(*READ[format](out.read_text()), spent, samples)


def test_shares_everywhere(spawn, tmp_path, python):
    out = tmp_path / "out.txt"
    spent, samples, result = record_shares(spawn, python, out, "-f", "raw", "--function")
    counts, total = read_raw(out.read_text())
    assert total == samples, result
    same_shares(counts, total, spent, samples)
    assert "Wrote raw flamegraph data to '%s'." % out in messages(result)


def messages(result):
    return result.out + result.err


@pytest.mark.quiet
@pytest.mark.parametrize("seconds", ["0.3", "1", "1.5", "2.25"])
def test_duration(spawn, tmp_path, seconds):
    target = spawn(DEBIAN, "busy.py")
    result = run("record", "-p", target.pid, "-d", seconds, "-f", "raw", "-o", tmp_path / "x").check()
    assert float(seconds) <= result.seconds < float(seconds) + (2 if SANITIZED else 0.7), result.seconds
    counts, total = read_raw((tmp_path / "x").read_text())
    assert total <= float(seconds) * 100 + 2


@pytest.mark.quiet
@pytest.mark.parametrize("rate", ["1", "7.5", "100000"])
def test_rate(spawn, tmp_path, rate):
    """Late ticks are dropped: never more samples than there were ticks, and it ends in time."""
    target = spawn(DEBIAN, "busy.py")
    result = run("record", "-p", target.pid, "-d", "2", "-r", rate, "-f", "raw", "-o", tmp_path / "x").check()
    assert 2 <= result.seconds < 4, result.seconds
    _, total = read_raw((tmp_path / "x").read_text())
    assert 1 <= total <= 2 * float(rate) + 2, result


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP], ids=lambda n: n.name)
@pytest.mark.parametrize("format", FORMATS)
def test_signals(spawn, tmp_path, number, format):
    """Ended by a signal: a whole file, and 0."""
    target = spawn(DEBIAN, "busy.py")
    out = tmp_path / "out"
    process = start("record", "-p", target.pid, "-f", format, "-o", out)
    wait_sampling(process)
    process.send_signal(number)
    result = finish(process, timeout=20).check()
    counts, total = READ[format](out.read_text())
    assert counts["root"] > 0, result
    assert not set(os.listdir(tmp_path)) - {"out"}, "something was left beside the file"


def wait_sampling(process):
    """Until the profiler has slept and woken thirty times more: it samples then. No fixed sleep."""
    status = pathlib.Path("/proc/%d/status" % process.pid)

    def wakes():
        return int(re.search(r"^voluntary_ctxt_switches:\s*(\d+)", status.read_text(), re.M).group(1))

    enough = wakes() + 30
    wait_until(lambda: wakes() >= enough, "the profiler at work")


def test_sigint_blocked(spawn, tmp_path):
    """The mask survives exec: started by a worker that blocks SIGINT, it must end by SIGINT all the same."""
    target = spawn(DEBIAN, "busy.py")
    process = start("record", "-p", target.pid, "-f", "raw", "-o", tmp_path / "x",
                    preexec_fn=lambda: signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT, signal.SIGTERM]))
    wait_sampling(process)
    process.send_signal(signal.SIGINT)
    finish(process, timeout=20).check()
    assert read_raw((tmp_path / "x").read_text())[1]


@pytest.mark.parametrize("format", FORMATS)
def test_snapshot(spawn, tmp_path, format):
    """SIGUSR1 writes what there is so far and goes on."""
    target = spawn(DEBIAN, "busy.py")
    out = tmp_path / "out"
    process = start("record", "-p", target.pid, "-f", format, "-o", out)
    wait_sampling(process)
    process.send_signal(signal.SIGUSR1)
    wait_until(lambda: out.exists() and out.stat().st_size > 0, "the snapshot")
    first = READ[format](out.read_text())[1]
    assert first > 0 and process.poll() is None
    before = out.stat().st_ino, out.stat().st_mtime_ns
    process.send_signal(signal.SIGUSR1)
    wait_until(lambda: (out.stat().st_ino, out.stat().st_mtime_ns) != before, "the second snapshot")
    process.send_signal(signal.SIGINT)
    finish(process).check()
    assert READ[format](out.read_text())[1] >= first


@pytest.mark.parametrize("format", FORMATS)
def test_target_exits(spawn, tmp_path, format):
    target = spawn(DEBIAN, "busy.py")
    out = tmp_path / "out"
    process = start("record", "-p", target.pid, "-f", format, "-o", out)
    wait_sampling(process)
    target.process.kill()
    target.process.wait()
    result = finish(process, timeout=20).check()
    assert READ[format](out.read_text())[0]["root"] > 0, result


WORK = "import time\ndef works():\n    end = time.time() + %s\n    while time.time() < end: sum(range(300))\nworks()\n"


def test_launch_status(tmp_path):
    """The launched program's status is ours under our own name, 0 under the other."""
    code = WORK % 0.5 + "import sys; sys.exit(7)"
    for program, status in ((SPYGLASS, 7), (PY_SPY, 0)):
        out = tmp_path / "x"
        run("record", "-f", "raw", "-o", out, "--", *DEBIAN.command, "-c", code, program=program).check(status)
        assert read_raw(out.read_text())[0]["works"] > 0


def test_launch_killed(tmp_path):
    code = WORK % 0.3 + "import os; os.kill(os.getpid(), 9)"
    result = run("record", "-f", "raw", "-o", tmp_path / "x", "--", *DEBIAN.command, "-c", code)
    assert result.status == 128 + 9, result
    assert read_raw((tmp_path / "x").read_text())[1] > 0


def test_launch_everywhere(tmp_path, python):
    result = run("record", "-f", "raw", "-o", tmp_path / "x", "--", *python.command, "-c", WORK % 1)
    result.check()
    assert read_raw((tmp_path / "x").read_text())[0]["works"] > 0, result


def test_launch_streams(tmp_path):
    """Its standard streams are its own: what it writes arrives, byte for byte, and it reads our standard input."""
    code = "import sys, os; d = os.read(0, 100); os.write(1, b'out:' + d + b'\\xff\\n'); os.write(2, b'err\\n')\n" + WORK % 0.3
    done = subprocess.run([SPYGLASS, "record", "-f", "raw", "-o", tmp_path / "x", "--", *DEBIAN.command, "-c", code],
                          input=b"hello", stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=60)
    assert done.returncode == 0, done
    assert b"out:hello\xff\n" in done.stdout and b"err\n" in done.stderr


def test_launch_capture(tmp_path):
    """--capture holds the program's output back."""
    code = "print('noise' * 3, flush=True)\n" + WORK % 0.3
    result = run("record", "--capture", "-f", "raw", "-o", tmp_path / "x", "--", *DEBIAN.command, "-c", code).check()
    assert "noisenoise" not in messages(result)
    assert read_raw((tmp_path / "x").read_text())[1] > 0


def test_launch_missing(tmp_path):
    result = run("record", "-o", tmp_path / "x", "--", "/no/such/program").check(1)
    assert "/no/such/program" in result.err and not (tmp_path / "x").exists()


def test_launch_not_python(tmp_path):
    result = run("record", "-o", tmp_path / "x.svg", "--", "sleep", "2")
    assert result.status == 1 and "Failed to find python version from target process" in result.err, result


def test_launch_interrupted(tmp_path):
    """SIGINT while it launched a program: the file is whole, and nothing is left running."""
    code = "print('begins', flush=True)\n" + WORK % 600
    process = start("record", "-f", "raw", "-o", tmp_path / "x", "--", *DEBIAN.command, "-c", code, start_new_session=True)
    while b"begins" not in process.stdout.readline():
        pass
    wait_sampling(process)
    os.killpg(process.pid, signal.SIGINT)
    finish(process, timeout=30)
    assert read_raw((tmp_path / "x").read_text())[0]["works"] > 0
    wait_until(lambda: not group_lives(process.pid), "the launched program gone", timeout=20)


def group_lives(group):
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True


@pytest.mark.quiet
@pytest.mark.skipif(os.cpu_count() < 2, reason="it takes a core for itself")
@pytest.mark.parametrize("flags", [(), ("--native",)], ids=["python", "native"])
def test_realtime(spawn, tmp_path, flags):
    """A thread of real-time priority leaves nobody beside it on its core: it is not read from there."""
    target = spawn(DEBIAN, "busy.py")
    os.sched_setaffinity(target.pid, {max(os.sched_getaffinity(0))})
    try:
        os.sched_setscheduler(target.pid, os.SCHED_FIFO, os.sched_param(10))
    except PermissionError:
        pytest.skip("real-time priority needs root")
    try:
        run("record", "-p", target.pid, "-d", "1", "-r", "20", "-f", "raw", "-o", tmp_path / "x", *flags).check()
    finally:
        os.sched_setscheduler(target.pid, os.SCHED_OTHER, os.sched_param(0))
    assert read_raw((tmp_path / "x").read_text())[1] >= 5  # from its core it was one or none


# --- which threads count ---

def test_idle(spawn, tmp_path):
    """--idle counts the sleepers; without it they are never counted, however many there are."""
    target = spawn(DEBIAN, "situations.py", "many_threads")
    out = tmp_path / "x"
    run("record", "-p", target.pid, "-d", "1", "--idle", "-f", "raw", "-o", out).check()
    counts, total = read_raw(out.read_text())
    assert counts["park"] > 200, counts  # 21 threads, 100 times
    run("record", "-p", target.pid, "-d", "1", "-f", "raw", "-o", out).check()
    assert read_raw(out.read_text())[0]["park"] == 0


@pytest.mark.parametrize("program", [SPYGLASS, PY_SPY], ids=["spyglass", "py-spy"])
def test_all_idle(spawn, tmp_path, program):
    """A picture that says that nothing ran: Ray's page shows it, where it shows an error of ours badly."""
    target = spawn(DEBIAN, "situations.py", "many_threads")
    result = run("record", "-p", at_rest(target.pid), "-d", "1", "-o", tmp_path / "x.svg", program=program).check()
    text = " ".join(xml.parse(tmp_path / "x.svg").getroot().itertext())
    assert "No stack counts found: all" in text and "--idle" in text
    assert "No stack counts found" in messages(result) and "--idle" in messages(result), result
    assert re.search(r"\d+", messages(result))


@pytest.mark.parametrize("format, empty", [("raw", ""), ("speedscope", "profiles"), ("chrometrace", "[")])
def test_all_idle_other_formats(spawn, tmp_path, format, empty):
    target = spawn(DEBIAN, "situations.py", "plain")
    result = run("record", "-p", at_rest(target.pid), "-d", "0.5", "-f", format, "-o", tmp_path / "x", program=PY_SPY).check()
    text = (tmp_path / "x").read_text()
    assert READ[format](text)[1] == 0 and empty in text, result
    assert "--idle" in messages(result), result


def test_gil(spawn, tmp_path):
    """--gil: at most one thread at a time holds it, so no more samples than ticks."""
    target = spawn(DEBIAN, "busy.py", "4")
    out = tmp_path / "x"
    run("record", "-p", target.pid, "-d", "2", "--gil", "-f", "raw", "-o", out).check()
    gil = read_raw(out.read_text())[1]
    assert 0 < gil <= 202


def test_threads(spawn, tmp_path):
    target = spawn(DEBIAN, "busy.py", "2")
    out = tmp_path / "x"
    run("record", "-p", target.pid, "-d", "2", "--threads", "--idle", "-f", "raw", "-o", out).check()
    roots = {line.split(";")[0] for line in out.read_text().splitlines()}
    assert {re.sub(r"\d+\)", "N)", r) for r in roots} == {"thread (N): MainThread", "thread (N): busy-0", "thread (N): busy-1"}


def test_lines(spawn, tmp_path):
    """With lines, without lines, with the function's first line, with full file names."""
    target = spawn(DEBIAN, "busy.py")
    source = pathlib.Path(__file__).parents[1].joinpath("targets", "busy.py").read_text().splitlines()
    first = 1 + next(i for i, line in enumerate(source) if line.startswith("def leaf_a"))
    seen = {}
    for flag in ("--hideprogress", "--nolineno", "--function", "--full-filenames"):
        out = tmp_path / flag
        run("record", "-p", target.pid, "-d", "2", "-r", "200", flag, "-f", "raw", "-o", out).check()
        seen[flag] = {part for line in out.read_text().splitlines() for part in line.rpartition(" ")[0].split(";")
                      if part.startswith("leaf_a ")}
    assert seen["--hideprogress"] and all(re.match(r"leaf_a \((\w+/)*busy\.py:\d+\)$", p) for p in seen["--hideprogress"]), seen
    assert all(first <= int(p.rpartition(":")[2][:-1]) <= first + 4 for p in seen["--hideprogress"])
    assert len(seen["--nolineno"]) == 1 and re.match(r"leaf_a \((\w+/)*busy\.py\)$", *seen["--nolineno"]), seen
    assert len(seen["--function"]) == 1 and next(iter(seen["--function"])).endswith(":%d)" % first), seen
    assert all(p.startswith("leaf_a (/") for p in seen["--full-filenames"]), seen


# --- files ---

@pytest.mark.parametrize("name, format", [("x.svg", "flamegraph"), ("x.json", "speedscope"), ("x.txt", "raw"),
                                          ("x.folded", "raw"), ("x.raw", "raw"), ("x", "flamegraph")])
def test_format_from_extension(spawn, tmp_path, name, format):
    target = spawn(DEBIAN, "busy.py")
    run("record", "-p", target.pid, "-d", "0.5", "-o", tmp_path / name).check()
    assert READ[format]((tmp_path / name).read_text())[0]["root"] > 0


def test_default_name(spawn, tmp_path):
    target = spawn(DEBIAN, "busy.py")
    result = run("record", "-p", target.pid, "-d", "0.5", cwd=tmp_path).check()
    written, = os.listdir(tmp_path)
    assert written.endswith(".svg") and written in messages(result)


def test_missing_directory(spawn, tmp_path):
    target = spawn(DEBIAN, "busy.py")
    result = run("record", "-p", target.pid, "-d", "30", "-o", tmp_path / "no" / "x.svg").check(1)
    assert result.seconds < 10 and str(tmp_path / "no") in result.err, result


def test_missing_directory_before_launch(tmp_path):
    """The program is not even started."""
    mark = tmp_path / "started"
    run("record", "-o", tmp_path / "no" / "x.svg", "--", "touch", mark).check(1)
    assert not mark.exists()


def test_existing_empty_file(spawn, tmp_path):
    """An empty file that is there already keeps its inode: its owner may hold it open."""
    target = spawn(DEBIAN, "busy.py")
    out = tmp_path / "x.svg"
    out.touch()
    out.chmod(0o640)
    inode = out.stat().st_ino
    run("record", "-p", target.pid, "-d", "0.5", "-o", out).check()
    assert out.stat().st_ino == inode and stat.S_IMODE(out.stat().st_mode) == 0o640
    assert read_flamegraph(out.read_text())[1] > 0


def test_existing_file_replaced_whole(spawn, tmp_path):
    target = spawn(DEBIAN, "busy.py")
    out = tmp_path / "x.svg"
    out.write_text("old")
    process = start("record", "-p", target.pid, "-o", out)
    wait_sampling(process)
    assert out.read_text() == "old"
    process.kill()
    finish(process)
    assert out.read_text() == "old"
    run("record", "-p", target.pid, "-d", "0.5", "-o", out).check()
    assert read_flamegraph(out.read_text())[1] > 0


def test_symlink_not_followed(spawn, tmp_path):
    target = spawn(DEBIAN, "busy.py")
    victim, link = tmp_path / "victim", tmp_path / "x.svg"
    victim.write_text("precious")
    link.symlink_to(victim)
    run("record", "-p", target.pid, "-d", "0.5", "-o", link)
    assert victim.read_text() == "precious"


@pytest.mark.parametrize("format", FORMATS)
def test_disk_full(spawn, format):
    target = spawn(DEBIAN, "busy.py")
    result = run("record", "-p", target.pid, "-d", "0.5", "-f", format, "-o", "/dev/full").check(1)
    assert "No space left" in result.err, result


@pytest.mark.parametrize("format", FORMATS)
def test_to_pipe(spawn, format):
    target = spawn(DEBIAN, "busy.py")
    reader, writer = os.pipe()
    process = start("record", "-p", target.pid, "-d", "0.5", "-f", format, "-o", "/dev/fd/%d" % writer, pass_fds=[writer])
    os.close(writer)
    with os.fdopen(reader) as stream:
        text = stream.read()
    finish(process).check()
    assert READ[format](text)[0]["root"] > 0


def test_last_line(spawn, tmp_path):
    """Names the file, the samples and the errors, and says how to look at it."""
    target = spawn(DEBIAN, "busy.py")
    result = run("record", "-p", target.pid, "-d", "1", "-o", tmp_path / "x.svg", program=PY_SPY).check()
    assert "py-spy> Sampling process 100 times a second for 1 seconds. Press Control-C to exit." in result.out, result
    assert re.search(r"py-spy> Wrote flamegraph data to '.*x\.svg'\. Samples: \d+ Errors: 0", result.out), result
    assert "\r" not in result.out + result.err and "\x1b" not in result.out + result.err, "no progress line but on a terminal"


@pytest.mark.quiet
def test_thousand_threads(spawn, tmp_path):
    """A thousand sleepers: the duration is kept."""
    target = spawn(DEBIAN, "situations.py", "thousand_threads")
    begin = time.monotonic()
    run("record", "-p", target.pid, "-d", "2", "--idle", "-f", "raw", "-o", tmp_path / "x").check()
    assert time.monotonic() - begin < 6
    assert read_raw((tmp_path / "x").read_text())[0]["park"] > 1000
