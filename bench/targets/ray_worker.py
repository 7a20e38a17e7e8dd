"""ray_worker.py STATE TEMP: starts Ray with one worker, which waits in a method. Slot 1 has its PID. SIGTERM ends both."""
import os
import signal
import sys
import time

import ray

import shared


@ray.remote
class Worker:
    def pid(self):
        return os.getpid()

    def wait(self):
        time.sleep(900)  # not through `shared`: Ray sends the class to a process that cannot import it


signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
ray.init(num_cpus=1, include_dashboard=False, log_to_driver=False, _temp_dir=sys.argv[2])
worker = Worker.remote()
shared.page[1] = ray.get(worker.pid.remote())
worker.wait.remote()
shared.ready()
time.sleep(shared.LIFETIME)
