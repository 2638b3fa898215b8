"""Comparison of two runs: normalise, align, and report what differs."""
