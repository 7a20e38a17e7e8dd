"""Uses the package spyglass from inside the process that it profiles: package.py CASE. Prints one line of JSON with
the expected and the actual result, or fails. Python 3.8 and later."""
import gc
import json
import os
import signal
import subprocess
import sys
import threading
import time

import spyglass

PATIENCE = 300


def until(condition):
    """Polls until the condition is true."""
    end = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < end, "waited in vain"
    return True


def spin(until_true):
    """The known function: runs until the flag is set."""
    count = 0
    while not until_true():
        count += sum(range(100))
    return count


def outer(until_true):
    return spin(until_true)


def simple(frame):
    """The name of a function: spin for "A.spin (package.py:3)"."""
    return frame.split(" (")[0].split(".")[-1]


def seen(profile, name):
    """The samples of stacks that contain the function."""
    return sum(n for frames, n in profile.stacks if name in [simple(frame) for frame in frames])


def enough(recording, name, least=5):
    """Runs the known function until the recording has seen it."""
    def done():
        outer(after(0.1))
        return seen(recording.snapshot(), name) >= least
    until(done)


def after(seconds):
    end = time.monotonic() + seconds
    return lambda: time.monotonic() >= end


def children():
    """Our child processes, including zombies."""
    found = []
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                with open("/proc/%s/stat" % name) as file:
                    fields = file.read().rsplit(")", 1)[1].split()
            except OSError:
                continue
            if int(fields[1]) == os.getpid():
                found.append((int(name), fields[0]))
    return found


def park(name):
    """A thread with a known stack."""
    ready, go = threading.Event(), threading.Event()

    def parked_function(number):
        text = "a value"
        ready.set()
        go.wait()
        return number, text

    thread = threading.Thread(target=parked_function, args=(42,), name=name, daemon=True)
    thread.start()
    ready.wait()
    last = None
    while not last or look(thread) != last or last[0] != "S":  # until it blocks
        last = look(thread)
        time.sleep(0.01)
    return thread, go


def look(thread):
    """The state of a thread, and how often it has run."""
    place = "/proc/self/task/%d/" % thread.native_id
    with open(place + "stat") as stat, open(place + "schedstat") as schedstat:
        return stat.read().rsplit(")", 1)[1].split()[0], schedstat.read().split()[2]


def case_dump():
    thread, go = park("parked")
    threads = spyglass.dump(locals=1)
    mine = next(t for t in threads if t.os_thread_id == threading.main_thread().native_id)
    other = next(t for t in threads if t.thread_id == thread.ident)
    frame = next(f for f in other.frames if "parked_function" in f.name)
    assert all(t.pid == os.getpid() and t.process is None for t in threads)
    assert mine is threads[0] and mine.frames[-1].name == "<module>", mine
    assert any(f.name == "case_dump" and f.short_filename == "package.py" for f in mine.frames), mine
    assert other.name == "parked" and other.status == "idle" and not other.owns_gil, other
    assert [(v.name, v.repr, v.arg) for v in frame.locals][:1] == [("number", "42", True)], frame
    assert ("text", "'a value'", False) in [(v.name, v.repr, v.arg) for v in frame.locals], frame
    assert frame.filename == park.__code__.co_filename and frame.module is None, frame
    assert "parked_function (package.py:%d)" % frame.line in str(other), str(other)
    wait = other.waits_for
    assert wait.object.operation == "Event.wait" and wait.object.certain and wait.seconds_at_most is None, wait
    assert "\n  %s\n" % wait in str(other) and str(wait).startswith("waits in Event.wait"), str(other)
    assert all(t.verdict is None for t in threads[1:])
    plain = spyglass.dump(waits=False)
    assert all(t.waits_for is t.verdict is None for t in plain) and all(f.locals is None for t in plain for f in t.frames)
    go.set()
    return {}


def case_dump_subprocesses():
    code = "import sys\ndef child_function():\n    print(1, flush=True)\n    sys.stdin.read()\nchild_function()\n"
    child = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    child.stdout.readline()
    threads = spyglass.dump(subprocesses=True)
    found = [t for t in threads if t.pid == child.pid]
    assert any(f.name == "child_function" for t in found for f in t.frames), threads
    assert found[0].process.pid == child.pid and found[0].process.parent.pid == os.getpid(), found[0]
    # And from outside: a child process, by its PID.
    assert any(f.name == "child_function" for t in spyglass.dump(child.pid) for f in t.frames)
    child.communicate()
    return {}


def case_record():
    with spyglass.record() as recording:
        assert recording.running and recording.pid == os.getpid()
        enough(recording, "spin")
        before = recording.snapshot()
    profile = recording.profile
    assert not recording.running and recording.stop() is profile
    assert seen(profile, "spin") >= seen(before, "spin") >= 5 and profile.samples >= before.samples
    assert any([simple(f) for f in frames][-2:] == ["outer", "spin"] for frames, _ in profile.stacks)
    assert profile.samples == sum(n for _, n in profile.stacks)
    assert children() == []
    return {}


def case_thread():
    """The thread that starts the recording exits first; another thread stops the recording."""
    made = []
    starter = threading.Thread(target=lambda: made.append(spyglass.record().start()))
    starter.start()
    starter.join()
    recording = made[0]
    enough(recording, "spin")
    enough(recording, "spin", seen(recording.snapshot(), "spin") + 5)  # it keeps recording
    stopper = threading.Thread(target=recording.stop)
    stopper.start()
    stopper.join()
    assert seen(recording.profile, "spin") >= 10
    # Two at the same time, each with several callers.
    several = [spyglass.record().start() for _ in range(2)]
    callers = [threading.Thread(target=r.stop) for r in several for _ in range(3)]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join()
    assert all(r.profile is r.stop() for r in several)
    assert children() == []
    return {}


def in_child(body):
    """Runs body in a forked child that exits like a program; returns its wait status."""
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            body()
            code = 0
        finally:
            if code:
                sys.excepthook(*sys.exc_info())
            sys.exit(code)
    return os.waitpid(pid, 0)[1]


def case_fork():
    """After a fork, the child's copy of a recording has no owner; the child makes its own recordings."""
    recording = spyglass.record().start()

    def body():
        for call in (recording.stop, recording.snapshot, recording.wait):
            try:
                call()
            except RuntimeError as error:
                assert str(os.getppid()) in str(error), error
            else:
                raise AssertionError("a child stopped its parent's recording")
        with spyglass.record() as own:
            assert own.pid == os.getpid()
            enough(own, "spin")
        assert seen(own.profile, "spin") >= 5
        spyglass.record().start()  # and leaves one running

    pid = os.fork()
    if pid == 0:
        try:
            body()
        except BaseException:
            sys.excepthook(*sys.exc_info())
            os._exit(1)
        sys.exit(0)  # finalizers and atexit run, for the copy too
    assert os.waitpid(pid, 0)[1] == 0
    assert recording.running
    enough(recording, "spin")
    recording.stop()
    assert children() == []
    return {}


def case_dropped():
    recording = spyglass.record().start()
    assert len(children()) == 1
    del recording
    gc.collect()
    until(lambda: children() == [])
    # The same if the block raises.
    try:
        with spyglass.record() as recording:
            raise KeyError("the block's own")
    except KeyError:
        pass
    assert not recording.running and children() == [] and recording.profile.samples >= 0
    return {}


def case_duration():
    code = "import time\ndef child_function():\n    while True: sum(range(1000))\nprint(1, flush=True)\nchild_function()\n"
    child = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE)
    child.stdout.readline()
    duration, profile = 0.5, None
    while not profile or not seen(profile, "child_function"):
        recording = spyglass.record(child.pid, duration=duration, rate=200).start()
        profile = recording.wait(PATIENCE)
        assert not recording.running and profile is recording.profile and profile.rate == 200
        assert profile.samples <= 200 * duration + 10, profile
        duration *= 2
        assert duration < PATIENCE, profile
    # Waiting for an endless recording times out; a recording ends with its target.
    recording = spyglass.record(child.pid).start()
    try:
        recording.wait(0.05)
    except TimeoutError:
        pass
    else:
        raise AssertionError("wait returned")
    assert recording.running
    until(lambda: recording.snapshot().samples > 0)
    child.kill()
    child.wait()
    assert recording.wait(PATIENCE).samples > 0 and recording.snapshot() is recording.profile
    child.stdout.close()
    assert children() == []
    return {}


def case_formats():
    place = sys.argv[2]

    def has_samples():  # more than one: raw may omit a single one later
        profile = recording.snapshot()
        return profile.samples > 4 and sign in profile.data or outer(after(0.1)) < 0

    for format, ending, sign in (("flamegraph", "svg", b"<!DOCTYPE svg"), ("speedscope", "json", b'{"$schema"'),
                                 ("chrometrace", "trace.json", b"[{"), ("raw", "txt", b"package.py")):
        path = os.path.join(place, "direct." + ending)
        with spyglass.record(output=path) as recording:  # the extension selects the format
            outer(after(0.3))
            until(has_samples)
        with open(path, "rb") as file:
            data = file.read()
        assert sign in data and recording.profile.data == data, (format, data[:100])
        assert recording.profile.format == format and recording.profile.samples > 0
        with spyglass.record(format=format.upper()) as recording:
            outer(after(0.3))
            until(has_samples)
        assert sign in recording.profile.data
        recording.profile.save(os.path.join(place, "later." + ending))
        with open(os.path.join(place, "later." + ending), "rb") as file:
            assert file.read() == recording.profile.data
        if format != "raw":
            try:
                recording.profile.stacks
            except ValueError as error:
                assert format in str(error)
            else:
                raise AssertionError("a picture has stacks")
    return {}


def case_flags():
    """Each flag reaches the program."""
    thread, go = park("waiting one")
    with spyglass.record(idle=True, threads=True, subprocesses=True, function=True, native=False, gil=False,
                         extra_args=["--full-filenames"]) as recording:
        until(lambda: seen(recording.snapshot(), "wait") > 0)
    stack = next(frames for frames, _ in recording.profile.stacks if any("parked_function" in f for f in frames))
    assert stack[0].startswith("process %d:" % os.getpid()), stack
    assert stack[1] == "thread (%d): waiting one" % thread.native_id, stack
    first = spyglass_line("parked_function")
    assert any(f.endswith("parked_function (%s:%d)" % (park.__code__.co_filename, first)) for f in stack), stack
    with spyglass.record(gil=True, nonblocking=True) as recording:
        until(lambda: recording.snapshot().samples > 0 or outer(after(0.1)) < 0)
    assert not any("parked_function" in f for frames, _ in recording.profile.stacks for f in frames)
    go.set()
    return {}


def spyglass_line(name):
    with open(__file__) as file:
        return next(i for i, line in enumerate(file, 1) if line.strip().startswith("def %s(" % name))


def case_session():
    """Ctrl-C in the terminal reaches only us, however we handle it; the child does not inherit our blocked signals."""
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT, signal.SIGUSR1])
    recording = spyglass.record().start()
    assert os.getsid(recording._process.pid) == recording._process.pid
    enough(recording, "spin")
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGINT, signal.SIGUSR1])
    recording.stop()
    assert children() == []
    # Every opened descriptor was closed.
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(3):
        spyglass.record().start().stop()
        try:
            spyglass.record(2**22 + 5).start()
        except ProcessLookupError:
            pass
    gc.collect()
    assert len(os.listdir("/proc/self/fd")) == before
    return {}


def case_leaves():
    """Exits without stopping its recordings, in the way that the second argument names."""
    child = subprocess.Popen(["sleep", "1000"])
    recording = spyglass.record(idle=True).start()
    other = spyglass.record(os.getppid(), subprocesses=True, idle=True).start()
    print(json.dumps([recording._process.pid, other._process.pid, child.pid]), flush=True)
    sys.stdin.readline()
    if sys.argv[2] == "exit":
        sys.exit(0)
    if sys.argv[2] == "raise":
        raise SystemError("on purpose")
    if sys.argv[2] == "_exit":
        os._exit(0)
    os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    result = globals()["case_" + sys.argv[1]]()
    print(json.dumps(result), flush=True)
