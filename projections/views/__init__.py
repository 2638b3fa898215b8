"""Views of one run: conversation, tool calls, checkpoints, usage, summary, timeline."""
