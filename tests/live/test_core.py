"""Core files of every interpreter, from gcore and from the kernel: compares dump with what the process reported
before."""
import gzip
import json
import os
import pathlib
import re
import shutil
import signal
import struct
import subprocess

import pytest
from core_files import PATTERN, by_gcore, by_kernel, dump_core_json, found_core, gcore, roots, wants_core
from processes import at_rest
from program import SPYGLASS, run
from pythons import DEBIAN, PYTHONS
from stacks import check_json, check_text, parse_text, rows, same

SITUATIONS = ["plain", "many_threads", "generators", "deep", "raw_threads"]


# ---- complete stacks, every interpreter ----

def check_lossy(threads, truth):
    """gdb 13 loses a thread's C stack at the guard pages of a new glibc (2.43). Entry frames are on that stack, so
    the Python stack ends there, and dump says so. What dump shows is correct."""
    assert {t["thread_id"] for t in threads} == {t["ident"] for t in truth["threads"]} | {truth["helper"]}
    for true in truth["threads"]:
        found = next(t for t in threads if t["thread_id"] == true["ident"])
        got, want = rows(found["frames"]), rows(true["frames"])
        assert found["thread_name"] == true["name"] and found["os_thread_id"] == true["os_id"]
        if got and got[-1][0] == "[truncated]" and not true["main"]:
            want = want[:len(got) - 1]
            got = got[:-1]
        same(got, want, "thread %s" % true["name"])


@by_gcore
@pytest.mark.parametrize("situation", SITUATIONS)
def test_gcore(spawn, scratch, python, situation):
    target = spawn(python, "situations.py", situation, env={"MALLOC_ARENA_MAX": "1"})  # otherwise each thread adds 64 MB
    core = gcore(target, scratch)
    target.kill()
    threads, signals = dump_core_json(core, *roots(python))
    assert signals == [None] * len(threads)
    if target.lossy:
        return check_lossy(threads, target.truth)
    check_json(json.dumps(threads), target.truth)
    if situation == "many_threads":
        return  # their names are too odd to be parsed from text
    text = run("dump", "--core", core, "--full-filenames", *roots(python)).check()
    assert text.err == "", text
    check_text(text.out, target.truth, full=True)
    process, = parse_text(text.out)
    assert process["core"] == str(core) and "signal" not in process
    assert process["command"].endswith("situations.py " + situation), process


@by_kernel
@pytest.mark.parametrize("kind, where", [("abrt", "main"), ("segv", "main"), ("abrt", "thread"), ("segv", "thread")])
def test_crash(spawn, inside, python, kind, where):
    """The thread that crashed comes first, with the signal, and all stacks match the report."""
    place, name = inside(python)
    target = spawn(python, "crash.py", kind, where, name, preexec_fn=wants_core)
    number = -target.process.wait()
    truth = target.truth
    assert number == getattr(signal, "SIG" + kind.upper())
    core = found_core(place)
    threads, signals = dump_core_json(core, *roots(python))
    assert {t["thread_id"] for t in threads} == {t["ident"] for t in truth["threads"]}
    for true in truth["threads"]:
        found = next(t for t in threads if t["thread_id"] == true["ident"])
        same(rows(found["frames"]), rows(true["frames"]), "thread %s" % true["name"])
        assert found["thread_name"] == true["name"] and found["pid"] == truth["pid"]
    assert threads[0]["os_thread_id"] == truth["crashed"] and threads[0]["active"]
    assert all(not t["active"] and not t["owns_gil"] for t in threads[1:]), threads
    assert signals[0]["number"] == number and signals[0]["name"] == "SIG" + kind.upper()
    assert set(map(str, signals[1:])) == {"None"}
    text = run("dump", "--core", core, *roots(python)).check()
    assert text.err == "", text
    process, = parse_text(text.out)
    assert process["pid"] == truth["pid"] and process["threads"][0]["os_id"] == truth["crashed"]
    assert process["command"].endswith("crash.py %s %s %s" % (kind, where, name)), process
    at = " at %s" % signals[0]["address"] if signals[0]["address"] else ""
    assert process["signal"] == "SIG%s (%d)%s in thread %d" % (kind.upper(), number, at, truth["crashed"])
    if signals[0]["address"] and kind == "segv":
        assert int(signals[0]["address"], 16) == 8 and process["threads"][0]["status"] in ("active", "active+gil")


@by_kernel
def test_null_call(spawn, inside, python):
    """The instruction pointer is 0, where there is no code. The caller is still on top of the stack."""
    place, name = inside(python)
    target = spawn(python, "crash.py", "null", "main", name, preexec_fn=wants_core)
    number = -target.process.wait()
    if number == -1:
        pytest.skip("this Python has no ctypes")
    assert number == signal.SIGSEGV
    threads, signals = dump_core_json(found_core(place), "--native", *roots(python))
    frames = threads[0]["frames"]
    names = [f["name"] for f in frames]
    native = frames[:names.index("crash")]
    assert int(signals[0]["address"], 16) == 0
    assert native and not any(n.startswith("[") for n in names), names
    assert "/libc" in native[0]["module"] and any("_ctypes" in f["module"] for f in native), native


@by_kernel
@pytest.mark.parametrize("host", [p for p in PYTHONS if p.kind == "host"], ids=repr)
def test_sent_signal(spawn, inside, host):
    """A signal from another process: dump names the sender."""
    place, _ = inside(host)
    target = spawn(host, "situations.py", "sleeping", cwd=place, preexec_fn=wants_core)
    os.kill(at_rest(target.pid), signal.SIGQUIT)
    target.process.wait()
    process, = parse_text(run("dump", "--core", found_core(place), "--full-filenames").check().out)
    assert process["signal"] == "SIGQUIT (3) in thread %d, sent by process %d" % (target.pid, os.getpid())
    main = next(t for t in target.truth["threads"] if t["main"])
    same(rows(process["threads"][0]["frames"]), rows(main["frames"]), "main")


# ---- compressed, moved, damaged ----

@pytest.fixture(scope="module")
def crashed(tmp_path_factory):
    """A core file of Debian's Python, created once, and what the process reported before."""
    if "/" in PATTERN or "|" in PATTERN or "%" in PATTERN:
        pytest.skip("core_pattern is %r" % PATTERN)
    place = tmp_path_factory.mktemp("crashed")
    script = pathlib.Path(__file__).resolve().parents[1] / "targets" / "crash.py"
    done = subprocess.run([*DEBIAN.command, str(script), "segv", "main", str(place)], stdout=subprocess.PIPE,
                          stderr=subprocess.DEVNULL, preexec_fn=wants_core)
    assert done.returncode == -signal.SIGSEGV
    yield found_core(place), json.loads(done.stdout)
    shutil.rmtree(place, ignore_errors=True)


def is_whole(result, truth):
    threads = json.loads(result.check().out)
    first = next(t for t in truth["threads"] if t["ident"] == threads[0]["thread_id"])
    same(rows(threads[0]["frames"]), rows(first["frames"]), "the thread that crashed")
    return result


@pytest.mark.parametrize("packer", ["gzip", "zstd", "gzip twice"])
def test_compressed(crashed, scratch, packer):
    core, truth = crashed
    packed = scratch / "core.packed"
    bytes_ = core.read_bytes()
    if packer == "zstd":
        subprocess.run(["zstd", "-q", str(core), "-o", str(packed)], check=True)
    elif packer == "gzip":
        packed.write_bytes(gzip.compress(bytes_, 1))
    else:  # in two parts, as some tools write it
        packed.write_bytes(gzip.compress(bytes_[:1000000], 1) + gzip.compress(bytes_[1000000:], 1))
    before = set(scratch.iterdir())
    result = run("dump", "--core", packed, "--json", env={"TMPDIR": str(scratch)})
    assert is_whole(result, truth).err == ""
    assert set(scratch.iterdir()) == before, "something was left behind"


def test_compressed_and_truncated(crashed, scratch):
    core, _ = crashed
    packed = scratch / "core.gz"
    packed.write_bytes(gzip.compress(core.read_bytes(), 1)[:-200000])
    result = run("dump", "--core", packed)
    assert result.status in (0, 1) and "truncated" in result.err, result


@pytest.mark.parametrize("name, start, program", [("xz", b"\xfd7zXZ\0", "xz"), ("lz4", b"\x04\x22\x4d\x18", "lz4")])
def test_unsupported_compression(scratch, name, start, program):
    packed = scratch / ("core." + name)
    packed.write_bytes(start + bytes(100))
    result = run("dump", "--core", packed).check(1)
    assert "Error: " in result.err and program + " -d " + str(packed) in result.err, result


def test_no_space_to_decompress(crashed, scratch):
    """The disk is full: one line says so, one says what to do."""
    core, _ = crashed
    packed, small = scratch / "core.gz", scratch / "small"
    packed.write_bytes(gzip.compress(core.read_bytes(), 1))
    small.mkdir()
    probe = subprocess.run(["unshare", "-rm", "mount", "-t", "tmpfs", "-o", "size=1m", "none", str(small)])
    if probe.returncode:
        pytest.skip("needs unshare and the right to mount")
    result = run("-rm", "sh", "-c", 'mount -t tmpfs -o size=1m none "$1" && TMPDIR=$1 exec "$2" dump --core "$3"', "sh", small,
                 SPYGLASS, packed, program=shutil.which("unshare")).check(1)
    first, second = result.err.splitlines()
    assert first.startswith("Error: Failed to read the core file: ") and "No space left" in first and str(small) in first
    assert "TMPDIR" in second


@pytest.mark.parametrize("chrooted", [p for p in PYTHONS if p.kind == "chroot"], ids=repr)
@by_kernel
def test_root(spawn, inside, chrooted):
    """The process had another root directory. --root finds its files; without it, dump says that they are missing."""
    place, name = inside(chrooted)
    target = spawn(chrooted, "crash.py", "abrt", "main", name, preexec_fn=wants_core)
    target.process.wait()
    core = found_core(place)
    with_root = run("dump", "--core", core, "--json", "--root", chrooted.root)
    assert is_whole(with_root, target.truth).err == ""
    without = is_whole(run("dump", "--core", core, "--json"), target.truth)
    assert "Note: /usr/" in without.err and "--root DIR" in without.err and len(without.err.splitlines()) == 1, without


@by_gcore
def test_links_stay_in_root(spawn, scratch):
    """Files below --root that are links: spyglass follows them inside of the root only."""
    target = spawn(DEBIAN, "situations.py", "plain")
    core = gcore(target, scratch)
    program = os.path.realpath(DEBIAN.command[0])
    root = scratch / "root"
    (root / "usr" / "bin").mkdir(parents=True)
    (root / program[1:]).symlink_to(program)  # a link to itself, seen from inside
    out = run("dump", "--core", core, "--root", root).check()
    assert program in out.err and "missing" in out.err, out
    (root / "real").mkdir()
    shutil.copy(program, root / "real" / "python")
    (root / program[1:]).unlink()
    (root / program[1:]).symlink_to("/real/python")
    assert program not in run("dump", "--core", core, "--root", root).check().err


@by_kernel
def test_exe(launch, copy, script, inside, scratch, python):
    """The program and its library were deleted. dump still shows the stacks, and names the missing files."""
    one = copy(python)
    place, name = inside(python)
    kept = scratch / "kept"
    shutil.copy(one.files[0], kept)
    target = launch([*one.command, script(python, "crash.py"), "abrt", "main", name], env=one.env, preexec_fn=wants_core)
    target.process.wait()
    core = found_core(place)
    for file in one.files:
        file.unlink()
    result = is_whole(run("dump", "--core", core, "--json", *roots(python)), target.truth)
    missing = "Note: /.*/%s is missing here; .* Use %s" % (
        re.escape(one.files[-1].name), "--exe FILE, or --root DIR" if len(one.files) == 1 else "--root DIR")
    assert re.match(missing, result.err) and len(result.err.splitlines()) == 1, result
    result = is_whole(run("dump", "--core", core, "--json", "--exe", kept, *roots(python)), target.truth)
    if len(one.files) == 1:
        assert result.err == "", result
    else:
        assert re.match(missing, result.err), result
    wrong = is_whole(run("dump", "--core", core, "--json", "--exe", "/bin/true", *roots(python)), target.truth)
    assert wrong.err.startswith("Note: the file given with --exe is not the executable of the dumped process"), wrong


@by_kernel
@pytest.mark.parametrize("filter_", ["0x3", "0x7f"])
def test_coredump_filter(spawn, inside, python, filter_):
    """Less than the default: not even the headers of programs and libraries. More: everything that was mapped."""
    def wants():
        wants_core()
        pathlib.Path("/proc/self/coredump_filter").write_text(filter_)

    place, name = inside(python)
    target = spawn(python, "crash.py", "segv", "thread", name, preexec_fn=wants)
    target.process.wait()
    assert is_whole(run("dump", "--core", found_core(place), "--json", *roots(python)), target.truth).err == ""


def test_no_file_note(crashed, scratch):
    """Without the note of mapped files, spyglass recognises images by their headers."""
    core, truth = crashed
    other = scratch / "core.other"
    whole = core.read_bytes()
    at = whole.index(struct.pack("<I", 0x46494c45) + b"CORE\0")  # the type and the owner of that note
    other.write_bytes(whole[:at] + b"none" + whole[at + 4:])
    is_whole(run("dump", "--core", other, "--json"), truth)


def test_replaced_file(crashed, scratch):
    """An upgrade since the crash: spyglass does not use the new file of that name."""
    core, truth = crashed
    program = os.path.realpath(DEBIAN.command[0])
    (scratch / program[1:]).parent.mkdir(parents=True)
    shutil.copy("/bin/true", scratch / program[1:])
    result = is_whole(run("dump", "--core", core, "--json", "--root", scratch), truth)
    assert result.err.startswith("Note: %s is not the file that the process had mapped" % program), result


@pytest.mark.parametrize("share", [0.999, 0.9, 0.5, 0.2, 0.01])
def test_truncated(crashed, scratch, share):
    """dump never crashes and never shows a wrong stack; it says that the file is truncated."""
    core, truth = crashed
    cut = scratch / "core.cut"
    bytes_ = core.read_bytes()
    cut.write_bytes(bytes_[:int(len(bytes_) * share)])
    result = run("dump", "--core", cut, "--json")
    assert result.status in (0, 1) and "truncated" in result.err, result
    if result.status == 0:
        true = {t["ident"]: rows(t["frames"]) for t in truth["threads"]}
        for thread in json.loads(result.out):
            got, want = rows(thread["frames"]), true[thread["thread_id"]]
            if got[-1][0] == "[truncated]":
                got.pop()
                want = want[:len(got)]
            assert len(got) == len(want)
            for row, true_row in zip(got, want):
                assert row == true_row or row[0] == "[unreadable]"


# ---- files that are not core files of a Python ----

def header(kind=4, machine=62, size=2, data=1):
    ident = b"\x7fELF" + bytes([size, data, 1, 0]) + bytes(8)
    return ident + struct.pack("<HHIQQQIHHHHHH", kind, machine, 1, 0, 64, 0, 0, 64, 56, 1, 64, 0, 0)


BAD = [
    ("empty", b"", "is empty"),
    ("text", b"hello, this is not a core file\n" * 9, "is not a core file"),
    ("program", header(kind=3), "is a program or library"),
    ("aarch64", header(machine=183), "aarch64"),
    ("i386", header(machine=3, size=1), "32-bit"),
    ("x32", header(size=1), "32-bit"),
    ("big endian", header(data=2), "big-endian"),
    ("header only", header(), "truncated"),
    ("start of a header", header()[:30], "core file"),
]


@pytest.mark.parametrize("name, bytes_, what", BAD, ids=[row[0] for row in BAD])
def test_bad_file(scratch, name, bytes_, what):
    file = scratch / "core"
    file.write_bytes(bytes_)
    result = run("dump", "--core", file).check(1)
    first, second = result.err.splitlines()
    assert first.startswith("Error: Failed to read the core file: %s" % file) and what in first and second, result
    assert result.out == ""


def test_bad_arguments(scratch):
    for args, what in [(["--core", scratch / "none"], "No such file"), (["--core", scratch], "is a directory"),
                       (["--core", "/dev/null"], "is not a regular file"),
                       (["--core", "/dev/null", "--exe", scratch / "none"], "cannot read the executable")]:
        result = run("dump", *args).check(1)
        assert result.err.startswith("Error: Failed to read the core file: ") and what in result.err, result
        assert len(result.err.splitlines()) == 2
    for args in (["--pid", "1", "--core", "x"], ["--pid", "1", "--root", "/"], ["--exe", "/bin/true"]):
        assert "--core" in run("dump", *args).check(2).err


def test_bad_root(crashed, scratch):
    result = run("dump", "--core", crashed[0], "--root", scratch / "none").check(1)
    assert "cannot open the directory" in result.err and "--root" in result.err


@by_kernel
def test_not_python(scratch):
    done = subprocess.run(["sh", "-c", "kill -ABRT $$"], cwd=scratch, preexec_fn=wants_core)
    assert done.returncode == -signal.SIGABRT
    result = run("dump", "--core", found_core(scratch)).check(1)
    assert result.err.startswith("Error: Failed to find python version from target process"), result
    assert "'sh'" in result.err and "--subprocesses" not in result.err, result
