"""Google ADK over a ledger: a session service, and a plugin that makes steps."""
