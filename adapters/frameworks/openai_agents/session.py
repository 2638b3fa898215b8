"""`TurnledgerSession`: the history of an OpenAI Agents SDK session as a run of a ledger.

Each item is a custom event with the item's JSON as it is, and the messages of a batch of items
stand behind it. Popping and clearing are events too: the items that they take away stay on record.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple
from uuid import UUID

from turnledger.adapters.frameworks.packages import framework
from turnledger.adapters.frameworks.sessions import (
    AnyLedger,
    SessionLedger,
    append_new,
    begin_session,
    entry_event,
    message_events,
    now,
    numbered_ids,
    session_run,
    transcript_of,
)
from turnledger.adapters.transcripts import MessageWriter
from turnledger.ledger import (
    ConcurrentAppendError,
    CustomEvent,
    Draft,
    EvaluationSuperseded,
    Event,
    Ledger,
    MessageAppended,
)
from turnledger.projections import ChatTurn

with framework("agents", extra="openai-agents", integration="turnledger.openai_agents"):
    from agents import SessionSettings, TResponseInputItem
    from agents.memory.session_settings import coerce_session_settings, resolve_session_limit

KIND = "openai_agents.session"
ITEM, POPPED, CLEARED = "openai_agents.item", "openai_agents.popped", "openai_agents.cleared"
SESSION_TAG = "openai_agents.session"
_WIRE = "openai-responses"
# What is looked for from a session's end stands among its last few records, nearly always.
_FEW = 32
_MOST_REPLIES = 64


class TurnledgerSession:
    """A `Session` of the OpenAI Agents SDK over a ledger.

        session = TurnledgerSession("chat-17", "sessions.db")
        await Runner.run(agent, "And tomorrow?", session=session)

    Several sessions, also of one id, and processes may use one ledger.

    Args:
        session_id: The session's id: its run is `run_id_for(session_id)`.
        ledger: An open ledger, or the path or URL of one. An item that the ledger's redactor
            would change is refused (RedactedSessionError): the model would be sent another text.
        session_settings: As of the SDK's own sessions: `limit` is for `get_items`.
    """

    def __init__(
        self,
        session_id: str,
        ledger: AnyLedger,
        *,
        session_settings: SessionSettings | dict[str, Any] | None = None,
    ) -> None:
        self.session_id = session_id
        self.session_settings: SessionSettings | None = coerce_session_settings(
            SessionSettings() if session_settings is None else session_settings
        )
        self.store = SessionLedger(ledger)
        # Replies of the model whose messages hooks have recorded, before the SDK adds the items.
        self.replied: deque[ChatTurn] = deque(maxlen=_MOST_REPLIES)

    def close(self) -> None:
        """Close the session, and its ledger if the session opened it."""
        self.store.close()

    async def get_items(self, limit: int | None = None) -> list[TResponseInputItem]:
        """The items of the session, the oldest first.

        Args:
            limit: The latest so many; None takes the limit of the settings, or all. All, too, if
                it is negative.
        """
        most = resolve_session_limit(limit, self.session_settings)
        return await self.store.call(lambda ledger: _latest(ledger, self.session_id, most))

    async def add_items(self, items: list[TResponseInputItem]) -> None:
        """Add items to the end; all of them, or none if one is refused."""
        self.store.check_open()
        if items:
            await self.store.call(lambda ledger: self._add(ledger, list(items)))

    async def pop_item(self) -> TResponseInputItem | None:
        """Take the last item away; None if there is none."""
        return await self.store.call(lambda ledger: _pop(ledger, self.session_id))

    async def clear_session(self) -> None:
        """Take all items away."""
        await self.store.call(lambda ledger: _clear(ledger, self.session_id))

    def _add(self, ledger: Ledger, items: Sequence[Any]) -> None:
        run_id, version = session_run(ledger, self.session_id, KIND)
        what = f"An item of session {self.session_id!r}"
        groups = [[draft_of(ledger, entry_event(ledger, ITEM, item, what))] for item in items]
        writer = message_writer(ledger, run_id, version)
        turns, blobs = turns_in(items)
        for turn in turns:
            if turn in self.replied:
                self.replied.remove(turn)
                continue
            said = [draft_of(ledger, event) for event in message_events([turn], writer)]
            groups.extend([said] if said else [])
        append_new(ledger, run_id, session_start(self.session_id, run_id), groups, blobs)


class Place(NamedTuple):
    """Where a session's conversation stands: its evaluation, the next message, the replies."""

    evaluation_id: str = "session 1"
    sequence: int = 0
    turn: int = 0

    @property
    def after_clearing(self) -> str:
        """The evaluation of what follows when the session is cleared."""
        return f"session {int(self.evaluation_id.removeprefix('session ')) + 1}"


def find_place(ledger: Ledger, run_id: UUID) -> Place:
    """Where the conversation of a session that is begun stands."""
    for record in ledger.read(run_id, backwards=True, page_size=_FEW):
        event = record.event
        if isinstance(event, MessageAppended):
            said = event.message
            return Place(said.evaluation_id, said.sequence + 1, said.turn)
        if isinstance(event, CustomEvent) and event.kind == CLEARED:
            return Place(event.data["next"])
    return Place()


def session_start(session_id: str, run_id: UUID) -> Draft:
    """The first event of a session's run."""
    return begin_session(run_id, session_id, KIND, {SESSION_TAG: session_id})


# --- reading ----------------------------------------------------------------------------


def _latest(ledger: Ledger, session_id: str, most: int | None) -> list[Any]:
    run_id, version = session_run(ledger, session_id, KIND)
    if not version or most == 0:
        return []
    if most is None or most < 0:
        return _all_items(ledger, run_id)
    found: list[Any] = []
    for item in _items_backwards(ledger, run_id):
        found.append(item)
        if len(found) == most:
            break
    return found[::-1]


def _all_items(ledger: Ledger, run_id: UUID) -> list[Any]:
    items: list[Any] = []
    for record in ledger.read(run_id):
        event = record.event
        if not isinstance(event, CustomEvent):
            continue
        if event.kind == ITEM:
            items.append(event.data)
        elif event.kind == POPPED:
            items.pop()
        elif event.kind == CLEARED:
            items.clear()
    return items


def _items_backwards(ledger: Ledger, run_id: UUID) -> Iterator[Any]:
    """The items from the last one on; each pop takes the item before it that is still there."""
    popped = 0
    for record in ledger.read(run_id, backwards=True, page_size=_FEW):
        event = record.event
        if not isinstance(event, CustomEvent):
            continue
        if event.kind == CLEARED:
            return
        if event.kind == POPPED:
            popped += 1
        elif event.kind == ITEM and popped:
            popped -= 1
        elif event.kind == ITEM:
            yield event.data


# --- writing ----------------------------------------------------------------------------


def message_writer(ledger: Ledger, run_id: UUID, version: int) -> MessageWriter:
    """A writer that goes on from the last message of a session's run at a version."""
    place = find_place(ledger, run_id) if version else Place()
    return MessageWriter(
        place.evaluation_id,
        now(ledger),
        numbered_ids(UUID(ledger.clock.new_id())),
        sequence=place.sequence,
        turn=place.turn,
    )


def turns_in(items: Sequence[Any]) -> tuple[list[ChatTurn], dict[str, bytes]]:
    """The conversation in a batch of items, and the media in it.

    If the items can't all be read together, those that can be by themselves are.
    """
    whole = transcript_of(_WIRE, {"input": list(items)})
    read = [whole] if whole else [transcript_of(_WIRE, {"input": [item]}) for item in items]
    turns = [turn for one in read if one is not None for turn in one.turns]
    return turns, {name: data for one in read if one for name, data in one.blobs.items()}


def _pop(ledger: Ledger, session_id: str) -> Any:
    while True:
        run_id, version = session_run(ledger, session_id, KIND)
        items = _items_backwards(ledger, run_id) if version else iter(())
        item = next(items, None)
        if item is None:
            return None
        try:
            # At the version that was read: the mark takes away this item and no other.
            ledger.append(run_id, CustomEvent(kind=POPPED), version)
        except ConcurrentAppendError:
            continue
        return item


def _clear(ledger: Ledger, session_id: str) -> None:
    run_id, version = session_run(ledger, session_id, KIND)
    while version:
        place = find_place(ledger, run_id)
        cleared = CustomEvent(kind=CLEARED, data={"next": place.after_clearing})
        superseded = EvaluationSuperseded(evaluation_id=place.evaluation_id, reason="cleared")
        try:
            ledger.append(run_id, [superseded, cleared], version)
        except ConcurrentAppendError:
            version = ledger.head(run_id)
            continue
        return


def draft_of(ledger: Ledger, event: Event) -> Draft:
    """An event with an id."""
    return Draft(event, UUID(ledger.clock.new_id()))
