"""pydantic-ai over a ledger: a durability capability whose operations are durable steps."""

from turnledger.ledger import MissingDependencyError

try:
    from turnledger.adapters.frameworks.pydantic_ai.durability import TurnledgerDurability
except ModuleNotFoundError as error:
    if not (error.name or "").startswith("pydantic_ai"):
        raise
    raise MissingDependencyError("turnledger.pydantic_ai", "pydantic-ai") from error

__all__ = ["TurnledgerDurability"]
