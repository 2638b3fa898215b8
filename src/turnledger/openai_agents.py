"""OpenAI Agents SDK over a ledger (extra `openai-agents`)."""

from turnledger.adapters.frameworks.openai_agents.durable import durable
from turnledger.adapters.frameworks.openai_agents.hooks import TurnledgerHooks
from turnledger.adapters.frameworks.openai_agents.session import TurnledgerSession
from turnledger.adapters.frameworks.sessions import SessionMismatchError

__all__ = [
    "SessionMismatchError",
    "TurnledgerHooks",
    "TurnledgerSession",
    "durable",
]
