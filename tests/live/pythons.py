"""The interpreters that the live tests run on: the lines of build/pythons.txt, which tools/pythons writes."""
import pathlib

ROOT = pathlib.Path(__file__).resolve().parents[2]


class Python:
    """One line of build/pythons.txt."""

    def __init__(self, line):
        self.label, version, self.kind, *self.command = line.split()
        self.version = tuple(int(part) for part in version.split(".")[:2])
        self.patch = version
        self.root = pathlib.Path(self.command[1]) if self.kind == "chroot" else pathlib.Path("/")

    def __repr__(self):
        return self.label

    @property
    def library_dir(self):
        """The directory of its libpython, or None if libpython is not shared."""
        lib = pathlib.Path(self.command[0]).resolve().parent.parent / "lib"
        return lib if self.kind == "host" and list(lib.glob("libpython%d.%d*.so.*" % self.version)) else None


def read_pythons():
    path = ROOT / "build" / "pythons.txt"
    return [Python(line) for line in path.read_text().splitlines()] if path.exists() else []


def of_version(*version):
    return next((p for p in PYTHONS if p.version == version), None)


PYTHONS = read_pythons()
HOSTS = [p for p in PYTHONS if p.kind == "host"]
CHROOTS = [p for p in PYTHONS if p.kind == "chroot"]
NEWEST_HOST = max(HOSTS, key=lambda p: p.version, default=None)
DEBIAN = next((p for p in PYTHONS if p.label.startswith("usr-bin-3")), NEWEST_HOST)
PYTHON_2 = of_version(2, 7)
# One interpreter for each kind of memory layout (src/python/layouts.c): the sanitizer build runs on these.
LAYOUT_KINDS = [
    (2, 7),   # no _PyRuntime; dicts with a single table; line tables that only increase
    (3, 6),   # no _PyRuntime; dicts with a table of indices
    (3, 8),   # _PyRuntime; stands for 3.7 and 3.9
    (3, 10),  # line tables are ranges; f_lasti counts units of two bytes
    (3, 11),  # frames on a data stack, reached through _PyCFrame; entry frames are marked with is_entry
    (3, 12),  # entry frames are shims; one GIL per interpreter; a tag word in each int
    (3, 15),  # debug offsets; tag bits in frames; a base frame in the thread state; stands for 3.13 and 3.14
]
ONE_PER_LAYOUT = [DEBIAN if DEBIAN and DEBIAN.version == kind else of_version(*kind) for kind in LAYOUT_KINDS]
