"""Google ADK over a ledger (extra `adk`)."""

from turnledger.adapters.frameworks.adk.plugin import TurnledgerPlugin
from turnledger.adapters.frameworks.adk.session_service import TurnledgerSessionService
from turnledger.adapters.frameworks.sessions import SessionMismatchError

__all__ = [
    "SessionMismatchError",
    "TurnledgerPlugin",
    "TurnledgerSessionService",
]
