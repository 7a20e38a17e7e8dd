"""`spyglass ray` and the Python package run nothing that happens to be in the current directory, or that another user may have
put somewhere."""
import os
import shutil
import subprocess

import pytest
from program import SANITIZED, SPYGLASS, WAIT, clean_env
from pythons import DEBIAN, ROOT

PYTHON = DEBIAN.command[0]
MODULES = ["spyglass/__init__.py", "spyglass/__main__.py", "ray/__init__.py", "os.py", "site.py", "runpy.py", "importlib/__init__.py",
           "sitecustomize.py", "usercustomize.py", "argparse.py", "encodings/__init__.py"]
PROGRAMS = ["python3", "python", "spyglass", "sudo", "ray"]
MISSING = "cannot run `spyglass ray`: No module named 'ray'"  # our package said so
pytestmark = pytest.mark.skipif(SANITIZED, reason="the layout of an installation, with a static program")


def packages_of(python):
    code = "import sys; print('lib/python%d.%d/site-packages' % sys.version_info[:2])"
    return subprocess.run([python, "-c", code], stdout=subprocess.PIPE, check=True).stdout.decode().strip()


@pytest.fixture
def trap(tmp_path):
    """A directory in which every module and every program leaves a mark."""
    place, mark = tmp_path / "trap", tmp_path / "mark"
    for name in MODULES:
        path = place / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("open(%r, 'a').write(%r + '\\n')\n" % (str(mark), name))
    for name in PROGRAMS:
        path = place / "programs" / name
        path.parent.mkdir(exist_ok=True)
        path.write_text("#!/bin/sh\necho %s >>'%s'\n" % (name, mark))
        path.chmod(0o755)
        if not (place / name).exists():
            shutil.copy(path, place / name)
    shutil.copytree(place, tmp_path / "modules")
    (place / packages_of(PYTHON)).parent.mkdir(parents=True)
    (tmp_path / "modules").rename(place / packages_of(PYTHON))
    return place


def marks(trap):
    mark = trap.parent / "mark"
    return mark.read_text() if mark.exists() else ""


@pytest.fixture
def installed(tmp_path):
    """installed(package directory below the prefix) -> the program, installed as pip does it."""
    def make(packages):
        prefix = tmp_path / "prefix"
        (prefix / "bin").mkdir(parents=True)
        shutil.copy(SPYGLASS, prefix / "bin" / "spyglass")
        shutil.copytree(ROOT / "python" / "spyglass", prefix / packages / "spyglass", ignore=shutil.ignore_patterns("__pycache__"))
        return prefix / "bin" / "spyglass"

    return make


def ray_dump(program, trap, **env):
    env.setdefault("PATH", os.path.dirname(PYTHON) + ":/usr/bin:/bin")
    done = subprocess.run([str(program), "ray", "dump"], cwd=trap, env=clean_env(**env), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, timeout=WAIT)
    assert marks(trap) == "", done
    return done.stdout.decode()


@pytest.mark.parametrize("env", [
    {}, {"PYTHONPATH": ""}, {"PYTHONPATH": ":"}, {"PYTHONPATH": ".:"}, {"PYTHONPATH": "../trap"}, {"PYTHONSTARTUP": "os.py"},
    {"PATH": ":/usr/bin:/bin"}, {"PATH": ".:programs:/usr/bin:/bin"}, {"PYTHONHOME": "."}, {"PYTHONUSERBASE": "."},
    {"PYTHONINSPECT": "1"}, {"PYTHONSAFEPATH": ""}], ids=str)
@pytest.mark.parametrize("layout", ["site-packages", "target"])
def test_current_directory(trap, installed, layout, env):
    """The package is the one that was installed with the program."""
    program = installed(packages_of(PYTHON) if layout == "site-packages" else "")
    assert MISSING in ray_dump(program, trap, **env)


def test_source_tree(trap):
    assert MISSING in ray_dump(SPYGLASS, trap)


def test_python_path(trap, tmp_path):
    """What the user names with an absolute path is used."""
    program = tmp_path / "elsewhere" / "spyglass"
    program.parent.mkdir()
    shutil.copy(SPYGLASS, program)
    assert "No module named 'spyglass'" in ray_dump(program, trap)
    assert MISSING in ray_dump(program, trap, PYTHONPATH=str(ROOT / "python"))


@pytest.mark.parametrize("word", ["SUDO_UID", "DOAS_USER", "PKEXEC_UID"])
def test_sudo(trap, installed, word):
    """The environment of the user who called sudo does not select code that runs as root."""
    program = installed(packages_of(PYTHON))
    home = trap.parent / "home"
    user = home / ".local" / packages_of(PYTHON)
    shutil.copytree(trap, user)
    env = {"PYTHONPATH": str(trap), "HOME": str(home), "PYTHONUSERBASE": str(home / ".local")}
    assert MISSING in ray_dump(program, trap, **{word: "1000"}, **env)


@pytest.mark.skipif(os.getuid() != 0, reason="needs root, to create files of another user")
def test_site_of_other_user(trap, installed):
    program = installed(packages_of(PYTHON))
    home = trap.parent / "home"
    user = home / ".local" / packages_of(PYTHON)
    shutil.copytree(trap, user)
    os.chown(user, 65534, 65534)
    assert MISSING in ray_dump(program, trap, HOME=str(home))


def test_user_site(trap, tmp_path):
    """pip install --user: Python hides these packages in isolated mode."""
    program, home = tmp_path / "elsewhere" / "spyglass", tmp_path / "home"
    program.parent.mkdir()
    shutil.copy(SPYGLASS, program)
    shutil.copytree(ROOT / "python" / "spyglass", home / ".local" / packages_of(PYTHON) / "spyglass")
    assert MISSING in ray_dump(program, trap, HOME=str(home))


def test_program_in_shared_directory(trap, tmp_path):
    """A program in a directory like /tmp does not run the python3 beside it, nor a package below its parent."""
    shared = tmp_path / "shared"
    shutil.copytree(trap / "programs", shared / "bin")
    shutil.copytree(trap / "spyglass", shared / "spyglass")
    shutil.copy(SPYGLASS, shared / "bin" / "spyglass")
    shared.chmod(0o1777)
    (shared / "bin").chmod(0o1777)
    assert "No module named 'spyglass'" in ray_dump(shared / "bin" / "spyglass", trap)


def test_no_python(trap):
    assert "python3: No such file" in ray_dump(SPYGLASS, trap, PATH=".:/nonexistent:")


# ---- the Python package ----

@pytest.mark.parametrize("path", ["", ".", ":/nonexistent", "programs", ".:programs:"])
def test_program_of_package(trap, tmp_path, path):
    """binary() finds the program in absolute entries of PATH only, and not beside an empty sys.executable."""
    shutil.copytree(ROOT / "python" / "spyglass", tmp_path / "lib" / "spyglass", ignore=shutil.ignore_patterns("__pycache__"))
    code = ("import sys\nsys.path[:] = [p for p in sys.path if p != '']\nsys.path.insert(0, %r)\nsys.executable = %s\n"
            "from spyglass import _binary\n_binary.sysconfig.get_path = lambda name: '/nonexistent'\n"
            "print(_binary.which('sudo'))\n"
            "try:\n    print(_binary.binary())\nexcept FileNotFoundError as error:\n    print('none')\n")
    for executable in ("''", "'/nonexistent/python'"):
        done = subprocess.run([PYTHON, "-I", "-c", code % (str(tmp_path / "lib"), executable)], cwd=trap, env=clean_env(PATH=path),
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=WAIT)
        assert done.stdout == b"None\nnone\n", done
    assert marks(trap) == ""


def test_program_in_path(tmp_path):
    shutil.copytree(ROOT / "python" / "spyglass", tmp_path / "lib" / "spyglass", ignore=shutil.ignore_patterns("__pycache__"))
    code = "import sys\nsys.path.insert(0, %r)\nfrom spyglass import _binary\n_binary._installed = lambda: ()\nprint(_binary.binary())" % str(tmp_path / "lib")
    for given in ({}, {"SPYGLASS_BINARY": "spyglass"}):
        env = clean_env(PATH="relative::" + str(SPYGLASS.parent), **given)
        done = subprocess.run([PYTHON, "-I", "-c", code], env=env, stdout=subprocess.PIPE, check=True, timeout=WAIT)
        assert done.stdout.decode().strip() == str(SPYGLASS), done
