"""Command line `turnledger`: data on stdout, messages on stderr."""

from turnledger.adapters.cli.commands import main, turnledger

__all__ = ["main", "turnledger"]
