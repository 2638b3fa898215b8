"""Clients of the HTTP API with the surface of a Ledger, synchronous and for asyncio."""
