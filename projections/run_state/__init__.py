"""The state of a run at a version, the difference between two versions, and blame."""
