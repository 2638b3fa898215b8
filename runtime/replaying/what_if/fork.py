"""`what_if`: forks a run at an event, with that event changed.

The fork shares everything before the commit of the event. The rest of the commit is rebuilt: what
belongs to the changed event comes along and is made to fit it; what the loop decided afterwards
is dropped, because the loop decides again when the fork is run. The run itself stays as it was.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import takewhile
from typing import Any
from uuid import UUID

import msgspec

from turnledger.ledger import (
    NEW,
    CheckpointCleared,
    CheckpointReached,
    CheckpointStored,
    Clock,
    Draft,
    Event,
    InnerMessage,
    Ledger,
    MessageAppended,
    ModelReplied,
    Record,
    RunAbandoned,
    RunClaimed,
    RunCompleted,
    RunFailed,
    RunParked,
    RunResumed,
    RunStarted,
    RunWaiting,
    SystemClock,
    ToolCallCompleted,
    ToolCallFailed,
)
from turnledger.ledger.arguments import explain_arguments
from turnledger.ledger.clock import to_datetime
from turnledger.ledger.errors import error_text
from turnledger.ledger.runs.append import Entry
from turnledger.ledger.runs.append_request import RunId, canonical_id
from turnledger.projections import Declarations, PendingTools, fold, inner_message_append
from turnledger.runtime.journal.journal import provisional_record
from turnledger.runtime.journal.known import Known
from turnledger.runtime.replaying.what_if.commit_groups import belonging
from turnledger.runtime.replaying.what_if.edit import ChangeRefusedError, changed_event
from turnledger.runtime.session.types import SliceTypes

change = msgspec.structs.replace
# How a run stood: its fork stands otherwise.
_ABOUT_THE_RUN = (
    RunStarted
    | RunClaimed
    | RunResumed
    | RunWaiting
    | RunCompleted
    | RunFailed
    | RunParked
    | RunAbandoned
    | CheckpointStored
    | CheckpointCleared
)


@explain_arguments
def what_if(
    ledger: Ledger,
    run_id: RunId,
    version: int,
    changes: Mapping[str, Any],
    *,
    tags: Mapping[str, str] | None = None,
    declarations: Declarations | None = None,
    clock: Clock | None = None,
) -> UUID:
    """Fork a run at an event, with other values at JSON pointers into its data.

    Returns the fork's id; `MainLoop.recover` runs it. ChangeRefusedError, and nothing written, if
    the event can't be changed like that.

    Args:
        ledger: Where the run is, and the fork will be.
        run_id: The run.
        version: The version of the event.
        changes: New values by JSON pointer.
        tags: Tags of the fork.
        declarations: Those of the session. With them a checkpoint comes along; without, only one
            that does not depend on reducers of the program's own.
        clock: Time and ids.
    """
    run = UUID(canonical_id(run_id))
    clock = clock or SystemClock()
    record = ledger.record(run, version)
    changed = changed_event(ledger.codec, record.event, changes, version)
    commit = _commit_of(ledger, run, record)
    started = RunStarted(
        parent=run,
        at=_before(commit, record),
        kind="fork",
        tags=dict(tags or {}),
        agent=ledger.run(run).agent,
    )
    if isinstance(changed, RunStarted):
        started = _with_request(started, changed, version, clock)
        pairs: list[tuple[Record, Event]] = []
    else:
        pairs = _rebuilt(ledger, run, commit, record, changed)
    child = UUID(clock.new_id())
    fork = _Fork(ledger, started, child, version, clock)
    ledger.append(child, fork.entries(commit, pairs, declarations), expected_version=NEW)
    return child


def _commit_of(ledger: Ledger, run: UUID, record: Record) -> list[Record]:
    """The records that were appended together with this one."""

    def is_one(other: Record) -> bool:
        return other.commit == record.commit

    before = list(
        takewhile(is_one, ledger.read(run, until=record.version - 1, backwards=True))
        if record.version > 1
        else ()
    )
    return [*reversed(before), record, *takewhile(is_one, ledger.read(run, after=record.version))]


def _before(commit: Sequence[Record], record: Record) -> int:
    """The version to fork at."""
    first, version = commit[0].event, record.version
    if isinstance(record.event, RunStarted):
        if len(commit) > 1:
            raise ChangeRefusedError(
                f"versions {version} to {commit[-1].version} were appended together, and a fork "
                "shares all of that or none.",
                version=version,
            )
        return version
    if commit[0].version == 1 or (isinstance(first, RunStarted) and first.kind != "fork"):
        raise ChangeRefusedError(
            f"versions {commit[0].version} to {commit[-1].version} were appended together, and "
            "the run begins with them: there is no version before them to fork at.",
            version=version,
        )
    return commit[0].version - 1


def _with_request(
    started: RunStarted, changed: RunStarted, version: int, clock: Clock
) -> RunStarted:
    """The start of a fork with another request, right after the run's first event."""
    if changed.request is None:
        raise ChangeRefusedError(
            "a fork without a request has that of its parent.", version=version, pointer="/request"
        )
    return change(
        started,
        request_id=UUID(clock.new_id()),
        request_type=changed.request_type,
        request=changed.request,
        requested_at=to_datetime(clock.micros()),
        session_id=changed.session_id,
    )


# --- the rest of the commit --------------------------------------------------------------


def _rebuilt(
    ledger: Ledger, run: UUID, commit: Sequence[Record], record: Record, changed: Event
) -> list[tuple[Record, Event]]:
    """Records of the commit that the fork keeps, and the events that replace them."""
    place = record.version - commit[0].version
    events = [one.event for one in commit]
    tools = fold(ledger.read(run, until=commit[0].version - 1), PendingTools())
    under_way = {
        (call.evaluation_id, call.call_id)
        for call in tools.open.values()
        if call.status == "started"
    }
    kept = [*range(place + 1), *belonging(events, place, under_way)]
    before = events[place]
    return [
        (commit[at], changed if at == place else _fitting(events[at], before, changed))
        for at in kept
        if at == place or not isinstance(events[at], _ABOUT_THE_RUN)
    ]


def _fitting(event: Event, before: Event, after: Event) -> Event:
    """An event of the same commit, made to fit `after` instead of `before`."""
    if isinstance(event, ModelReplied) and isinstance(before, MessageAppended):
        # Provider data, such as signatures, is for the message as it was.
        ours = event.message_id == before.message.message_id
        return change(event, provider_data=None) if ours else event
    if not isinstance(event, MessageAppended):
        return event
    message = event.message
    if isinstance(before, ToolCallCompleted) and message.message_id == before.message_id:
        assert isinstance(after, ToolCallCompleted)
        return MessageAppended(message=_with_value(message, before.value, after.value))
    if isinstance(before, ToolCallFailed) and message.message_id == before.message_id:
        assert isinstance(after, ToolCallFailed)
        return MessageAppended(message=_with_error(message, before, after))
    return event


def _with_value(message: InnerMessage, before: Any, after: Any) -> InnerMessage:
    """A tool's message with another value; its text shows it if it showed the one before."""
    text = _beside_value(message.content, before)
    if text is not None:
        shown = [part for part in (text, "" if after is None else _json(after)) if part]
        message = change(message, content="\n\n".join(shown))
    if before is not None and message.value == before:
        message = change(message, value=after)
    return message


def _beside_value(text: str, value: Any) -> str | None:
    """A tool's text without its value; None if the text does not show the value."""
    if value is None:
        return text
    shown = _json(value)
    if text == shown:
        return ""
    return text.removesuffix(f"\n\n{shown}") if text.endswith(f"\n\n{shown}") else None


def _with_error(
    message: InnerMessage, before: ToolCallFailed, after: ToolCallFailed
) -> InnerMessage:
    """A failed tool's message with the new error wherever it had the one before."""
    text = message.content
    if before.error_message:
        text = text.replace(before.error_message, after.error_message)
    fields = {
        name: getattr(after, name)
        for name in ("error_type", "error_message", "retryable")
        if getattr(message, name) == getattr(before, name)
    }
    return change(message, content=text, **fields)


def _json(value: Any) -> str:
    return msgspec.json.encode(value).decode()


# --- the fork ----------------------------------------------------------------------------


class _Fork:
    """Builds a fork's first commit, event by event, with the state that each one makes."""

    def __init__(
        self, ledger: Ledger, started: RunStarted, child: UUID, version: int, clock: Clock
    ) -> None:
        assert started.parent is not None
        self._ledger = ledger
        self._run = started.parent
        self._started = started
        self._child = child
        self._version = version
        self._clock = clock

    def entries(
        self,
        commit: Sequence[Record],
        pairs: Sequence[tuple[Record, Event]],
        declarations: Declarations | None,
    ) -> list[Entry]:
        """The fork's first commit, encoded."""
        at = self._started.at
        reached = [old for old, _ in pairs if isinstance(old.event, CheckpointReached)]
        folding = self._right_declarations(commit, reached, declarations) if reached else None
        known = _folded(self._ledger, self._run, at, folding or declarations)
        entries: list[Entry] = []
        for event in (self._started, *(new for _, new in pairs)):
            if isinstance(event, CheckpointReached):
                if folding is None:
                    continue  # the loop makes one of its own when it goes on
                event = self._checkpoint(event, known)
            try:
                entry = self._ledger.prepare(Draft(event, self._clock.new_id()))
                version, micros = known.version + 1, self._clock.micros()
                record = provisional_record(self._ledger, self._child, version, entry, micros)
                known = known.after([record])
            except Exception as error:
                # A reducer of the program's own raised.
                raise ChangeRefusedError(
                    f"the state can't be folded with this: {error_text(error)}",
                    version=self._version,
                ) from error
            entries.append(entry)
        return entries

    def _checkpoint(self, event: CheckpointReached, known: Known) -> CheckpointReached:
        return change(
            event,
            tool_calls_completed=known.progress.tool_calls_completed,
            state_digest=known.run.state_digest,
            outcome_digest=known.run.outcome_digest,
            created_at=to_datetime(self._clock.micros()),
        )

    def _right_declarations(
        self,
        commit: Sequence[Record],
        reached: Sequence[Record],
        given: Declarations | None,
    ) -> Declarations | None:
        """The declarations that give the run's own checkpoints; None if none do."""
        own = SliceTypes().declarations
        for candidate in (given,) if given is not None else (own, _with_messages(own)):
            known = _folded(self._ledger, self._run, commit[0].version - 1, candidate)
            for record in takewhile(lambda one: one.version <= reached[-1].version, commit):
                event = record.event
                if (
                    isinstance(event, CheckpointReached)
                    and event.state_digest != known.run.state_digest
                ):
                    break
                known = known.after([record])
            else:
                return candidate
        return None


def _folded(ledger: Ledger, run: UUID, until: int, declarations: Declarations | None) -> Known:
    records: Iterable[Record] = ledger.read(run, until=until) if until else ()
    return Known.initial(declarations).after(records)


def _with_messages(declarations: Declarations) -> Declarations:
    """The same with messages as a slice, which a session may record."""
    declared = declarations.copy()
    declared.register(InnerMessage, InnerMessage, inner_message_append)
    return declared
