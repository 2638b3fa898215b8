"""What writers of the crash tests record: everything follows from the first id of an attempt.

So a successor makes the very same events again, a message between processes names a thousand
events in a line, and whoever checks the ledger knows what each event must say.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from io import BytesIO
from random import Random
from typing import NamedTuple
from uuid import UUID

from turnledger.ledger import (
    NEW,
    CustomEvent,
    Draft,
    Event,
    InnerMessage,
    Ledger,
    MessageAppended,
    ResourceSnapshotted,
    RunCompleted,
    RunStarted,
    SystemClock,
    blob_name,
    export_runs,
)

# The last bits of an attempt's first id are free, to be counted in.
COUNTED_BITS = 12
THEN = datetime(2026, 1, 1, tzinfo=UTC)
# Bytes that many attempts bring along: a blob is there already, or two bring it at once.
OFTEN_SEEN = tuple(bytes([number]) * 3000 for number in range(8))


class Attempt(NamedTuple):
    """Some events for a run, in one commit. The kind says what events they are."""

    kind: str
    run: str
    first: str
    count: int

    @property
    def ids(self) -> list[str]:
        start = UUID(self.first).int
        return [str(UUID(int=start + place)) for place in range(self.count)]

    @property
    def events(self) -> list[Event]:
        events = [_MAKERS.get(self.kind, _fact)(event_id) for event_id in self.ids]
        if self.kind in ("whole run", "import"):
            events[0] = RunStarted(tags={"crash": self.first[:2]})
        if self.kind == "whole run":
            events[-1] = RunCompleted(output=self.first)
        return events

    @property
    def drafts(self) -> list[Draft]:
        return [Draft(*both) for both in zip(self.events, self.ids, strict=True)]

    @property
    def blobs(self) -> list[bytes]:
        if self.kind != "files":
            return []
        return [content for event_id in self.ids for content in _contents(event_id)]

    def export(self) -> BytesIO:
        """A file that holds this run: the same bytes every time."""
        file = BytesIO()
        with Ledger.open("memory://", clock=_LongAgo()) as elsewhere:
            elsewhere.append(self.run, self.drafts, NEW)
            export_runs(elsewhere, file)
        file.seek(0)
        return file


class _LongAgo(SystemClock):
    def micros(self) -> int:
        return int(THEN.timestamp()) * 1_000_000


def new_id(random: Random) -> str:
    return str(UUID(int=random.getrandbits(128), version=4))


def first_id(random: Random) -> str:
    drawn = random.getrandbits(128) >> COUNTED_BITS << COUNTED_BITS
    return str(UUID(int=drawn, version=4))


def _fact(event_id: str) -> Event:
    return CustomEvent(kind="crash.fact", data={"text": _text(event_id)})


def _message(event_id: str) -> Event:
    message = InnerMessage(
        role="user",
        content=_text(event_id),
        evaluation_id="",
        sequence=0,
        created_at=THEN,
        message_id=UUID(event_id),
    )
    return MessageAppended(message=message)


def _files(event_id: str) -> Event:
    names = [blob_name(content) for content in _contents(event_id)]
    return ResourceSnapshotted(resource="crash", files=dict(zip("ab", names, strict=True)))


def _contents(event_id: str) -> list[bytes]:
    own = event_id.encode() * int(event_id[:2], 16)
    return [own, OFTEN_SEEN[int(event_id[2], 16) % len(OFTEN_SEEN)]]


def _text(event_id: str) -> str:
    return event_id * (1 + int(event_id[:2], 16) // 16)


_MAKERS: dict[str, Callable[[str], Event]] = {"guarded": _message, "files": _files}
