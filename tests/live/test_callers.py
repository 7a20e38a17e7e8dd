"""The py-spy command lines that Ray, Dask, Dagster and scripts use, with the output parsed as they parse it."""
import json
import os
import re
import shutil
import signal
import subprocess

import pytest
from native_stacks import directory
from processes import at_rest, process_state
from profiles import READ, WORK, WORK_UNTIL_INPUT, Recording, raw_stacks, read_raw, run_enough, seen, seen_in_place, some_samples, wait_samples
from program import PY_SPY, SPYGLASS, WAIT, clean_env, finish, run, start
from pythons import DEBIAN, PYTHONS
from stacks import parse_json, parse_text


def call(*args, **options):
    return run(*args, program=PY_SPY, **options)


def call_enough(enough, out, *args):
    """Calls it with longer durations, for SECONDS, until enough(text of the file) holds; returns the text."""
    return run_enough(enough, out, *args, program=PY_SPY)[0]


def test_which():
    """Ray looks for the program by name in PATH."""
    found = shutil.which("py-spy", path=str(PY_SPY.parent))
    assert found and re.match(r"py-spy \d+\.\d+\.\d+", run("--version", program=found).check().out)


@pytest.mark.parametrize("flags", [[], ["--subprocesses"], ["-s"]], ids=" ".join)
def test_ray_dump(spawn, flags):
    target = spawn(DEBIAN, "busy.py")
    result = call("dump", "-p", target.pid, *flags).check()
    assert "Process %d" % target.pid in result.out and "ray::core::CoreWorker" not in result.out


@pytest.mark.parametrize("flags", [["--native"], ["--native", "--subprocesses"]], ids=" ".join)
def test_ray_dump_native(spawn, flags):
    target = spawn(DEBIAN, "native_c.py", directory(DEBIAN, "spy_c"), "spy_c", "alternate")
    out = call("dump", "-p", target.pid, *flags).check().out
    assert re.search(r"^    spin_here \(.*spy_c\.c:\d+\)$", out, re.M) and "    second (" in out, out


@pytest.mark.parametrize("format, extension", [("flamegraph", "svg"), ("raw", "txt"), ("speedscope", "txt")])
@pytest.mark.parametrize("flags", [[], ["--idle"], ["--subprocesses"], ["--idle", "--subprocesses"],
                                   ["--native", "--idle", "--subprocesses"]], ids=" ".join)
def test_ray_record(spawn, tmp_path, format, extension, flags):
    """-f takes precedence over the extension: Ray uses .txt for everything but the flame graph."""
    target = spawn(DEBIAN, "busy.py")
    out = tmp_path / ("%s_%d_cpu_profiling.%s" % (format, target.pid, extension))
    text = call_enough(seen("root", format=format), out, "record", "-o", out, "-p", target.pid, "-d", "SECONDS", "-f", format, *flags)
    assert format != "flamegraph" or "<!DOCTYPE svg" in text
    assert len(text) < 4 << 20


def stop_after(name, process, out):
    """Sends SIGINT once a function has been seen; true if the final file has it too."""
    recording = Recording(out, process=process)
    recording.until(seen_in_place(name))
    return seen(name, format="speedscope")(recording.stop())


def test_ray_task(spawn, tmp_path):
    """A recording without a duration, stopped with SIGINT."""
    target = spawn(DEBIAN, "busy.py")
    out = tmp_path / "f.json"
    process = start("record", "-p", target.pid, "-o", out, "-f", "speedscope", "-r", "100", "--nonblocking",
                    "--subprocesses", program=PY_SPY)
    assert stop_after("root", process, out)


def test_ray_nice_worker(spawn, tmp_path):
    target = spawn(DEBIAN, "busy.py", preexec_fn=lambda: os.nice(15))
    call_enough(some_samples, tmp_path / "x", "record", "-o", tmp_path / "x", "-p", target.pid, "-d", "SECONDS", "-f", "raw")


def test_dask(spawn, tmp_path):
    """The output file already exists, the recording must not end early, and dask-pyspy reads the pipes only after
    SIGINT."""
    target = spawn(DEBIAN, "busy.py")
    out = tmp_path / "profile.json"
    out.touch()
    process = start("record", "--pid", target.pid, "--output", out, "--format", "speedscope", "--rate", "100", "--threads",
                    "--function", program=PY_SPY)
    assert stop_after("root", process, out)


def test_dask_native(spawn, tmp_path):
    """dask-pyspy's defaults: native frames, 1000 samples a second, SIGINT at the end."""
    target = spawn(DEBIAN, "native_shares.py", directory(DEBIAN, "spy_c"))
    out = tmp_path / "profile.json"
    process = start("record", "--pid", target.pid, "--output", out, "--format", "speedscope", "--rate", "1000", "--native",
                    "--threads", "--subprocesses", program=PY_SPY)
    assert stop_after("burn_here", process, out)


def test_dagster(script, tmp_path):
    """A launched program with its own flags after `--`, some of which are ours too."""
    out = tmp_path / "x.json"
    code = "import sys; assert sys.argv[1:] == ['-f', 'f.py', '--idle', '--']\n" + WORK_UNTIL_INPUT
    process = start("record", "-o", out, "-f", "speedscope", "--idle", "--", *DEBIAN.command, "-c", code, "-f", "f.py", "--idle", "--",
                    program=PY_SPY, stdin=subprocess.PIPE)
    Recording(out, process=process).until(seen("works", format="speedscope"))
    finish(process).check()
    assert seen("works", format="speedscope")(out.read_text())


@pytest.mark.parametrize("flags, kept", [([], ()), (["--capture"], ()), (["--wait"], (9,))], ids=str)
def test_program_ends_with_the_recording(tmp_path, flags, kept):
    """Callers wait until the pipes of a launched program are closed. --wait, which py-spy does not have, still waits. A program
    that we end has not failed: --capture shows nothing."""
    code = ("import os, sys\nos.write(1, b'output\\n')\nopen(sys.argv[1], 'w').write(str(os.getpid()))\n"
            + (WORK % 1 + "sys.exit(9)" if kept else WORK_UNTIL_INPUT.replace("[0]", "[]", 1)))
    pid, out, seconds = tmp_path / "pid", tmp_path / "out", 0.5
    while not pid.exists():  # on a busy machine the program may be ended before its first line
        result = call("record", "-d", seconds, "-f", "raw", "-o", out, *flags, "--", *DEBIAN.command, "-c", code, pid).check()
        seconds *= 2
        assert seconds < 300, result
    assert process_state(int(pid.read_text())) is None and out.exists()
    assert "still running" not in result.messages and ("output" in result.messages) == (not flags or bool(kept)), result


def test_program_ends_with_its_process_group_alive(tmp_path):
    """Only the program itself is ended, as py-spy does; a process that it has started goes on."""
    code = ("import os, subprocess, sys\nchild = subprocess.Popen(['sleep', '1000'], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)\n"
            "open(sys.argv[1], 'w').write(str(child.pid))\n" + WORK_UNTIL_INPUT.replace("[0]", "[]", 1))
    pid, seconds = tmp_path / "pid", 0.5
    while not pid.exists() or not pid.read_text():
        call("record", "-d", seconds, "-f", "raw", "-o", tmp_path / "x", "--", *DEBIAN.command, "-c", code, pid).check()
        seconds *= 2
    assert process_state(int(pid.read_text())) == "S"
    os.kill(int(pid.read_text()), signal.SIGKILL)


def read_entries(text):
    """The entries of all threads, and whether two equal ones are next to each other."""
    entries, repeated = 0, False
    for profile in json.loads(text)["profiles"]:
        samples, weights = profile["samples"], profile["weights"]
        assert len(samples) == len(weights) and min(weights) > 0
        assert abs(sum(weights) - profile["endValue"]) < 1e-6
        entries += len(samples)
        repeated |= any(map(list.__eq__, samples, samples[1:]))
    return entries, repeated


def lasts(text):
    return any(profile["endValue"] > 0.1 for profile in json.loads(text)["profiles"])


def test_one_entry_per_sample(spawn, tmp_path):
    """Programs count the entries of a speedscope file. Under our own name, equal samples in a row share an entry."""
    target = spawn(DEBIAN, "situations.py", "plain")  # it sleeps: all samples of a thread are equal
    out = tmp_path / "x.json"
    args = ("record", "-p", target.pid, "--idle", "-f", "speedscope", "-o", out, "-d", "SECONDS")
    for program in (PY_SPY, SPYGLASS):
        text, result = run_enough(lasts, out, *args, program=program)
        samples = int(re.search(r"Samples: (\d+)", result.messages).group(1))
        entries, repeated = read_entries(text)
        assert repeated == (program is PY_SPY) and (program is SPYGLASS or entries == samples), result
        assert ("col" in json.loads(text)["shared"]["frames"][0]) == (program is PY_SPY)


@pytest.mark.parametrize("short", ["d", "du", "dum", "dump"])
def test_abbreviated_dump(spawn, short):
    target = spawn(DEBIAN, "situations.py", "plain")
    assert call(short, "-p", hex(target.pid)).check().out.startswith("Process %d: " % target.pid)


@pytest.mark.parametrize("short", ["r", "rec", "record"])
def test_abbreviated_record(spawn, tmp_path, short):
    target = spawn(DEBIAN, "busy.py")
    call_enough(some_samples, tmp_path / "x", short, "-p", target.pid, "-d", "SECONDS", "-f", "RAW", "-o", tmp_path / "x")


def test_program_without_dashes(tmp_path):
    process = start("record", "-f", "raw", "-o", tmp_path / "x", *DEBIAN.command, "-c", WORK_UNTIL_INPUT, program=PY_SPY,
                    stdin=subprocess.PIPE)
    wait_samples(process, tmp_path / "x")
    finish(process).check()
    assert read_raw((tmp_path / "x").read_text())[1] > 0


def test_flag_forms(spawn, tmp_path):
    """-p5, --pid=5, combined short flags."""
    target = spawn(DEBIAN, "busy.py")
    out = tmp_path / "x"
    call_enough(some_samples, out, "record", "-p%d" % target.pid, "--duration=SECONDS", "-r50", "-o%s" % out, "--format=raw", "-ti")
    call("dump", "--pid=%d" % target.pid, "-j").check()


def test_odd_names_everywhere(spawn, tmp_path):
    """Names with a special meaning in a format: the output stays valid."""
    newest = max((p for p in PYTHONS if p.kind == "host"), key=lambda p: p.version)
    target = spawn(newest, "situations3.py", "odd_names")
    for format in READ:
        out = tmp_path / format
        call("record", "-p", target.pid, "-d", "0.5", "--idle", "-t", "-f", format, "-o", out).check()
        if format != "raw":
            READ[format](out.read_text(encoding="utf-8"))
    json.loads(call("dump", "-j", "-p", target.pid).check().out)


def test_not_utf8(launch, tmp_path):
    """A script name and arguments that are not valid UTF-8: the output is."""
    path = os.fsencode(tmp_path) + b"/n\xe4me\xff.py"
    with open(path, "w") as f:
        f.write("import os, time\ndef works():\n    os.write(1, b'{}\\n')\n    time.sleep(1000)\nworks()\n")
    target = launch([DEBIAN.command[0], os.fsdecode(path), os.fsdecode(b"\xfe\xff")])
    for flags in ([], ["-j"], ["--full-filenames"]):
        result = call("dump", "-p", target.pid, *flags).check()  # run() decodes strictly
        assert "works" in result.out
    for format in READ:
        call("record", "-p", target.pid, "-d", "0.5", "-i", "-f", format, "-o", tmp_path / "x").check()
        (tmp_path / "x").read_bytes().decode("utf-8")


def test_control_characters(launch):
    """No raw control byte reaches the terminal."""
    code = ("import threading, os, time\n"
            "threading.current_thread().name = 'a\\x1b]0;x\\x07b\\r\\n\\x9bc\\u202e'\n"
            "def f():\n    os.write(1, b'{}\\n')\n    time.sleep(1000)\n"
            "f.__code__ = f.__code__.replace(co_name='\\x1b[31m', co_qualname='\\x1b[31m\\n', co_filename='/x\\x1b\\t\\n.py')\nf()\n")
    target = launch([*DEBIAN.command, "-c", code])
    for flags in ([], ["--full-filenames"], ["-j"]):
        out = call("dump", "-p", target.pid, *flags).check().out
        assert not re.search("[\x00-\x09\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]", out), repr(out)


def start_many(target, tmp_path):
    """Several users press the buttons of Ray's dashboard at the same time. A thread has one tracer at a time."""
    dumps = [start("dump", "-p", target.pid, "--native-all", "--json", program=PY_SPY) for _ in range(6)]
    out = [tmp_path / ("raw_%d_cpu_profiling.txt" % i) for i in range(2)]
    records = [start("record", "-p", target.pid, "--native-all", "-f", "raw", "-d", "2", "-o", o, program=PY_SPY) for o in out]
    return [finish(process).check() for process in dumps], [finish(process).check() for process in records], out


def test_concurrent_profilers(spawn, tmp_path):
    """Each dump has the stack, and each recording counts stacks. Other profilers may have stopped the thread at
    times."""
    dumps, records, out = start_many(spawn(DEBIAN, "busy.py"), tmp_path)
    for result in dumps:
        assert "root" in [frame["name"] for thread in json.loads(result.out) for frame in thread["frames"]], result
    for result, o in zip(records, out):
        samples = int(re.search(r"Samples: (\d+)", result.messages).group(1))
        assert sum(n for stack, n in raw_stacks(o.read_text()).items() if "root" in stack) == samples, result


@pytest.mark.statistical
def test_concurrent_profilers_of_nice_process(spawn, tmp_path):
    """All get native stacks in time, even from a process with a high nice value, as Ray's workers have."""
    dumps, records, out = start_many(spawn(DEBIAN, "busy.py", preexec_fn=lambda: os.nice(15)), tmp_path)
    for result in dumps:
        assert "could not" not in result.err and "may not" not in result.err, result
        assert any(frame["module"] for thread in json.loads(result.out) for frame in thread["frames"]), result
    for result, o in zip(records, out):
        assert "ould not pause" not in result.out and "no native frames" not in result.out, result
        assert "__libc_start_main" in o.read_text(), result


def through_shell(line, **options):
    """What a caller gets that runs a line in a shell, with our directory first in PATH."""
    env = clean_env(PATH="%s:%s" % (PY_SPY.parent, os.environ["PATH"]))
    return subprocess.run(["sh", "-c", line], stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=env, timeout=WAIT, **options)


@pytest.mark.parametrize("boxes", ["--nonblocking", "--native --nonblocking", "--subprocesses --nonblocking",
                                   "--native --subprocesses --nonblocking", "--native --subprocesses"])
def test_pytorch(spawn, boxes):
    """torch.distributed.debug: popen() in each rank. The page shows the text, or HTTP 500 if the status is not 0."""
    target = spawn(DEBIAN, "native_c.py", directory(DEBIAN, "spy_c"), "spy_c", "alternate")
    done = through_shell("py-spy dump --pid %d %s 2>&1" % (at_rest(target.pid), boxes))
    text = done.stdout.decode()
    assert done.returncode == 0 and not done.stderr, text
    process, = parse_text(text)  # nothing but the dump: no note
    names = [f["name"] for f in process["threads"][0]["frames"]]
    assert process["pid"] == target.pid and names[-1] == "<module>" and ("spin_here" in names) == ("--native" in boxes), text


@pytest.mark.parametrize("flags", ["", "--threads", "--threads --native", "--native-all", "--nonblocking",
                                   "--threads --native --native-all --nonblocking"])
def test_monarch(spawn, flags):
    """Monarch reads the JSON from standard output, and fails if it lacks a field."""
    target = spawn(DEBIAN, "native_c.py", directory(DEBIAN, "spy_c"), "spy_c", "thread")
    done = through_shell("py-spy dump --pid %d --json %s" % (at_rest(target.pid), flags))
    assert done.returncode == 0, done
    threads = parse_json(done.stdout.decode())
    for thread in threads:
        assert {type(thread[key]) for key in ("pid", "thread_id", "os_thread_id")} == {int}, thread
        assert type(thread["active"]) is type(thread["owns_gil"]) is bool and type(thread["thread_name"]) in (str, type(None))
        for frame in thread["frames"]:
            assert type(frame["name"]) is type(frame["filename"]) is str and type(frame["line"]) is int, frame
    names = {frame["name"] for thread in threads for frame in thread["frames"]}
    assert ("spin_here" in names) == ("--native" in flags) and ("worker_wait" in names) == ("--native-all" in flags), names


def test_sglang(launch):
    """SGLang's watchdog runs it from a child of the server that hangs, and logs the text."""
    code = ("import json, os, subprocess\ndef hangs():\n"
            "    command = ['py-spy', 'dump', '--native', '--pid', str(os.getpid())]\n"
            "    done = subprocess.run(command, check=True, stdout=subprocess.PIPE)\n"
            "    print(json.dumps(done.stdout.decode()), flush=True)\n    os.read(0, 1)\nhangs()\n")
    target = launch([*DEBIAN.command, "-c", code], env={"PATH": "%s:%s" % (PY_SPY.parent, os.environ["PATH"])})
    process, = parse_text(target.truth)
    names = [f["name"] for f in process["threads"][0]["frames"]]
    assert process["pid"] == target.pid and "hangs" in names and names[0] != "hangs", names
