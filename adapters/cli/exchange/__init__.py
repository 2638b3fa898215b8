"""Commands that exchange runs: export, import, transcripts, bug tests."""
