"""pydantic-ai over a ledger: a durability capability whose operations are durable steps."""

from turnledger.adapters.frameworks.packages import framework

with framework("pydantic_ai", extra="pydantic-ai", integration="turnledger.pydantic_ai"):
    from turnledger.adapters.frameworks.pydantic_ai.durability import TurnledgerDurability

__all__ = ["TurnledgerDurability"]
