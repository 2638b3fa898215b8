"""Errors of the LangGraph integration."""

from __future__ import annotations

from turnledger.ledger import TurnledgerError


class CheckpointNotRecordableError(TurnledgerError, ValueError):
    """A checkpoint can't be recorded so that it is restored as it was; nothing was written."""
