"""record: its formats parsed and compared with what the target did, how it ends, its flags and files."""
import collections
import json
import os
import pathlib
import re
import signal
import stat
import subprocess
import xml.etree.ElementTree as xml

import pytest
from processes import at_rest, task_states
from profiles import (EXTENSION, FORMATS, READ, WORK, WORK_UNTIL_INPUT, Recording, read_raw, record_enough, record_launched,
                      seen, some_samples, wait_samples, wait_sampling)
from program import PY_SPY, SPYGLASS, WAIT, finish, run, start, wait_until
from pythons import DEBIAN, NEWEST_HOST
from share_check import check_shares

def start_shares(spawn, python):
    target = spawn(python, "shares.py", "1000")
    wait_until(lambda: task_states(target.pid).count("S") >= 3, "the sleepers asleep")
    return target


@pytest.mark.smoke
@pytest.mark.parametrize("format", FORMATS)
def test_formats(spawn, tmp_path, format):
    """Each format shows the working functions, and never the sleeping threads."""
    target = start_shares(spawn, NEWEST_HOST)
    text, result = record_enough(seen("one", "two", "three", format=format), "--pid", target.pid, "-f", format,
                                 out=tmp_path / ("out." + EXTENSION[format]))
    counts, _ = READ[format](text)
    assert not counts["sleeper"] and not counts["wait"], counts


@pytest.mark.smoke
def test_all_interpreters(spawn, tmp_path, python):
    target = start_shares(spawn, python)
    out = tmp_path / "out.txt"
    text, result = record_enough(seen("one", "two", "three"), "--pid", target.pid, "-f", "raw", "--function", out=out)
    counts, total = read_raw(text)
    seconds = float(re.search(r"([\d.]+) s of CPU time", result.messages).group(1))
    assert abs(total - round(100 * seconds)) <= 2, result
    assert not counts["sleeper"] and not counts["wait"], counts
    assert "Wrote raw flamegraph data to '%s'." % out in result.messages


def record_shares(spawn, python, out, *flags):
    """Profiles shares.py at a rate that is not a multiple of its 40 ms cycle; returns the target's report and the
    Result."""
    target = start_shares(spawn, python)
    result = run("record", "--pid", target.pid, "-d", "3", "-r", "173", "-o", out, *flags).check()
    os.kill(target.pid, signal.SIGTERM)
    return target.read_line()["spent"], result


@pytest.mark.statistical
@pytest.mark.parametrize("format", FORMATS)
def test_shares(spawn, tmp_path, format):
    """one : two : three = 1 : 2 : 5, as the target measured its own CPU time."""
    out = tmp_path / ("out." + EXTENSION[format])
    spent, result = record_shares(spawn, NEWEST_HOST, out, "-f", format)
    samples = int(re.search(r"Samples: (\d+)", result.messages).group(1))
    check_shares(READ[format](out.read_text())[0], spent, samples)


@pytest.mark.statistical
def test_shares_all_interpreters(spawn, tmp_path, python):
    out = tmp_path / "out.txt"
    spent, _ = record_shares(spawn, python, out, "-f", "raw", "--function")
    counts, total = read_raw(out.read_text())
    check_shares(counts, spent, total)


@pytest.mark.parametrize("seconds", ["0.3", "1", "1.25"])
def test_duration(spawn, tmp_path, seconds):
    """It ends by itself, not before the duration is over, and takes no more samples than there were ticks."""
    target = spawn(DEBIAN, "busy.py")
    result = run("record", "-p", target.pid, "-d", seconds, "-f", "raw", "-o", tmp_path / "x").check()
    assert float(seconds) <= result.seconds, result.seconds
    assert read_raw((tmp_path / "x").read_text())[1] <= float(seconds) * 100 + 2


@pytest.mark.parametrize("rate", ["1", "7.5", "100000"])
def test_rate(spawn, tmp_path, rate):
    """record drops late ticks: there are never more samples than ticks."""
    target = spawn(DEBIAN, "busy.py")
    text, result = record_enough(some_samples, "-p", target.pid, "-r", rate, "-f", "raw", out=tmp_path / "x", first=1)
    assert read_raw(text)[1] <= float(result.args[result.args.index("-d") + 1]) * float(rate) + 2, result


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP], ids=lambda n: n.name)
@pytest.mark.parametrize("format", FORMATS)
def test_signals(spawn, tmp_path, number, format):
    """A signal ends the recording: the file is complete, and the status is 0."""
    target = spawn(DEBIAN, "busy.py")
    out = tmp_path / "out"
    recording = Recording(out, "-p", target.pid, "-f", format)
    recording.until(seen("root", format=format))
    text = recording.stop(number)
    assert READ[format](text)[0]["root"] > 0, recording.result
    assert not set(os.listdir(tmp_path)) - {"out"}, "something was left beside the file"


def test_sigint_blocked(spawn, tmp_path):
    """The signal mask survives exec: SIGINT ends the recording even if the parent blocked SIGINT."""
    target = spawn(DEBIAN, "busy.py")
    recording = Recording(tmp_path / "x", "-p", target.pid, "-f", "raw",
                          preexec_fn=lambda: signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT, signal.SIGTERM]))
    recording.until(some_samples)
    assert some_samples(recording.stop(signal.SIGINT))


@pytest.mark.parametrize("format", FORMATS)
def test_snapshot(spawn, tmp_path, format):
    """SIGUSR1 writes a snapshot, and the recording continues."""
    target = spawn(DEBIAN, "busy.py")
    recording = Recording(tmp_path / "out", "-p", target.pid, "-f", format)
    first = READ[format](recording.until(seen("root", format=format)))[1]
    second = READ[format](recording.until(lambda text: READ[format](text)[1] > first))[1]
    assert recording.process.poll() is None
    assert READ[format](recording.stop())[1] >= second


@pytest.mark.parametrize("format", FORMATS)
def test_target_exits(spawn, tmp_path, format):
    target = spawn(DEBIAN, "busy.py")
    recording = Recording(tmp_path / "out", "-p", target.pid, "-f", format)
    recording.until(seen("root", format=format))
    target.process.kill()
    target.process.wait()
    result = finish(recording.process).check()
    assert READ[format](recording.out.read_text())[0]["root"] > 0, result


def test_launch_status(tmp_path):
    """The status is the launched program's as spyglass, and 0 as py-spy."""
    for program, status in ((SPYGLASS, 7), (PY_SPY, 0)):
        out = tmp_path / "x"
        record_launched(out, DEBIAN, "import sys; sys.exit(7)", program=program).check(status)
        assert read_raw(out.read_text())[0]["works"] > 0


def test_launch_killed(tmp_path):
    record_launched(tmp_path / "x", DEBIAN, "import os; os.kill(os.getpid(), 9)").check(128 + 9)
    assert read_raw((tmp_path / "x").read_text())[1] > 0


def test_launch_all_interpreters(tmp_path, python):
    result = record_launched(tmp_path / "x", python).check()
    assert read_raw((tmp_path / "x").read_text())[0]["works"] > 0, result


def test_launch_streams(tmp_path):
    """The program uses our standard streams: its output arrives byte for byte, and it reads our standard input."""
    code = "import sys, os; d = os.read(0, 100); os.write(1, b'out:' + d + b'\\xff\\n'); os.write(2, b'err\\n')\n" + WORK_UNTIL_INPUT
    process = start("record", "-f", "raw", "-o", tmp_path / "x", "--", *DEBIAN.command, "-c", code, stdin=subprocess.PIPE)
    process.stdin.write(b"hello")
    process.stdin.flush()
    wait_samples(process, tmp_path / "x")
    out, err = process.communicate(timeout=WAIT)
    assert process.returncode == 0, (out, err)
    assert b"out:hello\xff\n" in out and b"err\n" in err


def test_launch_capture(tmp_path):
    """--capture suppresses the program's output."""
    result = record_launched(tmp_path / "x", DEBIAN, "print('noise' * 3, flush=True)\n", ["--capture"]).check()
    assert "noisenoise" not in result.messages
    assert read_raw((tmp_path / "x").read_text())[1] > 0


def test_launch_missing(tmp_path):
    result = run("record", "-o", tmp_path / "x", "--", "/no/such/program").check(1)
    assert "/no/such/program" in result.err and not (tmp_path / "x").exists()


def test_launch_not_python(tmp_path):
    """A program that runs no Python runs to its end, and the error says so."""
    result = run("record", "-o", tmp_path / "x.svg", "--", "sleep", "0.1").check(1)
    assert "'sleep' exited with status 0 before it ran any Python" in result.err and not (tmp_path / "x.svg").exists(), result


def test_launch_interrupted(tmp_path):
    """SIGINT while the program runs: the file is complete, and no process is left."""
    process = start("record", "-f", "raw", "-o", tmp_path / "x", "--", *DEBIAN.command, "-c", WORK % 600, start_new_session=True)
    wait_samples(process, tmp_path / "x")
    os.killpg(process.pid, signal.SIGINT)
    finish(process)
    assert read_raw((tmp_path / "x").read_text())[0]["works"] > 0
    wait_until(lambda: not group_exists(process.pid), "the launched program gone")


def group_exists(group):
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True


@pytest.mark.skipif(os.cpu_count() < 2, reason="it takes a core for itself")
@pytest.mark.parametrize("flags", [(), ("--native",)], ids=["python", "native"])
def test_realtime(spawn, tmp_path, flags):
    """A real-time thread does not let others run on its CPU, so spyglass does not read it from there."""
    target = spawn(DEBIAN, "busy.py")
    os.sched_setaffinity(target.pid, {max(os.sched_getaffinity(0))})
    try:
        os.sched_setscheduler(target.pid, os.SCHED_FIFO, os.sched_param(10))
    except PermissionError:
        pytest.skip("real-time priority needs root")
    try:
        # Read from its own CPU, it would get one sample or none, however long the recording.
        record_enough(lambda text: read_raw(text)[1] >= 5, "-p", target.pid, "-r", "20", "-f", "raw", *flags, out=tmp_path / "x")
    finally:
        os.sched_setscheduler(target.pid, os.SCHED_OTHER, os.sched_param(0))


# --- which threads count ---

def test_idle(spawn, tmp_path):
    """--idle counts sleeping threads; without it they are never counted, however many there are."""
    target = spawn(DEBIAN, "situations.py", "many_threads")
    out = tmp_path / "x"
    record_enough(lambda text: read_raw(text)[0]["park"] > 40, "-p", target.pid, "--idle", "-f", "raw", out=out)
    run("record", "-p", at_rest(target.pid), "-d", "0.5", "-f", "raw", "-o", out).check()
    assert read_raw(out.read_text())[0]["park"] == 0


@pytest.mark.parametrize("program", [SPYGLASS, PY_SPY], ids=["spyglass", "py-spy"])
def test_all_idle(spawn, tmp_path, program):
    """A flame graph that says that nothing ran: Ray's dashboard displays that better than an error."""
    target = spawn(DEBIAN, "situations.py", "many_threads")
    result = run("record", "-p", at_rest(target.pid), "-d", "1", "-o", tmp_path / "x.svg", program=program).check()
    text = " ".join(xml.parse(tmp_path / "x.svg").getroot().itertext())
    flag = "--idle" if program is PY_SPY else "--mode wait"
    assert "No stack counts found: all" in text and flag in text
    assert "No stack counts found" in result.messages and flag in result.messages, result
    assert re.search(r"\d+", result.messages)


@pytest.mark.parametrize("format, empty", [("raw", ""), ("speedscope", "profiles"), ("chrometrace", "[")])
def test_all_idle_other_formats(spawn, tmp_path, format, empty):
    target = spawn(DEBIAN, "situations.py", "plain")
    result = run("record", "-p", at_rest(target.pid), "-d", "0.5", "-f", format, "-o", tmp_path / "x", program=PY_SPY).check()
    text = (tmp_path / "x").read_text()
    assert READ[format](text)[1] == 0 and empty in text, result
    assert "--idle" in result.messages, result


def test_gil(spawn, tmp_path):
    """--gil: at most one thread holds the GIL, so there are no more samples than ticks."""
    target = spawn(DEBIAN, "busy.py", "4")
    out = tmp_path / "x"
    text, result = record_enough(some_samples, "-p", target.pid, "--gil", "-f", "raw", out=out)
    assert read_raw(text)[1] <= 100 * float(result.args[result.args.index("-d") + 1]) + 2, result


def test_threads(spawn, tmp_path):
    target = spawn(DEBIAN, "busy.py", "2")
    out = tmp_path / "x"
    wanted = {"thread (N): MainThread", "thread (N): busy-0", "thread (N): busy-1"}

    def roots(text):
        return {re.sub(r"\d+\)", "N)", line.split(";")[0]) for line in text.splitlines()}

    text, _ = record_enough(lambda text: roots(text) >= wanted, "-p", target.pid, "--threads", "--idle", "-f", "raw", out=out)
    assert roots(text) == wanted


def test_lines(spawn, tmp_path):
    """With lines, without lines, with the function's first line, with full file names."""
    target = spawn(DEBIAN, "busy.py")
    source = pathlib.Path(__file__).parents[1].joinpath("targets", "busy.py").read_text().splitlines()
    first = 1 + next(i for i, line in enumerate(source) if line.startswith("def leaf_a"))
    found = {}
    for flag in ("--hideprogress", "--nolineno", "--function", "--full-filenames"):
        text, _ = record_enough(seen("leaf_a"), "-p", target.pid, "-r", "200", flag, "-f", "raw", out=tmp_path / flag)
        found[flag] = {part for line in text.splitlines() for part in line.rpartition(" ")[0].split(";")
                       if part.startswith("leaf_a ")}
    assert found["--hideprogress"] and all(re.match(r"leaf_a \((\w+/)*busy\.py:\d+\)$", p) for p in found["--hideprogress"]), found
    assert all(first <= int(p.rpartition(":")[2][:-1]) <= first + 4 for p in found["--hideprogress"])
    assert len(found["--nolineno"]) == 1 and re.match(r"leaf_a \((\w+/)*busy\.py\)$", *found["--nolineno"]), found
    assert len(found["--function"]) == 1 and next(iter(found["--function"])).endswith(":%d)" % first), found
    assert all(p.startswith("leaf_a (/") for p in found["--full-filenames"]), found


# --- files ---

@pytest.mark.parametrize("name, format", [("x.svg", "flamegraph"), ("x.json", "speedscope"), ("x.txt", "raw"),
                                          ("x.folded", "raw"), ("x.raw", "raw"), ("x", "flamegraph")])
def test_format_from_extension(spawn, tmp_path, name, format):
    target = spawn(DEBIAN, "busy.py")
    record_enough(seen("root", format=format), "-p", target.pid, out=tmp_path / name)


def test_default_name(spawn, tmp_path):
    target = spawn(DEBIAN, "busy.py")
    result = run("record", "-p", target.pid, "-d", "0.5", cwd=tmp_path).check()
    written, = os.listdir(tmp_path)
    assert written.endswith(".svg") and written in result.messages


def test_missing_directory(spawn, tmp_path):
    target = spawn(DEBIAN, "busy.py")
    result = run("record", "-p", target.pid, "-d", "30", "-o", tmp_path / "no" / "x.svg").check(1)
    assert str(tmp_path / "no") in result.err and "Sampling" not in result.messages, result


def test_missing_directory_before_launch(tmp_path):
    """The program is not even started."""
    mark = tmp_path / "started"
    run("record", "-o", tmp_path / "no" / "x.svg", "--", "touch", mark).check(1)
    assert not mark.exists()


def test_existing_empty_file(spawn, tmp_path):
    """An existing empty file keeps its inode: its owner may have it open."""
    target = spawn(DEBIAN, "busy.py")
    out = tmp_path / "x.svg"
    out.touch()
    out.chmod(0o640)
    inode = out.stat().st_ino
    run("record", "-p", target.pid, "-d", "0.5", "-o", out).check()
    assert out.stat().st_ino == inode and stat.S_IMODE(out.stat().st_mode) == 0o640
    assert "</svg>" in out.read_text()


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
    record_enough(seen("root", format="flamegraph"), "-p", target.pid, out=out)


def test_symlink_not_followed(spawn, tmp_path):
    target = spawn(DEBIAN, "busy.py")
    victim, link = tmp_path / "victim", tmp_path / "x.svg"
    victim.write_text("precious")
    link.symlink_to(victim)
    run("record", "-p", target.pid, "-d", "0.5", "-o", link)
    assert victim.read_text() == "precious"


@pytest.mark.parametrize("format", FORMATS)
def test_disk_full(spawn, format):
    target = spawn(DEBIAN, "busy.py", "1")
    result = run("record", "-p", target.pid, "--idle", "-d", "0.5", "-f", format, "-o", "/dev/full").check(1)
    assert "No space left" in result.err, result


@pytest.mark.parametrize("format", FORMATS)
def test_to_pipe(spawn, format):
    target = spawn(DEBIAN, "busy.py")
    reader, writer = os.pipe()
    process = start("record", "-p", target.pid, "-d", "0.5", "-f", format, "-o", "/dev/fd/%d" % writer, pass_fds=[writer])
    os.close(writer)
    with os.fdopen(reader) as stream:
        text = stream.read()
    result = finish(process).check()
    assert (READ[format](text)[0]["root"] > 0) == ("Samples: 0 " not in result.messages), result


def test_last_line(spawn, tmp_path):
    """The last line names the file, the samples and the errors, and how to view the file."""
    target = spawn(DEBIAN, "busy.py")
    result = run("record", "-p", target.pid, "-d", "1", "-o", tmp_path / "x.svg", program=PY_SPY).check()
    assert "py-spy> Sampling process 100 times a second for 1 seconds. Press Control-C to exit." in result.out, result
    assert re.search(r"py-spy> Wrote flamegraph data to '.*x\.svg'\. Samples: \d+ Errors: \d+", result.out), result
    assert "\r" not in result.out + result.err and "\x1b" not in result.out + result.err, "no progress line but on a terminal"


def test_thousand_threads(spawn, tmp_path):
    """A thousand sleeping threads, all in the profile."""
    target = spawn(DEBIAN, "situations.py", "thousand_threads")
    record_enough(lambda text: read_raw(text)[0]["park"] > 1000, "-p", target.pid, "--idle", "-f", "raw", out=tmp_path / "x")


def gaps_of(text):
    """Times during which a thread has no frame in a chrometrace, after its first one."""
    depth, ended, gaps = collections.Counter(), {}, []
    for event in json.loads(text):
        thread = event["pid"], event["tid"]
        if event["ph"] == "B":
            if depth[thread] == 0 and event["ts"] > ended.get(thread, event["ts"]):
                gaps.append(event["ts"] - ended[thread])
            depth[thread] += 1
        elif event["ph"] == "E":
            depth[thread] -= 1
            ended[thread] = event["ts"]
    return gaps


@pytest.mark.parametrize("rate", [100, 10000])
def test_no_gaps(spawn, tmp_path, rate):
    """A thread that is in every sample has no gap, however irregular the samples are. --mode wall includes all states."""
    target = spawn(DEBIAN, "busy.py")
    text, _ = record_enough(lambda text: len(json.loads(text)) > 20 * rate ** 0.5, "--pid", target.pid, "--mode", "wall", "--rate",
                            rate, "--format", "chrometrace", out=tmp_path / "out.json", first=1)
    assert gaps_of(text) == []


def test_gaps(launch, tmp_path):
    """A thread that sleeps has a gap, as long as the sleep."""
    code = ("import time\nprint('{}', flush=True)\n"
            "while True:\n    time.sleep(0.3)\n    for _ in range(100): sum(range(20000))\n")
    target = launch([*DEBIAN.command, "-c", code])
    record_enough(lambda text: sum(gap > 200000 for gap in gaps_of(text)) >= 3, "--pid", target.pid, "--rate", "1000", "--format",
                  "chrometrace", out=tmp_path / "out.json", first=2)
