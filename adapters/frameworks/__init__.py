"""Agent frameworks over a ledger: one folder each, imported only when it is used."""
