"""Command `doctor`: checks of a ledger's file or server, with advice."""
