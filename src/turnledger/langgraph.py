"""LangGraph and LangChain over a ledger: `pip install 'turnledger[langgraph]'`."""

from turnledger.adapters.frameworks.langgraph import (
    CheckpointNotRecordableError,
    TurnledgerMiddleware,
    TurnledgerSaver,
)

__all__ = ["CheckpointNotRecordableError", "TurnledgerMiddleware", "TurnledgerSaver"]
