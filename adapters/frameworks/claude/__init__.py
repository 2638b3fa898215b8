"""Claude Agent SDK over a ledger: a store of its sessions."""
