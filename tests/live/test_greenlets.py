"""Greenlets: their stacks in `dump`, and their native stacks, for which they share the C stack of their thread."""
import json
import re
import shutil

import pytest
from core_files import by_gcore, gcore
from native_build import CACHE, Locked, call, tool
from processes import at_rest
from profiles import raw_stacks, read_raw, record_enough
from program import run
from pythons import DEBIAN, NEWEST_HOST
from stacks import rows, same

SOME = list({python.label: python for python in (DEBIAN, NEWEST_HOST)}.values())


def install(python, place, name):
    """For a chroot, which has no pip, the pip of the host gets the package."""
    command = [*python.command, "-m", "pip", "install", "--quiet", "--target", place]
    if python.kind == "chroot":
        command = ["/usr/bin/python3", "-m", "pip", "install", "--quiet", "--target", place, "--only-binary", ":all:",
                   "--python-version", "%d.%d" % python.version]
    call([*command, name])


@pytest.fixture
def package():
    """package(python, "stripped") -> a directory with the package greenlet, as the interpreter sees it. The first call needs PyPI."""
    def make(python, kind="plain", name="greenlet"):
        cache = python.root / "var" / "cache" / "spyglass-native" if python.kind == "chroot" else CACHE
        place = cache / name / python.label
        with Locked(CACHE / "greenlet.lock"):
            if not (place / "done").exists():
                shutil.rmtree(place, ignore_errors=True)
                install(python, place / "plain", name)
                shutil.copytree(place / "plain", place / "stripped")
                call([tool("strip"), *place.glob("stripped/greenlet/_greenlet*.so")])
                (place / "done").touch()
        return "/" + str((place / kind).relative_to(python.root))

    return make


def check(threads, truth):
    """Compares `dump --json` with what the target knows about its greenlets."""
    found = {int(g["address"], 16): (thread, g) for thread in threads for g in thread.get("greenlets", [])}
    ident = {g["thread"] for g in truth["extra"]["greenlets"]}
    assert len(ident) == 2
    for true in truth["extra"]["greenlets"]:
        thread, g = found.pop(true["id"])
        same(rows(g["frames"]), rows(true["frames"]), "greenlet %r" % true)
        assert thread["thread_id"] == true["thread"], (thread, true)
        assert int(g["parent"] or "0", 16) == true["parent"] and g["state"] == true["state"] and g["is_main"] == true["main"], (g, true)
        assert g["type"] == true["type"] and g["name"] == true["name"] and g["sure"], (g, true)
    assert not found


def check_parents(text, greenlets):
    """The stack of a running greenlet goes on in its parent."""
    running, = (g for g in greenlets if g["state"] == "running" and not g["main"])
    parent = next(g for g in greenlets if g["id"] == running["parent"])
    lines = text[text.index("Greenlet 0x%x (running, see its thread)\n" % running["id"]):].splitlines()
    assert lines[1] == "    [returns to Main greenlet 0x%x]" % parent["id"], text
    assert [line.split()[0] for line in lines[2:2 + len(parent["frames"])]] == [f["name"] for f in parent["frames"]], text


@pytest.fixture
def target(spawn, package):
    return lambda python: spawn(python, "greenlet_stacks.py", env={"PYTHONPATH": package(python)})


def test_stacks(target, python):
    """Suspended in generators, in handlers, below C code, in two threads; deep stacks; subclasses."""
    process = target(python)
    for flags in ([], ["--nonblocking"]):
        check(json.loads(run("dump", "--pid", at_rest(process.pid), "--json", *flags).check().out), process.truth)
    text = run("dump", "--pid", at_rest(process.pid)).check().out
    assert "[greenlets that are not shown: 2 not started, 1 dead]\n" in text, text
    assert len(re.findall(r"^Greenlets of thread \d+ \(\d+\)$", text, re.M)) == 2, text
    alike = re.search(r"^4 greenlets like this \(suspended\): (.*)\n    (.*)\n(?!    )", text, re.M)
    assert sorted(alike.group(1).split(", ")) == ['"worker-%d"' % i for i in range(1, 5)], text
    assert re.match(r"(Worker\.)?run \(.*greenlet_stacks.py:\d+\)$", alike.group(2)), text
    assert len(re.findall("^Main greenlet 0x", text, re.M)) == 2 and text.count("(running, see its thread)") == 2, text
    check_parents(text, process.truth["extra"]["greenlets"])
    assert "\nGreenlets of" not in run("dump", "--pid", process.pid, "--no-tasks").check().out


@pytest.mark.parametrize("interpreter", SOME, ids=repr)
def test_waits(spawn, package, interpreter):
    """What greenlets of gevent wait for, as text and as JSON."""
    target = spawn(interpreter, "gevent_waits.py", env={"PYTHONPATH": package(interpreter, name="gevent")})
    text = run("dump", "--pid", at_rest(target.pid)).check().out
    lock = r"^7 greenlets like this \(waiting for \w+\.acquire, all at 0x%x\): (\"locks-[0-6]\"(, |, ..., )?)+$" % target.truth["lock"]
    assert re.search(lock, text, re.M), text
    assert '\nGreenlet "reads" (waiting for a socket, fd %d)\n' % target.truth["fd"] in text, text
    assert '\nGreenlet "naps" (sleeping for 90 min)\n' in text and re.search("^Hub 0x.*running", text, re.M), text
    threads = json.loads(run("dump", "--pid", at_rest(target.pid), "--json").check().out)
    waits = {g["name"]: g["waits_for"] for thread in threads for g in thread.get("greenlets", [])}
    assert waits["naps"]["kind"] == "sleep" and waits["naps"]["seconds"] == 5400, waits
    assert waits["reads"]["fd"] == target.truth["fd"] and waits["locks-0"]["address"] == hex(target.truth["lock"]), waits


@by_gcore
@pytest.mark.parametrize("interpreter", SOME, ids=repr)
def test_core_file(target, scratch, interpreter):
    process = target(interpreter)
    core = gcore(process, scratch)
    check(json.loads(run("dump", "--core", core, "--json").check().out), process.truth)


@pytest.mark.statistical
def test_while_running(spawn, package, python):
    """Greenlets that stay suspended are right while others run all the time."""
    target = spawn(python, "greenlet_switches.py", env={"PYTHONPATH": package(python)})
    for _ in range(3):
        threads = json.loads(run("dump", "--pid", target.pid, "--json").check().out)
        found = {int(g["address"], 16): g for thread in threads for g in thread["greenlets"]}
        for true in target.truth["parked"]:
            g = found[true["id"]]
            same(rows(g["frames"]), rows(true["frames"]), "greenlet %r" % true)
            assert g["state"] == "suspended" and g["sure"]
        for g in found.values():
            names = [frame["name"] for frame in g["frames"]]
            assert not g["sure"] or g["state"] == "running" or g["is_main"] or names in target.truth["possible"], g


@pytest.mark.parametrize("kind", ["plain", "stripped"])
@pytest.mark.parametrize("interpreter", SOME, ids=repr)
def test_end_of_stack(spawn, package, tmp_path, interpreter, kind):
    """The stack of a greenlet ends where greenlet called its function, and is complete there."""
    target = spawn(interpreter, "greenlets.py", env={"PYTHONPATH": package(interpreter, kind)})
    text, result = record_enough(lambda text: read_raw(text)[0]["works"] >= 50, "--native", "-f", "raw", "--pid", target.pid,
                                 out=tmp_path / "out")
    stacks = {stack: n for stack, n in raw_stacks(text).items() if "works" in stack}
    roots = {stack[0] for stack in stacks}
    if kind == "plain":
        assert roots == {"greenlet::UserGreenlet::g_initialstub"}, stacks
    # A few stacks are in the middle of a switch.
    cut = re.search(r"Native stacks: (\d+) of (\d+)", result.messages)
    assert not cut or int(cut.group(1)) < int(cut.group(2)) / 4, result
