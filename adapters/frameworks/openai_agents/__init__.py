"""OpenAI Agents SDK over a ledger: sessions, hooks, and durable agents."""
