"""Problems of the server as errors: the same classes, with the same attributes, as beside a store.

`problems.ERRORS` is the table of both directions.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from turnledger.adapters.http.protocol import problems
from turnledger.ledger import (
    InvalidEventError,
    InvalidInputError,
    InvalidTokenError,
    LedgerClosedError,
    StoreUnavailableError,
    TurnledgerError,
)

_BY_NAME: Final = {kind.__name__: (kind, rule) for kind, rule in problems.ERRORS.items()}
# Problems that are found before the ledger is asked.
_BY_TYPE: Final[dict[str, type[TurnledgerError]]] = {
    problems.INVALID.type: InvalidInputError,
    problems.REFUSED.type: InvalidEventError,
}
_ABOUT_TOKENS: Final = (
    "`turnledger token new --role writer`, beside the server, prints one: give it in "
    "TURNLEDGER_TOKEN, --token-file FILE or LedgerClient(url, token=...)."
)


class ServerRefusedError(TurnledgerError):
    """The server refused a request before the ledger saw it: role, host, origin or limits.

    `status` is that of HTTP, `kind` the problem's type: "urn:turnledger:problem:forbidden".
    """

    def __init__(self, message: str, *, status: int, kind: str = "") -> None:
        self.status, self.kind = status, kind
        super().__init__(message)


class NotServedError(TurnledgerError):
    """The operation needs the ledger's own store; this ledger is a client of a server."""

    def __init__(self, what: str, url: str) -> None:
        super().__init__(
            f"{what} needs the ledger's own store, and {url} is a server. Do it beside the "
            "server, with the path or the URL of the store."
        )


def error_of(status: int, body: bytes) -> TurnledgerError:
    """The error for an answer with this status and body."""
    try:
        problem: dict[str, Any] = msgspec.json.decode(body, type=dict[str, Any])
    except (msgspec.DecodeError, ValueError):
        problem = {}
    detail, kind = str(problem.get("detail", "")), str(problem.get("type", ""))
    found = _BY_NAME.get(str(problem.get("error", "")))
    if found is not None:
        return _rebuilt(*found, detail, problem)
    if kind == problems.UNAUTHORIZED.type:
        return InvalidTokenError(f"{detail} {_ABOUT_TOKENS}")
    if kind in _BY_TYPE:
        return _BY_TYPE[kind](detail)
    advice = next((one.advice for one in problems.KINDS.values() if one.type == kind), "")
    said = f"The server answers {status}: {detail or 'not a Turnledger server, or a proxy'}"
    return ServerRefusedError(f"{said.rstrip('.')}. {advice}".rstrip(), status=status, kind=kind)


def _rebuilt(
    kind: type[TurnledgerError], rule: Any, detail: str, problem: dict[str, Any]
) -> TurnledgerError:
    if kind is LedgerClosedError:  # the server's, which is ending: this client is open
        return StoreUnavailableError(detail)
    # Its constructor would make another message.
    error = kind.__new__(kind)
    error.args = (detail,)
    for name in rule.members:
        value = problem.get(name)
        setattr(error, name, tuple(value) if isinstance(value, list) else value)
    if isinstance(error, StoreUnavailableError):
        error.drafts = ()
    return error
