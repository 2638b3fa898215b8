"""The journal: folds and commits what a loop and its session record."""
