"""Commands that inspect runs: runs, log, state, messages, tools, usage, compare."""
