"""Commands that exchange runs: export and import, transcripts, tests of runs."""
