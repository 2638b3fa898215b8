"""Browser sessions: a one-time code that the server prints is exchanged for a cookie.

The code is in the fragment of a link, which browsers do not send to servers, and is valid for one
minute and one exchange. Sessions are in memory: they end with the process. Only hashes of codes and
secrets are kept, so that a memory dump has none of them.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from hashlib import sha256
from typing import Final

from turnledger.adapters.http.protocol.access import Caller, Role

CODE_SECONDS: Final = 60
SESSION_SECONDS: Final = 12 * 3600
MOST: Final = 1000


class Sessions:
    """Codes that were not exchanged yet, and sessions.

    Args:
        now: Seconds of a clock that never goes back.
    """

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._codes: dict[bytes, tuple[float, Role]] = {}
        self._sessions: dict[bytes, tuple[float, Caller]] = {}

    def new_code(self, role: Role) -> str:
        """A code that becomes a session with this role, once, within a minute."""
        code = secrets.token_urlsafe(32)
        self._forget()
        self._codes[_hash(code)] = (self._now() + CODE_SECONDS, role)
        return code

    def exchange(self, code: str) -> tuple[str, Role] | None:
        """The secret and the role of a new session; None if the code is invalid or expired."""
        self._forget()
        known = self._codes.pop(_hash(code), None)
        if known is None:
            return None
        secret, (_, role) = secrets.token_urlsafe(32), known
        caller = Caller(f"session-{secrets.token_hex(4)}", role)
        self._sessions[_hash(secret)] = (self._now() + SESSION_SECONDS, caller)
        return secret, role

    async def caller(self, secret: str) -> Caller | None:
        """The caller of the session with this secret; None if the session has ended."""
        until, caller = self._sessions.get(_hash(secret), (0.0, None))
        return caller if self._now() < until else None

    def end(self, caller_id: str) -> None:
        """End a session."""
        ended = [key for key, (_, caller) in self._sessions.items() if caller.id == caller_id]
        for key in ended:
            del self._sessions[key]

    def _forget(self) -> None:
        """Drop what has expired, and the oldest sessions beyond the most."""
        now = self._now()
        self._codes = {key: one for key, one in self._codes.items() if one[0] > now}
        left = [(key, one) for key, one in self._sessions.items() if one[0] > now]
        self._sessions = dict(left[-MOST:])


def _hash(secret: str) -> bytes:
    return sha256(secret.encode(errors="replace")).digest()
