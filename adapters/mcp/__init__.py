"""A read-only MCP server over a ledger, for coding agents."""
