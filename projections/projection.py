"""What a projection is: a pure fold of a run's records into something that is known.

A projection names the events that it reads, begins with `initial()` and takes one record
at a time with `apply`. Its state is a value: `apply` gives a new one and leaves the old one
as it was. It reads no clock and no set order, so that folding again gives the same.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from functools import cache, lru_cache
from itertools import islice
from typing import Any, ClassVar, Generic, TypeVar, cast

import msgspec

from turnledger.ledger import Event, Record
from turnledger.ledger.events.upcasters import UPCASTERS
from turnledger.projections.digests import canonical, combine

S = TypeVar("S")
# Records that are held at once: what the ledger reads in one go.
PAGE = 500


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

    def apply_all(self, state: S, records: Sequence[Record]) -> S:
        """What is known after these: as `apply` one by one, perhaps for less."""
        for record in records:
            state = self.apply(state, record)
        return state

    def to_json(self, state: S) -> Any:
        """The state as plain JSON, for people, diffs and storage."""
        return as_json(state)

    def lazy_json(self, state: S) -> Any:
        """The same JSON, in which a long list may be `Items` that are made when they are read."""
        return self.to_json(state)

    @property
    def fingerprint(self) -> str:
        """Which meaning a digest has: it changes with the version."""
        return f"{self.name}/{self.version}"

    def digest(self, state: S) -> bytes:
        """The exact state in 32 bytes. Built-in views carry it along instead."""
        return combine(self.fingerprint, canonical(self.to_json(state)))

    def outcome(self, state: S) -> bytes:
        """What of the state an uninterrupted run shares with a recovered one: no ids, no times."""
        return b""


class Folding(ABC, Generic[S]):
    """A state while records are folded into it: the fold's own, so that it may change.

    Many records cost one new state that way. What the old state holds is left as it was.
    """

    @abstractmethod
    def take(self, record: Record) -> None:
        """Fold one record."""

    @abstractmethod
    def done(self) -> S:
        """The state now. Nothing is taken after this."""


class BulkProjection(Projection[S]):
    """A projection that folds many records for less than one by one."""

    @abstractmethod
    def begin(self, state: S) -> Folding[S]: ...

    def apply(self, state: S, record: Record) -> S:
        folding = self.begin(state)
        folding.take(record)
        return folding.done()

    def apply_all(self, state: S, records: Sequence[Record]) -> S:
        folding = self.begin(state)
        take = folding.take
        for record in records:
            take(record)
        return folding.done()


def as_json(value: Any) -> Any:
    """A value as the JSON that it would be written as: objects, lists, text and numbers."""
    return msgspec.json.decode(canonical(value))


def tags_read(projection: Projection[Any]) -> frozenset[str]:
    """The tags of the events that it reads, and the retired tags that are read as them."""
    return tags_of(*projection.reads)


@cache
def tags_of(*reads: type[Event]) -> frozenset[str]:
    """The tags of these events, old ones included."""
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
    return cast(S, fold_pages(records, (projection,), (current,))[0][0])


def fold_together(
    records: Iterable[Record],
    projections: Sequence[Projection[Any]],
    states: Sequence[Any] | None = None,
) -> list[Any]:
    """Several projections in one pass over the records."""
    current = [p.initial() for p in projections] if states is None else states
    return fold_pages(records, projections, current)[0]


def fold_pages(
    records: Iterable[Record], projections: Sequence[Projection[Any]], states: Sequence[Any]
) -> tuple[list[Any], Record | None]:
    """The states after these records, and the last of them."""
    current = list(states)
    places = _places(tuple(projections))
    last: Record | None = None
    left = iter(records)
    while found := list(islice(left, PAGE)):
        last = found[-1]
        if len(found) == 1:  # a step of a loop
            for place in places.get(last.tag, ()):
                current[place] = projections[place].apply(current[place], last)
            continue
        pages: list[list[Record]] = [[] for _ in current]
        for record in found:
            for place in places.get(record.tag, ()):
                pages[place].append(record)
        for place, page in enumerate(pages):
            if page:
                current[place] = projections[place].apply_all(current[place], page)
    return current, last


@lru_cache(maxsize=64)
def _places(projections: tuple[Projection[Any], ...]) -> dict[str, tuple[int, ...]]:
    """Who reads what: by tag, the places of those that read it."""
    found: dict[str, tuple[int, ...]] = {}
    for place, projection in enumerate(projections):
        for tag in tags_read(projection):
            found[tag] = (*found.get(tag, ()), place)
    return found
