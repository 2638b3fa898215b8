"""Agents: a model, instructions, tools and an output type, and the ways to run them."""
