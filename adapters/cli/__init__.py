"""The command line, `turnledger`: data on stdout, everything else on stderr."""

from turnledger.adapters.cli.commands import main, turnledger

__all__ = ["main", "turnledger"]
