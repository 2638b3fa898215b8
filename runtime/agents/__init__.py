"""Agents: a model, instructions, tools and an output type, run by one call."""
