"""Agents: a model, instructions and tools behind one class, and the ways to run it."""
