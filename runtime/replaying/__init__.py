"""Replay: run an agent's own code on its record and report the first divergence."""
