"""Programs that are not Python themselves but start it: scripts, launchers, daemons. record follows the Python process."""
import os
import re
import signal
import subprocess
import threading

import pytest
from processes import age, descendants, exe, process_state
from profiles import FORMATS, READ, WORK_UNTIL_INPUT, Recording, read_none, read_raw, seen, wait_samples
from program import PY_SPY, SANITIZED, SPYGLASS, WAIT, finish, run, start, wait_until
from pythons import DEBIAN, HOSTS

PY = DEBIAN.command[0] if DEBIAN else ""
# Works in a function of the given name until the file NAME.end exists. Writes its PID to NAME.pid.
WORKER = """
import os, sys
place, name = sys.argv[1:]
open(os.path.join(place, name + ".part"), "w").write(str(os.getpid()))
os.rename(os.path.join(place, name + ".part"), os.path.join(place, name + ".pid"))
exec("def %s():\\n    while not os.path.exists(os.path.join(place, name + '.end')): sum(range(300))\\n%s()" % (name, name))
"""


class Wrapper:
    """A shell script, launched by record. `%(first)s` and so on stand for commands that run a WORKER of that name."""

    def __init__(self, place, script, *flags, program=SPYGLASS):
        self.place, self.out = place, place / "out.txt"
        (place / "worker.py").write_text(WORKER)
        commands = {name: "%s %s/worker.py %s %s" % (PY, place, place, name) for name in ("first", "second")}
        path = place / "script.sh"
        path.write_text("#!/bin/sh\n" + script % commands)
        path.chmod(0o755)
        self.process = start("record", "-f", "raw", "--function", "-o", self.out, *flags, "--", path, program=program,
                             stdin=subprocess.PIPE)
        self.recording = Recording(self.out, process=self.process)
        self.messages = b""

    def until(self, name):
        self.recording.until(seen(name))

    def pid(self, name):
        path = self.place / (name + ".pid")
        wait_until(path.exists, "the PID of " + name)
        return int(path.read_text())

    def end(self, name):
        (self.place / (name + ".end")).touch()

    def tell(self, line=b"x\n"):
        self.process.stdin.write(line)
        self.process.stdin.flush()

    def wait_message(self, text):
        guard = threading.Timer(WAIT, self.process.kill)
        guard.start()
        for line in iter(self.process.stderr.readline, b""):
            self.messages += line
            if text in line:
                guard.cancel()
                return
        raise AssertionError("no %r in %r" % (text, self.messages))

    def finish(self, status):
        result = finish(self.process).check(status)
        return self.messages.decode() + result.err

    def close(self):
        for name in ("first", "second"):
            self.end(name)
        if self.process.poll() is None:
            self.process.kill()
            self.process.communicate()


@pytest.fixture
def wrap(tmp_path):
    made = []

    def go(*args, **options):
        made.append(Wrapper(tmp_path, *args, **options))
        return made[-1]

    yield go
    for one in made:
        one.close()


def followed(messages):
    """The PIDs of the processes that were followed."""
    return [int(pid) for pid in re.findall(r"^(?:spyglass|py-spy)> Following .* \(PID (\d+)\)", messages, re.M)]


def test_script(python, tmp_path):
    """A script that runs Python and then exits with its own status."""
    out = tmp_path / "out.txt"
    process = start("record", "-f", "raw", "-o", out, "--", "sh", "-c", '"$@"; exit 5', "sh", *python.command, "-c", WORK_UNTIL_INPUT,
                    stdin=subprocess.PIPE)
    wait_samples(process, out)
    result = finish(process).check(5)
    assert read_raw(out.read_text())[0]["works"] > 0
    assert re.search(r"^spyglass> Following \S*python\S* \(PID \d+\), started by sh$", result.err, re.M), result


def test_as_py_spy(wrap):
    wrapper = wrap("%(first)s; exit 7", program=PY_SPY)
    wrapper.until("first")
    wrapper.end("first")
    result = finish(wrapper.process).check(0)
    assert followed(result.out) == [wrapper.pid("first")] and seen("first")(wrapper.out.read_text()), result


def test_two_pythons(wrap):
    """One after the other."""
    wrapper = wrap("%(first)s; %(second)s; exit 3")
    wrapper.until("first")
    wrapper.end("first")
    wrapper.until("second")
    wrapper.end("second")
    messages = wrapper.finish(3)
    assert followed(messages) == [wrapper.pid("first"), wrapper.pid("second")], messages
    assert seen("first", "second")(wrapper.out.read_text())


def test_two_at_the_same_time(wrap):
    """The second one is sampled after the first one has ended, not before."""
    wrapper = wrap("%(first)s & read line; %(second)s & wait")
    wrapper.until("first")
    wrapper.tell()
    wrapper.pid("second")
    before = wrapper.recording.snapshot()
    wrapper.recording.until(lambda text: read_raw(text)[0]["first"] > read_raw(before)[0]["first"])
    assert not seen("second")(wrapper.recording.snapshot())
    wrapper.end("first")
    wrapper.until("second")
    wrapper.end("second")
    messages = wrapper.finish(0)
    assert followed(messages) == [wrapper.pid("first"), wrapper.pid("second")], messages


def test_late_python(wrap):
    """--duration begins with Python, however long the script takes to start it."""
    wrapper = wrap("read line; %(first)s; exit 4", "-d", "1", "--wait")
    wrapper.wait_message(b"script.sh' runs no Python yet")
    wrapper.tell()
    wrapper.wait_message(b"Sampling process")
    wrapper.pid("first")
    wrapper.wait_message(b"Waiting for the program")
    wrapper.end("first")
    messages = wrapper.finish(4)
    assert followed(messages) == [wrapper.pid("first")], messages
    assert wrapper.out.exists()


def test_late_exec(wrap):
    """The launched process becomes Python itself. It is sampled instead of a child that is still running."""
    wrapper = wrap("%(first)s >/dev/null 2>&1 & read line; exec %(second)s")
    wrapper.until("first")
    wrapper.tell()
    wrapper.until("second")
    wrapper.end("second")
    messages = wrapper.finish(0)
    assert followed(messages) == [wrapper.pid("first"), wrapper.pid("second")], messages
    assert "Following the program itself (PID %d), which now runs Python" % wrapper.pid("second") in messages


EMBEDS_LATE = """
#include <dlfcn.h>
#include <unistd.h>
int main(int argc, char **argv)
{
    char c;
    void *python;
    read(0, &c, 1);
    python = dlopen(argv[1], RTLD_NOW | RTLD_GLOBAL);
    ((void (*)(int))dlsym(python, "Py_InitializeEx"))(0);
    return ((int (*)(const char *))dlsym(python, "PyRun_SimpleString"))(argv[2]);
}
"""


@pytest.mark.parametrize("shared", [p for p in HOSTS if p.library_dir], ids=repr)
def test_program_that_loads_python_late(wrap, tmp_path, shared):
    """It embeds Python, and looks like any other program for its first seconds."""
    library, = shared.library_dir.glob("libpython%d.%d*.so" % shared.version)
    (tmp_path / "embeds.c").write_text(EMBEDS_LATE)
    subprocess.run(["gcc", "-w", tmp_path / "embeds.c", "-o", tmp_path / "embeds", "-ldl"], check=True)
    code = WORKER.replace("sys.argv[1:]", "%r, 'first'" % str(tmp_path))
    (tmp_path / "code.py").write_text(code)
    wrapper = wrap("PYTHONHOME=%s exec %s/embeds %s 'exec(open(\"%s/code.py\").read())'"
                   % (shared.library_dir.parent, tmp_path, library, tmp_path))
    wrapper.wait_message(b"runs no Python yet")
    program, = [pid for pid in descendants(wrapper.process.pid) if exe(pid) != exe(wrapper.process.pid)]
    wait_until(lambda: age(program) > 4, "the program looks like another one")
    wrapper.tell()
    wrapper.until("first")
    wrapper.end("first")
    wrapper.finish(0)
    assert wrapper.pid("first") == program


def test_daemon(wrap):
    """The script exits and leaves Python running: spyglass samples it to its end."""
    wrapper = wrap("%(first)s >/dev/null 2>&1 & exit 6")
    wrapper.wait_message(b"The program has exited with status 6; still sampling process %d." % wrapper.pid("first"))
    before = read_raw(wrapper.recording.snapshot())[0]["first"]
    wrapper.recording.until(lambda text: read_raw(text)[0]["first"] > before)
    wrapper.end("first")
    wrapper.finish(6)


def test_fork_of_daemon(wrap, tmp_path):
    """A Python program that goes on in a fork, while its parent and the script exit."""
    (tmp_path / "daemon.py").write_text("import os\nif os.fork():\n    os._exit(0)\nos.setsid()\nif os.fork():\n    os._exit(0)\n" + WORKER)
    wrapper = wrap("%s %s/daemon.py %s first >/dev/null 2>&1; exit 2" % (PY, tmp_path, tmp_path))
    wrapper.until("first")
    wrapper.end("first")
    wrapper.finish(2)
    assert seen("first")(wrapper.out.read_text())


def test_orphan_of_another_program(wrap, tmp_path):
    """Once the script and the Python process have ended, other processes that it left do not keep spyglass running."""
    wrapper = wrap("sleep 1000 >/dev/null 2>&1 & echo $! > %s/sleep; %%(first)s" % tmp_path)
    wrapper.until("first")
    wrapper.end("first")
    wrapper.finish(0)
    pid = int((tmp_path / "sleep").read_text())
    assert process_state(pid) not in (None, "Z")
    os.kill(pid, signal.SIGKILL)


@pytest.mark.parametrize("flags", [[], ["-d", "1"]], ids=["unlimited", "duration"])
def test_no_python(wrap, flags):
    wrapper = wrap("read line; exit 9", *flags)
    wrapper.wait_message(b"runs no Python yet")
    wrapper.tell()
    messages = wrapper.finish(9)
    assert re.search(r"^Error: .*script.sh' exited with status 9 before it ran any Python$", messages, re.M), messages
    assert not wrapper.out.exists()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_signal_before_python(wrap, number):
    """The signal reaches the program, and spyglass exits with its status."""
    wrapper = wrap("trap - INT; echo $$ > %s; exec sleep 1000" % "${0%%/*}/shell")
    wrapper.wait_message(b"runs no Python yet")
    wait_until((wrapper.place / "shell").exists, "the shell")
    wrapper.process.send_signal(number)
    messages = wrapper.finish(128 + number)
    assert "had not started Python when" in messages
    assert process_state(int((wrapper.place / "shell").read_text())) is None


def record_nothing(out, format, program):
    """Records a program that ends before the first sample. At this rate, the first sample is taken at once or, just as
    likely, much later. Where spyglass gets no core meanwhile, the program may end before it is seen to run Python."""
    while True:
        result = run("record", "--rate", "0.001", "-f", format, "-o", out, "--", PY, "-c", "import time; time.sleep(0.2)", program=program)
        if "before the first sample" in result.messages:
            return result
        assert result.status == 0 or read_none(result) or "before it ran any Python" in result.messages, result
        if out.exists():
            out.unlink()


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("program", [SPYGLASS, PY_SPY], ids=["spyglass", "py-spy"])
def test_ended_before_first_sample(tmp_path, format, program):
    """The hint fits, and the file is valid. Callers of py-spy get an error instead of a flame graph."""
    out = tmp_path / "x"
    result = record_nothing(out, format, program)
    assert "Use a higher --rate" in result.messages and "record -- PROGRAM" not in result.messages, result
    if program is PY_SPY and format == "flamegraph":
        assert result.check(1) and not out.exists()
        return
    result.check()
    assert READ[format](out.read_text())[1] == 0
    if program is SPYGLASS and format != "chrometrace":
        assert "the program ended before the first sample" in out.read_text()
    if format == "raw":
        run("merge", "-o", tmp_path / "x.svg", out).check()


def test_pid_of_a_shell(launch, tmp_path):
    """The error for the shell names the Python process below it, and the command to paste."""
    target = launch(["sh", "-c", '"$@"; exit 0', "sh", PY, "-c", "import os; print('[%d]' % os.getpid(), flush=True); input()"])
    for command in (["dump"], ["record", "-o", str(tmp_path / "x.svg")]):
        result = run(*command, "--pid", target.pid).check(1)
        assert "Process %d, which it started, runs Python: spyglass %s --pid %d " % (*target.truth, command[0], *target.truth) in result.err, result


def test_pid_of_our_own_shell(tmp_path):
    """spyglass is no Python process, even if the shell that it is asked about has started it."""
    for command in (["dump"], ["record", "-o", str(tmp_path / "x.svg")]):
        result = run("-c", '"$@" --pid $$; exit $?', "sh", SPYGLASS, *command, program="sh").check(1)
        assert "which it started" not in result.err and "--subprocesses" in result.err, result


@pytest.mark.skipif(os.getuid() != 0, reason="only root can make a PID namespace")
@pytest.mark.parametrize("program", [SPYGLASS, PY_SPY], ids=["spyglass", "py-spy"])
def test_foreign_proc(spawn, tmp_path, program):
    """In a PID namespace with the /proc of another one, PIDs in /proc are not those of system calls."""
    target = spawn(DEBIAN, "situations.py", "plain")
    for args in (["dump", "--pid", target.pid], ["record", "--pid", target.pid], ["record", "-o", tmp_path / "x", "--", PY, "-c", ""]):
        result = run("--fork", "--pid", program, *args, program="unshare").check(1)
        assert "/proc belongs to a different PID namespace" in result.err and "--mount-proc" in result.err, result
    result = run("--fork", "--pid", program, "doctor", program="unshare").check(1)
    assert "/proc belongs to a different PID namespace" in result.out, result
    if not SANITIZED:  # the leak sanitizer needs /proc
        unmounted = ["--mount", "sh", "-c", "mount -t tmpfs none /proc; exec \"$@\"", "sh", program]
        for args in (["dump", "--pid", "1"], ["record", "--pid", "1"], ["list"], ["list", "--json"]):
            result = run(*unmounted, *args, program="unshare").check(1)
            assert "/proc is not mounted" in result.err and not result.out, result
        result = run(*unmounted, "doctor", program="unshare").check(1)
        assert "/proc is not mounted" in result.out, result
        assert "namespaces" not in result.out and "yama" not in result.out, result  # they are facts from /proc
