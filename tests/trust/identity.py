"""Row 24: the process with a PID is replaced by another one while spyglass is at work.

Runs in a PID namespace of its own (root), in which the next PID can be chosen. spyglass is stopped at a random time after its
start; then the first program, which is in first(), is killed and a second one with the same PID, which is in second(), is
started; then spyglass continues. If it had opened the first one, anything of the second is wrong; so is a mixture of both.
"""
import os
import pathlib
import random
import signal
import subprocess
import sys
import time

from common import DEBIAN, Figure, ROOT, SPYGLASS, clean_env, plural, process_state

HANG = 60  # seconds
OUTCOMES = ("first", "second", "none", "wrong", "hangs")
CODE = "import os\ndef %s():\n    os.write(1, b'.')\n    while True: sum(range(100))\n%s()\n"


def start_as(pid, name):
    """Starts a Python with this PID; None: any."""
    if pid:
        pathlib.Path("/proc/sys/kernel/ns_last_pid").write_text(str(pid - 1))
    process = subprocess.Popen([*DEBIAN.command, "-S", "-c", CODE % (name, name)], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                               env=clean_env())
    process.stdout.read(1)
    return process


def has_opened(profiler, pid):
    """Waits until the profiler is stopped. True if it has a descriptor of the process."""
    while process_state(profiler.pid) not in ("T", "Z", None):
        time.sleep(0.001)
    links = []
    for link in pathlib.Path("/proc/%d/fd" % profiler.pid).glob("*"):
        try:
            links.append(os.readlink(str(link)))
        except OSError:
            pass
    return any("pidfd" in link or ("/proc/%d" % pid) in link or link.startswith("/%d/" % pid) for link in links)


def swap(args, delay, out):
    """Returns "first", "second", "none", "wrong", "hangs", or "over" if spyglass had ended before the swap, or was tracing: the
    kernel reuses no PID before the tracer has seen the end of the process."""
    first = start_as(None, "first")
    profiler = subprocess.Popen([str(SPYGLASS), *args, "--pid", str(first.pid)], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                stderr=subprocess.DEVNULL, env=clean_env())
    time.sleep(delay)
    profiler.send_signal(signal.SIGSTOP)
    opened = has_opened(profiler, first.pid)
    over = profiler.poll() is not None or "TracerPid:\t0\n" not in pathlib.Path("/proc/%d/status" % first.pid).read_text()
    first.kill()
    if over:
        profiler.kill()
        profiler.communicate()
        first.communicate()
        return "over"
    first.communicate()
    second = start_as(first.pid, "second")
    try:
        if second.pid != first.pid:
            return "over"
        profiler.send_signal(signal.SIGCONT)
        if args[0] == "record":
            time.sleep(0.05)  # in which it could sample the second one
            profiler.send_signal(signal.SIGINT)
        text = profiler.communicate(timeout=HANG)[0]
        if args[0] == "record":
            text = out.read_bytes() if out.exists() else b""
        found = [name for name in ("first", "second") if name.encode() in text]
        return "wrong" if "second" in found and (opened or len(found) == 2) else found[0] if found else "none"
    except subprocess.TimeoutExpired:
        return "hangs"
    finally:
        for process in (profiler, second):
            process.kill()
            process.communicate()


def inside(count, place):
    """Runs in the namespace; prints the outcomes."""
    outcomes = []
    for i in range(count):
        out = pathlib.Path(place) / ("swap-%d" % i)
        args = [["dump"], ["dump", "--native"], ["record", "-r", "1000", "-f", "raw", "-o", str(out)]][i % 3]
        outcomes.append(swap(args, random.Random(i).uniform(0, 0.03 if args[0] == "record" else 0.008), out))
        if out.exists():
            out.unlink()
    print("\n".join(outcomes))


def reused_pid(ctx):
    command = ["unshare", "--pid", "--fork", "--kill-child", "--mount-proc", sys.executable, str(ROOT / "tests" / "trust" / "identity.py"),
               str(ctx.count(300, 9)), str(ctx.work)]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    outcomes = done.stdout.decode(errors="replace").split("\n")
    if done.returncode != 0:
        return Figure("it needs root and a PID namespace: " + " ".join(outcomes[-2:]), None)
    counts = {name: outcomes.count(name) for name in OUTCOMES}
    swapped = sum(counts.values())
    text = "%s reused during a dump or a recording: %d with anything of the wrong process%s (%d of the first, %d of the second, %d of none)" % (
        plural(swapped, "PID"), counts["wrong"], ", %d hang" % counts["hangs"] if counts["hangs"] else "", counts["first"], counts["second"],
        counts["none"])
    return Figure(text, swapped > 0 and not counts["wrong"] and not counts["hangs"])


if __name__ == "__main__":
    inside(int(sys.argv[1]), sys.argv[2])
