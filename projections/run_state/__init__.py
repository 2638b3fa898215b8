"""The state of a run at a version, its stored folds, and blame."""
