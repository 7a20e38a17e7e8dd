"""A minimal shell with job control: `python job_shell.py COMMAND...` on its own terminal.

Starts the command as the foreground job, reports on descriptor 3 (JSON lines) how it stops and exits, and continues
it after each stop when the file $GO_ON appears.
"""
import json
import os
import signal
import sys
import time


def tell(**row):
    os.write(3, (json.dumps(row) + "\n").encode())


if __name__ == "__main__":
    for number in (signal.SIGTTOU, signal.SIGTTIN, signal.SIGTSTP, signal.SIGINT, signal.SIGQUIT):
        signal.signal(number, signal.SIG_IGN)
    job = os.fork()
    if job == 0:
        os.setpgid(0, 0)
        os.tcsetpgrp(0, os.getpid())
        for number in (signal.SIGTTOU, signal.SIGTTIN, signal.SIGTSTP, signal.SIGINT, signal.SIGQUIT):
            signal.signal(number, signal.SIG_DFL)
        os.execvp(sys.argv[1], sys.argv[1:])
    try:
        os.setpgid(job, job)
    except OSError:
        pass
    tell(job=job)
    while True:
        pid, status = os.waitpid(job, os.WUNTRACED)
        if not os.WIFSTOPPED(status):
            break
        os.tcsetpgrp(0, os.getpgrp())
        tell(stopped=os.WSTOPSIG(status))
        while not os.path.exists(os.environ["GO_ON"]):
            time.sleep(0.01)
        os.unlink(os.environ["GO_ON"])
        os.tcsetpgrp(0, job)
        os.killpg(job, signal.SIGCONT)
    tell(ended=os.WEXITSTATUS(status) if os.WIFEXITED(status) else -os.WTERMSIG(status))
