"""`dump` says what a thread waits for in the kernel: the call, its descriptors, and the processes behind them."""
import json
import re

import pytest
from processes import at_rest
from program import run
from pythons import DEBIAN
from stacks import parse_text

CALLS = {
    "locks": {"futex"},
    "sleeps": {"clock_nanosleep", "select", "pselect6"},
    "reads_child": {"read"},
    "reads_itself": {"read"},
    "writes": {"write"},
    "receives": {"recvfrom", "poll"},
    "receives_unix": {"recvfrom"},
    "accepts": {"accept4", "accept"},
    "polls": {"poll", "ppoll"},
    "selects": {"select", "pselect6"},
    "epolls": {"epoll_wait", "epoll_pwait"},
    "parents": {"wait4"},
    "waits_for_file_lock": {"flock"},
    "MainThread": {"read"},
}
LIMITED = {"sleeps": 100000, "polls": 50000, "epolls": 50000}


def waits(target, *flags):
    out = run("dump", "--pid", at_rest(target.pid), "--waits", "--json", *flags).check().out
    return {t["thread_name"]: t.get("waits_for") for t in json.loads(out)}


@pytest.mark.smoke
@pytest.mark.parametrize("flags", [[], ["--nonblocking"]], ids=lambda f: "".join(f) or "plain")
def test_json(spawn, python, flags):
    target = spawn(python, "kernel_waits.py")
    found = waits(target, *flags)
    for name, calls in CALLS.items():
        wait = found[name]
        assert wait["system_call"] in calls, (name, wait)
        if name == "sleeps" and wait["system_call"] == "clock_nanosleep":
            assert 0 < wait["seconds_left"] <= LIMITED[name] and wait["seconds_at_most"] is None, (name, wait)
        else:
            assert wait["seconds_left"] is None and wait["seconds_at_most"] == LIMITED.get(name), (name, wait)
        if name in target.truth["files"]:
            files = [[f["fd"], f["kind"], f["local"], f["peer"], [p["pid"] for p in f["other_end"]]] for f in wait["files"]]
            assert files == target.truth["files"][name], (name, files)
    assert [p["pid"] for p in found["parents"]["processes"]] == [target.truth["parent"]]
    lock = found["waits_for_file_lock"]
    assert lock["files"][0]["name"].endswith(target.truth["path"])  # in a chroot, after its root
    assert [p["pid"] for p in lock["processes"]] == [target.truth["locker"]]


def test_text(spawn):
    target = spawn(DEBIAN, "kernel_waits.py")
    child = at_rest(target.truth["files"]["reads_child"][0][4][0])
    out = run("dump", "--pid", at_rest(target.pid), "--waits").check().out
    lines = {t["name"]: t["wait"] for p in parse_text(out) for t in p["threads"]}
    assert re.match(r"sleeps \(clock_nanosleep\), for another 27 h \d+ min$", lines["sleeps"]), lines
    assert re.match(r"waits for I/O \(read\): fd \d+ pipe, other end in process %d \(.*\), which waits in read for this process$" % child,
                    lines["reads_child"]), lines
    assert re.match(r"waits for I/O \(recvfrom\): fd \d+ TCP 127.0.0.1:\d+ -> 127.0.0.1:\d+ ESTABLISHED, other end in this process$",
                    lines["receives"]), lines
    assert re.match(r"waits for a lock \(flock\): fd \d+ .*lock \\x1b\[31m, held by process %d \(" % target.truth["locker"],
                    lines["waits_for_file_lock"]), lines
