"""A LocalCluster of two processes, profiled into cluster.svg in the given directory; prints what it ran and the
result."""
import json
import os
import sys
import time

from distributed import Client, LocalCluster

from spyglass.dask import profile_cluster


def spin(name):
    """A function of that name."""
    scope = {"__name__": "__main__", "time": time}
    exec("def %s():\n    end = time.thread_time() + 0.3\n    while time.thread_time() < end:\n        sum(range(300))\n" % name, scope)
    return scope[name]


def main():
    with LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster, Client(cluster) as client:
        wanted = {address: "known_%d" % i for i, address in enumerate(client.scheduler_info(n_workers=-1)["workers"])}
        with profile_cluster(os.path.join(sys.argv[1], "cluster.svg")) as profiler:
            client.gather([client.submit(spin(name), workers=[address]) for address, name in wanted.items()])
    roots = {}
    for frames, _ in profiler.profile.stacks:
        roots.setdefault(frames[0], set()).update(frame.partition(" (")[0] for frame in frames[1:])
    print(json.dumps({"wanted": wanted, "problems": profiler.problems,
                      "roots": {**{part.name: [] for part in profiler.parts}, **{k: sorted(v) for k, v in roots.items()}}}))


if __name__ == "__main__":
    main()
