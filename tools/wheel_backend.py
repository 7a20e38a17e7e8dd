"""The build backend of `pip install .` (PEP 517, PEP 660): builds a wheel or a source archive from this tree.

The wheel contains the program twice, as `spyglass` and as `py-spy`, and not as Python scripts, so that neither waits
for an interpreter to start. A wheel cannot contain a link. A shell wrapper fails where there is no shell, and neither a
link nor a wrapper works if somebody copies only bin/py-spy into a container. So py-spy is a second copy, of 2 MB.

    pip wheel . -C py-spy=no          leaves bin/py-spy to the distribution py-spy; so does SPYGLASS_PY_SPY=no
    SPYGLASS_PREBUILT=build/spyglass  uses this program instead of building one
"""
import base64
import gzip
import hashlib
import io
import os
import pathlib
import re
import subprocess
import sys
import tarfile
import tempfile
import time
import zipfile

ROOT = pathlib.Path(__file__).resolve().parents[1]
NAME = "spyglass"
URL = "https://github.com/spyglass-profiler/spyglass"
# Correct for a static program: it needs no libc, and no system call that Linux 3.10 lacks (tests/live/old_kernel.py).
TAG = "py3-none-manylinux_2_17_x86_64.manylinux2014_x86_64.musllinux_1_1_x86_64"
PACKAGE = ROOT / "python" / NAME
SHARE = {
    "spyglass.1": "man/man1", "py-spy.1": "man/man1",
    "spyglass.bash": "bash-completion/completions", "py-spy.bash": "bash-completion/completions",
    "_spyglass": "zsh/site-functions", "_py-spy": "zsh/site-functions",
    "spyglass.fish": "fish/vendor_completions.d", "py-spy.fish": "fish/vendor_completions.d",
}
# What a source archive leaves out of the tree.
NOT_SOURCE = {".git", "build", "__pycache__", ".pytest_cache", ".mypy_cache", "dist"}


def read_version():
    return re.search(r"^  version: '([^']+)'", (ROOT / "meson.build").read_text(), re.M).group(1)


VERSION = read_version()
STEM = "%s-%s" % (NAME, VERSION)
INFO = STEM + ".dist-info"
DATA = STEM + ".data"


LINK = re.compile(r"(!?)(\[(?:[^][]|\[[^][]*\]\([^()]*\))*\])\(([^()\s]+)\)")  # [text](target), ![alternative](target)


def absolute(text):
    """The text with absolute links, to the files of this version: a package index knows no files beside it."""
    def link(found):
        image, label, target = found.groups()
        if not re.match(r"[a-z]+:|#", target):
            view = "raw" if image else "tree" if target.endswith("/") else "blob"
            target = "%s/%s/v%s/%s" % (URL, view, VERSION, target)
        return "%s%s(%s)" % (image, LINK.sub(link, label[:-1]) + "]", target)

    return LINK.sub(link, text)


def metadata():
    head = [
        ("Metadata-Version", "2.1"), ("Name", NAME), ("Version", VERSION),
        ("Summary", "Sees where a running Python program is and where its time goes, from outside, without a restart"),
        ("Author", "The spyglass authors"), ("License", "Apache-2.0"), ("Requires-Python", ">=3.8"),
        ("Project-URL", "Homepage, %s" % URL),
        ("Project-URL", "Documentation, %s/blob/v%s/docs/python.md" % (URL, VERSION)),
        ("Project-URL", "Changelog, %s/blob/v%s/CHANGELOG.md" % (URL, VERSION)),
        ("Project-URL", "Issues, %s/issues" % URL),
        ("Keywords", "profiler,sampling,flamegraph,debugging,py-spy"),
        ("Classifier", "Intended Audience :: Developers"),
        ("Classifier", "License :: OSI Approved :: Apache Software License"),
        ("Classifier", "Operating System :: POSIX :: Linux"),
        ("Classifier", "Programming Language :: C"),
        ("Classifier", "Programming Language :: Python :: 3"),
        ("Classifier", "Topic :: Software Development :: Debuggers"),
        ("Classifier", "Typing :: Typed"),
        ("Description-Content-Type", "text/markdown"),
    ]
    return "".join("%s: %s\n" % pair for pair in head) + "\n" + absolute((ROOT / "README.md").read_text(encoding="utf-8"))


# ---- the program ----

def run(command, what):
    """Runs a command; shows its output only if it fails."""
    try:
        done = subprocess.run([str(part) for part in command], cwd=str(ROOT), stdin=subprocess.DEVNULL,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    except OSError as error:
        sys.exit("spyglass: %s: %s" % (what, error))
    if done.returncode != 0:
        sys.exit("%s\nspyglass: %s" % (done.stdout.decode("utf-8", "replace")[-8000:], what))


def build_program(place):
    """Compiles the program; if packages are missing, the error names them."""
    if sys.platform != "linux" or os.uname().machine != "x86_64":
        sys.exit("spyglass: it runs on Linux x86-64 only")
    run(["sh", "tools/setup", "build", "check"], "what the build needs is missing, see above")
    run(["meson", "setup", place], "meson failed")
    run(["ninja", "-C", place, "spyglass"], "the build failed")
    return place / NAME


def check_program(program):
    """Checks what the wheel's tag promises."""
    with open(program, "rb") as file:
        head = file.read(20)
    if head[:5] != b"\x7fELF\x02" or head[18:20] != b"\x3e\x00":
        sys.exit("spyglass: %s is no program for x86-64" % program)
    done = subprocess.run(["readelf", "-lW", str(program)], stdout=subprocess.PIPE)
    if b"INTERP" in done.stdout or done.returncode != 0:
        sys.exit("spyglass: %s is not static" % program)
    said = subprocess.run([str(program), "--version"], stdout=subprocess.PIPE).stdout.decode().split()
    if said != [NAME, VERSION]:
        sys.exit("spyglass: %s is not version %s: %s" % (program, VERSION, said))


def get_program(place):
    value = os.environ.get("SPYGLASS_PREBUILT")
    program = pathlib.Path(value).resolve() if value else build_program(place / "build")
    check_program(program)
    return program


def wants_py_spy(settings):
    value = (settings or {}).get("py-spy", os.environ.get("SPYGLASS_PY_SPY", "yes"))
    if str(value).lower() not in ("yes", "no", "1", "0", "true", "false"):
        sys.exit("spyglass: py-spy is yes or no, not %r" % value)
    return str(value).lower() in ("yes", "1", "true")


# ---- archives ----

def source_time():
    """The timestamp of all files: the same sources give the same archive, byte for byte."""
    return int(os.environ.get("SOURCE_DATE_EPOCH", 1577836800))


class Wheel:
    """A wheel that is being written: a zip file with a list of its contents."""

    def __init__(self, path):
        self.file = zipfile.ZipFile(str(path), "w", zipfile.ZIP_DEFLATED)
        self.rows = []

    def add(self, name, data, mode=0o644):
        info = zipfile.ZipInfo(name, time.gmtime(max(source_time(), 315532800))[:6])
        info.external_attr = (0o100000 | mode) << 16
        info.compress_type = zipfile.ZIP_DEFLATED
        self.file.writestr(info, data)
        digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
        self.rows.append("%s,sha256=%s,%d" % (name, digest, len(data)))

    def close(self):
        name = INFO + "/RECORD"
        info = zipfile.ZipInfo(name, time.gmtime(max(source_time(), 315532800))[:6])
        info.external_attr = 0o100644 << 16
        self.file.writestr(info, "\n".join(self.rows + [name + ",,"]) + "\n")
        self.file.close()


def info_files(build_tag=""):
    """The files of dist-info, except RECORD."""
    tags = "".join("Tag: py3-none-%s\n" % platform for platform in TAG.split("-")[2].split("."))
    yield "METADATA", metadata().encode("utf-8")
    yield "WHEEL", ("Wheel-Version: 1.0\nGenerator: spyglass (%s)\nRoot-Is-Purelib: false\n%s%s"
                    % (VERSION, tags, "Build: %s\n" % build_tag if build_tag else "")).encode()
    yield "licenses/LICENSE", (ROOT / "LICENSE").read_bytes()


def add_program(wheel, py_spy):
    with tempfile.TemporaryDirectory() as name:
        place = pathlib.Path(name)
        program = get_program(place)
        run([sys.executable, "share/make", program, place / "share"], "the man page could not be made")
        for command in [NAME] + ["py-spy"] * py_spy:
            wheel.add("%s/scripts/%s" % (DATA, command), program.read_bytes(), 0o755)
        for file, directory in sorted(SHARE.items()):
            if py_spy or "py-spy" not in file:
                wheel.add("%s/data/share/%s/%s" % (DATA, directory, file), (place / "share" / file).read_bytes())


def write_wheel(directory, settings, package):
    py_spy = wants_py_spy(settings)
    build_tag = "" if py_spy else "0nopyspy"  # distinguishes the file names of the two variants
    name = "%s-%s%s.whl" % (STEM, build_tag + "-" if build_tag else "", TAG)
    wheel = Wheel(pathlib.Path(directory) / name)
    for path, data in package:
        wheel.add(path, data)
    add_program(wheel, py_spy)
    for path, data in info_files(build_tag):
        wheel.add("%s/%s" % (INFO, path), data)
    wheel.close()
    return name


def package_files():
    for path in sorted(PACKAGE.rglob("*")):
        if path.is_file() and (path.suffix == ".py" or path.name == "py.typed"):
            yield "%s/%s" % (NAME, path.relative_to(PACKAGE).as_posix()), path.read_bytes()


def source_files():
    """The files under version control, or all files if there is none."""
    if (ROOT / ".git").exists():
        done = subprocess.run(["git", "ls-files", "-z"], cwd=str(ROOT), stdout=subprocess.PIPE)
        if done.returncode == 0:
            yield from (ROOT / name for name in done.stdout.decode().split("\0") if name and (ROOT / name).exists())
            return
    for folder, folders, files in os.walk(str(ROOT)):
        folders[:] = sorted(set(folders) - NOT_SOURCE)
        for file in sorted(files):
            path = pathlib.Path(folder, file)
            if path.suffix not in (".pyc", ".whl") and path.name not in (".git", "PKG-INFO"):
                yield path


# ---- the hooks ----

def is_old(command, least):
    """Missing, or older than what meson.build and tools/setup require."""
    try:
        said = subprocess.run([command, "--version"], stdout=subprocess.PIPE).stdout.decode()
    except OSError:
        return True
    return tuple(map(int, re.findall(r"\d+", said)[:2])) < least


def get_requires_for_build_wheel(config_settings=None):
    """Empty if the installed Meson and ninja are new enough. Without a package index, the build itself reports what
    is missing."""
    if os.environ.get("SPYGLASS_PREBUILT") or os.environ.get("PIP_NO_INDEX"):
        return []
    return [name for name, least in (("meson", (0, 56)), ("ninja", (1, 10))) if is_old(name, least)]


get_requires_for_build_editable = get_requires_for_build_wheel


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    return write_wheel(wheel_directory, config_settings, package_files())


def build_editable(wheel_directory, config_settings=None, metadata_directory=None):
    """The package stays where it is; the commands are copies."""
    path = str(ROOT / "python") + "\n"
    return write_wheel(wheel_directory, config_settings, [("__editable__.%s.pth" % NAME, path.encode())])


def prepare_metadata_for_build_wheel(metadata_directory, config_settings=None):
    for path, data in info_files():
        file = pathlib.Path(metadata_directory) / INFO / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(data)
    return INFO


prepare_metadata_for_build_editable = prepare_metadata_for_build_wheel


def build_sdist(sdist_directory, config_settings=None):
    name = STEM + ".tar.gz"
    with open(os.path.join(sdist_directory, name), "wb") as out, \
            gzip.GzipFile("", "wb", fileobj=out, mtime=source_time()) as packed, \
            tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for path in source_files():
            info = archive.gettarinfo(str(path), "%s/%s" % (STEM, path.relative_to(ROOT).as_posix()))
            info.uid = info.gid = 0
            info.mode = 0o755 if info.mode & 0o100 else 0o644  # independent of the umask
            info.uname = info.gname = ""
            info.mtime = source_time()
            with open(path, "rb") if info.isreg() else io.BytesIO() as file:
                archive.addfile(info, file if info.isreg() else None)
        info = tarfile.TarInfo(STEM + "/PKG-INFO")
        data = metadata().encode("utf-8")
        info.size, info.mtime = len(data), source_time()
        archive.addfile(info, io.BytesIO(data))
    return name
