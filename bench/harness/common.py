"""Shared by the sections: the context of a run, medians over rounds, and the formatting of figures."""
import contextlib
import statistics

from . import env as environment
from . import procs, tools


class Context:
    def __init__(self, env, quick):
        self.env, self.quick = env, quick
        self.tools = tools.make(env)

    def say(self, text):
        environment.say(f"bench: {text}")

    def pick(self, full, quick):
        return quick if self.quick else full

    @contextlib.contextmanager
    def targets(self, wanted):
        """Starts {name: (python, program, argument...)} and returns {name: Target}, without those whose Python is missing."""
        with contextlib.ExitStack() as stack:
            yield {name: stack.enter_context(procs.Target(self.env, *what))
                   for name, what in wanted.items() if what[0]}

    def usable(self, python):
        return [t for t in self.tools.values() if python and t.usable(python)]


def median(values):
    values = [v for v in values if v is not None]
    return statistics.median(values) if values else None


def spread(values):
    """The standard error of the median, from the median absolute deviation."""
    values = [v for v in values if v is not None]
    if len(values) < 2:
        return None
    middle = statistics.median(values)
    return 1.2533 * 1.4826 * statistics.median(abs(v - middle) for v in values) / len(values) ** 0.5


def show(value, form="{:.1f}", none="–"):
    return none if value is None else form.format(value)


def thousands(value):
    """193482 -> 193 k, 4121 -> 4.1 k."""
    if value is None:
        return "–"
    return f"{value / 1000:.0f} k" if value >= 10000 else f"{value / 1000:.1f} k" if value >= 1000 else f"{value:.0f}"


def table(title, head, rows):
    return {"title": title, "head": head, "rows": rows}
