"""spyglass finds the interpreter wherever it is: deleted, replaced, stripped, in a venv, embedded, without symbols."""
import pathlib
import subprocess

import pytest
from profiles import Recording, seen
from program import TARGETS, run
from pythons import DEBIAN, HOSTS, PYTHONS
from stacks import compare

SHARED = [p for p in PYTHONS if p.library_dir]
EMBED_CODE = """
import sys
sys.argv = ["x", "plain"]
sys.path.insert(0, %(dir)r)
exec(compile(open(%(dir)r + "/situations.py").read(), %(dir)r + "/situations.py", "exec"))
"""


def test_deleted(launch, copy, script, python):
    one = copy(python)
    target = launch([*one.command, script(python, "situations.py"), "plain"], env=one.env)
    assert one.uses_copies(target.pid)
    for file in one.files:
        file.unlink()
    compare(target)


def test_replaced(launch, copy, script, python):
    """Like an upgrade: renames another file over the running one."""
    one = copy(python)
    target = launch([*one.command, script(python, "situations.py"), "plain"], env=one.env)
    for file in one.files:
        other = file.with_suffix(".new")
        other.write_bytes(pathlib.Path("/bin/sh").read_bytes())
        other.rename(file)
    compare(target)


def test_stripped(launch, copy, script, python):
    one = copy(python)
    subprocess.run(["strip", "--strip-all", *one.files], check=True)
    target = launch([*one.command, script(python, "situations.py"), "several_lines"], env=one.env)
    assert one.uses_copies(target.pid)
    compare(target)


def test_stripped_and_deleted(launch, copy, script, python):
    one = copy(python)
    subprocess.run(["strip", "--strip-all", *one.files], check=True)
    target = launch([*one.command, script(python, "situations.py"), "plain"], env=one.env)
    for file in one.files:
        file.unlink()
    compare(target)


def test_odd_program_name(launch, copy, script, python):
    """Neither the program's name nor its library's path contains "python"."""
    one = copy(python)
    renamed = one.files[0].with_name("server")
    one.files[0].rename(renamed)
    command = [*one.command[:-1], one.command[-1].rsplit("/", 1)[0] + "/server"]
    target = launch([*command, script(python, "situations.py"), "plain"], env=one.env)
    compare(target)


@pytest.mark.since(3, 3)
def test_venv(launch, places, script, python):
    place = places(python.root) / ("venv-" + python.label)
    inside = "/" + str(place.relative_to(python.root))
    subprocess.run([*python.command, "-m", "venv", "--without-pip", inside], check=True, stdout=subprocess.DEVNULL)
    command = [*python.command[:-1], inside + "/bin/python"]
    compare(launch([*command, script(python, "situations.py"), "plain"]))


def test_symlinks(launch, places, script, python):
    """Starts the script and, on the host, the interpreter through symbolic links."""
    link = places(python.root) / ("link-" + python.label + ".py")
    link.symlink_to("situations.py")
    command = list(python.command)
    if python.kind == "host":
        program = places(python.root) / ("linked-" + python.label)
        program.symlink_to(python.command[0])
        command = [str(program)]
    compare(launch([*command, "/" + str(link.relative_to(python.root)), "plain"]))


@pytest.mark.parametrize("host", HOSTS, ids=repr)
def test_argv_rewritten(launch, script, host):
    """A process with another argv[0], such as the workers of a cluster."""
    program, path = host.command[0], script(host, "situations.py")
    home = pathlib.Path(program).resolve().parent.parent
    target = launch(["ray::Busy.method", path, "plain"], executable=program, env={"PYTHONHOME": str(home)})
    compare(target)
    assert "Process %d: ray::Busy.method" % target.pid in run("dump", "--pid", target.pid).check().out


@pytest.mark.parametrize("shared", SHARED, ids=repr)
def test_embedded(launch, places, tmp_path, shared):
    lib = shared.library_dir
    library, = lib.glob("libpython%d.%d*.so" % shared.version)
    headers, = (lib.parent / "include").glob("python%d.%d*" % shared.version)
    program = tmp_path / "embed"
    subprocess.run(["gcc", TARGETS / "embed.c", "-o", program, "-w", "-I%s" % headers, "-L%s" % lib,
                    "-l%s" % library.stem[3:], "-Wl,-rpath,%s" % lib], check=True)
    code = EMBED_CODE % {"dir": str(places(shared.root))}
    compare(launch([program], env={"EMBED_CODE": code, "PYTHONHOME": str(lib.parent)}))


@pytest.mark.parametrize("kind, library", [("-no-pie", "libpython3.*[0-9].a"), ("-pie", "libpython3.*-pic.a")])
@pytest.mark.parametrize("symbols", ["symbols", "stripped"])
def test_static(launch, places, tmp_path, kind, library, symbols):
    """Statically linked with no symbol exported; stripped, with no symbol at all."""
    config = pathlib.Path("/usr/lib/python%d.%d" % DEBIAN.version)
    archive = next(config.glob("config-*/" + library))
    program = tmp_path / "static"
    subprocess.run(["gcc", kind, TARGETS / "embed.c", "-o", program, "-w", "-I/usr/include/python%d.%d" % DEBIAN.version,
                    archive, "-lexpat", "-lz", "-lm"], check=True)
    if symbols == "stripped":
        subprocess.run(["strip", "--strip-all", program], check=True)
    code = EMBED_CODE % {"dir": str(places(DEBIAN.root))}
    compare(launch([program], env={"EMBED_CODE": code}))


@pytest.fixture
def loads_library(tmp_path):
    """A program that loads a library and starts a child: see loads_library.c."""
    subprocess.run(["gcc", TARGETS / "loads_library.c", "-o", tmp_path / "server", "-ldl"], check=True)
    return tmp_path / "server"


def stand_in(path, *flags):
    """A library or program that looks like PyPy to spyglass, because PyPy itself may not be installed."""
    source = path.parent / "stand_in.c"
    source.write_text("#include <unistd.h>\nint pypy_execute_source(char *s) { return !s; }\n"
                      "int main(void) { write(1, \"{}\\n\", 3); for (;;) pause(); }\n")
    subprocess.run(["gcc", "-w", source, "-o", path, *flags], check=True)
    return path


def make_pypy(kind, place, server):
    """The command of a process that runs PyPy, or looks like that."""
    if kind == "library name":
        return [server, stand_in(place / "libpypy3.10-c.so", "-shared", "-fPIC", "-s", "-fvisibility=hidden")]
    if kind == "library symbol":
        return [server, stand_in(place / "renamed.so", "-shared", "-fPIC")]
    if kind == "program symbol":
        return [stand_in(place / "renamed", "-rdynamic")]
    return [stand_in(place / "pypy3.10", "-s")]


@pytest.mark.parametrize("kind", ["library name", "library symbol", "program symbol", "program name"])
def test_pypy(launch, loads_library, tmp_path, kind):
    target = launch(make_pypy(kind, tmp_path, loads_library))
    for args in (["dump"], ["record", "-o", tmp_path / "x.svg"]):
        result = run(*args, "--pid", target.pid).check(1)
        assert "process %d runs PyPy (" % target.pid in result.err and "which spyglass does not support" in result.err, result
        assert "Supported versions: CPython" in result.err and result.err.count("Error") == 1, result


def loaded_only(python, server):
    """The command of a server that loads libpython, whose child runs that Python."""
    library, = python.library_dir.glob("libpython%d.%d*.so" % python.version)
    return [server, library]


@pytest.mark.parametrize("shared", SHARED, ids=repr)
def test_loaded_but_not_initialized(launch, loads_library, tmp_path, shared):
    """A process that has loaded libpython without initializing it is not about to start Python."""
    target = launch(loaded_only(shared, loads_library))
    words = "process %d has loaded Python %d.%d (" % (target.pid, *shared.version)
    for args in (["dump"], ["record", "-o", tmp_path / "x.svg"]):
        result = run(*args, "--pid", target.pid).check(1)
        assert words in result.err and "but has not initialized it" in result.err and "--subprocesses" in result.err, result


@pytest.mark.parametrize("shared", SHARED, ids=repr)
def test_children_of_loaded(launch, loads_library, script, tmp_path, shared):
    """Its children are shown and recorded."""
    target = launch([*loaded_only(shared, loads_library), *shared.command, script(shared, "busy.py")])
    result = run("dump", "--subprocesses", "--pid", target.pid).check()
    assert "root (" in result.out and "): it has loaded Python but has not initialized it\n" in result.err, result
    recording = Recording(tmp_path / "x.txt", "--subprocesses", "--pid", target.pid, "-f", "raw")
    recording.until(seen("root"))
    recording.stop()
