"""`TurnledgerSessionStore`: the transcripts of Claude Agent SDK sessions as runs of a ledger.

The SDK's CLI writes a transcript on the machine that it runs on, and the store gets a copy. A
transcript, the main one or a subagent's, is a run: each entry is a custom event with the entry's
JSON as it is, and the messages in it stand beside it. Deleting marks a run; its events stay.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Any
from urllib.parse import quote
from uuid import UUID, uuid5

from turnledger.adapters.frameworks.packages import framework
from turnledger.adapters.frameworks.sessions import (
    AnyLedger,
    SessionLedger,
    append_new,
    begin_session,
    call_events,
    end_session,
    entry_of,
    now,
    numbered_ids,
    recorded_ids,
    session_run,
    stored_folds,
    transcript_of,
    usage_in,
)
from turnledger.adapters.transcripts import MessageWriter
from turnledger.ledger import (
    CustomEvent,
    Draft,
    Event,
    InnerMessage,
    Ledger,
    MessageAppended,
    ModelReplied,
    TokenUsage,
)
from turnledger.ledger.runs.append import Entry
from turnledger.ledger.runs.index import RunInfo

with framework("claude_agent_sdk", extra="claude", integration="turnledger.claude"):
    from claude_agent_sdk import fold_session_summary
    from claude_agent_sdk.types import (
        SessionKey,
        SessionListSubkeysKey,
        SessionStore,
        SessionStoreEntry,
        SessionStoreListEntry,
        SessionSummaryEntry,
    )

KIND = "claude.session"
ENTRY = "claude.entry"
# The one evaluation of a transcript.
MAIN = "main"
PROJECT_TAG, SESSION_TAG, SUBPATH_TAG = "claude.project", "claude.session", "claude.subpath"
# Derived data: the SDK's summary of each main transcript, and the version that it is of.
SUMMARIES = "claude.summaries"
_WIRE = "anthropic"
# The last message is among the last few records, nearly always.
_FEW = 32


class TurnledgerSessionStore(SessionStore):
    """A `SessionStore` of the Claude Agent SDK over a ledger.

        options = ClaudeAgentOptions(session_store=TurnledgerSessionStore("sessions.db"))

    Several stores and processes may write to one ledger.

    Args:
        ledger: An open ledger, or the path or URL of one. An entry that the ledger's redactor
            would change is refused (RedactedStateError): the CLI resumes from what it wrote. With
            the redactor's `on_redacted="warn"` it is recorded redacted.
    """

    def __init__(self, ledger: AnyLedger) -> None:
        self._ledger = SessionLedger(ledger)

    def close(self) -> None:
        """Close the store, and its ledger if the store opened it."""
        self._ledger.close()

    # --- the protocol ---

    async def append(self, key: SessionKey, entries: list[SessionStoreEntry]) -> None:
        """Record a batch of entries; one whose `uuid` is recorded already is left out."""
        if entries:
            await self._ledger.call(lambda ledger: _append(ledger, key, entries))

    async def load(self, key: SessionKey) -> list[SessionStoreEntry] | None:
        """All entries of a transcript, in order; None if there is none, or it was deleted."""
        return await self._ledger.call(lambda ledger: _load(ledger, key))

    async def list_sessions(self, project_key: str) -> list[SessionStoreListEntry]:
        """The sessions of a project, with the time of the last entry in milliseconds."""
        found = await self._ledger.call(lambda ledger: _main_runs(ledger, project_key))
        return [{"session_id": run.tags[SESSION_TAG], "mtime": _mtime(run)} for run in found]

    async def list_session_summaries(self, project_key: str) -> list[SessionSummaryEntry]:
        """The SDK's summary of each session of a project."""
        return await self._ledger.call(lambda ledger: _summaries(ledger, project_key))

    async def delete(self, key: SessionKey) -> None:
        """Delete a transcript; a main one with those of its subagents. The events stay."""
        await self._ledger.call(lambda ledger: _delete(ledger, key))

    async def list_subkeys(self, key: SessionListSubkeysKey) -> list[str]:
        """The subpaths of a session: those of its subagents' transcripts."""
        found = await self._ledger.call(lambda ledger: _runs_of(ledger, key))
        return [run.tags[SUBPATH_TAG] for run in found if SUBPATH_TAG in run.tags]


# --- runs -------------------------------------------------------------------------------


def session_name(key: SessionKey) -> str:
    """The name of the run that holds a transcript: "PROJECT/SESSION", or with a subpath."""
    name = f"{quote(key['project_key'], safe='')}/{quote(key['session_id'], safe='')}"
    subpath = key.get("subpath")
    return f"{name}/{subpath}" if subpath else name


def _tags(key: SessionKey) -> dict[str, str]:
    tags = {PROJECT_TAG: key["project_key"], SESSION_TAG: key["session_id"]}
    subpath = key.get("subpath")
    return {**tags, SUBPATH_TAG: subpath} if subpath else tags


def _runs(ledger: Ledger, tags: dict[str, str]) -> Iterator[RunInfo]:
    """Runs of transcripts that were not deleted. A fork of one, for a "what if", is not one."""
    for run in ledger.runs(status="running", tags=tags):
        if run.kind == "run":
            yield run


def _main_runs(ledger: Ledger, project: str) -> list[RunInfo]:
    return [run for run in _runs(ledger, {PROJECT_TAG: project}) if SUBPATH_TAG not in run.tags]


def _runs_of(ledger: Ledger, key: SessionListSubkeysKey) -> list[RunInfo]:
    tags = {PROJECT_TAG: key["project_key"], SESSION_TAG: key["session_id"]}
    return list(_runs(ledger, tags))


def _mtime(run: RunInfo) -> int:
    return int(run.updated_at.timestamp() * 1000)


def _delete(ledger: Ledger, key: SessionKey) -> None:
    if not key.get("subpath"):
        whole: SessionListSubkeysKey = {
            "project_key": key["project_key"],
            "session_id": key["session_id"],
        }
        for run in _runs_of(ledger, whole):
            end_session(ledger, run.run_id)
        return
    run_id, version = session_run(ledger, session_name(key), KIND)
    if version:
        end_session(ledger, run_id)


def _load(ledger: Ledger, key: SessionKey) -> list[SessionStoreEntry] | None:
    run_id, version = session_run(ledger, session_name(key), KIND)
    if not version:
        return None
    found = (_entry_in(record.event) for record in ledger.read(run_id))
    return [entry for entry in found if entry is not None]


def _entry_in(event: Any) -> Any:
    return event.data if isinstance(event, CustomEvent) and event.kind == ENTRY else None


def _summaries(ledger: Ledger, project: str) -> list[SessionSummaryEntry]:
    runs = {run.run_id: run for run in _main_runs(ledger, project)}

    def fold(before: Any, events: Iterator[Event]) -> Any:
        # The fold asks for the key of a new session only.
        entries = [entry for event in events if (entry := _entry_in(event)) is not None]
        key: SessionKey = {"project_key": project, "session_id": ""}
        return fold_session_summary(before, key, entries)

    found = stored_folds(
        ledger, SUMMARIES, {run_id: run.version for run_id, run in runs.items()}, fold
    )
    return [
        {**found[run_id], "session_id": run.tags[SESSION_TAG], "mtime": _mtime(run)}
        for run_id, run in runs.items()
    ]


# --- entries ----------------------------------------------------------------------------


def _append(ledger: Ledger, key: SessionKey, entries: Sequence[SessionStoreEntry]) -> None:
    run_id, version = session_run(ledger, session_name(key), KIND)
    batch = _Batch(ledger, run_id)
    if version:
        batch.go_on_from_record()
    groups = batch.groups(entries)
    first = begin_session(run_id, session_name(key), KIND, _tags(key))
    append_new(ledger, run_id, first, groups, batch.blobs)


class _Batch:
    """The events of a batch of entries. Their ids follow from the entries' uuids."""

    def __init__(self, ledger: Ledger, run_id: UUID) -> None:
        self._ledger = ledger
        self._run_id = run_id
        self._sequence = self._turn = 0
        # The last entry with a message. A reply of the model is an entry for each block.
        self._last: Any = {}
        self.blobs: dict[str, bytes] = {}

    def go_on_from_record(self) -> None:
        """Read the last message's number, and the entry that it is of."""
        found = False
        for record in self._ledger.read(self._run_id, backwards=True, page_size=_FEW):
            event = record.event
            if isinstance(event, MessageAppended) and not found:
                found = True
                self._sequence, self._turn = event.message.sequence + 1, event.message.turn
            elif found and (entry := _entry_in(event)) is not None:
                self._last = entry
                return

    def groups(self, entries: Sequence[Any]) -> list[list[Draft | Entry]]:
        """The events of each entry that is not recorded."""
        named = [(self._id(entry), entry) for entry in entries]
        known = recorded_ids(self._ledger, [entry_id for entry_id, _ in named])
        new = {entry_id: entry for entry_id, entry in named if entry_id not in known}
        following = [*list(new.values())[1:], {}]
        return [
            [
                entry_of(self._ledger, ENTRY, entry, entry_id),
                *(
                    Draft(event, uuid5(entry_id, f"event {number}"))
                    for number, event in enumerate(self._said(entry, entry_id, after))
                ),
            ]
            for (entry_id, entry), after in zip(new.items(), following, strict=False)
        ]

    def _id(self, entry: Any) -> UUID:
        uuid = entry.get("uuid")
        if isinstance(uuid, str) and uuid:
            return uuid5(self._run_id, uuid)
        return UUID(self._ledger.clock.new_id())

    def _said(self, entry: Any, entry_id: UUID, after: Any) -> Iterator[Event]:
        """The events of the messages in an entry; `after` is the entry that follows it."""
        message = entry.get("message")
        if entry.get("type") not in ("user", "assistant") or not isinstance(message, dict):
            return
        transcript = transcript_of(_WIRE, {"messages": [message]})
        if transcript is None:
            return
        self.blobs.update(transcript.blobs)
        writer = MessageWriter(
            MAIN,
            _moment(entry) or now(self._ledger),
            numbered_ids(entry_id),
            sequence=self._sequence,
            turn=self._turn,
        )
        goes_on = _is_same_reply(entry, self._last)
        written = None
        for turn in transcript.turns:
            for event in writer.write(turn, goes_on=goes_on):
                written = event.message
                yield event
                yield from call_events(written)
        self._sequence, self._turn = writer.sequence, writer.turn
        if written is not None and written.role == "assistant":
            if _is_same_reply(entry, after):
                return  # each entry has the usage up to it: that of the last one counts
            yield self._replied(message, written, goes_on)
        self._last = entry

    def _replied(self, message: Any, written: InnerMessage, goes_on: bool) -> ModelReplied:
        """The usage of a reply; of one that goes on from an earlier batch, what is more."""
        usage = usage_in(_WIRE, message)
        if goes_on:
            before = usage_in(_WIRE, self._last["message"])
            more = {
                name: max(0, getattr(usage, name) - getattr(before, name))
                for name in ("input_tokens", "output_tokens", "cached_tokens", "reasoning_tokens")
            }
            usage = TokenUsage(**more)
        model, finish = message.get("model"), message.get("stop_reason")
        return ModelReplied(
            evaluation_id=MAIN,
            turn=written.turn,
            message_id=written.message_id,
            usage=usage,
            model=model if isinstance(model, str) else "",
            finish_reason=finish if isinstance(finish, str) else "",
        )


def _is_same_reply(entry: Any, other: Any) -> bool:
    """Whether two entries are pieces of one reply of the model."""
    return _reply_id(entry) is not None and _reply_id(entry) == _reply_id(other)


def _reply_id(entry: Any) -> str | None:
    message = entry.get("message")
    named = message.get("id") if isinstance(message, dict) else None
    return named if isinstance(named, str) else None


def _moment(entry: Any) -> datetime | None:
    try:
        moment = datetime.fromisoformat(entry["timestamp"])
    except (KeyError, TypeError, ValueError):
        return None
    return moment if moment.tzinfo is not None else None
