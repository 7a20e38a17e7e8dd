"""A program with files on a file system that stops answering: its package and library, and a library that it only maps.

    remote_files.py DIR            in the mounted directory DIR: package/work.py, libremote.so, libmapped.so
    remote_files.py DIR rests      blocks in the library, with both threads
    remote_files.py DIR family     the first as a child, beside two children without such files
Prints the PID of the process with such files, once its functions are on the stack. Each line on standard input makes it call another function of the package; the end of input ends it.
"""
import ctypes
import json
import mmap
import os
import subprocess
import sys
import threading


def local_work():
    report(os.getpid())
    while True:
        sum(range(300))


def start_child(*args):
    process = subprocess.Popen([sys.executable, __file__] + list(args), stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    process.stdout.readline()
    return process


def report(pid):
    print(json.dumps({"pid": pid}))
    sys.stdout.flush()


if __name__ == "__main__":
    if sys.argv[1] == "local":
        local_work()
    elif sys.argv[2:] == ["family"]:
        kept = [start_child("local"), start_child(sys.argv[1]), start_child("local")]
        report(kept[1].pid)
        sys.stdin.readline()
        for process in kept:
            process.kill()
    else:
        sys.path.insert(0, sys.argv[1])
        from package import work

        library = ctypes.CDLL(os.path.join(sys.argv[1], "libremote.so"))
        with open(os.path.join(sys.argv[1], "libmapped.so"), "rb") as file:
            mapped = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)
        blocked = threading.Thread(target=work.remote_block, args=(library, os.pipe()[0]))
        blocked.daemon = True
        blocked.start()
        if sys.argv[2:]:
            report(os.getpid())
            work.remote_block(library, os.pipe()[0])
        work.remote_work(lambda: report(os.getpid()))
        work.remote_rest()
        os._exit(0)  # without unloading the library
