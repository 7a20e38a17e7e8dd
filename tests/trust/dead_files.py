"""Row 12: a program on a file system that never answers (FUSE)."""
import contextlib
import os
import re
import shutil
import signal
import subprocess
import time

from common import DEBIAN, Figure, ROOT, Target, WAIT, plural, process_state, start

COMMANDS = ("dump", "dump --native", "record", "record --native")
SAYS = re.compile(rb"does not answer|keeps its memory locked")  # in the output
SERVER = ROOT / "tests" / "targets" / "fuse_server.c"
# Starts a child from the dead file system and one from elsewhere, and waits.
PARENT = """
import os, subprocess, sys
code = "import os\\ndef %s():\\n    os.write(1, b'.')\\n    while True: sum(range(200))\\n%s()\\n"
children = [subprocess.Popen([program, "-S", "-c", code % (name, name)], stdout=subprocess.PIPE)
            for program, name in ((sys.argv[1], "dead"), (sys.executable, "alive"))]
for child in children: child.stdout.read(1)
print(" ".join(str(child.pid) for child in children), flush=True)
children[1].wait()
"""


class Dead:
    """A file system with a copy of Python. die() makes it stop answering."""

    def __init__(self, place):
        self.source, self.mount, program = place / "source", place / "mount", place / "fuse_server"
        for directory in (self.source, self.mount):
            directory.mkdir()
        shutil.copy(os.path.realpath(DEBIAN.command[0]), str(self.source / "python3"))
        subprocess.run(["cc", "-O1", "-o", str(program), str(SERVER)], check=True)
        self.server = subprocess.Popen([str(program), str(self.source), str(self.mount)], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.ready = self.server.stdout.readline().strip() == b"ready"

    def tell(self, command):
        self.server.stdin.write(command + b"\n")
        self.server.stdin.flush()
        self.server.stdout.readline()

    def die(self, how):
        """Drops the kernel's copies of the files. `silent`: it takes requests and answers none; `stopped`: it takes none."""
        self.tell(b"forget")
        if how == "silent":
            self.tell(b"silent")
        else:
            self.server.send_signal(signal.SIGSTOP)
            while process_state(self.server.pid) != "T":
                time.sleep(0.001)

    def end(self):
        self.server.kill()
        self.server.communicate()
        subprocess.run(["umount", "-l", str(self.mount)], stderr=subprocess.DEVNULL)


def ends_within(dead, limit, *args):
    """Runs spyglass; returns (seconds, output), or (None, output) if it had to be freed by ending the file system."""
    begin = time.monotonic()
    profiler = start(*args)
    try:
        out, err = profiler.communicate(timeout=limit)
        return time.monotonic() - begin, out + err
    except subprocess.TimeoutExpired:
        dead.end()
        profiler.kill()
        out, err = profiler.communicate(timeout=WAIT)
        return None, out + err


def measure(ctx, place, which, how):
    """Returns (seconds beyond the duration or None, what is wrong or None) of one command."""
    dead = Dead(place)
    try:
        if not dead.ready:
            return None, "the file system could not be mounted"
        with Target([*DEBIAN.command, "-S", "-c", PARENT, str(dead.mount / "python3")]) as parent:
            try:
                child = int(parent.line().split()[0])
                dead.die(how)
                out = place / "out.txt"
                args, extra = {
                    "dump": (["dump", "--pid", child], 0), "dump --native": (["dump", "--native", "--pid", child], 0),
                    "record": (["record", "--subprocesses", "--pid", parent.pid, "-d", 3, "-f", "raw", "-o", out], 3),
                    "record --native": (["record", "--native", "--subprocesses", "--pid", parent.pid, "-d", 3, "-f", "raw", "-o", out], 3),
                }[which]
                seconds, text = ends_within(dead, extra + 8 * ctx.patience, *args)
                if seconds is None:
                    return None, "%s: hangs" % which
                if args[0] == "record" and (not out.exists() or "alive" not in out.read_text()):
                    return seconds - extra, "%s: the other process was not sampled: %s" % (which, text.decode(errors="replace").strip()[-200:])
                said = SAYS.search(text)
                return seconds - extra, None if said else "%s: does not say why: %s" % (which, text.decode(errors="replace").strip()[-200:])
            finally:
                dead.end()  # before the target is killed, which would wait for it
    finally:
        dead.end()


def dead_files(ctx):
    if os.geteuid() != 0 or not os.path.exists("/dev/fuse"):
        return Figure("it needs root and /dev/fuse", None)
    times, problems, tries = {}, [], [(which, how) for which in COMMANDS for how in ("silent", "stopped")]
    for i, (which, how) in enumerate(tries):
        place = ctx.work / ("fuse-%d" % i)
        place.mkdir()
        seconds, problem = measure(ctx, place, which, how)
        if seconds is not None:
            times[which] = max(seconds, times.get(which, 0))
        if problem:
            problems.append("%s, %s" % (how, problem))
        with contextlib.suppress(OSError):
            shutil.rmtree(str(place))
    slow = [which for which, seconds in times.items() if seconds > 5 * ctx.patience]
    text = "%s on a file system that never answers, longest beyond the duration: %s%s" % (
        plural(len(tries), "command"), ", ".join("%s %.1f s" % item for item in times.items()) or "none ended",
        "; " + "; ".join(problems) if problems else "")
    return Figure(text, not problems and not slow)
