"""Processes that outlive the program that spyglass launched: spyglass finds them however soon they start, records
them to their end, and exits with the program's status."""
import os
import signal
import stat as file_modes
import subprocess

import pytest
from processes import process_state
from profiles import WORK_UNTIL_INPUT, Recording, profiler_in
from program import PY_SPY, SPYGLASS, WAIT, finish, run, start, wait_until
from pythons import DEBIAN
from process_trees import ENVIRONMENTS, chains_of, functions_of, read_tree

ROOT_ONLY = pytest.mark.skipif(os.getuid() != 0, reason="environments are made with mount(8)")

# Writes its PID; with HOLD, waits until the launched program has exited and then continues the stopped profiler; works
# until the file `end` exists; writes `done`.
WORKER = """
import os, signal, sys, time
place = os.environ["PLACE"]

def state(pid):
    try:
        return open("/proc/%d/stat" % pid).read().rsplit(")", 1)[1].split()[0]
    except OSError:
        return "X"

def go_on():
    profiler, root = map(int, open(place + "/root").read().split())
    while root != os.getpid() and os.environ["ROOT_ENDS"] and state(root) not in "ZX":
        time.sleep(0.001)
    os.kill(profiler, signal.SIGCONT)

def works():
    while not os.path.exists(place + "/end"): sum(range(300))

def main():
    with open(place + "/pid", "w") as f: f.write(str(os.getpid()))
    if os.environ["HOLD"]: go_on()
    works()
    open(place + "/done", "w").close()
"""

# A Python that was forked, without exec.
FORKS = "import os, sys, threading; sys.path.insert(0, os.environ['PLACE']); import worker\n"
DOUBLE = FORKS + """
if os.fork(): os._exit(7)
os.setsid()
if os.fork(): os._exit(0)
worker.main(); os._exit(0)
"""
# Forked by a thread that exits at once, as does the process.
THREAD = FORKS + """
def forks():
    if os.fork() == 0:
        os.setsid(); worker.main(); os._exit(0)
t = threading.Thread(target=forks); t.start(); t.join(); os._exit(7)
"""
SPAWNED = FORKS + """
import subprocess
def starts(): subprocess.Popen([sys.executable, os.environ["PLACE"] + "/run.py"], start_new_session=True)
t = threading.Thread(target=starts); t.start(); t.join(); os._exit(7)
"""
# A chain of processes: each exits as soon as it has a child.
CHAIN = FORKS + """
for i in range(6):
    if os.fork(): os._exit(7 if i == 0 else 0)
    os.setsid()
worker.main(); os._exit(0)
"""
# The program itself adopts the orphans.
SUBREAPER = FORKS + """
import ctypes
ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)
if os.fork() == 0:
    os.setsid()
    if os.fork(): os._exit(0)
    os.execv(sys.executable, [sys.executable, os.environ["PLACE"] + "/run.py"])
os.wait(); os.wait(); os._exit(7)
"""

PY, RUN = DEBIAN.command[0], '%s "$PLACE/run.py"' % DEBIAN.command[0]
SHELL = {
    "background": RUN + " & exit 7",
    "last": "(%s) & (exit 7)" % RUN,
    "nohup": "nohup %s >/dev/null 2>&1 & exit 7" % RUN,
    "setsid": "setsid %s & exit 7" % RUN,
    "setsid-f": "setsid -f %s; exit 7" % RUN,
    "twice": "sh -c 'setsid sh -c \"%s & \" & '; exit 7" % RUN.replace('"', '\\"'),
    "exec": "exec " + RUN,
    "exec-other": "%s & exec sh -c 'exit 7'" % RUN,
    "later": "(sleep 0.5; exec %s) & exit 7" % RUN,
    "timeout": "timeout 600 %s & exit 7" % RUN,
}
PYTHON = {"double": DOUBLE, "thread": THREAD, "spawned": SPAWNED, "chain": CHAIN, "subreaper": SUBREAPER}
ALL = [*SHELL, *PYTHON]


class OrphanLauncher:
    """Launches a program of one of these forms, which leaves an orphan behind."""

    def __init__(self, place, form, hold):
        self.place = place
        (place / "worker.py").write_text(WORKER)
        (place / "run.py").write_text("import sys; sys.path.insert(0, %r)\nimport worker\nworker.main()\nsys.exit(%d)\n"
                                      % (str(place), 7 if form == "exec" else 0))
        (place / "form.py").write_text(PYTHON.get(form, ""))
        script = place / "program"
        script.write_text('#!/bin/sh\nexec >/dev/null 2>&1\necho $PPID $$ > "$PLACE/root"\n%s\n%s\n' % (
            "kill -STOP $PPID" if hold else "", SHELL.get(form) or 'exec %s "$PLACE/form.py"' % PY))
        script.chmod(script.stat().st_mode | file_modes.S_IXUSR)
        self.command = ["env", "PLACE=%s" % place, "HOLD=%s" % ("1" if hold else ""),
                        "ROOT_ENDS=%s" % ("" if form in ("exec", "subreaper") else "1")]
        self.args = ["-s", "-f", "raw", "--function", "-o", place / "out", "--", script]

    def run(self, *before):
        """Lets the orphan end once its work has been seen. Returns the Result."""
        process = self.start(before=before)
        self.wait_works(process)
        (self.place / "end").touch()
        return finish(process)

    def start(self, *flags, program=SPYGLASS, before=()):
        return start(*self.command[1:], *before, program, "record", *flags, *self.args, program=self.command[0])

    def wait_works(self, process):
        """Waits until a snapshot shows the orphan at work."""
        recording = Recording(self.place / "out", process=process)
        recording.pid = profiler_in(process)
        recording.until(lambda text: (self.place / "pid").exists() and (self.place / "pid").read_text()
                        and "works" in functions_of(read_tree(text)).get(self.number(), ()))

    def number(self, name="pid"):
        return int((self.place / name).read_text().split()[-1])

    def check(self, result, status=7):
        """The orphan ran to its end, its work was recorded in the right place of the tree, and no process is launcher."""
        assert result.status == status, result
        assert (self.place / "done").exists(), result
        tree = read_tree((self.place / "out").read_text())
        pid = self.number()
        assert "works" in functions_of(tree).get(pid, ()), (pid, tree, result)
        assert chains_of(tree)[pid][0] == self.number("root")
        assert process_state(pid) is None


@pytest.mark.parametrize("form", ALL)
def test_orphan(tmp_path, form):
    """Each form without any synchronisation."""
    launcher = OrphanLauncher(tmp_path, form, hold=False)
    launcher.check(launcher.run())


@ROOT_ONLY
@pytest.mark.parametrize("environment", ["connector", "newest-pid"])
@pytest.mark.parametrize("form", ALL)
def test_orphan_before_first_scan(tmp_path, environments, form, environment):
    """Everything but the orphan has exited before spyglass first looks: the program stops spyglass until then."""
    launcher = OrphanLauncher(tmp_path, form, hold=True)
    launcher.check(launcher.run(*environments(environment)))


@ROOT_ONLY
@pytest.mark.parametrize("environment", [e for e in ENVIRONMENTS if e not in ("connector", "newest-pid")])
@pytest.mark.parametrize("form", ["background", "setsid", "double", "chain", "later"])
def test_orphan_in_other_environments(tmp_path, environments, form, environment):
    launcher = OrphanLauncher(tmp_path, form, hold=True)
    launcher.check(launcher.run(*environments(environment)))


def test_duration(tmp_path):
    """-d ends the recording although the orphan keeps running; spyglass still exits with the program's status."""
    seconds, found = 0.75, False
    while not found:  # on a busy machine the worker may not have started by then
        seconds *= 2
        assert seconds < WAIT
        launcher = OrphanLauncher(tmp_path, "nohup", hold=False)
        result = finish(launcher.start("-d", seconds))
        assert result.status == 7, result
        wait_until(lambda: (tmp_path / "pid").exists() and (tmp_path / "pid").read_text(), "the orphan")
        try:
            assert process_state(launcher.number()) not in (None, "Z")
            tree = functions_of(read_tree((tmp_path / "out").read_text()))
            found = "works" in tree.get(launcher.number(), ())
        finally:
            os.kill(launcher.number(), signal.SIGKILL)
            (tmp_path / "pid").unlink()


@pytest.mark.parametrize("program, status", [(SPYGLASS, 7), (PY_SPY, 0)])
def test_signal_ends_recording(tmp_path, program, status):
    """A signal ends the recording; the orphan keeps running. spyglass sends nothing to the program's old PID."""
    launcher = OrphanLauncher(tmp_path, "nohup", hold=False)
    process = launcher.start(program=program)
    try:
        launcher.wait_works(process)
        (tmp_path / "out").unlink()
        for line in iter((process.stdout if program is PY_SPY else process.stderr).readline, b""):
            if b"exited with status 7; still sampling" in line:
                break
        process.send_signal(signal.SIGTERM)
        result = finish(process)
        assert result.status == status, result
        assert process_state(launcher.number()) not in (None, "Z")
        assert "works" in functions_of(read_tree((tmp_path / "out").read_text()))[launcher.number()]
    finally:
        os.kill(launcher.number(), signal.SIGKILL)


def test_orphan_is_not_python(tmp_path):
    """A server that is not Python does not keep spyglass running."""
    (tmp_path / "run.py").write_text(WORK_UNTIL_INPUT)
    out = tmp_path / "out"
    code = "sleep 600 >/dev/null 2>&1 & echo $! > %s; %s %s; exit 5" % (tmp_path / "pid", PY, tmp_path / "run.py")
    process = start("record", "-s", "-f", "raw", "--function", "-o", out, "--", "sh", "-c", code, stdin=subprocess.PIPE)
    try:
        Recording(out, process=process).until(lambda text: "works" in text)
        result = finish(process)
        assert result.status == 5 and "works" in out.read_text(), result
        assert process_state(int((tmp_path / "pid").read_text())) not in (None, "Z")
    finally:
        os.kill(int((tmp_path / "pid").read_text()), signal.SIGKILL)


def test_existing_children_are_excluded(tmp_path):
    """The process that became the profiler already had children: they are not part of the launched program."""
    code = "def %s():\n    while True: sum(range(300))\n%s()\n"
    (tmp_path / "elder.py").write_text(code % ("elder", "elder"))
    out = tmp_path / "out"
    shell = '%s %s >/dev/null 2>&1 & echo $! > %s; exec "$@"' % (PY, tmp_path / "elder.py", tmp_path / "pid")
    try:
        process = start("-c", shell, "sh", SPYGLASS, "record", "-s", "-f", "raw", "--function", "-o", out, "--", PY, "-c",
                        WORK_UNTIL_INPUT, program="sh", stdin=subprocess.PIPE)
        Recording(out, process=process).until(lambda text: "works" in text)
        finish(process).check()
        found = functions_of(read_tree(out.read_text()))
        assert len(found) == 1 and int((tmp_path / "pid").read_text()) not in found, found
    finally:
        os.kill(int((tmp_path / "pid").read_text()), signal.SIGKILL)


@pytest.mark.parametrize("command, status", [(["true"], 1), (["false"], 1), (["sh", "-c", "true & exit 9"], 9),
                                             (["sh", "-c", "sleep 0.3; kill -KILL $$"], 137)], ids=str)
def test_no_python(tmp_path, command, status):
    """The message is the same, however soon the program exits."""
    result = run("record", "-s", "-f", "raw", "-o", tmp_path / "out", "--", *command)
    assert result.status == status and "before it ran any Python" in result.err, result


def test_many_non_python_children(tmp_path):
    """Many short-lived shells, each of which might become Python, do not delay finding the one that is Python."""
    launcher = OrphanLauncher(tmp_path, "background", hold=False)
    program = tmp_path / "program"
    crowd = "i=0; while [ $i -lt 60 ]; do sh -c 'sleep 1; true' & i=$((i + 1)); done\n"
    program.write_text(program.read_text().replace(SHELL["background"], crowd + SHELL["background"]))
    launcher.check(launcher.run())
