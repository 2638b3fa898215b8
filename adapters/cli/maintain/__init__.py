"""Commands that maintain a ledger: verify, seal, backup, rebuild, doctor."""
