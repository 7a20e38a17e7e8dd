"""A program and the framework that it uses: `python own_and_library.py [busy]`. Three threads, each with one stack that never
changes; with `busy`, each works instead of waiting.

    MainThread    <module> -> main -> webframe.serve -> handle_order -> webframe.hold
    worker-1      work
    beat          webframe.beat -> webframe.hold, without a function of the program
"""
import os
import sys
import threading

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "site-packages"))

import truth
import webframe


def handle_order():
    webframe.hold()


def work():
    while webframe.BUSY: pass
    os.read(os.pipe()[0], 1)


def main():
    webframe.serve(handle_order)


webframe.BUSY = "busy" in sys.argv
for name, function in (("worker-1", work), ("beat", webframe.beat)):
    thread = threading.Thread(target=function, name=name)
    thread.daemon = True
    thread.start()
truth.say(pid=os.getpid())
main()
