"""Section dump: wall time and peak memory of one dump, the tools in turn."""
from . import env as environment
from . import procs
from .common import median, show, table

NAME = "dump"
TITLE = "Dump: one dump of a process"
NOTES = ["The targets sleep. Wall time and peak resident memory of the whole run of the tool, medians; `pystack "
         "remote` stops the target, as do the two without `--nonblocking`."]
TARGETS = {"small": ("deep", "5", "asleep"), "20 threads": ("pace", "20", "asleep"),
           "1,000 deep": ("deep", "1000", "asleep")}


def commands(pid):
    spy, stack = environment.VENV / "bin/py-spy", environment.VENV / "bin/pystack"
    all_of = {"spyglass": [environment.SPYGLASS, "dump", "--pid", pid],
              "spyglass-nb": [environment.SPYGLASS, "dump", "--nonblocking", "--pid", pid],
              "py-spy": [spy, "dump", "--pid", pid], "py-spy-nb": [spy, "dump", "--nonblocking", "--pid", pid],
              "pystack": [stack, "remote", pid]}
    return {key: command for key, command in all_of.items() if command[0].exists()}


def measure_dump(ctx, target, key, command):
    run = procs.Measured(ctx.env, command).end(30)
    if run.status:
        ctx.say(f"dump: {key} failed: {run.text.strip().splitlines()[-1:]}")
        return None
    return {"ms": run.wall * 1e3, "kb": run.peak, "cpu_ms": run.cpu * 1e3}


def run(ctx):
    python = ctx.env.python("3.11")
    data = {}
    with ctx.targets({name: (python, *what) for name, what in TARGETS.items()}) as targets:
        for name, target in targets.items():
            ctx.say(f"dump: {name}")
            seen = {}
            for _ in range(ctx.pick(20, 5)):
                for key, command in commands(target.pid).items():
                    seen.setdefault(key, []).append(measure_dump(ctx, target, key, command))
            for key, looks in seen.items():
                looks = [x for x in looks if x]
                data.setdefault(key, {})[name] = {f: median([x[f] for x in looks]) for f in ("ms", "kb", "cpu_ms")}
    rows = [[key, *(show(by[name]["ms"]) for name in TARGETS), *(show(by[name]["kb"] and by[name]["kb"] / 1024)
             for name in TARGETS)] for key, by in data.items()]
    head = ["", *(f"{name}: ms" for name in TARGETS), *(f"{name}: MB" for name in TARGETS)]
    return {"data": {"tools": data, "binary": environment.SPYGLASS.stat().st_size}, "tables": [table("", head, rows)]}
