"""Claude Agent SDK over a ledger (extra `claude`)."""

from turnledger.adapters.frameworks.claude.session_store import TurnledgerSessionStore
from turnledger.adapters.frameworks.sessions import SessionMismatchError

__all__ = ["SessionMismatchError", "TurnledgerSessionStore"]
