"""pydantic-ai over a ledger (extra `pydantic-ai`)."""

from turnledger.adapters.frameworks.pydantic_ai import TurnledgerDurability

__all__ = ["TurnledgerDurability"]
