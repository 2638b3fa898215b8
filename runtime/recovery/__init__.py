"""Recovery: find interrupted runs, claim one, and go on with it."""
