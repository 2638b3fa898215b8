"""Live event streams (server-sent events): one follower of the ledger, many clients."""
