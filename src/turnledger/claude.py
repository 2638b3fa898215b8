"""Claude Agent SDK over a ledger (extra `claude`)."""

from turnledger.adapters.frameworks.claude.session_store import TurnledgerSessionStore
from turnledger.adapters.frameworks.sessions import RedactedSessionError, SessionMismatchError

__all__ = ["RedactedSessionError", "SessionMismatchError", "TurnledgerSessionStore"]
