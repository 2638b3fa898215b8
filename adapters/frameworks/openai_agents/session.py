"""`TurnledgerSession`: the history of an OpenAI Agents SDK session as a run of a ledger.

Each item is a custom event with the item's JSON as it is, and the messages of a batch of items
stand behind it. Popping and clearing are events too: the items that they take away stay on record.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from hashlib import sha256
from typing import Any, NamedTuple, TypeVar
from uuid import UUID, uuid5

from turnledger.adapters.frameworks.packages import framework
from turnledger.adapters.frameworks.sessions import (
    AnyLedger,
    AsItIs,
    SessionLedger,
    append_new,
    begin_session,
    entry_of,
    now,
    numbered_ids,
    recorded_version,
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
from turnledger.ledger.runs.append import Entry
from turnledger.projections import ChatTurn
from turnledger.projections.digests import canonical
from turnledger.runtime.steps import Run, StepSpec, aperform, current_run, current_scope

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
_LONGEST_NAME = 200
T = TypeVar("T")


class TurnledgerSession:
    """A `Session` of the OpenAI Agents SDK over a ledger.

        session = TurnledgerSession("chat-17", "sessions.db")
        await Runner.run(agent, "And tomorrow?", session=session)

    Several sessions, also of one id, and processes may use one ledger.

    Args:
        session_id: The session's id: its run is `run_id_for(session_id)`.
        ledger: An open ledger, or the path or URL of one. An item that the ledger's redactor
            would change is refused (RedactedStateError): the model would be sent another text. With
            the redactor's `on_redacted="warn"` it is recorded redacted.
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
        if current_scope() is None:
            return await self.store.call(lambda ledger: _latest(ledger, self.session_id, most))
        # A step's value is the version that was read, which costs the same however long it is.
        until = await self._do("get_items", most, self._version)
        return await self.store.call(lambda ledger: _latest(ledger, self.session_id, most, until))

    async def add_items(self, items: list[TResponseInputItem]) -> None:
        """Add items to the end; all of them, or none if one is refused."""
        self.store.check_open()
        if items:
            digest = sha256(canonical(items)).hexdigest() if current_scope() is not None else ""
            await self._do("add_items", digest, partial(self._add, list(items)))

    async def pop_item(self) -> TResponseInputItem | None:
        """Take the last item away; None if there is none."""
        return await self._do("pop_item", None, partial(_pop, self.session_id))

    async def clear_session(self) -> None:
        """Take all items away."""
        await self._do("clear_session", None, partial(_clear, self.session_id))

    async def _do(self, what: str, given: Any, work: Callable[[Ledger, EventIds], T]) -> T:
        """Do something with the session.

        Inside of a run it is a step: resumed code reads what was read, and adds nothing twice.
        """
        if current_scope() is None:
            return await self.store.call(lambda ledger: work(ledger, EventIds(ledger)))

        async def perform() -> T:
            step = current_run()
            return await self.store.call(lambda ledger: work(ledger, EventIds(ledger, step)))

        name = f"session {self.session_id}"[:_LONGEST_NAME]
        return await aperform(StepSpec(name=name, arguments=[what, given]), perform, AsItIs())

    def _version(self, ledger: Ledger, ids: EventIds) -> int:
        return session_run(ledger, self.session_id, KIND)[1]

    def _add(self, items: Sequence[Any], ledger: Ledger, ids: EventIds) -> None:
        run_id, version = session_run(ledger, self.session_id, KIND)
        groups: list[list[Draft | Entry]] = [
            [entry_of(ledger, ITEM, item, ids.new())] for item in items
        ]
        writer = message_writer(ledger, run_id, version)
        turns, blobs = turns_in(items)
        for turn in turns:
            if turn in self.replied:
                self.replied.remove(turn)
                continue
            if said := [ids.draft(event) for event in writer.write(turn)]:
                groups.append([*said])
        append_new(ledger, run_id, session_start(self.session_id, run_id), groups, blobs)


class EventIds:
    """Ids of the events that one operation appends.

    Inside of a step they follow from the step: one that is performed again appends nothing twice.

    Args:
        ledger: The ledger of the session.
        step: The step that the operation is, if it is one.
    """

    def __init__(self, ledger: Ledger, step: Run | None = None) -> None:
        self._ledger, self._step = ledger, step
        self._count = 0

    @property
    def are_used(self) -> bool:
        """Whether an earlier attempt of the step may have used them."""
        return self._step is not None and self._step.is_resume

    def draft(self, event: Event) -> Draft:
        """An event with its id."""
        return Draft(event, self.new())

    def new(self) -> UUID:
        """The next id."""
        if self._step is None:
            return UUID(self._ledger.clock.new_id())
        self._count += 1
        return uuid5(self._step.run_id, f"{self._step.call_id} {self._count}")


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


def _latest(
    ledger: Ledger, session_id: str, most: int | None, until: int | None = None
) -> list[Any]:
    """The latest items, the oldest of them first.

    Args:
        ledger: The ledger.
        session_id: The session.
        most: How many at most; None or a negative number is all.
        until: The version of the session's run to read at; None is its end.
    """
    run_id, version = session_run(ledger, session_id, KIND)
    if not version or most == 0 or until == 0:
        return []
    if most is None or most < 0:
        return _all_items(ledger, run_id, until)
    found: list[Any] = []
    for item in _items_backwards(ledger, run_id, until):
        found.append(item)
        if len(found) == most:
            break
    return found[::-1]


def _all_items(ledger: Ledger, run_id: UUID, until: int | None) -> list[Any]:
    items: list[Any] = []
    for record in ledger.read(run_id, until=until):
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


def _items_backwards(ledger: Ledger, run_id: UUID, until: int | None = None) -> Iterator[Any]:
    """The items from the last one on; each pop takes the item before it that is still there."""
    popped = 0
    for record in ledger.read(run_id, until=until, backwards=True, page_size=_FEW):
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


def _pop(session_id: str, ledger: Ledger, ids: EventIds) -> Any:
    mark = ids.draft(CustomEvent(kind=POPPED))
    while True:
        run_id, version = session_run(ledger, session_id, KIND)
        if not version:
            return None
        known = recorded_version(ledger, mark) if ids.are_used else None
        until = known - 1 if known is not None else None
        item = next(_items_backwards(ledger, run_id, until), None)
        if item is None or known is not None:
            return item
        try:
            # At the version that was read: the mark takes away this item and no other.
            ledger.append(run_id, mark, version)
        except ConcurrentAppendError:
            continue
        return item


def _clear(session_id: str, ledger: Ledger, ids: EventIds) -> None:
    run_id, version = session_run(ledger, session_id, KIND)
    if not version:
        return
    place = find_place(ledger, run_id)
    superseded = EvaluationSuperseded(evaluation_id=place.evaluation_id, reason="cleared")
    cleared = CustomEvent(kind=CLEARED, data={"next": place.after_clearing})
    marks = [ids.draft(superseded), ids.draft(cleared)]
    append_new(ledger, run_id, session_start(session_id, run_id), [marks], {})
