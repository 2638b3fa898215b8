"""LangGraph and LangChain over a ledger: a checkpointer, and a middleware of durable steps."""

from __future__ import annotations

from turnledger.ledger.errors import MissingDependencyError

try:
    from turnledger.adapters.frameworks.langgraph.errors import CheckpointNotRecordableError
    from turnledger.adapters.frameworks.langgraph.saver import TurnledgerSaver
except ModuleNotFoundError as error:
    if (error.name or "").partition(".")[0] not in (
        "langchain",
        "langchain_core",
        "langgraph",
        "ormsgpack",
    ):
        raise
    raise MissingDependencyError(
        f"turnledger.langgraph needs the package {error.name!r}, which is not installed. Run "
        "`pip install 'turnledger[langgraph]'`."
    ) from error

__all__ = ["CheckpointNotRecordableError", "TurnledgerSaver"]
