"""Shared by all commands: options, output, progress bars, exit codes, files, user code."""
