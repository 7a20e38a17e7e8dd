"""Checks the stacks of tests/targets/chains.py."""
import re
import subprocess

from program import UNATTRIBUTED

KINDS = ["plain", "method", "nested", "generator", "coroutine", "exec", "callback", "mixed"]
NOT_SURE = "[unverified]"


def is_possible(names):
    """True for a possible stack: from the root down one chain without a gap. `make` is where exec works."""
    if names[-1] == NOT_SURE:
        names = names[:-1]
    if names[0] != "<module>":
        return False
    if names[:3] != ["<module>", "main", "turn"][:len(names)]:
        return not any(re.match(r"c\d+_f\d", name) for name in names)  # it is starting: no chain has been called yet
    chain = re.match(r"(c\d+)_f0$", names[3]) if len(names) > 3 else None
    return len(names) <= 3 or bool(chain) and names[3:] == ["%s_f%d" % (chain.group(1), k) for k in range(len(names) - 3)]


def read(text):
    """The stacks of a raw profile: (function names, samples)."""
    for line in text.splitlines():
        stack, _, n = line.rpartition(" ")
        if stack == UNATTRIBUTED:
            continue
        yield [part.partition(" (")[0].rpartition(".")[2] for part in stack.split(";")], int(n)


def impossible(text):
    return [(names, n) for names, n in read(text) if not is_possible(names)]


def jumps(text):
    """The stacks in the output of steps that follow a stack from which they are not one call or one return away."""
    stacks = list(read(text))
    found = []
    for (before, _), (after, n) in zip(stacks, stacks[1:]):
        short, long = sorted((before, after), key=len)
        if long[:-1] != short:
            found.append((after, n))
    return found


def run_steps(program, pid, count):
    """Runs `steps` (tests/steps/steps.c): its output, and the number of steps without a stack."""
    got = subprocess.run([str(program), str(pid), str(count)], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                         universal_newlines=True)
    totals = re.match(r"(\d+) steps, (\d+) rejected\n$", got.stderr)
    assert got.returncode == 0 and totals and int(totals.group(1)) == count, got.stderr
    return got.stdout, int(totals.group(2))
