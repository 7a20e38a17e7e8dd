"""A service of FastAPI under load, in which a handler holds the lock that the others wait for: `dump` alone tells why."""
import os
import re
import socket
import subprocess

import pytest
from program import TARGETS, run, wait_until
from pypi import installed
from pythons import DEBIAN

PACKAGES = "fastapi==0.115.12", "uvicorn==0.34.0", "uvloop==0.21.0"


class Service:
    """uvicorn with fastapi_app.py, and requests that it does not answer."""

    def __init__(self, loop, silent_port):
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port = free.getsockname()[1]
        env = {**os.environ, "PYTHONPATH": installed(DEBIAN, "fastapi", *PACKAGES), "SILENT_PORT": str(silent_port)}
        self.process = subprocess.Popen([*DEBIAN.command, "-m", "uvicorn", "--app-dir", TARGETS, "fastapi_app:app", "--port",
                                         str(self.port), "--loop", loop, "--log-level", "error"], env=env)
        self.clients, self.text = [], ""

    def send(self, path):
        def connected():
            try:
                self.clients.append(socket.create_connection(("127.0.0.1", self.port)))
            except ConnectionRefusedError:
                return False
            return True

        wait_until(connected, "the service listens")
        self.clients[-1].sendall(b"GET %s HTTP/1.1\r\nHost: x\r\n\r\n" % path)

    def dump_until(self, part):
        def shows():
            self.text = run("dump", "--pid", self.process.pid).check().out
            return part in self.text

        wait_until(shows, part)

    def close(self):
        self.process.kill()
        self.process.wait()
        for client in self.clients:
            client.close()


@pytest.mark.statistical
@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
def test_lock(loop):
    with socket.create_server(("127.0.0.1", 0)) as silent:  # accepts connections, and never answers
        silent_port = silent.getsockname()[1]
        service = Service(loop, silent_port)
        try:
            service.send(b"/refresh")
            service.dump_until("refresh (fastapi_app.py")
            for _ in range(30):
                service.send(b"/price")
            service.dump_until("30 tasks like this (waiting for Lock.acquire")
        finally:
            service.close()
    text = service.text
    holder = re.search(r'30 tasks like this \(waiting for Lock.acquire, all at 0x\w+, likely held by ("Task-\d+")\)', text)
    assert holder, text
    stack = text[text.index("Task %s (waiting for a socket" % holder.group(1)):].split("\nTask")[0]
    assert "    refresh (fastapi_app.py:" in stack and (loop == "uvloop" or "-> 127.0.0.1:%d)" % silent_port in stack), stack
