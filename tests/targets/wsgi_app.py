"""A WSGI application for gunicorn: each request writes its stack to a file and blocks in a known place."""
import json
import os
import sys

import truth


def handler_rests(path):
    ends = os.pipe()
    tell(path, sys._getframe()); os.read(ends[0], 1)  # on one line, because it reports its own line number


def tell(path, frame):
    rows = [dict(name=r[0], filename=r[1], line=r[2]) for r in truth.stack_of(frame)]
    line = json.dumps(dict(pid=os.getpid(), parent=os.getppid(), frames=rows)) + "\n"
    fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    os.write(fd, line.encode("ascii"))
    os.close(fd)


def application(environ, start_response):
    handler_rests(os.environ["REPORT_FILE"])
    start_response("200 OK", [])
    return [b"done"]
