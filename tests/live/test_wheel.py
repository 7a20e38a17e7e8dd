"""pip: the wheel and the source archive, built by pip itself, installed into fresh environments, and used there.

Everything runs without a package index: the build backend needs none.
"""
import hashlib
import os
import pathlib
import re
import shutil
import subprocess
import tarfile
import zipfile

import pytest

from profiles import WORK_UNTIL_INPUT, Recording, record_enough
from program import PY_SPY, SANITIZED, SPYGLASS, WAIT, clean_env, finish, run, start, wait_until
from pythons import DEBIAN, PYTHONS, ROOT

pytestmark = pytest.mark.skipif(SANITIZED, reason="a wheel holds the static program")

TAG = "py3-none-manylinux_2_17_x86_64.manylinux2014_x86_64.musllinux_1_1_x86_64"
VERSION = re.search(r"version: '([^']+)'", (ROOT / "meson.build").read_text()).group(1)
HOSTS = [p for p in PYTHONS if p.kind == "host" and p.version >= (3, 8)]
EDGES = [min(HOSTS, key=lambda p: p.version), DEBIAN, max(HOSTS, key=lambda p: p.version)] if HOSTS else []


def call(*command, status=0, **options):
    done = subprocess.run([str(part) for part in command], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, timeout=10 * WAIT, **options)
    text = done.stdout.decode("utf-8", "replace")
    assert done.returncode == status, text
    return text


def backend(hook, place, settings=None, env=None):
    """Calls a hook as a pip frontend does: in the tree, in its own process."""
    code = "import sys; sys.path.insert(0, 'tools'); import wheel_backend; print(wheel_backend.%s(%r, %r))" % (
        hook, str(place), settings)
    text = call(DEBIAN.command[0], "-c", code, cwd=ROOT, env=env or clean_env(SPYGLASS_PREBUILT=str(SPYGLASS)))
    return pathlib.Path(place, text.split()[-1])


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    return backend("build_wheel", tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="module")
def pips(tmp_path_factory):
    """pips(python) -> one pip for all environments of that interpreter, because installing pip into each would take
    most of the time."""
    made = {}

    def get(python):
        if python.label not in made:
            made[python.label] = tmp_path_factory.mktemp("pip") / "venv"
            call(python.command[0], "-m", "venv", made[python.label], env=clean_env())
        return made[python.label] / "bin" / "python"

    return get


class Environment:
    """A fresh environment without pip; `bin` has its commands."""

    def __init__(self, python, place, pip):
        call(python.command[0], "-m", "venv", "--without-pip", place, env=clean_env())
        self.place, self.bin, self.with_pip = place, place / "bin", pip

    def pip(self, *args, status=0, env=None):
        return call(self.with_pip, "-m", "pip", "--disable-pip-version-check", "--no-cache-dir", "--python",
                    self.bin / "python", *args, status=status, env=env or clean_env(PIP_NO_INDEX="1"))


@pytest.fixture
def fresh(tmp_path, pips):
    """fresh(python) -> Environment."""
    return lambda python=DEBIAN: Environment(python, tmp_path / "venv", pips(python))


def test_content(wheel):
    assert wheel.name == "spyglass-%s-%s.whl" % (VERSION, TAG)
    archive = zipfile.ZipFile(wheel)
    names = archive.namelist()
    for name in ("spyglass/py.typed", "spyglass/__init__.py", "spyglass-%s.data/scripts/py-spy" % VERSION):
        assert name in names
    assert not [n for n in names if "__pycache__" in n or n.endswith(".pyc")]
    package = {n for n in names if n.startswith("spyglass/")}
    assert package == {"spyglass/%s" % p.relative_to(ROOT / "python" / "spyglass") for p in
                       (ROOT / "python" / "spyglass").rglob("*") if p.suffix == ".py" or p.name == "py.typed"}
    program = archive.getinfo("spyglass-%s.data/scripts/spyglass" % VERSION)
    assert program.external_attr >> 16 == 0o100755
    assert archive.read(program.filename) == SPYGLASS.read_bytes()
    tags = archive.read("spyglass-%s.dist-info/WHEEL" % VERSION).decode()
    assert re.findall(r"^Tag: (.*)$", tags, re.M) == ["py3-none-" + p for p in TAG.split("-")[2].split(".")]
    assert "Root-Is-Purelib: false" in tags


def test_metadata(wheel):
    """A package index shows the author, links to the project, and a description whose links work there."""
    with zipfile.ZipFile(wheel) as archive:
        head, _, description = archive.read("spyglass-%s.dist-info/METADATA" % VERSION).decode().partition("\n\n")
    fields = [line.split(": ", 1) for line in head.splitlines()]
    assert dict(fields)["Author"] and dict(fields)["Name"] == "spyglass"
    urls = dict(value.split(", ") for name, value in fields if name == "Project-URL")
    assert set(urls) == {"Homepage", "Documentation", "Changelog", "Issues"}
    home = urls["Homepage"]
    assert all(url.startswith(home) for url in urls.values())
    targets = re.findall(r"\]\(([^)]*)\)", description)
    assert len(targets) == len(re.findall(r"\]\(", (ROOT / "README.md").read_text())) > 20
    assert [target for target in targets if not target.startswith("https://")] == []
    files = [re.fullmatch(r"%s/(blob|tree|raw)/v%s/([^#]*)(#.*)?" % (home, re.escape(VERSION)), url)
             for url in [*targets, *urls.values()] if url.startswith(home + "/") and not url.endswith("/issues")]
    assert all((ROOT / found.group(2)).exists() for found in files)
    assert all((ROOT / found.group(2)).is_dir() == (found.group(1) == "tree") for found in files)
    assert "raw" in {found.group(1) for found in files}  # a picture, which is inside of a link


def test_record_file(wheel):
    """RECORD lists each file with its hash and size, and nothing else."""
    import base64
    archive = zipfile.ZipFile(wheel)
    rows = archive.read("spyglass-%s.dist-info/RECORD" % VERSION).decode().splitlines()
    assert sorted(row.split(",")[0] for row in rows) == sorted(archive.namelist())
    for name, digest, size in (row.rsplit(",", 2) for row in rows):
        if not name.endswith("/RECORD"):
            data = archive.read(name)
            want = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
            assert (digest, size) == ("sha256=" + want, str(len(data))), name


@pytest.mark.full
def test_reproducible(wheel, tmp_path):
    assert backend("build_wheel", tmp_path).read_bytes() == wheel.read_bytes()
    (tmp_path / "a").mkdir()
    assert backend("build_sdist", tmp_path).read_bytes() == backend("build_sdist", tmp_path / "a").read_bytes()


def test_versions():
    """The version is the same everywhere."""
    text = (ROOT / "python" / "spyglass" / "__init__.py").read_text()
    assert '__version__ = "%s"' % VERSION in text
    assert run("--version").check().out.split() == ["spyglass", VERSION]


@pytest.mark.parametrize("host", EDGES, ids=repr)
def test_installed(host, wheel, fresh, tmp_path):
    """Both commands, the package, the man page and the completions are installed, and uninstalled again."""
    venv = fresh(host)
    commands = venv.bin
    before = {p for p in (tmp_path / "venv").rglob("*") if "__pycache__" not in p.parts}
    venv.pip("install", wheel)
    assert call(commands / "spyglass", "--version") == "spyglass %s\n" % VERSION
    assert call(commands / "py-spy", "--version") == "py-spy 0.4.3 (spyglass %s)\n" % VERSION
    code = ("import os, sys, spyglass\n"
            "assert spyglass.binary() == os.path.join(sys.prefix, 'bin', 'spyglass'), spyglass.binary()\n"
            "print([f.name for f in spyglass.dump()[0].frames][-1])\n"
            "with spyglass.record() as r: pass\n"
            "print(r.profile.samples >= 0)\n")
    env = clean_env(PATH="/usr/bin:/bin")
    assert call(commands / "python", "-c", code, env=env, cwd=tmp_path).split() == ["<module>", "True"]
    assert call(commands / "python", "-m", "spyglass", "-V", env=env, cwd=tmp_path) == "spyglass %s\n" % VERSION
    # `spyglass ray` is the package's, by the Python beside the program; Ray is missing there.
    missing = re.compile(r"%s/python3? cannot run `spyglass ray`: No module named 'ray'" % commands)
    for command in ([commands / "spyglass"], [commands / "python", "-m", "spyglass"]):
        text = call(*command, "ray", "dump", "--address", "auto", status=1, env=env, cwd=tmp_path)
        assert missing.search(text), text
        assert "ray record --address auto" in call(*command, "ray", "--help", env=env, cwd=tmp_path)
    share = tmp_path / "venv" / "share"
    for name in ("man/man1/spyglass.1", "bash-completion/completions/spyglass.bash", "zsh/site-functions/_spyglass",
                 "fish/vendor_completions.d/py-spy.fish"):
        assert (share / name).stat().st_size > 15, name
    assert "spyglass" in venv.pip("show", "--files", "spyglass")
    venv.pip("check")
    venv.pip("uninstall", "-y", "spyglass")
    after = {p for p in (tmp_path / "venv").rglob("*") if "__pycache__" not in p.parts}
    assert {p for p in after - before if p.is_file()} == set()


@pytest.mark.parametrize("way", ["target", "prefix", "user", "editable"])
def test_install_locations(way, wheel, fresh, pips, tmp_path):
    """The package finds the program wherever pip installs it."""
    venv = fresh()
    commands = venv.bin
    place = tmp_path / "place"
    env = clean_env(PIP_NO_INDEX="1", PYTHONUSERBASE=str(place), SPYGLASS_PREBUILT=str(SPYGLASS), PATH="/usr/bin:/bin")
    code = "import spyglass; print(spyglass.binary())"
    if way == "editable":
        venv.pip("install", "--editable", ROOT, env=env)
        assert call(commands / "python", "-c", code, env=env) == "%s\n" % (commands / "spyglass")
        assert call(commands / "python", "-c", "import spyglass; print(spyglass.__file__)", env=env).startswith(str(ROOT))
        return
    if way == "user":  # a venv has none of its own: use the interpreter below it
        call(pips(DEBIAN), "-m", "pip", "--python", DEBIAN.command[0], "install", "--user", "--break-system-packages",
             "--ignore-installed", wheel, env=env)
        assert call(DEBIAN.command[0], "-c", code, env=env) == "%s\n" % (place / "bin" / "spyglass")
        return
    venv.pip("install", "--" + way, place, wheel, env=env)
    lib = place if way == "target" else next(place.glob("lib/python*/site-packages"))
    found = call(commands / "python", "-c", code, env=dict(env, PYTHONPATH=str(lib)))
    assert found == "%s\n" % (place / "bin" / "spyglass")


def fake_py_spy(place):
    """A distribution like py-spy's own, which has only the command."""
    path = place / "py_spy-0.4.0-py3-none-any.whl"
    info = "py_spy-0.4.0.dist-info/"
    files = {"py_spy-0.4.0.data/scripts/py-spy": "#!/bin/sh\necho the other one\n",
             info + "METADATA": "Metadata-Version: 2.1\nName: py-spy\nVersion: 0.4.0\n",
             info + "WHEEL": "Wheel-Version: 1.0\nGenerator: a test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"}
    with zipfile.ZipFile(path, "w") as archive:
        for name, text in files.items():
            info_row = zipfile.ZipInfo(name)
            info_row.external_attr = (0o100755 if "scripts" in name else 0o100644) << 16
            archive.writestr(info_row, text)
        archive.writestr(info + "RECORD", "".join("%s,,\n" % name for name in [*files, info + "RECORD"]))
    return path


@pytest.mark.full
def test_together_with_py_spy(wheel, fresh, tmp_path):
    venv = fresh()
    commands = venv.bin
    other = fake_py_spy(tmp_path)
    venv.pip("install", other)
    venv.pip("install", wheel)
    assert "spyglass" in call(commands / "py-spy", "--version")  # the last one wins
    venv.pip("install", "--force-reinstall", "--no-deps", other)
    assert call(commands / "py-spy", "--version") == "the other one\n"
    assert call(commands / "spyglass", "--version") == "spyglass %s\n" % VERSION


@pytest.mark.parametrize("how", ["setting", "variable"])
def test_without_py_spy(how, fresh, tmp_path):
    """Each has its own name, in any order, and uninstalling one leaves the other."""
    venv = fresh()
    commands = venv.bin
    env = clean_env(PIP_NO_INDEX="1", SPYGLASS_PREBUILT=str(SPYGLASS), **({"SPYGLASS_PY_SPY": "no"} if how == "variable" else {}))
    more = ["--config-settings", "py-spy=no"] if how == "setting" else []
    venv.pip("install", fake_py_spy(tmp_path))
    venv.pip("wheel", "--no-deps", "--wheel-dir", tmp_path, *more, ROOT, env=env)
    path = tmp_path / ("spyglass-%s-0nopyspy-%s.whl" % (VERSION, TAG))
    assert not [n for n in zipfile.ZipFile(path).namelist() if "py-spy" in n]
    venv.pip("install", path)
    assert call(commands / "py-spy", "--version") == "the other one\n"
    venv.pip("uninstall", "-y", "spyglass")
    assert call(commands / "py-spy", "--version") == "the other one\n"
    assert not (commands / "spyglass").exists()


@pytest.mark.full
def test_source_archive(fresh, tmp_path):
    """pip builds the program from the archive, without the tree, without Git, and without a package index."""
    path = backend("build_sdist", tmp_path)
    assert path.name == "spyglass-%s.tar.gz" % VERSION
    with tarfile.open(path) as archive:
        names = archive.getnames()
        assert all(n.startswith("spyglass-%s/" % VERSION) and ".." not in n for n in names)
        assert not [n for n in names if "/build/" in n or "/.git/" in n or n.endswith((".pyc", ".whl"))]
        assert "Name: spyglass" in archive.extractfile("spyglass-%s/PKG-INFO" % VERSION).read().decode()
    venv = fresh()
    commands = venv.bin
    venv.pip("install", path)
    assert call(commands / "py-spy", "--version") == "py-spy 0.4.3 (spyglass %s)\n" % VERSION
    assert "INTERP" not in call("readelf", "-lW", commands / "spyglass")


def test_missing_build_packages(fresh, tmp_path):
    """Without the packages that the build needs: an error names them, and nothing is installed."""
    tools = tmp_path / "bin"
    tools.mkdir()
    for directory in ("/usr/bin", "/bin"):
        for file in pathlib.Path(directory).iterdir():
            if file.name not in ("meson", "ninja", "apt-get") and not (tools / file.name).exists():
                (tools / file.name).symlink_to(file)
    venv = fresh()
    env = clean_env(PIP_NO_INDEX="1", PATH=str(tools))
    text = venv.pip("wheel", "--no-deps", "-w", tmp_path, ROOT, status=1, env=env)
    assert "missing packages: meson ninja-build" in text and "apt-get install" in text, text
    assert "Traceback" not in text, text


def test_wrong_program(tmp_path):
    """The backend refuses a program that the wheel's tag does not fit."""
    code = "import sys; sys.path.insert(0, 'tools'); import wheel_backend; wheel_backend.build_wheel(%r)" % str(tmp_path)
    for path, words in (("/bin/ls", "not static"), (ROOT / "README.md", "no program")):
        text = call(DEBIAN.command[0], "-c", code, status=1, cwd=ROOT, env=clean_env(SPYGLASS_PREBUILT=str(path)))
        assert words in text
    text = call(DEBIAN.command[0], "-c", code, status=1, cwd=ROOT,
                env=clean_env(SPYGLASS_PREBUILT=str(SPYGLASS), SPYGLASS_PY_SPY="perhaps"))
    assert "yes or no" in text


# ---- files installed with the program ----

@pytest.fixture(scope="module")
def share(tmp_path_factory):
    place = tmp_path_factory.mktemp("share")
    call(DEBIAN.command[0], ROOT / "share" / "make", SPYGLASS, place, env=clean_env())
    return place


def test_make_install(tmp_path):
    """`make install PREFIX=...`; without permission, one clear line says what to type."""
    install = ["sh", ROOT / "tools" / "install", SPYGLASS.parent]
    call(*install, tmp_path, env=clean_env())
    for name in ("spyglass", "py-spy"):
        assert run("--version", program=tmp_path / "bin" / name).check().out.startswith(name)
        for file in (name + ".1", name + ".bash", "_" + name, name + ".fish"):
            assert len(list(tmp_path.glob("share/**/" + file))) == 1, file
    if os.getuid() == 0:
        done = subprocess.run(["/usr/bin/setpriv", "--reuid", "65534", "--clear-groups", *install, tmp_path], env=clean_env(),
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        assert done.returncode == 1 and re.match(rb"install: no permission to write to .*make install PREFIX=\S+\n$", done.stderr), done


def help_flags(*args):
    return set(re.findall(r"^ {2}(?:-\w, | {4})--([\w-]+)", run(*args, "--help").check().out, re.M))


def test_man_page(share):
    """The man page has every command and every flag of the help, and the formatter does not complain."""
    done = subprocess.run(["man", "--warnings", "-E", "UTF-8", "-l", "-Tutf8", "-Z", str(share / "spyglass.1")],
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=clean_env())
    assert done.returncode == 0 and not done.stderr, done.stderr.decode()
    text = call("man", "-l", share / "spyglass.1", env=clean_env(MANWIDTH="200", MAN_KEEP_FORMATTING="", PAGER="cat"))
    text = re.sub(r".\x08|\x1b\[[0-9;]*m", "", text)
    commands = re.findall(r"^  ([a-z]+) ", run("--help").check().out.split("Commands:")[1].split("\n\n")[0], re.M)
    assert set(commands) >= {"record", "dump", "merge", "completions"}
    for command in commands:
        if command == "help":
            continue
        section = re.search(r"^   %s\n(.*?)(?=^   \w|^[A-Z])" % command, text, re.M | re.S).group(1)
        flags = help_flags(command)
        assert flags and flags <= set(re.findall(r"--([\w-]+)", section)), (command, flags)
    for words in ("SIGUSR1", "EXIT STATUS", "flamegraph", VERSION):
        assert words in text


def test_completions_match_program(share):
    for name, program in (("spyglass", SPYGLASS), ("py-spy", PY_SPY)):
        for shell, file in (("bash", name + ".bash"), ("zsh", "_" + name), ("fish", name + ".fish")):
            assert (share / file).read_text() == run("completions", shell, program=program).check().out
    assert shutil.which("bash")
    for script in ("spyglass.bash", "py-spy.bash"):
        call("bash", "-n", share / script)


def complete(share, *words):
    """What bash offers for the last word."""
    code = ('source "$1"; shift; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _spyglass; printf "%s\\n" "${COMPREPLY[@]}"')
    return set(call("bash", "-c", code, "bash", share / "spyglass.bash", *words, env=clean_env()).split())


def test_completion_of_merge(share):
    assert complete(share, "spyglass", "me") == {"merge"}
    assert complete(share, "spyglass", "merge", "--t") == {"--thread", "--title"}
    assert complete(share, "spyglass", "merge", "-f", "s") == {"speedscope"}
    assert complete(share, "spyglass", "merge", "a") == set()  # files: bash's own completion


# ---- the oldest kernel that the wheel's tag allows ----

def test_old_kernel(spawn, tmp_path):
    """Runs without the system calls that Linux 3.10 lacks."""
    target = spawn(DEBIAN, "busy.py")
    program = [str(ROOT / "tests" / "live" / "old_kernel.py"), str(SPYGLASS)]
    raw = tmp_path / "p.txt"
    wait_until(lambda: "leaf_" in call(*program, "dump", "--pid", target.pid, "--native", "--locals"), "a leaf")
    record_enough(lambda text: "leaf_" in text, "--pid", target.pid, out=raw, wrapper=program[:1])
    launched = tmp_path / "launched.svg"
    process = start(SPYGLASS, "record", "--output", launched, "--", *DEBIAN.command, "-c", WORK_UNTIL_INPUT, program=program[0],
                    stdin=subprocess.PIPE)
    Recording(launched, process=process).until(lambda text: "works" in text)
    finish(process).check()
    assert "&lt;module&gt; (" in launched.read_text()
    call(*program, "merge", "--output", tmp_path / "all.json", raw)
    # Check the filter itself: getrandom is one of them.
    code = "import os\ntry: os.getrandom(1)\nexcept OSError as error: print(error.errno)"
    assert call(program[0], DEBIAN.command[0], "-c", code) == "38\n"
