"""The meaning: pure folds of a run's events into what is known about it."""
