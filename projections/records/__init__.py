"""Read off a run's records without folding them: the shape of a run, and search."""
