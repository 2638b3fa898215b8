"""The connection to a server: requests that are tried again.

Every request may be sent twice: events have their ids before the first try, claims their key. So
what gets no answer, or 503, is tried again until the time is up. Only a server that was never
reached is not waited for.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from threading import Condition
from threading import Event as Flag
from typing import Any, Final
from urllib.parse import urlencode, urlsplit

from turnledger.adapters.http.client.errors import error_of
from turnledger.adapters.http.client.sockets import (
    Answer,
    NoAnswerError,
    NotReachedError,
    open_transport,
)
from turnledger.ledger import (
    InvalidTokenError,
    InvalidUrlError,
    LedgerClosedError,
    StoreUnavailableError,
)
from turnledger.ledger.errors import error_text

# Seconds between tries, at first and at most.
SHORTEST_PAUSE: Final = 0.05
LONGEST_PAUSE: Final = 2.0
# Answers of a server, or of a proxy before it, that is not there for the moment.
_AGAIN: Final = frozenset({429, 502, 503, 504})
_CLOSED: Final = "This ledger was closed. Open it again."


class Connection:
    """Sends requests to a server, from any number of threads.

    Args:
        url: The server, `https://host:port`.
        token: Its access token; "" for none.
        wait: Seconds to try a request again that gets no answer.
        timeout: Seconds to wait for one answer.
    """

    def __init__(self, url: str, token: str, *, wait: float, timeout: float) -> None:
        self.url = _checked(url)
        self._wait, self._timeout = wait, timeout
        self._closed = Flag()
        self._has_answered = False
        # Requests under way; `close` waits for their answers.
        self._idle = Condition()
        self._under_way = 0
        self._headers = {"user-agent": "turnledger"}
        if token:
            self._headers["authorization"] = f"Bearer {_token(token)}"
        self._transport = open_transport(self.url)

    def close(self) -> None:
        """Close all sockets, once the requests under way have their answers."""
        self._closed.set()
        with self._idle:
            self._idle.wait_for(lambda: not self._under_way, self._timeout)
        self._transport.close()

    def request(
        self,
        method: str,
        path: str,
        *,
        params: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
        content: bytes | None = None,
        timeout: float | None = None,
    ) -> Answer:
        """The answer to a request, with a status below 300: redirects are not followed.

        Args:
            method: The method.
            path: The path, with a slash.
            params: Parameters of the address; those that are None are left out.
            headers: Headers beside those of every request.
            content: The body.
            timeout: Seconds to wait for the answer, if not as long as for others.

        Raises:
            StoreUnavailableError: There was no answer in time. What became of it is unknown.
            TurnledgerError: The error that the server answers.
        """
        given = {name: value for name, value in (params or {}).items() if value is not None}
        target = f"{path}?{urlencode(given, doseq=True)}" if given else path
        sent = {**self._headers, **(headers or {})}
        until, pause = time.monotonic() + self._wait, SHORTEST_PAUSE
        while True:
            retry_after = 0.0
            try:
                answer = self._send(method, target, sent, content, timeout or self._timeout)
            except NoAnswerError as failed:
                said = (
                    f"No answer from {self.url}: {error_text(failed)}. Check that the server runs"
                )
                again = "." if method == "GET" else "; append exactly the same again."
                error: Exception = StoreUnavailableError(said + again)
                if isinstance(failed, NotReachedError) and not self._has_answered:
                    raise error from failed  # the address is wrong, or the server is not up yet
            else:
                self._has_answered = True
                if answer.status < 300:
                    return answer
                error = error_of(answer.status, answer.content)
                if answer.status not in _AGAIN:
                    raise error
                retry_after = _seconds(answer.retry_after)
            pause = max(pause, retry_after)
            if time.monotonic() + pause > until or self._closed.wait(pause):
                raise error
            pause = min(pause * 2, LONGEST_PAUSE)

    def _send(self, *request: Any) -> Answer:
        with self._idle:
            if self._closed.is_set():
                raise LedgerClosedError(_CLOSED)
            self._under_way += 1
        try:
            return self._transport.send(*request)
        finally:
            with self._idle:
                self._under_way -= 1
                self._idle.notify_all()


def _seconds(text: str) -> float:
    return float(text) if text.isdecimal() else 0.0


def _token(text: str) -> str:
    """A token as it was printed, without white space around it; no error shows it."""
    token = text.strip()
    if not token.isascii() or not token.isprintable() or " " in token:
        raise InvalidTokenError(
            "Invalid access token: expected the one line that `turnledger token new` printed."
        )
    return token


def _checked(url: str) -> str:
    """The URL of a server, without a slash at its end."""
    parts = urlsplit(url)
    try:
        fine = parts.scheme in ("http", "https") and bool(parts.hostname)
        parts.port  # noqa: B018 - raises for one that is not a number
    except ValueError:
        fine = False
    if parts.username is not None or parts.password is not None:
        raise InvalidUrlError(
            "The address of a server has no user and no password: the token goes into "
            "TURNLEDGER_TOKEN, or LedgerClient(url, token=...)."
        )
    if not fine or parts.query or parts.fragment:
        raise InvalidUrlError(f"Invalid address of a server {url!r}: expected https://host:port.")
    return url.rstrip("/")
