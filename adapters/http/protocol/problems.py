"""Problems: every error of the HTTP API as an RFC 9457 document with a stable type.

The table `ERRORS` maps the ledger's errors to problems, with the attributes that become members;
the Python client rebuilds the same error from them. `KINDS` lists all problem types, for the
OpenAPI document and for the page docs/reference/problems.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from http import HTTPStatus
from typing import Any, NamedTuple

import msgspec
from starlette.responses import Response

from turnledger.ledger import (
    AppendRefusedError,
    BlobNotFoundError,
    ConcurrentAppendError,
    EventDecodeError,
    EventIdConflictError,
    ForkPointError,
    ImportConflictError,
    IntegrityFailureError,
    InvalidClaimKeyError,
    InvalidEventError,
    InvalidInputError,
    InvalidRunIdError,
    LedgerClosedError,
    LimitExceededError,
    NotAnExportError,
    RecordNotFoundError,
    RedactedStateError,
    RunClaimedError,
    RunNotFoundError,
    StaleEpochError,
    StoreBusyError,
    StoreUnavailableError,
    StreamKindError,
    TurnledgerError,
)
from turnledger.ledger.errors import error_message
from turnledger.ledger.redaction.safe_logging import logger_of

log = logger_of("turnledger.http")
MEDIA_TYPE = "application/problem+json"
PREFIX = "urn:turnledger:problem:"


class Kind(NamedTuple):
    """A type of problem: its name, its status, its title and what to do about it."""

    name: str
    status: int
    title: str
    advice: str

    @property
    def type(self) -> str:
        """The problem's type, which never changes."""
        return PREFIX + self.name


KINDS: dict[str, Kind] = {}


def _kind(name: str, status: int, title: str, advice: str) -> Kind:
    return KINDS.setdefault(name, Kind(name, status, title, advice))


# --- requests that can't be read ---

NOT_JSON = _kind("not-json", 400, "The body is not JSON", "Send JSON text in UTF-8.")
BAD_REQUEST = _kind("bad-request", 400, "The request is malformed", "See the detail.")
INVALID = _kind(
    "invalid-request",
    422,
    "The request does not fit the API's schema",
    "Each of `errors` has a JSON Pointer into the body, or the name of a parameter.",
)
TOO_LARGE = _kind(
    "too-large", 413, "The request is too large", "Send fewer or smaller events in one request."
)
TOO_SLOW = _kind("too-slow", 408, "The request came too slowly", "Send it again without pauses.")
HEAD_TOO_LARGE = _kind(
    "head-too-large", 431, "The head of the request is too large", "Send fewer or shorter headers."
)
SERVER_FULL = _kind(
    "server-full",
    503,
    "The server is at its limit of connections or request bodies",
    "Wait for the seconds in Retry-After, then send the same request again.",
)
WRONG_TYPE = _kind(
    "unsupported-media-type",
    415,
    "The body's media type is not supported",
    "The OpenAPI document has the media types of each operation.",
)
NOT_ACCEPTABLE = _kind(
    "not-acceptable", 406, "No media type in Accept is available", "Accept application/json."
)
TOO_MANY = _kind(
    "too-many-requests", 429, "Too many at once", "Wait for the seconds in Retry-After."
)
CONDITION_REQUIRED = _kind(
    "condition-required",
    428,
    "The request has no expected version",
    'Send If-Match: "N" with the version that you know, If-None-Match: * for a new run, or '
    "?expect=any.",
)

# --- access ---

HOST_REFUSED = _kind(
    "host-refused",
    421,
    "The Host header is not allowed",
    "Start the server with --allow-host HOST.",
)
ORIGIN_REFUSED = _kind(
    "origin-refused",
    403,
    "The request comes from another site",
    "Start the server with --allow-origin ORIGIN.",
)
UNAUTHORIZED = _kind(
    "unauthorized",
    401,
    "No valid token",
    "Send Authorization: Bearer TOKEN. `turnledger token new` makes a token.",
)
FORBIDDEN = _kind(
    "forbidden", 403, "The token's role does not allow this", "Use a token with a higher role."
)

# --- errors of the ledger ---

NOT_FOUND = _kind("not-found", 404, "Not found", "Check the URL.")
METHOD_NOT_ALLOWED = _kind(
    "method-not-allowed", 405, "The URL does not support this method", "See the Allow header."
)
RUN_NOT_FOUND = _kind("run-not-found", 404, "No such run", "GET /v1/runs lists runs.")
EVENT_NOT_FOUND = _kind(
    "event-not-found", 404, "No such event", "`head` is the run's last version."
)
BLOB_NOT_FOUND = _kind(
    "blob-not-found", 404, "No such blob", "Send it as an item of type blob in the same append."
)
VERSION_CONFLICT = _kind(
    "version-conflict",
    412,
    "The run is not at the expected version",
    "Read what was appended since (`found` is the version now), decide again, and append again.",
)
STALE_EPOCH = _kind(
    "stale-epoch", 409, "Another worker has the run", "Stop working on it, or claim it again."
)
RUN_CLAIMED = _kind(
    "run-claimed", 409, "A live worker has the run", "Wait until it releases the run."
)
ID_CONFLICT = _kind(
    "event-id-conflict",
    409,
    "Another event has this id",
    "Send exactly the events of the first try again, or give new events new ids.",
)
STREAM_KIND = _kind(
    "stream-kind",
    409,
    "A prompt stream was used as a run, or a run as a prompt stream",
    "See the detail.",
)
FORK_POINT = _kind(
    "fork-point", 409, "The run can't be forked there", "`nearest` has versions where it can."
)
REFUSED = _kind("event-refused", 409, "A rule of the ledger refuses the event", "See the detail.")
IMPORT_CONFLICT = _kind(
    "import-conflict", 409, "The ledger has other events under these ids", "See the detail."
)
NOT_AN_EXPORT = _kind(
    "not-an-export", 409, "The body is not an export of a ledger", "See `turnledger export`."
)
EXPORT_DAMAGED = _kind(
    "export-damaged", 409, "The export is damaged", "Export it again; nothing was written."
)
CALL_NOT_FOUND = _kind(
    "call-not-found", 404, "The run has no such open call", "GET …/tools lists its calls."
)
CALL_CHANGED = _kind(
    "call-changed", 412, "The call changed since it was shown", "Look at it again, then decide."
)
DAMAGED = _kind(
    "damaged", 500, "The ledger is damaged", "Run `turnledger verify` beside the server."
)
BUSY = _kind(
    "store-busy", 503, "Other writers held the store for too long", "Send the same request again."
)
UNAVAILABLE = _kind(
    "store-unavailable",
    503,
    "The store is unavailable",
    "Send exactly the same again: what was recorded is recognized by its event ids.",
)
INTERNAL = _kind(
    "internal-error",
    500,
    "Internal server error",
    "The detail has an id: look for it in the server's log.",
)


class _Rule(NamedTuple):
    kind: Kind
    members: tuple[str, ...] = ()


# The first class that an error is an instance of decides, so the most exact ones come first.
ERRORS: dict[type[TurnledgerError], _Rule] = {
    ConcurrentAppendError: _Rule(VERSION_CONFLICT, ("run_id", "expected", "found")),
    StaleEpochError: _Rule(STALE_EPOCH, ("run_id", "epoch", "found")),
    RunClaimedError: _Rule(RUN_CLAIMED, ("run_id", "worker", "epoch")),
    EventIdConflictError: _Rule(ID_CONFLICT, ("event_id", "run_id", "version")),
    StreamKindError: _Rule(STREAM_KIND, ("run_id", "kind")),
    ForkPointError: _Rule(FORK_POINT, ("nearest",)),
    AppendRefusedError: _Rule(REFUSED),
    RunNotFoundError: _Rule(RUN_NOT_FOUND, ("run_id",)),
    RecordNotFoundError: _Rule(EVENT_NOT_FOUND, ("run_id", "version", "head")),
    BlobNotFoundError: _Rule(BLOB_NOT_FOUND, ("name",)),
    LimitExceededError: _Rule(TOO_LARGE, ("limit", "found", "setting")),
    RedactedStateError: _Rule(REFUSED, ("paths",)),
    InvalidEventError: _Rule(REFUSED),
    InvalidRunIdError: _Rule(INVALID),
    InvalidClaimKeyError: _Rule(INVALID),
    InvalidInputError: _Rule(INVALID),
    ImportConflictError: _Rule(IMPORT_CONFLICT),
    NotAnExportError: _Rule(NOT_AN_EXPORT),
    IntegrityFailureError: _Rule(DAMAGED),
    EventDecodeError: _Rule(DAMAGED, ("tag", "run_id", "version")),
    StoreBusyError: _Rule(BUSY),
    StoreUnavailableError: _Rule(UNAVAILABLE),
    LedgerClosedError: _Rule(UNAVAILABLE),
}


class ProblemError(Exception):
    """Error that is answered as a problem.

    Args:
        kind: Its type.
        detail: What is wrong with this request.
        headers: Headers of the answer.
        members: Further members of the document.
    """

    def __init__(
        self,
        kind: Kind,
        detail: str,
        /,  # a member may be called kind
        *,
        headers: Mapping[str, str] | None = None,
        **members: Any,
    ) -> None:
        self.kind = kind
        self.detail = detail
        self.headers = dict(headers or {})
        self.members = members
        super().__init__(detail)

    def document(self) -> dict[str, Any]:
        """The problem as JSON."""
        return {
            "type": self.kind.type,
            "title": self.kind.title,
            "status": self.kind.status,
            "detail": self.detail,
            **self.members,
        }

    def response(self) -> Response:
        """The answer."""
        return Response(
            msgspec.json.encode(self.document()),
            self.kind.status,
            {"cache-control": "no-store", **self.headers},
            MEDIA_TYPE,
        )


def problem_of(error: TurnledgerError) -> ProblemError:
    """The problem for an error of the ledger."""
    for kind, rule in ERRORS.items():
        if isinstance(error, kind):
            members = {name: getattr(error, name) for name in rule.members}
            retry = (
                {"retry-after": "1"} if rule.kind.status == HTTPStatus.SERVICE_UNAVAILABLE else {}
            )
            return ProblemError(
                rule.kind, error_message(error), headers=retry, error=kind.__name__, **members
            )
    return ProblemError(INTERNAL, error_message(error))


def ledger_answer(error: TurnledgerError, method: str, path: str) -> Response:
    """The answer to a request that the ledger refuses; the log has what is the server's fault."""
    problem = problem_of(error)
    if problem.kind.status >= HTTPStatus.INTERNAL_SERVER_ERROR:
        log.warning("%s %s: %s", method, path, problem.detail)
    return problem.response()
