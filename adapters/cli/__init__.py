"""The command line, `turnledger`: data on stdout, everything else on stderr."""

from turnledger.adapters.cli.main import main, turnledger

__all__ = ["main", "turnledger"]
