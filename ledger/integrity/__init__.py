"""Integrity: verify runs against their hash chain, and seal a ledger with a signature."""
