"""Answers that come in pieces: whole in the end, or not at all."""

from __future__ import annotations

from turnledger.ledger import TurnledgerError


class InterruptedStreamError(TurnledgerError):
    """A stream ended before the answer did. Nothing of it counts; the call may be made again."""

    retryable = True
