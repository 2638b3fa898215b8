"""Recovery: list interrupted runs, claim one, and resume it from its events or a checkpoint."""
