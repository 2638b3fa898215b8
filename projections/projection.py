"""What a projection is: a pure fold of a run's records into something that is known.

A projection names the events that it reads, begins with `initial()` and takes one record
at a time with `apply`. Its state is a value: `apply` gives a new one and leaves the old one
as it was. It reads no clock and no set order, so that folding again gives the same.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from typing import Any, ClassVar, Generic, TypeVar

import msgspec

from ledger import Event, Record
from ledger.upcasting import UPCASTERS
from projections.running_hash import canonical, combine

S = TypeVar("S")


class Projection(ABC, Generic[S]):
    """A fold with a name. `version` grows when the meaning of its state changes."""

    name: ClassVar[str]
    version: ClassVar[int] = 1
    reads: ClassVar[tuple[type[Event], ...]]

    @abstractmethod
    def initial(self) -> S:
        """What is known before the first event."""

    @abstractmethod
    def apply(self, state: S, record: Record) -> S:
        """What is known after one more event of the kinds that it reads."""

    def to_json(self, state: S) -> Any:
        """The state as plain JSON, for people, diffs and storage."""
        return as_json(state)

    def digest(self, state: S) -> bytes:
        """The exact state in 32 bytes. Built-in views carry it along instead."""
        return combine(f"{self.name}/{self.version}", canonical(self.to_json(state)))

    def outcome(self, state: S) -> bytes:
        """What of the state an uninterrupted run shares with a recovered one: no ids, no times."""
        return b""


def as_json(value: Any) -> Any:
    """A value as the JSON that it would be written as: objects, lists, text and numbers."""
    return msgspec.json.decode(canonical(value))


def tags_read(projection: Projection[Any]) -> frozenset[str]:
    """The tags of the events that it reads, and the retired tags that are read as them."""
    return _tags(projection.reads)


@cache
def _tags(reads: tuple[type[Event], ...]) -> frozenset[str]:
    tags = {kind.tag for kind in reads}
    for retired in UPCASTERS:
        current = retired
        while current in UPCASTERS:
            current = UPCASTERS[current].successor
        if current in tags:
            tags.add(retired)
    return frozenset(tags)


def fold(records: Iterable[Record], projection: Projection[S], state: S | None = None) -> S:
    """The state after these records, from the beginning or from a state before them."""
    current = projection.initial() if state is None else state
    tags = tags_read(projection)
    for record in records:
        if record.tag in tags:
            current = projection.apply(current, record)
    return current


def fold_together(
    records: Iterable[Record],
    projections: Sequence[Projection[Any]],
    states: Sequence[Any] | None = None,
) -> list[Any]:
    """Several projections in one pass over the records."""
    current = [p.initial() for p in projections] if states is None else list(states)
    readers: dict[str, list[tuple[int, Callable[[Any, Record], Any]]]] = {}
    for place, projection in enumerate(projections):
        for tag in tags_read(projection):
            readers.setdefault(tag, []).append((place, projection.apply))
    nobody: list[tuple[int, Callable[[Any, Record], Any]]] = []
    for record in records:
        for place, apply in readers.get(record.tag, nobody):
            current[place] = apply(current[place], record)
    return current
