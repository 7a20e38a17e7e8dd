"""Builds an extension of tests/native for an interpreter, once, in a cache outside of the tree.

    built = native_build.build(python, "spy_rust")
    built.inside            the directory as the interpreter sees it: for the targets native_*.py
    built.missing           None, or why it could not be built: "no rustc on this machine"

The key of the cache is a hash of the sources, the compilers, the interpreter and this file. A missing compiler skips
the tests; a compiler that fails is an error.
"""
import fcntl
import hashlib
import os
import pathlib
import shutil
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
NATIVE = ROOT / "tests" / "native"
CACHE = pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache") / "spyglass"
INCLUDES = "import sysconfig; p = sysconfig.get_paths(); print(p['include']); print(p['platinclude'])"
KEPT = 7 * 86400  # seconds
# The newest Cython whose C code compiles for each Python.
CYTHONS = [((3, 8), "3.2.4"), ((3, 7), "3.0.12"), ((2, 7), "0.29.37")]


class Missing(Exception):
    """Why a module cannot be built here."""


class Built:
    """The directory of one interpreter's modules, on the host and as the interpreter sees it."""

    def __init__(self, python, directory):
        self.directory = directory
        self.inside = "/" + str(directory.relative_to(python.root))
        self.missing = None


def call(command, **options):
    done = subprocess.run([str(part) for part in command], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, **options)
    output = done.stdout.decode("utf-8", "replace")
    assert done.returncode == 0, "%s\n%s" % (" ".join(map(str, command)), output)
    return output


def tool(*names):
    for name in names:
        if shutil.which(name):
            return name
    raise Missing("no %s on this machine" % " or ".join(names))


class Locked:
    """Lets one test process build at a time."""

    def __init__(self, path):
        path.parent.mkdir(parents=True, exist_ok=True)
        self.file = open(path, "w")

    def __enter__(self):
        fcntl.flock(self.file, fcntl.LOCK_EX)

    def __exit__(self, *args):
        self.file.close()


def include_options(python):
    """Where Python.h is. Debian's also needs the parent directory, for architecture-specific headers."""
    paths = call([*python.command, "-c", INCLUDES]).split("\n")[:2]
    places = [python.root / path.lstrip("/") for path in paths]
    if not any((place / "Python.h").exists() for place in places):
        raise Missing("no Python.h for %s" % python.label)
    return ["-I%s" % place for place in dict.fromkeys(places)] + ["-idirafter", str(python.root / "usr" / "include")]


def shared(built, *options):
    """Records the source paths as the interpreter sees them, also in a chroot."""
    return ["-fPIC", "-shared", "-Wall", "-ffile-prefix-map=%s=%s" % (built.directory, built.inside), *options]


def build_c(python, built):
    call([tool("gcc", "cc"), "-g", "-O2", *shared(built, *include_options(python)), "-DMODULE=spy_c", "spy_c.c", "-o",
          "spy_c.so", "-pthread"], cwd=built.directory)


def build_c_fp(python, built):
    """Builds without -g, which would make the compiler write .debug_frame."""
    call([tool("gcc", "cc"), "-O2", "-fno-omit-frame-pointer", "-fno-asynchronous-unwind-tables", "-fno-unwind-tables",
          *shared(built, *include_options(python)), "-DMODULE=spy_c_fp", "spy_c.c", "-o", "spy_c_fp.so", "-pthread"],
         cwd=built.directory)


def build_c_no_header(python, built):
    """.eh_frame that no header in memory points to."""
    call([tool("gcc", "cc"), "-g", "-O2", "-fomit-frame-pointer", "-Wl,--no-eh-frame-hdr",
          *shared(built, *include_options(python)), "-DMODULE=spy_c_no_header", "spy_c.c", "-o", "spy_c_no_header.so",
          "-pthread"], cwd=built.directory)


def build_c_debug(python, built, name="spy_c_debug"):
    """Unwind information in .debug_frame only."""
    call([tool("gcc", "cc"), "-g", "-O2", "-fomit-frame-pointer", "-fno-asynchronous-unwind-tables", "-fno-unwind-tables",
          *shared(built, *include_options(python)), "-DMODULE=" + name, "spy_c.c", "-o", name + ".so", "-pthread"],
         cwd=built.directory)


def build_c_split(python, built):
    """.debug_frame in a separate debug file, found by its name."""
    build_c_debug(python, built, "spy_c_split")
    call([tool("objcopy"), "--only-keep-debug", "spy_c_split.so", "spy_c_split.debug"], cwd=built.directory)
    call([tool("strip"), "spy_c_split.so"], cwd=built.directory)
    call([tool("objcopy"), "--add-gnu-debuglink=spy_c_split.debug", "spy_c_split.so"], cwd=built.directory)


def build_cpp(python, built):
    """Links libstdc++ statically: a chroot may not have it."""
    call([tool("g++", "c++"), "-g", "-O2", "-static-libstdc++", "-static-libgcc",
          *shared(built, *include_options(python)), "spy_cpp.cc", "-o", "spy_cpp.so"], cwd=built.directory)


def cython_for(version):
    """Cython, in an environment of its own. It runs on our Python, whichever Python its output is for."""
    wanted = next(cython for least, cython in CYTHONS if version >= least)
    place = CACHE / ("cython-" + wanted)
    with Locked(CACHE / "cython.lock"):
        if not (place / "bin" / "cython").exists():
            shutil.rmtree(place, ignore_errors=True)
            try:
                call(["/usr/bin/python3", "-m", "venv", place])
                call([place / "bin" / "pip", "install", "--quiet", "Cython==" + wanted])
            except AssertionError as error:
                shutil.rmtree(place, ignore_errors=True)
                raise Missing("no Cython %s: %s" % (wanted, str(error).strip().split("\n")[-1]))
    return place / "bin" / "cython"


def build_cython(python, built, name="spy_cython", options=()):
    includes = include_options(python)
    call([cython_for(python.version), *options, "--module-name", name, "spy_cython.pyx", "-o", name + ".c"],
         cwd=built.directory)
    call([tool("gcc", "cc"), "-g", "-O1", "-fno-inline", "-w", *shared(built, *includes), name + ".c", "-o", name + ".so"],
         cwd=built.directory)


def build_cython_l(python, built):
    build_cython(python, built, "spy_cython_l", ["--line-directives"])


def build_rust(python, built):
    del python  # ctypes loads it into any Python
    call([tool("rustc"), "-g", "-C", "opt-level=2", "--crate-type", "cdylib", "--crate-name", "spy_rust",
          "--remap-path-prefix", "%s=%s" % (built.directory, built.inside), "spy_rust.rs", "-o", "spy_rust.so"],
         cwd=built.directory)


def build_load(python, built):
    """Two libraries that are loaded at the same address in turn. They have no build ID, which would tell them apart."""
    del python
    for name in ("one", "two"):
        call([tool("gcc", "cc"), "-O2", *shared(built, "-Wl,--build-id=none"), "-DNAME=" + name, "spy_load.c", "-o",
              "libspy_%s.so" % name], cwd=built.directory)


def build_jit(python, built):
    """A JIT compiler, twice: the symbol that GDB looks for is in .dynsym, or in .symtab only. And the object they load."""
    del python
    for name, options in (("spy_jit", []), ("spy_jit_local", ["-DLOCAL"])):
        call([tool("gcc", "cc"), "-g", "-O2", "-fomit-frame-pointer", *shared(built, *options), "spy_jit.c", "-o", name + ".so"],
             cwd=built.directory)
    call([tool("gcc", "cc"), "-g", "-O1", "-fomit-frame-pointer", "-fasynchronous-unwind-tables", "-fno-stack-protector",
          "-fno-pic", "-fcf-protection=none", "-ffile-prefix-map=%s=%s" % (built.directory, built.inside), "-c", "spy_jit_code.c", "-o",
          "spy_jit_code.o"], cwd=built.directory)


BUILDERS = {"spy_c": build_c, "spy_load": build_load, "spy_c_fp": build_c_fp, "spy_cpp": build_cpp, "spy_cython": build_cython,
            "spy_cython_l": build_cython_l, "spy_rust": build_rust, "spy_c_no_header": build_c_no_header,
            "spy_c_debug": build_c_debug, "spy_jit": build_jit, "spy_c_split": build_c_split}


def key_of(python):
    parts = [python.label, python.patch, str(python.command)]
    parts += [path.read_text() for path in [pathlib.Path(__file__), *sorted(NATIVE.iterdir())]]
    for name in ("gcc", "g++", "rustc"):
        path = shutil.which(name)
        parts.append("%s %s" % (name, path and call([path, "--version"]).split("\n")[0]))
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16]


def forget(directory):
    """Removes builds of sources that are long gone. Another copy of the tree may use newer ones."""
    for old in directory.glob("*"):
        if time.time() - old.stat().st_mtime > KEPT:
            shutil.rmtree(old, ignore_errors=True)


def build(python, module):
    """Builds one module for one interpreter; that of a chroot goes into the chroot."""
    base = python.root / "var" / "cache" / "spyglass-native" if python.kind == "chroot" else CACHE / "native"
    built = Built(python, base / python.label / key_of(python))
    done = built.directory / (module + ".done")
    with Locked(base / (python.label + ".lock")):
        if not done.exists():
            if not built.directory.exists():
                forget(built.directory.parent)
                built.directory.mkdir(parents=True)
            for source in NATIVE.iterdir():
                shutil.copy(source, built.directory)
            try:
                BUILDERS[module](python, built)
                done.write_text("")
            except Missing as why:
                done.write_text(str(why))
        built.missing = done.read_text() or None
    return built


if __name__ == "__main__":  # run by hand: builds everything and prints what is missing
    from pythons import PYTHONS

    for each in PYTHONS:
        if len(sys.argv) < 2 or sys.argv[1] in each.label:
            for name in BUILDERS:
                result = build(each, name)
                print(each.label, name, result.inside, result.missing or "built", flush=True)
