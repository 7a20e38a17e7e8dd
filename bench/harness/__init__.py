"""The parts of the benchmark: env (paths and tools), procs (processes), tools (the profilers), stacks (parsing their
output), one file per section, goals (what must hold), report and plot (the results)."""
