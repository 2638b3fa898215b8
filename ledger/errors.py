"""The errors of the ledger, under one root, and the text of any error.

A message says what is wrong, what was found and what to do; what a program may need of it is in
attributes. The tree:

    TurnledgerError
    ├── InvalidInputError (ValueError)
    │   ├── InvalidUrlError
    │   ├── InvalidRunIdError
    │   ├── InvalidClaimKeyError
    │   ├── InvalidEventError
    │   ├── LimitExceededError
    │   └── RedactedStateError
    ├── EventDecodeError (ValueError)
    │   └── UnknownEventTypeError
    ├── InvalidTokenError
    │   ├── TokenExpiredError
    │   └── TokenRevokedError
    ├── TokenNotFoundError (LookupError)
    ├── RunNotFoundError (LookupError)
    ├── RecordNotFoundError (LookupError)
    ├── BlobNotFoundError (LookupError)
    ├── AppendRefusedError
    │   ├── ConcurrentAppendError
    │   ├── StaleEpochError
    │   ├── RunClaimedError
    │   ├── EventIdConflictError
    │   ├── StreamKindError
    │   └── ForkPointError
    ├── IntegrityFailureError
    │   ├── LostRecordsError
    │   ├── ImportConflictError
    │   └── NotAnExportError
    ├── StoreUnavailableError
    │   └── StoreBusyError
    ├── NotALedgerError
    ├── LedgerClosedError
    └── MissingDependencyError (RuntimeError)
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


# Some errors hold whole pages; an event, a log line and a model get at most this much.
_MAX_ERROR_TEXT = 20_000
_NO_MESSAGE = "(it can't say why)"


def error_message(error: BaseException) -> str:
    """Return `str(error)` as text that can always be stored, whatever the error is.

    Never raises: an error whose `__str__` raises has a fixed text. Text that is not Unicode is
    replaced, and long text is cut.
    """
    return _storable(_message_of(error))


def error_text(error: BaseException) -> str:
    """Return an error's type and message, `ValueError: no such file`, with the same promises."""
    name, message = type(error).__name__, _message_of(error)
    if message == _NO_MESSAGE:
        return _storable(f"{name} {message}")
    return _storable(f"{name}: {message}" if message else name)


def _message_of(error: BaseException) -> str:
    try:
        return str(error)
    except Exception:
        return _NO_MESSAGE


def _storable(text: str) -> str:
    return text[:_MAX_ERROR_TEXT].encode(errors="replace").decode()


_MOST_SHOWN = 200
_ID_SHOWN = 15


def short_repr(value: object) -> str:
    """A value's `repr` for a message, cut where it is long.

    Never raises: a value that has no `repr` is named by its type. An integer of more digits than
    Python writes has none, nor has deep nesting.
    """
    try:
        return _storable(repr(value[:_MOST_SHOWN] if type(value) is str else value)[:_MOST_SHOWN])
    except Exception:
        return f"<{type(value).__name__}>"


class TurnledgerError(Exception):
    """The root of every error of this project."""


class InvalidInputError(TurnledgerError, ValueError):
    """An argument is invalid; nothing was written."""


class InvalidUrlError(InvalidInputError):
    """A ledger's URL does not name a known store."""


class InvalidRunIdError(InvalidInputError):
    """A run id is not a UUID."""


class InvalidClaimKeyError(InvalidInputError):
    """A claim key is too short, too long or not text; the message never has the key."""

    def __init__(self, why: str) -> None:
        super().__init__(
            f"Invalid claim key: {why}. Make one that can't be guessed: secrets.token_hex(32)."
        )


class InvalidEventError(InvalidInputError):
    """An event does not fit its type, or must not be appended in this way."""


class LimitExceededError(InvalidInputError):
    """An event, a batch or a value is larger or deeper than the ledger's limits allow."""

    def __init__(self, what: str, *, limit: int, found: int, setting: str) -> None:
        self.limit = limit
        self.found = found
        self.setting = setting
        super().__init__(
            f"{what}: {found} exceeds the limit of {limit}. "
            f"Make it smaller, or open the ledger with Limits({setting}=...)."
        )


class RedactedStateError(InvalidInputError):
    """The redactor would replace a part of a state that is read back; nothing was written.

    `paths` are the places of these parts, `CustomEvent.data.user.token`.
    """

    def __init__(self, paths: Sequence[str], *, marker: str, refused_because: str = "") -> None:
        """Say which parts they are.

        Args:
            paths: The places of the parts.
            marker: What would stand in place of the first one.
            refused_because: Why `on_redacted="warn"` does not help; empty if it does.
        """
        self.paths = tuple(paths)
        more = f" (and {len(self.paths) - 1} more places)" if len(self.paths) > 1 else ""
        warn = (
            f' on_redacted="warn" does not apply: {refused_because}.'
            if refused_because
            else ' Redactor(on_redacted="warn") records it redacted, and logs a warning.'
        )
        super().__init__(
            f"{self.paths[0]}{more}: the redactor would record this as {marker!r}, and it is read "
            "back as state, which would silently be another one. Keep the secret out of the "
            "state, or open the ledger with a redactor that leaves it: "
            f"Ledger.open(url, redactor=Redactor(formats=[...])), or redactor=None.{warn}"
        )


class EventDecodeError(TurnledgerError, ValueError):
    """Bytes are not a valid event of their type."""

    def __init__(self, message: str, *, tag: str = "") -> None:
        self.tag = tag
        self.run_id = ""
        self.version = 0
        super().__init__(message)

    def located(self, run_id: str, version: int) -> Self:
        """The same error, with the record's run and version in its message."""
        if not self.run_id:
            self.run_id, self.version = run_id, version
            self.args = (f"Run {run_id}, version {version}: {self.args[0]}",)
        return self


class UnknownEventTypeError(EventDecodeError):
    """An unknown tag: the program is too old (`program_too_old`), or the data is damaged."""

    def __init__(self, tag: str, *, known: int, written: int | None) -> None:
        self.program_too_old = written is not None and written > known
        if self.program_too_old:
            why = (
                f"The ledger was written with event catalogue {written}, this program knows "
                f"catalogue {known}: the program is too old. Upgrade turnledger to read it."
            )
        else:
            why = (
                f"This program knows catalogue {known}, at least as new as the one that wrote "
                "here, so the program is not too old: the data is damaged, or the tag is "
                "misspelled or not one of ours (events of your own go into a CustomEvent)."
            )
        super().__init__(f"Unknown event type {tag!r}. {why}", tag=tag)


class InvalidTokenError(TurnledgerError):
    """An access token is not one of this ledger's.

    The message is the same whether its id is unknown or its secret is wrong, and has neither.
    """

    def __init__(self, message: str = "") -> None:
        super().__init__(
            message
            or "Invalid access token. `turnledger token new --role ROLE` makes one for a ledger."
        )


class TokenExpiredError(InvalidTokenError):
    """An access token's time is up."""

    def __init__(self, token_id: str, *, expired: str) -> None:
        self.token_id, self.expired = token_id, expired
        super().__init__(f"Access token {token_id} expired at {expired}. Ask for a new one.")


class TokenRevokedError(InvalidTokenError):
    """An access token was revoked."""

    def __init__(self, token_id: str, *, revoked: str) -> None:
        self.token_id, self.revoked = token_id, revoked
        super().__init__(f"Access token {token_id} was revoked at {revoked}. Ask for a new one.")


class TokenNotFoundError(TurnledgerError, LookupError):
    """There is no access token with this id."""

    def __init__(self, token_id: str) -> None:
        # Cut: the text of a token may have been given in the place of its id.
        self.token_id = token_id[:_ID_SHOWN]
        super().__init__(
            f"There is no access token {short_repr(self.token_id)} in this ledger. "
            "`turnledger token list` lists them."
        )


class RunNotFoundError(TurnledgerError, LookupError):
    """The run is not in the ledger."""

    def __init__(self, run_id: str, looked_for: str = "") -> None:
        self.run_id = run_id
        how = f": looked for {looked_for}" if looked_for else ""
        super().__init__(
            f"There is no run {run_id} in this ledger{how}. `turnledger runs` lists them."
        )


class RecordNotFoundError(TurnledgerError, LookupError):
    """The run has no event with that version."""

    def __init__(self, run_id: str, version: int, head: int) -> None:
        self.run_id, self.version, self.head = run_id, version, head
        super().__init__(f"Run {run_id} has no event {version}: its versions go from 1 to {head}.")


class BlobNotFoundError(TurnledgerError, LookupError):
    """An event names a blob that is neither stored nor given with the event."""

    def __init__(self, name: str) -> None:
        self.name = name
        super().__init__(
            f"There is no blob {name}. Hand its bytes to the same append: "
            "append(run_id, events, blobs=[content])."
        )


class AppendRefusedError(TurnledgerError):
    """The ledger refused the events; nothing was written."""


class ConcurrentAppendError(AppendRefusedError):
    """The run is not at the version that the caller expected."""

    def __init__(self, run_id: str, *, expected: int, found: int) -> None:
        self.run_id, self.expected, self.found = run_id, expected, found
        wanted = "to be new" if expected == 0 else f"at version {expected}"
        is_at = "it does not exist" if found == 0 else f"it is at version {found}"
        super().__init__(
            f"Run {run_id} was expected {wanted}, but {is_at}. "
            "Read what was appended since, decide again, and append again."
        )


class StaleEpochError(AppendRefusedError):
    """Another worker has claimed the run since, so this one must stop writing."""

    def __init__(self, run_id: str, *, epoch: int, found: int, released: bool = False) -> None:
        self.run_id, self.epoch, self.found = run_id, epoch, found
        if released:
            super().__init__(
                f"The claim of run {run_id} with epoch {epoch} was given back: there is nothing "
                "to prolong. Claim the run again."
            )
            return
        super().__init__(
            f"Run {run_id} is at epoch {found}; an append with epoch {epoch} is refused. "
            "Another worker owns the run: stop working on it."
        )


class RunClaimedError(AppendRefusedError):
    """A live worker holds the run's lease."""

    def __init__(self, run_id: str, *, worker: str, epoch: int) -> None:
        self.run_id, self.worker, self.epoch = run_id, worker, epoch
        super().__init__(
            f"Run {run_id} is claimed by worker {worker!r} (epoch {epoch}), which is alive. "
            "Others may append only custom events and decisions about calls in doubt until it "
            "releases the run, or its lease is up."
        )


class EventIdConflictError(AppendRefusedError):
    """Another event has this event id: ids are unique in a ledger."""

    def __init__(self, event_id: str, *, run_id: str, version: int, why: str) -> None:
        self.event_id, self.run_id, self.version = event_id, run_id, version
        super().__init__(
            f"Event id {event_id} is already recorded (run {run_id}, version {version}) and {why}. "
            "Retry with exactly the events of the first try, or give new events new ids."
        )


class StreamKindError(AppendRefusedError):
    """A prompt stream was used as a run, or a run as a prompt stream."""

    def __init__(self, run_id: str, *, kind: str, why: str) -> None:
        self.run_id, self.kind = run_id, kind
        is_a = "the stream of a prompt's overrides" if kind == "prompt" else "a run"
        super().__init__(f"{run_id} is {is_a}: {why}. Nothing was written.")


class ForkPointError(AppendRefusedError):
    """A run can't be forked or continued at this version; `nearest` are versions where it can."""

    def __init__(self, message: str, *, nearest: tuple[int, ...] = ()) -> None:
        self.nearest = nearest
        super().__init__(message)


class IntegrityFailureError(TurnledgerError):
    """A ledger or a file is damaged: it does not match its digests."""


class LostRecordsError(IntegrityFailureError):
    """Rows of the run index were not rebuilt: they name records that are missing, or unreadable.

    `runs` are those runs. All other rows were rebuilt.
    """

    def __init__(self, lost: Sequence[Any], unreadable: Mapping[str, str]) -> None:
        self.runs = (*(loss.run_id for loss in lost), *unreadable)
        message = f"The rows of {len(self.runs)} runs were left as they are, the others rebuilt."
        if lost:
            named = "; ".join(map(str, lost))
            message += (
                f" Records are lost: {named}. Go on from a backup or an export. To give the "
                "records up and park the run: `turnledger rebuild-index --accept-loss RUN`."
            )
        if unreadable:
            message += f" Records can't be read: {'; '.join(unreadable.values())}"
        super().__init__(message)


class ImportConflictError(IntegrityFailureError):
    """The ledger has the same run, or event id, with other events."""


class NotAnExportError(IntegrityFailureError):
    """A file to be imported does not begin with the header of an export."""

    def __init__(self) -> None:
        super().__init__(
            'line 1: not an export of a ledger: expected a header, {"turnledger":1,...}.'
        )


# What reading one damaged run may raise: the types that name it, and what a value of the wrong
# type in a column leads to. Listings catch these for each run, skip it and name it.
DAMAGE = (
    IntegrityFailureError,
    EventDecodeError,
    RunNotFoundError,
    RecordNotFoundError,
    BlobNotFoundError,
    TypeError,
    ValueError,
    AttributeError,
    OverflowError,
)


class StoreUnavailableError(TurnledgerError):
    """The store failed; if it failed during a commit, the outcome is unknown.

    `drafts` are the events with their ids: appending exactly these again is safe, whether or not
    they were recorded.
    """

    def __init__(self, message: str, *, drafts: Sequence[Any] = ()) -> None:
        self.drafts = tuple(drafts)
        super().__init__(message)


class StoreBusyError(StoreUnavailableError):
    """Other writers held the store for longer than `wait`; nothing was written."""


class NotALedgerError(TurnledgerError):
    """The file or database is not a ledger, or has a format that this program does not know."""


class LedgerClosedError(TurnledgerError):
    """The ledger was closed, or was opened by the parent process before a fork."""


class MissingDependencyError(TurnledgerError, RuntimeError):
    """An optional package is not installed."""

    def __init__(self, what: str, extra: str) -> None:
        self.extra = extra
        super().__init__(f"{what} needs a package: pip install 'turnledger[{extra}]'")
