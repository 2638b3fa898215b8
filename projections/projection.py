"""Projection, the base class of views, and `fold`, which runs projections over records.

A projection is a pure fold: it names the events that it reads, begins with `initial()` and
takes one record at a time with `apply`. Its state is an immutable value. It reads no clock and
no set order, so that folding again gives the same state.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from functools import cache, lru_cache
from itertools import islice
from typing import Any, ClassVar, Generic, TypeVar, cast

import msgspec

from turnledger.ledger import Event, Record
from turnledger.ledger.arguments import explain_arguments
from turnledger.ledger.errors import InvalidInputError
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
        """The state before the first event."""

    @abstractmethod
    def apply(self, state: S, record: Record) -> S:
        """The state after one more event of the kinds in `reads`."""

    def apply_all(self, state: S, records: Sequence[Record]) -> S:
        """The state after these records: as `apply` one by one, and often faster."""
        for record in records:
            state = self.apply(state, record)
        return state

    def to_json(self, state: S) -> Any:
        """The state as plain JSON, for people and diffs."""
        return as_json(state)

    def lazy_json(self, state: S) -> Any:
        """The same JSON, in which long lists may be made item by item (`LazyList`)."""
        return self.to_json(state)

    def digest(self, state: S) -> bytes:
        """The exact state in 32 bytes. Built-in views work it out incrementally instead."""
        return combine(f"{self.name}/{self.version}", canonical(self.to_json(state)))

    def outcome(self, state: S) -> bytes:
        """What an uninterrupted run and a recovered one have in common: no ids, no times."""
        return b""


class Folding(ABC, Generic[S]):
    """A state while records are folded into it: private to the fold, so that it may be changed."""

    @abstractmethod
    def take(self, record: Record) -> None:
        """Fold one record."""

    @abstractmethod
    def done(self) -> S:
        """The state now. `take` is not called after this."""


class BulkProjection(Projection[S]):
    """A projection that folds many records into one new state (see `Folding`)."""

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
    """A value as plain JSON data: dicts, lists, text and numbers."""
    return msgspec.json.decode(canonical(value))


def tags_read(projection: Projection[Any]) -> frozenset[str]:
    """The tags of the events that a projection reads, retired ones included."""
    return tags_of(*projection.reads)


@cache
def tags_of(*reads: type[Event]) -> frozenset[str]:
    """The tags of these event types, and the retired tags that are upcast to them."""
    tags = {kind.tag for kind in reads}
    for retired in UPCASTERS:
        current = retired
        while current in UPCASTERS:
            current = UPCASTERS[current].successor
        if current in tags:
            tags.add(retired)
    return frozenset(tags)


@explain_arguments
def fold(records: Iterable[Record], projection: Projection[S], state: S | None = None) -> S:
    """The state after these records.

    Args:
        records: Records of one run, in order; those of kinds that it does not read are skipped.
        projection: What to fold.
        state: The state before these records; by default the initial one.
    """
    current = projection.initial() if state is None else state
    return cast(S, fold_pages(records, (projection,), (current,))[0][0])


@explain_arguments
def fold_together(
    records: Iterable[Record],
    projections: Sequence[Projection[Any]],
    states: Sequence[Any] | None = None,
) -> list[Any]:
    """The states of several projections, in one pass over the records (see `fold`)."""
    _places(tuple(projections))
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
        if not isinstance(last, Record):
            raise InvalidInputError(
                f"Invalid records: got {type(last).__name__}, expected the records of a run, such "
                "as ledger.read(run_id)."
            )
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
    """By tag, the places of the projections that read it."""
    found: dict[str, tuple[int, ...]] = {}
    for place, projection in enumerate(projections):
        if not isinstance(projection, Projection):
            raise InvalidInputError(
                f"Invalid projection: got {type(projection).__name__}, expected a Projection."
            )
        for tag in tags_read(projection):
            found[tag] = (*found.get(tag, ()), place)
    return found
