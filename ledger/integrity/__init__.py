"""Integrity: verifies runs against their hash chains, and seals a ledger with a signature."""
