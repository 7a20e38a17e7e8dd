"""Section group: one dump --group of a parent and all of its children."""
from . import env as environment
from . import procs
from .common import median, show, table

NAME = "group"
TITLE = "Group: one dump of many processes"
NOTES = ["`dump --group --subprocesses` of a parent and its sleeping children, which are forked from it, or programs of their own: wall "
         "time, CPU time and peak resident memory of the whole run, medians. No other tool groups stacks; `py-spy dump --subprocesses` "
         "prints them all."]
FAMILIES = {"1,000 forked": ("1000", "forked"), "200 programs": ("200", "started")}


def commands(pid):
    spy = environment.VENV / "bin/py-spy"
    all_of = {"spyglass": [environment.SPYGLASS, "dump", "--group", "--subprocesses", "--pid", pid],
              "py-spy": [spy, "dump", "--subprocesses", "--pid", pid]}
    return {key: command for key, command in all_of.items() if command[0].exists()}


def measure(ctx, key, command, n):
    run = procs.Measured(ctx.env, command).end(120)
    complete = f"{n + 1} processes\n" in run.text if key == "spyglass" else run.text.count("\nPython v") == n + 1
    if run.status or not complete:
        ctx.say(f"group: {key} failed: {run.text.strip().splitlines()[-1:]}")
        return None
    return {"s": run.wall, "cpu_s": run.cpu, "mb": run.peak / 1024}


def run(ctx):
    python = ctx.env.python("3.11")
    data = {}
    for name, args in FAMILIES.items():
        with ctx.targets({"it": (python, "family", *args)}) as targets:
            ctx.say(f"group: {name}")
            for _ in range(ctx.pick(5, 1)):
                for key, command in commands(targets["it"].pid).items():
                    data.setdefault(key, {}).setdefault(name, []).append(measure(ctx, key, command, int(args[0])))
    for by in data.values():
        for name, looks in by.items():
            looks = [x for x in looks if x]
            by[name] = {f: median([x[f] for x in looks]) if looks else None for f in ("s", "cpu_s", "mb")}
    rows = [[key, *(show(by[name][f], "{:.2f}") for name in FAMILIES for f in ("s", "cpu_s", "mb"))] for key, by in data.items()]
    head = ["", *(f"{name}: {unit}" for name in FAMILIES for unit in ("s", "CPU s", "MB"))]
    return {"data": {"tools": data}, "tables": [table("", head, rows)]}
