"""The table of docs/trust.md: what we promise and how it is tested. ADD A ROW HERE."""
import collections

import costs
import dead_files
import identity
import kills
import names
import parsers
import truths
from common import Figure, by_pytest

# `test` is a function of the context that returns a Figure, or a text that says why there is none yet. Rows that measure times
# run first, alone. A row that takes long and computes little runs beside the others.
Row = collections.namedtuple("Row", "number promise how test timed beside")


def row(number, promise, how, test, timed=False, beside=False):
    return Row(number, promise, how, test, timed, beside)


def both(*tests):
    """A row that consists of several tests."""
    def run(ctx):
        figures = [test(ctx) for test in tests]
        verdicts = [figure.ok for figure in figures]
        return Figure("; ".join(figure.text for figure in figures), False if False in verdicts else None if None in verdicts else True)

    return run


NO_SERVER = "not yet: no server"
RECORD, ERRORS, STATUS = ("tests/live/test_%s.py" % name for name in ("record", "errors", "status_fd"))

ROWS = [
    row(1, "If spyglass is killed, your program goes on. If your program is killed, spyglass ends.",
        "SIGKILL at random times while it samples 50 threads: from their core, with ptrace, with `--native`, in `dump`. No thread may "
        "be stopped 100 ms later, or have another priority or set of cores.", kills.profiler_killed),
    row(2, "SIGINT, SIGTERM, SIGHUP and SIGQUIT end a recording and save the file.",
        "Each signal at random times, in every format; the file must be valid within 2 s, and the program must run.", kills.signals),
    row(3, "A program that stops, executes another one, forks or exits does not confuse spyglass.",
        "`dump` and `record` meanwhile. No hang over 2 s; a program that someone else stopped is readable and stays stopped.",
        kills.changes),
    row(4, "A sample pauses your program only briefly.",
        "10 threads, 500 samples a second. Median ≤ 0.3 ms, 99th percentile ≤ 2 ms.", costs.pauses, timed=True),
    row(5, "At 100 samples per second, your program keeps its speed.",
        "Paired runs with and without spyglass. `--nonblocking` ≤ 0.5%, default and ptrace ≤ 2%, plus 3 standard errors.",
        costs.slowdown, timed=True),
    row(6, "spyglass never writes to your program.",
        "strace of `dump` and `record`: no process_vm_writev, no writable /proc/PID/mem, no POKE, no SETREGS, no SIGSTOP.",
        costs.never_writes),
    row(7, "It can run for a long time.", "Soak at 100 Hz. After the warm-up, ≤ 5 MB more memory and no more descriptors. "
        "With `--subprocesses`, 2 KB more for each process, since each has a root in the profile.", costs.soak,
        beside=True),
    row(8, "Its memory is bounded, however many distinct stacks there are.", "1,000,000 distinct stacks. ≤ 256 MB; it says when it prunes.",
        costs.distinct_stacks),
    row(9, "`dump` needs little memory.", "Peak memory for 200 threads and for 5,000 frames, with each flag: ≤ 30 MB. `--native` on every Python: ≤ 20 MB.", costs.dump_memory),
    row(10, "No file and no process can crash it.",
        "Mutations for every parser and for the memory of every Python, under ASan and UBSan. No crash, no leak, no input over 1 s.",
        parsers.fuzzers),
    row(11, "A damaged or hostile interpreter cannot crash it.",
        "Each word that it reads is set to 0, −1, 2³¹, 2⁶³ and others; cycles. ≥ 10,000 readings, each ends, ≤ 64 MB.", parsers.hostile),
    row(12, "A file system that does not answer does not block it.",
        "A program on FUSE that hangs. Reported within about 2 s (judged at 5 s); other processes are sampled.",
        dead_files.dead_files if dead_files.SERVER.exists() else "gap: commands wait until the file system answers", timed=True),
    row(13, "Names from your program cannot control your terminal.",
        "ESC, OSC, CR, C1, bidi and invalid UTF-8 in names of functions, files, threads, arguments. No raw control character.",
        both(names.terminal, by_pytest(["tests/live/test_hostile_text.py"]))),
    row(14, "Names from your program cannot run scripts in a report.",
        "`</script>`, `]]>`, `\" onload=` and others, in every format. Valid XML and JSON; Chromium runs nothing.", names.markup),
    row(15, "The page allows no inline scripts.", "Its Content-Security-Policy.", NO_SERVER),
    row(16, "The server listens on the loopback address only and wants a token.", "Default addresses; 128 random bits.", NO_SERVER),
    row(17, "Other web pages cannot use the server.", "12 methods with 10 bad Host, Origin and Sec-Fetch-Site headers: all 403.", NO_SERVER),
    row(18, "Requests never reach a shell.", "Parameters with `;`, `$()`, `../`, a leading `-`, PIDs −1 and 0: all 4xx.", NO_SERVER),
    row(19, "Slow clients do not block others.", "1,000 idle sockets, slow and large headers.", NO_SERVER),
    row(20, "The output file is replaced in one step; a planted link is not followed.",
        "Live tests with symbolic links, FIFOs and existing files.", by_pytest([RECORD], "existing or symlink or fifo or planted or replaced")),
    row(21, "A full disk or a closed pipe is reported, and the old file is kept.", "Live tests with a full disk and closed pipes.",
        by_pytest([RECORD, ERRORS, STATUS], "disk or pipe or readers")),
    row(22, "A recorder that is killed loses at most one second.", "SIGKILL while it writes a capture.", "not yet: no capture format"),
    row(23, "Installed setuid root, it gives no one access to the processes of others.",
        "Live tests as another user: own and other processes, output, environment, launched programs.",
        by_pytest(["tests/live/test_permissions.py"], "setuid")),
    row(24, "It never mistakes another process for yours.", "The PID is reused while spyglass is stopped at a random time.",
        both(identity.reused_pid, by_pytest(["tests/live/test_pid_reuse.py"]))),
    row(25, "The profile is true.",
        "Alternating call chains and known shares on every Python. No impossible stack; shares within 1 point at 100,000 samples in all; "
        "with fewer, on a single Python, plus 5 standard deviations.",
        truths.truth),
]
