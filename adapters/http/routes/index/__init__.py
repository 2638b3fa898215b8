"""The operations on the index of runs: the list, its filter and its facets."""
