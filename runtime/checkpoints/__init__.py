"""Checkpoints: execution state, snapshots of files, and where they are kept."""
