"""Runs: codec, records, index rows, lineage, and the decision whether an append is taken."""
