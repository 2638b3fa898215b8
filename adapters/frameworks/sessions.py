"""Sessions of agent frameworks as runs: what the stores of several frameworks share.

A framework's entries are custom events that keep its JSON as it is. Beside an entry stand the
messages in it, for the views; they are derived, and the framework never reads them back.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, TypeAlias, TypeVar
from uuid import UUID, uuid5

from turnledger.adapters.providers.registry import wire_of
from turnledger.adapters.transcripts import Transcript, TranscriptError, reader_of
from turnledger.ledger import (
    ANY,
    NEW,
    AsyncLedger,
    ConcurrentAppendError,
    CustomEvent,
    Draft,
    Event,
    EventIdConflictError,
    InnerMessage,
    InvalidInputError,
    Ledger,
    LedgerClosedError,
    MessageAppended,
    RunAbandoned,
    RunStarted,
    TokenUsage,
    ToolCallCompleted,
    ToolCallFailed,
    ToolCallStarted,
    TurnledgerError,
    run_id_for,
)
from turnledger.ledger.clock import to_datetime
from turnledger.ledger.runs.append import Entry, append
from turnledger.ledger.runs.append_request import Expected, build_request
from turnledger.ledger.runs.names import NAME_TAG
from turnledger.ledger.runs.transaction import Transaction

T = TypeVar("T")
AnyLedger: TypeAlias = Ledger | AsyncLedger | str | os.PathLike[str]
# How often another writer of the same session may interfere before it is an error.
_TRIES = 10


class SessionMismatchError(InvalidInputError):
    """A run of this name exists, and is not a session of this framework."""

    def __init__(self, run_id: UUID, name: str, *, expected: str, found: str) -> None:
        super().__init__(
            f"Run {run_id}, named {name!r}, is not a session: it was begun as "
            f"{found or 'a run without a request'!r}, expected {expected!r}. Give the session "
            "another id, or the run another name."
        )


class SessionLedger:
    """The ledger of a store of sessions: one that is open, or one that it opens by its URL."""

    def __init__(self, ledger: AnyLedger) -> None:
        self._is_own = not isinstance(ledger, Ledger | AsyncLedger)
        if isinstance(ledger, AsyncLedger):
            self._async = ledger
        else:
            opened = ledger if isinstance(ledger, Ledger) else Ledger.open(ledger)
            self._async = AsyncLedger(opened)
        self._is_closed = False

    @property
    def ledger(self) -> Ledger:
        return self._async.ledger

    def close(self) -> None:
        """Close the ledger, if it was opened here; no call succeeds after that."""
        self._is_closed = True
        if self._is_own:
            self.ledger.close()

    def check_open(self) -> None:
        """LedgerClosedError if the ledger, or this, was closed."""
        if self._is_closed or self.ledger.is_closed:
            raise LedgerClosedError("This session was closed. Make it again.")

    async def call(self, work: Callable[[Ledger], T]) -> T:
        """Do something with the ledger, off the event loop.

        One that has begun ends before a cancellation is raised, so that it is never half done.
        """
        self.check_open()
        return await self._async.call(lambda: work(self.ledger))


class AsItIs:
    """Codec of steps whose values are JSON."""

    def encode(self, value: Any) -> Any:
        return value

    def decode(self, data: Any) -> Any:
        return data


def session_run(ledger: Ledger, name: str, kind: str) -> tuple[UUID, int]:
    """The run that holds the session of a name, and its version: 0 if it is not begun.

    A deleted session's run is abandoned for good, and the next session of its name has another.

    Args:
        ledger: The ledger.
        name: The session's name.
        kind: The kind of session: the `request_type` of its runs.

    Raises:
        SessionMismatchError: A run of that name is not a session of this kind.
    """
    run_id = run_id_for(name)
    while head := ledger.head(run_id):
        info = ledger.run(run_id)
        if info.status != "abandoned":
            started = ledger.record(run_id, info.parent_version + 1).event
            found = started.request_type if isinstance(started, RunStarted) else ""
            if found != kind:
                raise SessionMismatchError(run_id, name, expected=kind, found=found)
            return run_id, head
        run_id = uuid5(run_id, "deleted")
    return run_id, 0


def begin_session(run_id: UUID, name: str, kind: str, tags: Mapping[str, str]) -> Draft:
    """The first event of a session's run."""
    started = RunStarted(request_type=kind, tags={NAME_TAG: name, **tags})
    return Draft(started, uuid5(run_id, "started"))


def append_new(
    ledger: Ledger,
    run_id: UUID,
    first: Draft,
    groups: Sequence[Sequence[Draft | Entry]],
    blobs: Mapping[str, bytes],
) -> None:
    """Append events that may be recorded already; with `first` before them if the run is new.

    Args:
        ledger: The ledger.
        run_id: The session's run.
        first: The run's first event.
        groups: Events with ids; those of a group are recorded together. A group whose first id is
            recorded is left out.
        blobs: Bytes that the events name, by name.
    """
    wanted = list(groups)
    for attempt in range(1, _TRIES + 1):
        is_new = not ledger.head(run_id)
        try:
            for batch in _batches(ledger, [[first], *wanted] if is_new else wanted):
                ledger.append(run_id, batch, ANY, blobs=blobs.values(), known="skip")
        except EventIdConflictError:
            # Recorded with other messages beside them, or as another entry of the same id.
            if attempt == _TRIES:
                raise
            known = recorded_ids(ledger, [group[0].event_id for group in wanted])
            wanted = [group for group in wanted if UUID(str(group[0].event_id)) not in known]
        else:
            return


def retried(work: Callable[[], T]) -> T:
    """Do it again if another writer of the same session was faster; it writes all or nothing."""
    for _ in range(_TRIES - 1):
        try:
            return work()
        except (ConcurrentAppendError, EventIdConflictError):
            continue
    return work()


def append_together(
    ledger: Ledger,
    appends: Sequence[tuple[UUID, Sequence[Draft | Entry]]],
    blobs: Mapping[str, bytes],
) -> None:
    """Append to several runs in one transaction: all or nothing.

    Args:
        ledger: The ledger.
        appends: Runs, and the events of each. A run whose first event is a RunStarted is new.
        blobs: Bytes that the events name, by name.
    """
    codec, clock = ledger.codec, ledger.clock
    requests = [
        build_request(run_id, drafts, _expected(drafts), None, blobs.values(), codec, clock)
        for run_id, drafts in appends
    ]

    def work(tx: Transaction) -> None:
        for request in requests:
            append(tx, request, clock)

    ledger.store.write(work)


def _expected(drafts: Sequence[Draft | Entry]) -> Expected:
    return NEW if isinstance(drafts[0].event, RunStarted) else ANY


def stored_folds(
    ledger: Ledger,
    name: str,
    heads: Mapping[UUID, int],
    step: Callable[[Any, Iterator[Event]], Any],
) -> dict[UUID, Any]:
    """Folds of runs that are stored beside the events, each brought up to its run's version.

    Args:
        ledger: The ledger.
        name: The name of the derived data.
        heads: The runs, and the version of each.
        step: Gives the fold, JSON, of the stored one (None at first) and the events after it.
    """
    derived = ledger.derived_data(name)
    stored = derived.get([str(run_id) for run_id in heads])
    changed: dict[str, str | None] = {}
    found: dict[UUID, Any] = {}
    for run_id, head in heads.items():
        version, state = json.loads(stored.get(str(run_id), "[0, null]"))
        if version != head:
            state = step(state, (record.event for record in ledger.read(run_id, version, head)))
            changed[str(run_id)] = json.dumps([head, state])
        found[run_id] = state
    if changed:
        derived.put(changed)
    return found


def recorded_ids(ledger: Ledger, ids: Sequence[UUID | str]) -> set[UUID]:
    """Which of these ids events of the ledger have."""
    wanted = [str(event_id) for event_id in ids]
    return {UUID(row.event_id) for row in ledger.store.write(lambda tx: tx.rows_by_id(wanted))}


def recorded_version(ledger: Ledger, draft: Draft) -> int | None:
    """The version that an event has in its run; None if it is not recorded."""
    wanted = [str(draft.event_id)]
    rows = list(ledger.store.write(lambda tx: tx.rows_by_id(wanted)))
    return rows[0].version if rows else None


def _batches(
    ledger: Ledger, groups: Sequence[Sequence[Draft | Entry]]
) -> Iterator[list[Draft | Entry]]:
    """As much in one append as the ledger takes, without splitting a group."""
    batch: list[Draft | Entry] = []
    for group in groups:
        if batch and len(batch) + len(group) > ledger.limits.max_batch_events:
            yield batch
            batch = []
        batch.extend(group)
    if batch:
        yield batch


def end_session(ledger: Ledger, run_id: UUID) -> None:
    """Delete a session: its run is abandoned. The events stay in the ledger."""
    deleted = Draft(RunAbandoned(reason="The session was deleted."), uuid5(run_id, "abandoned"))
    ledger.append(run_id, deleted, ANY)


def entry_of(
    ledger: Ledger,
    kind: str,
    data: Any,
    event_id: UUID,
    takes: Callable[[Any], object] | None = None,
) -> Entry:
    """An entry as a custom event; RedactedStateError if it is not to be redacted.

    Args:
        ledger: The ledger.
        kind: The event's kind.
        data: The entry, JSON.
        event_id: The event's id.
        takes: Raises for a redacted entry that can't be read.
    """
    event = CustomEvent(kind=kind, data=data)
    reads = None if takes is None else lambda made: takes(made.data)
    return ledger.prepare(Draft(event, event_id), exact=("data",), takes=reads)


def now(ledger: Ledger) -> datetime:
    """The time by the ledger's clock."""
    return to_datetime(ledger.clock.micros())


def last_message(ledger: Ledger, run_id: UUID) -> InnerMessage | None:
    """The last message of a run. It is among the last few records, nearly always."""
    for record in ledger.read(run_id, backwards=True, page_size=32):
        if isinstance(record.event, MessageAppended):
            return record.event.message
    return None


# --- messages ---------------------------------------------------------------------------


def transcript_of(wire: str, data: Any) -> Transcript | None:
    """What a reader of transcripts finds in a provider's JSON; None if it can't read it."""
    try:
        return reader_of(wire)(data)
    except TranscriptError:
        return None


def call_events(message: InnerMessage) -> Iterator[Event]:
    """The starts of the tool calls that a message asks for, or the end of one that it answers."""
    for call in message.tool_calls:
        yield ToolCallStarted(
            evaluation_id=message.evaluation_id, call_id=call.call_id, name=call.name
        )
    if message.role == "tool":
        ended: dict[str, Any] = {
            "evaluation_id": message.evaluation_id,
            "call_id": message.tool_call_id or "",
            "name": message.tool_name or "",
            "message_id": message.message_id,
        }
        if message.is_error:
            yield ToolCallFailed(error_type="", error_message=message.content[:200], **ended)
        else:
            yield ToolCallCompleted(**ended)


def usage_in(wire: str, answer: Any) -> TokenUsage:
    """The usage that a provider's answer states; none if it can't be read."""
    try:
        return wire_of(wire).decode(answer).usage
    except (TurnledgerError, ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return TokenUsage()


def numbered_ids(base: UUID) -> Callable[[int], UUID]:
    """Ids of messages that follow from one id and their numbers."""
    return lambda number: uuid5(base, f"message {number}")
