"""Commands that maintain a ledger: verify, rebuild-index, rebase, seal, backup, rebuild, doctor."""
