"""Persistent containers: immutable lists and maps that share what did not change."""
