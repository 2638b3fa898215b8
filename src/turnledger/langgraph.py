"""LangGraph and LangChain over a ledger: `pip install 'turnledger[langgraph]'`."""

from turnledger.adapters.frameworks.langgraph import CheckpointNotRecordableError, TurnledgerSaver

__all__ = ["CheckpointNotRecordableError", "TurnledgerSaver"]
