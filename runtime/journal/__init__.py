"""The journal: encodes, folds and commits the events of a loop and its session."""
