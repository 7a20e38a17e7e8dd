"""The bench's parts: env (what there is), procs (running it), tools (the profilers), stacks (what they say),
one file per section, goals (what must hold), report and plot (what is written)."""
