"""A driver of a cluster of two nodes, with the resources `one` and `two`: on each an actor, a named actor and a task
with known functions. Prints a line of JSON about them when all are working. Then it runs each line of its input as
Python code in the connected driver, and prints what the code leaves in `answer`."""
import json
import os
import sys
import time

import ray


def spin_until(path):
    """Computes a third of the time: there are more of these than CPUs."""
    while not os.path.exists(path):
        end = time.monotonic() + 0.005
        while time.monotonic() < end:
            sum(range(300))
        time.sleep(0.01)


@ray.remote(num_cpus=0)
class Alpha:
    def pid(self):
        return os.getpid()

    def alpha_spins(self, path):
        spin_until(path)


@ray.remote(num_cpus=0)
class Beta:
    def pid(self):
        return os.getpid()

    def beta_spins(self, path):
        spin_until(path)


@ray.remote(num_cpus=0)
def gamma_task(path, ready):
    def gamma_spins():
        spin_until(path)

    with open(ready, "w") as file:
        file.write(str(os.getpid()))
    os.rename(ready, ready + ".is")
    gamma_spins()


@ray.remote(num_cpus=0)
def short_task(seconds):
    def short_spins():
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            sum(range(300))
        return os.getpid()

    return short_spins()


@ray.remote(num_cpus=0)
def where():
    return ray.get_runtime_context().get_node_id()


def connect(address):
    """Ray gives up if the nodes have not registered yet, which takes long on a busy machine. The test ends this program if it
    takes too long."""
    while True:
        try:
            return ray.init(address=address, log_to_driver=False, logging_level="error")
        except ConnectionError as error:
            print("connecting again: %s" % error, file=sys.stderr, flush=True)
            ray.shutdown()
            time.sleep(1)


def main():
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # Ray writes there as well
    address, directory = sys.argv[1:3]
    connect(address)
    end = os.path.join(directory, "end")
    facts, pending, keep = {}, [], []
    for name in ("one", "two"):
        on = {"resources": {name: 1}}
        here = {"node": ray.get(where.options(**on).remote())}
        for kind, actor in (("Alpha", Alpha.options(**on).remote()),
                            ("Beta", Beta.options(name="beta-" + name, **on).remote())):
            here[kind] = ray.get(actor.pid.remote())
            pending.append((actor.alpha_spins if kind == "Alpha" else actor.beta_spins).remote(end))
            keep.append(actor)
        ready = os.path.join(directory, "gamma-" + name)
        pending.append(gamma_task.options(**on).remote(end, ready))
        while not os.path.exists(ready + ".is"):
            time.sleep(0.01)
        with open(ready + ".is") as file:
            here["gamma"] = int(file.read())
        facts[name] = here
    print(json.dumps(facts), file=answers, flush=True)
    names = dict(globals())
    for line in sys.stdin:
        exec(json.loads(line), names)
        print(json.dumps(names["answer"]), file=answers, flush=True)


main()
