"""Programs launched by spyglass: their signals, terminal, exit status and user."""
import errno
import json
import os
import pathlib
import pty
import pwd
import re
import select
import shutil
import signal
import subprocess
import tempfile
import threading
import time

import pytest
from processes import cpu_seconds, descendants, process_state
from profiles import WORK, WORK_UNTIL_INPUT, Recording, catches, read_raw, seen, wait_samples
from program import PY_SPY, SPYGLASS, TARGETS, WAIT, clean_env, finish, run, start, wait_until
from pythons import DEBIAN, NEWEST_HOST, PYTHON_2
from process_trees import functions_of, read_tree

SOME = [p for p in (PYTHON_2, DEBIAN, NEWEST_HOST) if p]


def lines_of(process):
    """The next JSON line that a launched program writes to our standard output."""
    report = []
    guard = threading.Timer(WAIT, give_up, [process.pid, report])
    guard.start()
    try:
        while True:
            line = process.stdout.readline()
            assert line, (report, process.stderr.read())
            if line.startswith(b"{"):
                return json.loads(line.decode())
    finally:
        guard.cancel()


def give_up(pid, report):
    """On a timeout: adds the states of the profiler and the program to the failure message, then kills both."""
    for one in [*descendants(pid), pid]:
        try:
            report.extend(pathlib.Path("/proc/%d/%s" % (one, name)).read_text() for name in ("status", "wchan"))
            os.kill(one, signal.SIGKILL)
        except OSError as error:
            report.append(str(error))


def launch(out, *args, program=SPYGLASS, flags=(), **options):
    """Starts the profiler with a target to launch: returns the process, and the target's PID once the target has
    printed it."""
    process = start("record", "-f", "raw", "--function", "-o", out, *flags, "--", *args, program=program, **options)
    report = lines_of(process)
    wait_samples(process, pathlib.Path(out))
    return process, report["pid"]


def wait_line(process, text):
    """Reads the standard error of the profiler up to a line that contains the text."""
    for line in iter(process.stderr.readline, b""):
        if text in line:
            return
    raise AssertionError("no %r: %r" % (text, process.stdout.read()))


def lives(pid):
    return process_state(pid) not in (None, "Z")


def send(process, number):
    os.kill(process.pid, number)


# --- output ---

@pytest.mark.parametrize("program", [SPYGLASS, PY_SPY], ids=["spyglass", "py-spy"])
def test_program_output(tmp_path, program):
    """Standard output belongs to the launched program. Callers of py-spy read its messages there."""
    out = tmp_path / "out"
    process = start("record", "-f", "raw", "-o", out, "--", *DEBIAN.command, "-c", "print('printed', flush=True)\n" + WORK_UNTIL_INPUT,
                    program=program, stdin=subprocess.PIPE)
    wait_samples(process, out)
    result = finish(process).check()
    messages = result.out if program is PY_SPY else result.err
    assert "Sampling process" in messages and "Wrote raw flamegraph data" in messages, result
    assert program is PY_SPY or result.out == "printed\n", result


# --- signals ---

@pytest.mark.parametrize("host", SOME, ids=repr)
def test_signals_are_forwarded(tmp_path, script, host):
    """The program gets each signal once, including those that end the recording, but not SIGUSR1, which is ours."""
    out = tmp_path / "out"
    process, pid = launch(out, *host.command, script(host, "signal_reporter.py"))
    for name in ("SIGUSR2", "SIGWINCH", "SIGALRM", "SIGRTMIN", "SIGIO", "SIGCONT"):
        send(process, getattr(signal, name))
        assert lines_of(process) == {"signal": getattr(signal, name)}
    send(process, signal.SIGUSR1)
    wait_until(lambda: out.exists() and out.read_text(), "what there is so far")
    for name in ("SIGHUP", "SIGTERM"):
        send(process, getattr(signal, name))
        assert lines_of(process) == {"signal": getattr(signal, name)}
        wait_until(lambda: process.poll() is not None or waits(process), "the file")
    os.kill(pid, signal.SIGKILL)
    result = finish(process)
    assert '{"signal": %d}' % signal.SIGUSR1 not in result.out
    assert read_raw(out.read_text())[0]["works"] > 0


def waits(process):
    """Waits until the recording is over and the profiler sleeps until the program exits."""
    return pathlib.Path("/proc/%d/wchan" % process.pid).exists() and process_state(process.pid) == "S"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT])
def test_exit_status_after_signal(tmp_path, script, number):
    """A signal to spyglass ends the program; spyglass exits with its status and writes the file."""
    out = tmp_path / "out"
    process, pid = launch(out, *DEBIAN.command, "-c", "import os; print('{\"pid\": %d}' % os.getpid(), flush=True)\n" + WORK % 600)
    send(process, number)
    result = finish(process)
    assert result.status == 128 + number, result
    assert read_raw(out.read_text())[0]["works"] > 0
    assert process_state(pid) is None


@pytest.mark.parametrize("program, status", [(SPYGLASS, 40 + 15), (PY_SPY, 0)])
def test_waits_for_cleanup(tmp_path, script, program, status):
    """The program takes its time to exit. spyglass waits, has already written the file, and exits with the program's
    status."""
    process, pid = launch(tmp_path / "out", *DEBIAN.command, script(DEBIAN, "signal_reporter.py"), "ends", program=program)
    send(process, signal.SIGTERM)
    assert lines_of(process) == {"signal": 15}
    finish(process).check(status)
    assert process_state(pid) is None


def test_second_signal_ends_wait(tmp_path, script):
    """A program that ignores SIGTERM: a second SIGTERM ends spyglass, and the program keeps running."""
    out = tmp_path / "out"
    process, pid = launch(out, *DEBIAN.command, script(DEBIAN, "signal_reporter.py"))
    try:
        send(process, signal.SIGTERM)
        wait_line(process, b"Waiting for the program")
        assert read_raw(out.read_text())[0]["works"] > 0
        send(process, signal.SIGTERM)
        process.wait(WAIT)
        assert process.returncode == 0 and lives(pid)
    finally:
        os.kill(pid, signal.SIGKILL)
    assert b"still running (PID %d)" % pid in process.communicate()[1]


def test_simultaneous_signals_count_once(tmp_path, script):
    """timeout(1) signals spyglass and its process group at once: that counts as one request, and spyglass still
    waits. While it is stopped, the kernel collects the signals and then delivers one after the other."""
    out = tmp_path / "out"
    process, pid = launch(out, *DEBIAN.command, script(DEBIAN, "signal_reporter.py"), start_new_session=True)
    send(process, signal.SIGSTOP)
    wait_until(lambda: process_state(process.pid) == "T", "the profiler stopped")
    send(process, signal.SIGTERM)
    for number in (signal.SIGTERM, signal.SIGHUP):
        os.killpg(process.pid, number)
    send(process, signal.SIGCONT)
    wait_line(process, b"Waiting for the program")
    wait_until(lambda: waits(process), "asleep until it ends")
    assert process.poll() is None
    os.kill(pid, signal.SIGKILL)
    result = finish(process)
    assert result.status == 137 and "still running" not in result.err, result


def test_group_signal(tmp_path, script):
    """A signal that the program sends to its whole process group reaches spyglass too; spyglass does not send it
    back."""
    code = ("import os, select, signal, time, json\nseen = []\nsignal.signal(signal.SIGUSR2, lambda n, f: seen.append(n))\n"
            "def works(until):\n    while not until(): sum(range(300))\n"
            "print(json.dumps({'pid': os.getpid()}), flush=True)\nworks(lambda: select.select([0], [], [], 0)[0])\n"
            "os.killpg(0, signal.SIGUSR2)\nend = time.process_time() + 0.5\nworks(lambda: time.process_time() > end)\n"
            "print(json.dumps({'seen': seen}), flush=True)\n")
    process, _ = launch(tmp_path / "out", *DEBIAN.command, "-c", code, start_new_session=True, stdin=subprocess.PIPE)
    process.stdin.write(b"x")
    process.stdin.flush()
    assert lines_of(process) == {"seen": [signal.SIGUSR2]}
    finish(process).check()


def mask_of(pid, name):
    text = pathlib.Path("/proc/%s/status" % pid).read_text()
    return int(re.search(r"^%s:\s*([0-9a-f]+)" % name, text, re.M).group(1), 16)


CODE_MASKS = ("import json\nd = dict(l.split(':', 1) for l in open('/proc/self/status').read().splitlines() if ':' in l)\n"
              "print(json.dumps({k: d[k].strip() for k in ('SigBlk', 'SigIgn')}), flush=True)\n" + WORK_UNTIL_INPUT)


def test_inherited_signal_mask(tmp_path):
    """The program starts with the signals blocked and ignored that spyglass started with, and no others: nohup
    works."""
    def before():
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        signal.signal(signal.SIGPIPE, signal.SIG_IGN)
        signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, {signal.SIGUSR2, signal.SIGINT})

    plain = json.loads(subprocess.run([*DEBIAN.command, "-S", "-c", CODE_MASKS], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                      preexec_fn=before, restore_signals=False).stdout.decode())
    process = start("record", "-f", "raw", "-o", tmp_path / "x", "--", *DEBIAN.command, "-S", "-c", CODE_MASKS, preexec_fn=before,
                    restore_signals=False, stdin=subprocess.PIPE)
    assert lines_of(process) == plain
    wait_samples(process, tmp_path / "x")
    finish(process).check()
    assert int(plain["SigBlk"], 16) == 1 << signal.SIGUSR2 - 1 | 1 << signal.SIGINT - 1


def test_nohup(tmp_path, script):
    """Under nohup, closing the terminal ends neither spyglass nor the program."""
    process = start("record", "-f", "raw", "-o", tmp_path / "x", "--", *DEBIAN.command, "-c",
                    "import os; print('{\"pid\": %d}' % os.getpid(), flush=True)\n" + WORK % 600,
                    preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN))
    pid = lines_of(process)["pid"]
    wait_samples(process, tmp_path / "x")
    send(process, signal.SIGHUP)
    wait_samples(process, tmp_path / "x")
    assert process.poll() is None and lives(pid)
    send(process, signal.SIGTERM)
    finish(process)


# --- the end of the recording ---

LONG = "import os; print('{\"pid\": %d}' % os.getpid(), flush=True)\n" + WORK % 600


def test_duration_keeps_program_running(tmp_path):
    """-d ends the recording, not the program."""
    out = tmp_path / "out"
    process = start("record", "-d", "0.5", "-f", "raw", "-o", out, "--", *DEBIAN.command, "-c", LONG)
    pid = lines_of(process)["pid"]
    try:
        assert process.wait(WAIT) == 0
        assert lives(pid)
        assert out.exists()
    finally:
        os.kill(pid, signal.SIGKILL)
    assert b"still running (PID %d)" % pid in process.communicate()[1]


def test_duration_and_wait(tmp_path):
    """--wait: spyglass exits with the program's status."""
    out = tmp_path / "out"
    process = start("record", "-d", "0.5", "--wait", "-f", "raw", "-o", out, "--", *DEBIAN.command, "-c",
                    WORK_UNTIL_INPUT + "import sys; sys.exit(9)", stdin=subprocess.PIPE)
    wait_line(process, b"Waiting for the program")
    assert out.exists() and process.poll() is None
    finish(process).check(9)


@pytest.mark.parametrize("code", [LONG, "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN)\n" + LONG], ids=["at-once", "by-force"])
def test_duration_and_kill(tmp_path, code):
    """--kill: the program ends with the recording, if necessary by SIGKILL."""
    seconds, pids = 0.5, []
    while not pids:  # on a busy machine the program may be killed before its first line
        result = run("record", "-d", seconds, "--kill", "-f", "raw", "-o", tmp_path / "x", "--", *DEBIAN.command, "-c", code)
        pids, seconds = re.findall(r'^{"pid": (\d+)}$', result.out, re.M), 2 * seconds
        assert seconds < WAIT, result
    assert result.status == 128 + (15 if code is LONG else 9), result
    assert process_state(int(pids[0])) is None


@pytest.mark.parametrize("args", [["--wait", "--kill", "--", "true"], ["--wait", "-p", "1"], ["--kill", "-p", "1"]], ids=" ".join)
def test_bad_flags(args):
    assert run("record", *args).status == 2


def test_status_without_samples(tmp_path):
    """The program's failure takes precedence over the error that there are no samples."""
    result = run("record", "-o", tmp_path / "x.svg", "--", *DEBIAN.command, "-c", "import time, sys; time.sleep(0.6); sys.exit(5)")
    assert result.status == 5, result


def test_parent_exits_first(tmp_path, script):
    """With --subprocesses and -d, spyglass keeps recording the children that outlive the program. It adopts and
    reaps the orphans."""
    end = tmp_path / "end"
    code = ("import os\n"
            "def works():\n    while not os.path.exists(%r): sum(range(300))\n"
            "pid = os.fork()\n"
            "if pid == 0:\n    os.setsid(); works()\n    os._exit(0)\n"
            "print('{\"pid\": %%d, \"child\": %%d}' %% (os.getpid(), pid), flush=True); os.read(0, 1)\n" % str(end))
    out = tmp_path / "out"
    process = start("record", "-s", "-d", "10000", "-f", "raw", "--function", "-o", out, "--", *DEBIAN.command, "-c", code,
                    stdin=subprocess.PIPE)
    report = lines_of(process)
    child, recording = report["child"], Recording(out, process=process)

    def count(text):
        return sum(n for chain, functions, n in read_tree(text) if chain[-1][0] == child and "works" in functions)

    recording.until(count)
    process.stdin.write(b"x")
    process.stdin.flush()
    wait_until(lambda: process_state(report["pid"]) is None, "the program reaped")
    before = count(recording.snapshot())
    recording.until(lambda text: count(text) > before)
    end.touch()
    result = finish(process).check()
    assert count(out.read_text()) > before and "still running" not in result.messages, result
    assert process_state(child) is None


def test_orphan_of_a_launched_program(tmp_path):
    """The orphan's parent exits at once, and the orphan has its own session: only spyglass knows where it came from."""
    daemon, inner = tmp_path / "daemon.py", tmp_path / "inner.sh"
    daemon.write_text("import os\ndef works():\n    while not os.path.exists(%r): sum(range(300))\nwith open(%r, 'w') as f:\n"
                      "    f.write(str(os.getpid()))\nworks()\n" % (str(tmp_path / "end"), str(tmp_path / "pid")))
    inner.write_text("setsid %s %s &\n" % (DEBIAN.command[0], daemon))
    out = tmp_path / "out"
    process = start("record", "-s", "-f", "raw", "--function", "-o", out, "--", "sh", "-c", "sh %s; read line; exit 0" % inner,
                    stdin=subprocess.PIPE)
    wait_until(lambda: (tmp_path / "pid").exists() and (tmp_path / "pid").read_text(), "the daemon")
    pid = int((tmp_path / "pid").read_text())
    Recording(out, process=process).until(lambda text: "works" in functions_of(read_tree(text)).get(pid, ()))
    (tmp_path / "end").touch()
    finish(process).check()
    assert "works" in functions_of(read_tree(out.read_text())).get(pid, ()), out.read_text()


# --- its terminal ---

class Terminal:
    """A job-control shell on a pseudoterminal that runs the profiler as its foreground job."""

    def __init__(self, tmp_path, *command):
        self.go_on = tmp_path / "go-on"
        self.text = b""
        master, slave = pty.openpty()
        self.report, report = os.pipe()
        self.process = subprocess.Popen(
            [*DEBIAN.command, str(TARGETS / "job_shell.py"), *map(str, command)], stdin=slave, stdout=slave, stderr=slave,
            env=clean_env(GO_ON=str(self.go_on), TERM="dumb"), preexec_fn=lambda: self.prepare(report), pass_fds=[3])
        os.close(slave)
        os.close(report)
        self.master = master
        self.job = self.next()["job"]

    @staticmethod
    def prepare(report):
        import fcntl
        import termios
        os.setsid()
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)
        os.dup2(report, 3)

    def next(self):
        """The next output of the shell."""
        line = b""
        end = time.monotonic() + WAIT
        while not line.endswith(b"\n"):
            self.drain(0.05)
            if select.select([self.report], [], [], 0)[0]:
                byte = os.read(self.report, 1)
                assert byte, self.text
                line += byte
            assert time.monotonic() < end, self.text
        row = json.loads(line.decode())
        self.ended = "ended" in row
        return row

    def drain(self, seconds=0):
        try:
            while select.select([self.master], [], [], seconds)[0]:
                self.text += os.read(self.master, 65536)
                seconds = 0
        except OSError as error:  # the other end is closed
            assert error.errno == errno.EIO

    def expect(self, what):
        def seen():
            self.drain(0.02)
            return what in self.text

        wait_until(seen, "%r on the terminal: %r" % (what, self.text[-2000:]))

    def type(self, text):
        os.write(self.master, text)

    def wait_samples(self, out):
        """Waits until a snapshot shows works(), and removes that snapshot."""
        def look():
            self.drain(0.02)
            os.kill(self.job, signal.SIGUSR1)
            return out.exists() and seen("works")(out.read_text())

        wait_until(lambda: catches(self.job, signal.SIGUSR1), "record to start")
        wait_until(look, "samples")
        out.unlink()

    def close(self):
        if not self.ended:  # after that, another process may reuse its PID
            os.killpg(self.job, signal.SIGKILL)
        self.process.kill()
        self.process.wait()
        os.close(self.master)
        os.close(self.report)


@pytest.fixture
def terminal(tmp_path):
    made = []

    def go(*command):
        made.append(Terminal(tmp_path, *command))
        return made[-1]

    yield go
    for one in made:
        one.close()


def program_of(job):
    """The PID of the program that the profiler launched."""
    def children():
        return [int(p) for p in pathlib.Path("/proc/%d/task/%d/children" % (job, job)).read_text().split()]

    wait_until(children, "the program")
    return children()[0]


def test_terminal_input(terminal, tmp_path):
    """The program is in the foreground: it reads what is typed, and spyglass exits with its status."""
    code = "import sys\n%s\nline = input('name? ')\nprint('hello', line, flush=True); sys.exit(3)" % (WORK % 0.5)
    t = terminal(SPYGLASS, "record", "--hideprogress", "-f", "raw", "-o", tmp_path / "x", "--", *DEBIAN.command, "-c", code)
    t.expect(b"name? ")
    t.type(b"world\n")
    t.expect(b"hello world")
    assert t.next() == {"ended": 3}


def test_ctrl_c_arrives_once(terminal, tmp_path, script):
    """Ctrl-C reaches the whole foreground process group, so spyglass must not send it again. spyglass waits for the
    program and leaves it the terminal."""
    out = tmp_path / "x"
    t = terminal(SPYGLASS, "record", "--hideprogress", "-f", "raw", "-o", out, "--", *DEBIAN.command, script(DEBIAN, "signal_reporter.py"))
    t.expect(b'{"pid"')
    pid = program_of(t.job)
    t.wait_samples(out)
    t.type(b"\x03")
    t.expect(b'{"signal": 2}')
    t.expect(b"Press Ctrl-C again to leave it running.")
    assert read_raw(out.read_text())[0]["works"] > 0
    before = cpu_seconds(pid)
    wait_until(lambda: cpu_seconds(pid) > before + 0.3, "it works on")
    t.drain()
    assert t.text.count(b'{"signal": 2}') == 1, t.text
    os.kill(pid, signal.SIGKILL)
    assert t.next() == {"ended": 137}


@pytest.mark.parametrize("flags, first", [((), b"again"), (("-d", "0.5"), b"twice")], ids=["signal", "duration"])
def test_second_ctrl_c_ends_wait(terminal, tmp_path, script, flags, first):
    """The program gets both, and keeps running: it handles them."""
    t = terminal(SPYGLASS, "record", "--hideprogress", *flags, "-f", "raw", "-o", tmp_path / "x", "--", *DEBIAN.command,
                 script(DEBIAN, "signal_reporter.py"))
    t.expect(b'{"pid"')
    pid = program_of(t.job)
    try:
        if not flags:
            t.wait_samples(tmp_path / "x")
            t.type(b"\x03")
        t.expect(b"Press Ctrl-C %s to leave it running." % first)
        for number in range(1 if not flags else 0, 2):
            before = cpu_seconds(pid)
            wait_until(lambda: cpu_seconds(pid) > before + 0.3, "a later Ctrl-C counts separately")
            t.type(b"\x03")
            wait_until(lambda: t.drain(0.02) or t.text.count(b'{"signal": 2}') == number + 1, "the program to get it")
        assert t.next() == {"ended": 0}
        t.expect(b"still running (PID %d)" % pid)
        assert lives(pid)
    finally:
        os.kill(pid, signal.SIGKILL)


def test_duration_on_a_terminal(terminal, tmp_path):
    """If spyglass exited, the program would lose the foreground of its terminal. So spyglass waits."""
    code = "import sys\n%s\nline = input('name? ')\nsys.exit(4)" % (WORK % 1.5)
    out = tmp_path / "x"
    t = terminal(SPYGLASS, "record", "--hideprogress", "-d", "0.5", "-f", "raw", "-o", out, "--", *DEBIAN.command, "-c", code)
    t.expect(b"Waiting for the program to exit")
    assert out.exists()
    t.expect(b"name? ")
    t.type(b"\n")
    assert t.next() == {"ended": 4}


@pytest.mark.parametrize("how", ["typed", "sent to us", "by itself"])
def test_job_control(terminal, tmp_path, how):
    """Ctrl-Z stops both, `fg` continues both, even if only one of the two got the signal."""
    code = "import os, signal\nprint('ready', flush=True)\n" + WORK % 600
    if how == "by itself":
        code = "import os, signal\n" + WORK % 0.5 + "print('ready', flush=True); os.kill(os.getpid(), signal.SIGTSTP)\n" + "works()\n" * 1200
    out = tmp_path / "x"
    t = terminal(SPYGLASS, "record", "--hideprogress", "-f", "raw", "-o", out, "--", *DEBIAN.command, "-c", code)
    t.expect(b"ready")
    pid = program_of(t.job)
    if how != "by itself":
        t.wait_samples(out)
    if how == "typed":
        t.type(b"\x1a")
    elif how == "sent to us":
        os.kill(t.job, signal.SIGTSTP)
    assert "stopped" in t.next()
    wait_until(lambda: process_state(pid) == "T", "the program stopped")
    t.go_on.write_text("")
    wait_until(lambda: process_state(pid) in ("R", "S") and process_state(t.job) in ("R", "S"), "both go on")
    before = cpu_seconds(pid)
    wait_until(lambda: cpu_seconds(pid) > before + 0.3, "it works on")
    t.wait_samples(out)
    t.type(b"\x03")
    assert t.next() == {"ended": 130}
    assert read_raw(out.read_text())[0]["works"] > 0


def test_ctrl_z_leaves_target_running(spawn, terminal, tmp_path):
    """Stopped by Ctrl-Z while it records another process, spyglass does not leave a thread of that process stopped."""
    target = spawn(DEBIAN, "busy.py", "4")
    for _ in range(4):
        t = terminal(SPYGLASS, "record", "--hideprogress", "--native", "-r", "500", "-p", target.pid, "-f", "raw", "-o", tmp_path / "x")
        wait_until(lambda: "voluntary" in pathlib.Path("/proc/%d/status" % t.job).read_text(), "started")
        t.expect(b"Sampling process")
        t.type(b"\x1a")
        assert "stopped" in t.next()
        before = cpu_seconds(target.pid)
        wait_until(lambda: cpu_seconds(target.pid) > before + 0.1, "the target goes on")
        tracers = {re.search(r"TracerPid:\s*(\d+)", (task / "status").read_text()).group(1)
                   for task in pathlib.Path("/proc/%d/task" % target.pid).iterdir()}
        assert tracers == {"0"}
        t.close()
        t.close = lambda: None


# --- sudo ---

CODE_WHO = ("import os, json\nprint(json.dumps(dict(uid=os.getresuid(), gid=os.getresgid(), groups=sorted(os.getgroups()),"
            "env={k: os.environ.get(k) for k in ('HOME', 'USER', 'LOGNAME')})), flush=True)\n" + WORK_UNTIL_INPUT)
ROOT_ONLY = pytest.mark.skipif(os.getuid() != 0, reason="only root can become somebody else")


def ids_under_sudo(tmp_path, uid, gid, program=SPYGLASS, **options):
    """What a program reports that root launched under sudo for that caller, and the owner of the output."""
    place = pathlib.Path(tempfile.mkdtemp(dir="/tmp", prefix="spyglass-"))
    try:
        place.chmod(0o777)
        env = clean_env(SUDO_UID=str(uid), SUDO_GID=str(gid), HOME="/root", USER="root", LOGNAME="root", **options.pop("more", {}))
        process = start("record", "-f", "raw", "-o", place / "out", "--", *DEBIAN.command, "-c", CODE_WHO, env=env, program=program, cwd="/",
                        stdin=subprocess.PIPE, **options)
        report = lines_of(process)
        wait_samples(process, place / "out")
        finish(process).check()
        assert read_raw((place / "out").read_text())[0]["works"] > 0
        owner = (place / "out").stat()
        return report, (owner.st_uid, owner.st_gid)
    finally:
        shutil.rmtree(place)


@ROOT_ONLY
def test_sudo(tmp_path):
    """The program runs as the caller: uid, gid, groups of /etc/group, HOME and names. The caller owns the output."""
    user = pwd.getpwnam("nobody")
    groups = sorted(map(int, subprocess.run(["id", "-G", "nobody"], stdout=subprocess.PIPE).stdout.split()))
    report, owner = ids_under_sudo(tmp_path, user.pw_uid, user.pw_gid)
    assert report["uid"] == [user.pw_uid] * 3 and report["gid"] == [user.pw_gid] * 3
    assert report["groups"] == groups
    assert report["env"] == {"HOME": user.pw_dir, "USER": "nobody", "LOGNAME": "nobody"}
    assert owner == (user.pw_uid, user.pw_gid)


@ROOT_ONLY
def test_sudo_of_an_unknown_user(tmp_path):
    """A caller who is not in /etc/passwd (but in a directory service): the IDs are set."""
    report, owner = ids_under_sudo(tmp_path, 54321, 54322)
    assert report["uid"] == [54321] * 3 and report["gid"] == [54322] * 3 and report["groups"] == [54322]
    assert owner == (54321, 54322)


@ROOT_ONLY
def test_sudo_caller_groups(tmp_path):
    """The groups are those of the calling process, not those in /etc/group."""
    ready, go = os.pipe(), os.pipe()

    def before():
        """In the child: sets the parent's IDs to the caller's; the child stays root."""
        child = os.fork()
        if child:
            os.setgroups([54322, 7, 8])
            os.setresgid(54322, 54322, 54322)
            os.setresuid(54321, 54321, 54321)
            os.write(go[1], b"x")
            os.closerange(3, 4096)  # Popen waits until one of them is closed, and the program for the end of its input
            os._exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
        os.read(go[0], 1)

    report, _ = ids_under_sudo(tmp_path, 54321, 54322, preexec_fn=before)
    assert report["groups"] == [7, 8, 54322]
    for fd in (*ready, *go):
        os.close(fd)


@ROOT_ONLY
@pytest.mark.parametrize("uid, gid", [("0", "0"), ("-1", "5"), ("4294967295", "5"), ("12x", "5"), ("", ""), ("5", "x"), ("0x10", "5"), ("99999999999", "5")])
def test_sudo_invalid_ids(tmp_path, uid, gid):
    """SUDO_UID and SUDO_GID are ignored if they make no sense."""
    report, owner = ids_under_sudo(tmp_path, uid, gid)
    assert report["uid"] == [0] * 3 and report["env"]["HOME"] == "/root" and owner == (0, 0)


@ROOT_ONLY
def test_sudo_output_owner_with_pid(spawn, tmp_path):
    """With --pid too, the caller owns what root writes: that is how Ray runs it."""
    target = spawn(DEBIAN, "busy.py")
    out = tmp_path / "out"
    run("record", "-p", target.pid, "-d", "0.3", "-f", "raw", "-o", out, env=clean_env(SUDO_UID="54321", SUDO_GID="54322")).check()
    assert (out.stat().st_uid, out.stat().st_gid) == (54321, 54322)
