"""Writes the first inputs of the fuzz targets. Run it by hand, from anywhere; add inputs that fuzzing finds to the
same directories.

    make.py [TARGET...]     all targets, or only these: make.py debug_offsets
"""
import json
import pathlib
import re
import struct
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[2]


def write(target, name, data):
    directory = HERE / target
    directory.mkdir(exist_ok=True)
    (directory / name).write_bytes(data)


def lines():
    """Line tables of real interpreters, from the unit test's vectors."""
    kinds = ["LINES_LNOTAB_UNSIGNED", "LINES_LNOTAB", "LINES_RANGES", "LINES_LOCATIONS"]
    text = (ROOT / "tests/unit/line_vectors.h").read_text()
    row = re.compile(r'\{"([\d.]+) (\w+)", (\w+), (\d+), \d+,\s+"((?:\\x..)*)"')
    for version, name, kind, first, table in row.findall(text):
        if version in ("2.7", "3.9", "3.10", "3.12"):
            data = bytes(int(b, 16) for b in table.split("\\x")[1:])
            write("lines", "%s-%s" % (version, name), struct.pack("<Bi", kinds.index(kind), int(first)) + data)
    write("lines", "empty", struct.pack("<Bi", 3, 1))
    write("lines", "endless-varint", struct.pack("<Bi", 3, 1) + b"\xe8" + b"\x7f" * 40)


def groups():
    """The first byte selects one file, or two rounds."""
    def thread(pid, frames, **more):
        return dict({"pid": pid, "thread_id": 7, "thread_name": "MainThread", "os_thread_id": pid, "active": False, "owns_gil": False,
                     "frames": [{"name": name, "filename": "/srv/" + file, "module": None, "short_filename": file, "line": line,
                                 "locals": None} for name, file, line in frames],
                     "process_info": {"pid": pid, "command_line": "python3 train.py", "parent": None}}, **more)

    same, other = [("reduce", "c.py", 3), ("main", "t.py", 9)], [("load", "t.py", 4), ("main", "t.py", 8)]
    ranks = [thread(10 + i, other if i == 2 else same, hostname="n1", rank=i, rank_from="RANK") for i in range(4)]
    write("groups", "ranks", b"0" + json.dumps(ranks).encode())
    write("groups", "rounds", b"1" + (json.dumps(ranks[:2]) + " " * 7).encode() + json.dumps(ranks[1:3]).encode())
    odd = [thread(1, same, thread_name="Thread-12 (w)", state="waiting for the GIL",
                  process_info={"pid": 1, "command_line": "ray::A.f \u202e\\ud800", "parent": {"pid": 1, "parent": {"pid": 2}}}),
           thread(1, [], rank=-1, rank_from=None), {"frames": "x"}, [], None, 1e5]
    write("groups", "odd", b"0" + json.dumps(odd).encode())
    write("groups", "ray", b"0" + json.dumps({"workers": [
        {"node": "x", "hostname": "n1", "pid": 5, "title": "A.f", "threads": [
            {"pid": 5, "thread_id": 1, "os_thread_id": 5, "name": "MainThread", "active": True, "owns_gil": True, "waits_for_gil": False,
             "frames": [{"name": "f", "filename": "/a.py", "short_filename": None, "line": 3}], "process": None}]}],
        "problems": {}}).encode())
    write("groups", "deep", b"0" + b'[{"frames":' + b"[" * 300)
    write("groups", "broken", b'0[{"pid": 01, "frames": []}]')
    write("groups", "text", b"""0Process 12: python3 train.py --name a
Python v3.11.2 (/usr/bin/python3.11)
Parent Process 11: sh

Thread 12 (idle): "MainThread"
    reduce (c.py:3)
        Arguments:
            x: 3
    main (t.py:9)
Thread 0x7F01 (active+gil): "pool (3)_1"
    odd (name) (a (b)/c.py)

--------------------------------------------------------------------------------
Process 13: python3 train.py
\xff
Thread 13 (waiting for the GIL)
    load (t.py:4)
""".replace(b"\\xff", b"\xff"))


def maps():
    plain = b"00400000-00401000 r--p 00000000 08:01 1234    /usr/bin/python3\n" \
            b"00401000-00500000 r-xp 00001000 08:01 1234    /usr/bin/python3\n" \
            b"00500000-00600000 rw-p 00000000 00:00 0 \n" \
            b"7ffc0000-7ffd0000 rw-p 00000000 00:00 0       [stack]\n"
    write("maps", "plain", plain)
    write("maps", "deleted", plain.replace(b"python3\n", b"python3 (deleted)\n"))
    write("maps", "escaped", plain.replace(b"python3", b"a b\\012c\xff"))
    write("maps", "no-end", plain.strip())
    write("maps", "numbers", b"ffffffffffffffffffffffff-fffffffffffffffffffffffff r-xp -1 0x8:ffffffffff -5 /x\n")


def folded():
    plain = b"<module> (a.py:6) 2\n<module> (a.py:6);f (a.py:3) 99\n<module> (a.py:6);g (libc.so.6);[not sure] (x) 1\n"
    write("folded", "plain", b"0" + plain)
    write("folded", "roots", b'1process 1:"a b";thread (2): w;f (a.py:3) 7\nthread (0x7F);f (a.py:3) 7\nn 1;w;f (a.py:3) 7\n')
    write("folded", "others", b"2main;foo;bar 4\r\n\n;;; 3\nf (a (copy)/b) (x:1);( );) ( 5\n\xff;\xe2\x80\xae 2")
    write("folded", "filtered", b'\x80process 7:"srv";thread (7): main;<module> (/srv/shop.py:9);handle (/srv/shop.py:4) 3\n'
          b'process 7:"srv";thread (8);_bootstrap (/usr/lib/python3.11/threading.py:1);run (/usr/lib/python3.11/queue.py:2);'
          b"[sleeping] 9\nmain;deflate (libz.so.1) 5\n<module> (a.py:1);c (b.py:1) 1\n")
    write("folded", "counts", b"3f (a.py:1) 900000000000\nf (a.py:1) 999999999999999999\nf 0\nf 12345678901234567890\n")


def debug_offsets():
    """The debug offsets of real versions, from the rows of layouts.c, and version strings."""
    text = re.sub(r"\\\n", "", (ROOT / "src/python/layouts.c").read_text())
    macros = dict(re.findall(r"#define (\w+)\s+(\..*)", text))
    entries = [(f, list(map(int, at.split(",")))) for f, at in re.findall(r"OFFSET\((\w+), ([\d, ]+)\)", text)]
    gil = list(map(int, re.search(r"debug_offsets_gil\[\] = \{([\d, ]+)\}", text).group(1).split(",")))
    for column, gil_at in enumerate(gil):
        minor = 13 + column
        row = re.search(r"\.minor = %d,(.*?)\n    \}," % minor, text, re.S).group(1)
        row = re.sub(r"\b[A-Z]+_\d+\b", lambda m: macros.get(m.group(0), ""), row)
        numbers = {f: int(v) for f, v in re.findall(r"\.(\w+) = (\d+)", row)}
        data = bytearray(1024)
        data[:16] = b"xdebugpy" + struct.pack("<Q", 3 << 24 | minor << 16 | 0xf0)
        for field, at in entries:
            if at[column]:
                struct.pack_into("<Q", data, at[column], numbers[field])
        struct.pack_into("<4Q", data, gil_at, 7744, 0, 7760, 7752)
        write("debug_offsets", "3.%d" % minor, bytes(data))
    write("debug_offsets", "version", b"3.8.0rc1 (main, Jan  1 2024)")
    write("debug_offsets", "version-plus", b"3.12.1+ (heads/3.12)")


def elf():
    """A library with dynamic symbols, local ones and a section named like the runtime's."""
    names = b"\0_PyRuntime\0interp_head\0"
    sections = b"\0.dynsym\0.dynstr\0.PyRuntime\0.shstrtab\0"
    phdrs, at = 3, 64 + 3 * 56
    symbols_at, names_at = at, at + 3 * 24
    hash_at = (names_at + len(names) + 7) // 8 * 8
    dynamic_at = hash_at + 40
    sections_at = dynamic_at + 5 * 16
    table_at = (sections_at + len(sections) + 7) // 8 * 8

    def symbol(name, value):
        return struct.pack("<IBBHQQ", name, 16, 0, 3, value, 0)

    def gnu_hash(name):
        value = 5381
        for c in name:
            value = (value * 33 + c) & 0xffffffff
        return value

    def section(name, kind, addr, offset, size, link=0):
        return struct.pack("<IIQQQQIIQQ", name, kind, 0, addr, offset, size, link, 0, 0, 0)

    chain = [gnu_hash(b"_PyRuntime") & ~1, gnu_hash(b"interp_head") | 1]
    parts = {
        0: struct.pack("<16sHHIQQQIHHHHHH", b"\x7fELF\2\1\1", 3, 62, 1, 0, 64, table_at, 0, 64, 56, phdrs, 64, 5, 4),
        64: struct.pack("<IIQQQQQQ", 1, 5, 0, 0, 0, table_at, table_at, 4096)
        + struct.pack("<IIQQQQQQ", 1, 6, 0, 0x2000, 0, 64, 64, 4096)
        + struct.pack("<IIQQQQQQ", 2, 6, dynamic_at, dynamic_at, 0, 80, 80, 8),
        symbols_at: bytes(24) + symbol(1, 0x2040) + symbol(12, 0x2080),
        names_at: names,
        hash_at: struct.pack("<IIIIQIII", 1, 1, 1, 0, 2**64 - 1, 1, *chain),
        dynamic_at: struct.pack("<10Q", 6, symbols_at, 5, names_at, 10, len(names), 0x6ffffef5, hash_at, 0, 0),
        sections_at: sections,
        table_at: bytes(64) + section(1, 11, 0, symbols_at, 72, 2) + section(9, 3, 0, names_at, len(names))
        + section(17, 1, 0x2000, 0, 64) + section(28, 3, 0, sections_at, len(sections)),
    }
    data = bytearray(table_at + 5 * 64)
    for start, part in parts.items():
        data[start:start + len(part)] = part
    write("elf", "library", bytes(data))
    static = bytearray(data)
    struct.pack_into("<I", static, table_at + 64 + 4, 2)  # .symtab instead
    write("elf", "symtab", bytes(static))
    old = bytearray(data)
    struct.pack_into("<Q", old, dynamic_at + 48, 4)  # DT_HASH
    struct.pack_into("<II", old, hash_at, 1, 3)
    write("elf", "old-hash", bytes(old))
    write("elf", "header", bytes(data[:64]))


def core():
    """Core files as the kernel and gdb write them, one without a file note, and one with more segments than fit."""
    library = (HERE / "elf" / "library").read_bytes()
    argv, env = b"python3\0a.py\0", b"HOME=/\0"
    stack, strings = 0x7ffc0000, 0x7ffc0400
    aux = struct.pack("<12Q", 33, 0x7fff0000, 3, 0x400040, 9, 0x400100, 16, 5, 25, stack + 0x3e0, 0, 0)
    pointers = struct.pack("<6Q", 2, strings, strings + 8, 0, strings + len(argv), 0)
    bottom = pointers + aux
    bottom = bottom.ljust(0x400, b"\0") + argv + env + b"/usr/bin/python3\0".ljust(64, b"\0")

    def note(kind, desc, name=b"CORE\0"):
        return struct.pack("<III", len(name), len(desc), kind) + name.ljust(8, b"\0") + desc + bytes(-len(desc) % 4)

    def status(tid, number, base, call):
        regs = [0] * 27
        regs[15], regs[16], regs[19], regs[21] = call, 0x400100, stack, base
        return struct.pack("<iiih18xi", number, 0, 0, number, tid).ljust(112, b"\0") + struct.pack("<27Q", *regs) + bytes(8)

    def notes(unit, number):
        process = bytes(24) + struct.pack("<4i", 100, 1, 1, 1) + b"python3".ljust(16, b"\0") + b"python3 a.py ".ljust(80, b"\0")
        rows = [(0x400000, 0x401000, 0), (0x402000, 0x403000, 0)]
        files = struct.pack("<QQ", len(rows), unit) + b"".join(struct.pack("<3Q", a, b, c // unit) for a, b, c in rows)
        files += b"/usr/bin/python3\0/usr/lib/libpython3.so (deleted)\0"
        info = struct.pack("<iiiiQ", number, 0, 1, 0, 8).ljust(128, b"\0")
        return (note(1, status(100, number, 0x7000, 2**64 - 1)) + note(3, process) + note(0x53494749, info) + note(6, aux)
                + note(0x46494c45, files) + note(0x202, bytes(32), b"LINUX\0") + note(1, status(101, number, 0x8000, 202)))

    def build(name, note_bytes, loads, wide=False):
        """loads: address, size in memory, flags, bytes."""
        at = 64 + (64 if wide else 0)
        headers, body, offset = b"", b"", at + 56 * (len(loads) + 1)
        for kind, addr, size, flags, data in [(4, 0, 0, 0, note_bytes)] + [(1,) + load for load in loads]:
            headers += struct.pack("<IIQQQQQQ", kind, flags, offset + len(body), addr, 0, len(data), size, 1)
            body += data
        ehdr = struct.pack("<16sHHIQQQIHHHHHH", b"\x7fELF\2\1\1", 4, 62, 1, 0, at, 64 if wide else 0, 0, 64, 56,
                           0xffff if wide else len(loads) + 1, 64, int(wide), 0)
        section = struct.pack("<IIQQQQIIQQ", 0, 0, 0, 0, 0, 1, 0, len(loads) + 1, 0, 0) if wide else b""
        write("core", name, ehdr + section + headers + body)

    page = library.ljust(1024, b"\0")
    loads = [(0x400000, 0x1000, 5, page), (0x401000, 0x1000, 6, bytes(64)), (0x402000, 0x1000, 6, bytes(128)),
             (stack, 0x1000, 6, bottom)]
    build("kernel", notes(4096, 11), loads)
    build("gdb", notes(1, 0), [loads[1], loads[2], loads[3]])
    build("no-files", note(1, status(100, 6, 0x7000, 2**64 - 1)), loads)
    build("wide", notes(4096, 6), loads, wide=True)
    build("overlaps", notes(4096, 11), loads + [(0x400800, 0x2000, 6, bytes(64)), (0x400000, 0x10000, 4, b"")])


TINY = """
extern int far(int);
static inline __attribute__((always_inline)) int in(int x) { __asm__ volatile("nop"); return x * 3; }
static __attribute__((noinline, noclone)) int local(int x) { return in(x) + 1; }
int outer(int x) { return local(in(x)) + far(x); }
"""


def symbols():
    """The smallest libraries with debug info, compressed debug info, a compressed symbol table, C++ names."""
    options = ["-Os", "-fPIC", "-shared", "-nostdlib", "-fno-asynchronous-unwind-tables", "-Wl,-z,noseparate-code",
               "-Wl,-z,norelro", "-Wl,-z,max-page-size=16", "-Wl,--hash-style=gnu"]
    with tempfile.TemporaryDirectory() as place:
        def run(*command):
            subprocess.run(command, cwd=place, check=True)

        options.append("-ffile-prefix-map=%s=/tiny" % place)
        pathlib.Path(place, "tiny.c").write_text(TINY)
        run("gcc", "-g", *options, "tiny.c", "-o", "debug")
        run("gcc", "-g", "-gdwarf-4", "-gz=zlib", *options, "tiny.c", "-o", "packed")
        run("g++", "-g", "-x", "c++", *options, "tiny.c", "-o", "plus")
        run("gcc", *options, "tiny.c", "-o", "plain")
        run("strip", "-o", "stripped", "plain")
        run("objcopy", "--only-keep-debug", "plain", "table")
        run("xz", "table")
        run("objcopy", "--add-section", ".gnu_debugdata=table.xz", "stripped", "mini")
        for name in ("debug", "packed", "plus", "mini"):
            write("symbols", name, pathlib.Path(place, name).read_bytes())


FRAMES = """
extern int call(int);
int leaf(int x) { return x * 3; }
int many(int x) { int a = call(x), b = call(x + 1), c = call(x + 2); return a ^ b << 1 ^ c << 2 ^ call(a + b); }
int room(int x) { char r[x + 64]; r[x] = 1; return call(r[0]) + r[1]; }
int aligned(int x) { _Alignas(64) volatile char r[128]; r[x] = 1; return call(r[0]); }
int early(int x) { if (x) { int y = call(x); return call(y) + y; } return 0; }
"""
SIGNAL = """
.globl restorer
.cfi_startproc
.cfi_signal_frame
.cfi_escape 0x0f, 0x04, 0x77, 0xa0, 0x01, 0x06
.cfi_escape 0x10, 0x06, 0x03, 0x77, 0xf8, 0x00
.cfi_undefined 3
.cfi_register 12, 13
.cfi_val_offset 14, 16
.cfi_restore 14
.cfi_escape 0x2e, 0x10
nop
restorer: mov $15, %rax
.cfi_remember_state
.cfi_same_value 6
syscall
.cfi_restore_state
.cfi_endproc
.section .note.GNU-stack
"""


def sections(path):
    """Name -> address and bytes, from objdump's section headers."""
    found = {}
    for line in subprocess.run(["objdump", "-h", path], check=True, stdout=subprocess.PIPE).stdout.decode().split("\n"):
        row = line.split()
        if len(row) == 7 and row[1].startswith("."):
            size, addr, at = (int(row[i], 16) for i in (2, 3, 5))
            found[row[1]] = addr, pathlib.Path(path).read_bytes()[at:at + size]
    return found


def wide(frame):
    """The same .debug_frame in the 64-bit form, which assemblers do not write."""
    out, places, at = b"", {}, 0
    while at + 8 <= len(frame):
        length, cie = struct.unpack_from("<II", frame, at)
        places[at] = len(out)
        head = 2**64 - 1 if cie == 2**32 - 1 else places[cie]
        out += struct.pack("<IQQ", 2**32 - 1, length + 4, head) + frame[at + 8:at + 4 + length]
        at += 4 + length
    return out


def frames():
    """The tables that the compiler, the assembler and the linker write."""
    options = ["-O2", "-fPIC", "-shared", "-nostdlib", "-Wl,-z,noseparate-code", "-Wl,-z,norelro", "-Wl,--build-id=none",
               "-Wl,-z,max-page-size=4096", "-fcf-protection=none"]
    with tempfile.TemporaryDirectory() as place:
        path = pathlib.Path(place)
        (path / "frames.c").write_text(FRAMES)
        (path / "signal.s").write_text(SIGNAL)
        subprocess.run(["gcc", *options, "frames.c", "signal.s", "-o", "eh.so"], cwd=place, check=True)
        subprocess.run(["gcc", *options, "-g", "-fno-asynchronous-unwind-tables", "frames.c", "-o", "debug.so"], cwd=place,
                       check=True)
        eh, debug = (sections(path / name) for name in ("eh.so", "debug.so"))
        frame_at, frame = eh[".eh_frame"]
        header_at, header = eh[".eh_frame_hdr"]
        write("cfi", "header", struct.pack("<4I", 0, frame_at, header_at, len(header)) + header + frame)
        write("cfi", "no-header", struct.pack("<4I", 0, frame_at, 0, 0) + frame)
        write("cfi", "debug", struct.pack("<4I", 1, 0, 0, 0) + debug[".debug_frame"][1])
        write("cfi", "debug64", struct.pack("<4I", 1, 0, 0, 0) + wide(debug[".debug_frame"][1]))
        unwind((path / "eh.so").read_bytes(), eh[".text"][0])


def unwind(image, text):
    """A thread in the code of `frames`: every word of its stack could be a return address."""
    base, stack = 0x400000, 0x7ffc0000
    program = image[:0x4000].ljust(0x2000, b"\0")
    for name, pc in (("leaf", text), ("middle", text + 0x18), ("nowhere", 0)):
        regs = [0] * 17
        regs[6], regs[7], regs[16] = stack + 0x80, stack, base + pc
        words = [base + text + 5 * i if i % 2 else stack + 16 * i for i in range(256)]
        write("unwind", name, struct.pack("<17Q", *regs) + struct.pack("<256Q", *words) + program)


def jit():
    """An object file with debug info whose sections have addresses."""
    with tempfile.TemporaryDirectory() as place:
        pathlib.Path(place, "tiny.c").write_text(TINY)
        subprocess.run(["gcc", "-g", "-Os", "-c", "-ffile-prefix-map=%s=/tiny" % place, "tiny.c", "-o", "object"], cwd=place,
                       check=True)
        data = bytearray(pathlib.Path(place, "object").read_bytes())
    headers, count = struct.unpack_from("<Q", data, 40)[0], struct.unpack_from("<H", data, 60)[0]
    for i in range(count):
        flags, = struct.unpack_from("<Q", data, headers + 64 * i + 8)
        if flags & 2:  # SHF_ALLOC
            struct.pack_into("<Q", data, headers + 64 * i + 16, 0x7f0000000000 + 0x1000 * i)
    write("jit", "object", bytes(data))


def process():
    """Real interpreters at rest; every second one answers wrong at times. Older versions make files of several 100 KB."""
    sys.path.insert(0, str(HERE.parent))
    import snapshots
    from pythons import CHROOTS, DEBIAN, of_version

    versions = {"%d.%d" % p.version: p for p in (of_version(3, 12), DEBIAN, *CHROOTS) if p}
    for i, (name, python) in enumerate(sorted(versions.items())):
        write("process", name, snapshots.make(python, 64, 100 * (i % 2)))


if __name__ == "__main__":
    targets = {f.__name__: f for f in (lines, maps, folded, groups, debug_offsets, elf, core, symbols, frames, jit, process)}
    for name in sys.argv[1:] or targets:
        targets[name]()
