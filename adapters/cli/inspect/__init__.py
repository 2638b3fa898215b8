"""Commands that inspect runs: runs, log, show, tail, state, messages, tools, usage, compare."""
