"""spyglass finds the interpreter wherever it is: deleted, replaced, stripped, in a venv, embedded, without symbols."""
import pathlib
import subprocess

import pytest
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
