"""A driver: actors and a task with known functions. Prints a line of JSON about them when all are working."""
import ctypes
import json
import os
import statistics
import subprocess
import sys
import threading
import time

import ray

CHILD = "def child_spins():\n    while True:\n        sum(range(300))\nprint(1, flush=True)\nchild_spins()\n"


@ray.remote(num_cpus=0)
class Busy:
    def begin(self):
        child = subprocess.Popen([sys.executable, "-c", CHILD], stdout=subprocess.PIPE)
        child.stdout.readline()
        return os.getpid()

    def spin(self):
        while True:
            sum(range(300))


@ray.remote(num_cpus=0)
class Resting:
    def begin(self):
        return os.getpid()

    def rests(self):
        """A function with the worst possible names: they are no valid text in any encoding."""
        names = {"time": time}
        code = compile("def odd():\n    time.sleep(10000)\n", "\udcff\ud800\x1b[1m\n</svg>&.py", "exec")
        exec(code, names)
        name = "odd_\udc80\U0001f525\0name"
        qualified = {"co_qualname": name} if sys.version_info >= (3, 11) else {}
        names["odd"].__code__ = names["odd"].__code__.replace(co_name=name, **qualified)
        names["odd"]()


def a_function_with_a_name_that_is_long_enough_to_make_an_answer_large_when_it_calls_itself_many_times(depth, ready):
    if depth:
        return a_function_with_a_name_that_is_long_enough_to_make_an_answer_large_when_it_calls_itself_many_times(
            depth - 1, ready)
    ready.release()
    time.sleep(10000)


@ray.remote(num_cpus=0)
class Deep:
    """Many deep and different stacks: any list of them exceeds the size limit of Ray's responses."""

    def begin(self):
        ready = threading.Semaphore(0)
        threading.stack_size(16 << 20)
        for i in range(100):
            deep = a_function_with_a_name_that_is_long_enough_to_make_an_answer_large_when_it_calls_itself_many_times
            code = deep.__code__.replace(co_name="deep_%d_%s" % (i, deep.__name__), co_firstlineno=1000 * (i + 1))
            copy = type(deep)(code, dict(deep.__globals__), "deep")
            copy.__globals__[deep.__name__] = copy
            threading.Thread(target=copy, args=(600, ready), daemon=True).start()
        for _ in range(100):
            ready.acquire()
        return os.getpid()


@ray.remote(num_cpus=0)
class Closed:
    """Its own user may not read it, as under Yama: root owns the /proc files of a process that is not dumpable."""

    def begin(self):
        ctypes.CDLL(None).prctl(4, 0, 0, 0, 0)  # PR_SET_DUMPABLE
        return os.getpid()

    def closed_spins(self):
        while True:
            sum(range(300))


@ray.remote(num_cpus=0)
class Dead:
    def begin(self):
        return os.getpid()


def simulate(rows):
    return [sum(value * value for value in row) for row in rows]


def summarize(results):
    return json.dumps({"sorted": sorted(results), "mean": statistics.fmean(results)})


def prepare():
    return [list(range(i, i + 40)) for i in range(60)]


@ray.remote(num_cpus=0)
def long_running_task():
    while True:
        summarize(simulate(prepare()))


def main():
    ray.init(address=sys.argv[1], log_to_driver=False)
    wanted = sys.argv[2].split(",")
    actors = {name: {"Busy": Busy, "Resting": Resting, "Deep": Deep, "Dead": Dead, "Closed": Closed}[name].remote() for name in wanted}
    facts = {"pids": {name: ray.get(actor.begin.remote()) for name, actor in actors.items()}}
    pending = []
    if "Busy" in actors:
        pending += [actors["Busy"].spin.remote(), long_running_task.remote()]
        facts["task"] = pending[1].task_id().hex()
    if "Resting" in actors:
        pending.append(actors["Resting"].rests.remote())
    if "Closed" in actors:
        pending.append(actors["Closed"].closed_spins.remote())
    if "Dead" in actors:
        ray.kill(actors["Dead"])
        while os.path.exists("/proc/%d" % facts["pids"]["Dead"]):
            time.sleep(0.01)
    facts["node"] = ray.get_runtime_context().get_node_id()
    facts["ip"] = ray.util.get_node_ip_address()
    facts["raylet"] = int(open("/proc/%d/stat" % next(iter(facts["pids"].values()))).read().rpartition(")")[2].split()[1])
    print(json.dumps(facts), flush=True)
    sys.stdin.read()


main()
