"""The record of a run's steps: folded, asked, and written."""
