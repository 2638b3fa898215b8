"""LangGraph and LangChain over a ledger: a checkpointer, and a middleware of durable steps."""

from turnledger.adapters.frameworks.packages import framework

with framework("langgraph", extra="langgraph", integration="turnledger.langgraph"):
    import langgraph.checkpoint.base  # noqa: F401
with framework("langchain", extra="langgraph", integration="turnledger.langgraph"):
    import langchain.agents.middleware  # noqa: F401

from turnledger.adapters.frameworks.langgraph.errors import CheckpointNotRecordableError
from turnledger.adapters.frameworks.langgraph.middleware import TurnledgerMiddleware
from turnledger.adapters.frameworks.langgraph.saver import TurnledgerSaver

__all__ = ["CheckpointNotRecordableError", "TurnledgerMiddleware", "TurnledgerSaver"]
