"""gunicorn, as people run it: a master and its workers, each with the stack of the request that it handles."""
import json
import os
import signal
import socket
import subprocess

import pytest
from processes import descendants, is_python
from program import TARGETS, clean_env, run, wait_until
from pythons import DEBIAN
from stacks import parse_json, rows, same
from native_build import CACHE, Locked, call

VERSION = "23.0.0"


@pytest.fixture(scope="session")
def gunicorn():
    """The gunicorn program, in an environment outside of the tree. The first call needs PyPI."""
    place = CACHE / ("gunicorn-" + VERSION)
    with Locked(CACHE / "gunicorn.lock"):
        if not (place / "done").exists():
            call([DEBIAN.command[0], "-m", "venv", "--clear", place])
            call([place / "bin" / "pip", "install", "--quiet", "gunicorn==" + VERSION])
            (place / "done").touch()
    return place / "bin" / "gunicorn"


@pytest.fixture
def served(gunicorn, tmp_path):
    """serve(flags) -> (PID of the master, what each worker reported)."""
    started = []

    def serve(workers, *flags):
        address = tmp_path / "socket"
        report = tmp_path / "report"
        process = subprocess.Popen([gunicorn, "--workers", str(workers), "--bind", "unix:%s" % address, "--chdir", TARGETS, *flags,
                                    "--timeout", "0", "wsgi_app:application"], env=clean_env(REPORT_FILE=str(report)), start_new_session=True,
                                   stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        started.append(process)
        wait_until(lambda: len(descendants(process.pid)) >= workers and address.exists(), "the workers")
        connections = []
        while len(answers(report)) < workers:  # each request blocks one worker, so the next one goes to another
            connection = socket.socket(socket.AF_UNIX)
            connection.connect(str(address))
            connection.sendall(b"GET / HTTP/1.0\r\n\r\n")
            connections.append(connection)
            wait_until(lambda: len(answers(report)) == len(connections), "a worker at its request")
        started.append(connections)
        return process.pid, answers(report)

    yield serve
    for one in started:
        if isinstance(one, list):
            for connection in one:
                connection.close()
        else:
            os.killpg(one.pid, signal.SIGKILL)
            one.wait()


def answers(path):
    """One line for each worker; the last one may be half-written."""
    lines = path.read_text().splitlines(keepends=True) if path.exists() else []
    return [json.loads(line) for line in lines if line.endswith("\n")]


@pytest.mark.parametrize("flags", [[], ["--preload"], ["--worker-class", "gthread", "--threads", "2", "--workers", "1"]], ids=" ".join)
def test_workers(served, flags):
    master, report = served(1 if "gthread" in flags else 3, *flags)
    result = run("dump", "--subprocesses", "--json", "--pid", master).check()
    threads = parse_json(result.out)
    assert {t["pid"] for t in threads} == {master} | {p for p in descendants(master) if is_python(p)}
    for worker in report:
        assert worker["parent"] == master
        mine = [t for t in threads if t["pid"] == worker["pid"]]
        resting = [t for t in mine if t["frames"] and t["frames"][0]["name"] == "handler_rests"]
        assert len(resting) == 1, result
        same(rows(resting[0]["frames"]), rows(worker["frames"]), "worker %d" % worker["pid"])
        assert resting[0]["process_info"]["parent"]["pid"] == master
