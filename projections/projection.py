"""Projection, the base class of views, and `fold`, which runs projections over records.

A projection is a pure fold: it names the events that it reads, begins with `initial()` and
takes one record at a time with `apply`. Its state is an immutable value. It reads no clock and
no set order, so that folding again gives the same state.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache, lru_cache
from itertools import islice
from types import MethodType
from typing import Any, ClassVar, Generic, TypeAlias, TypeVar, cast

import msgspec

from turnledger.ledger import Event, Record
from turnledger.ledger.arguments import explain_arguments
from turnledger.ledger.errors import InvalidInputError
from turnledger.ledger.events.types import EVENT_TYPES
from turnledger.ledger.events.upcasters import UPCASTERS
from turnledger.projections.digests import canonical, combine

S = TypeVar("S")
# Records that are held at once: what the ledger reads in one go.
PAGE = 500
# By event type the method of a `Folding` that is given the event and its record.
Takes: TypeAlias = Mapping[type[Event], Callable[[Any, Any, Record], None]]


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

    # A fold of many views calls these directly: no step in between for each event of each view.
    takes: ClassVar[Takes]

    @abstractmethod
    def done(self) -> S:
        """The state now. Nothing is folded into it after this."""


class BulkProjection(Projection[S]):
    """A projection that folds many records into one new state (see `Folding`)."""

    @abstractmethod
    def begin(self, state: S) -> Folding[S]: ...

    def apply(self, state: S, record: Record) -> S:
        folding, event = self.begin(state), record.event
        folding.takes[type(event)](folding, event, record)
        return folding.done()

    def apply_all(self, state: S, records: Sequence[Record]) -> S:
        folding = self.begin(state)
        takes = folding.takes
        for record in records:
            event = record.event
            takes[type(event)](folding, event, record)
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
    return frozenset(tags | {retired for retired in UPCASTERS if _type_of(retired).tag in tags})


@cache
def _type_of(tag: str) -> type[Event]:
    """The type of the events that were recorded under a tag, retired ones included."""
    while tag in UPCASTERS:
        tag = UPCASTERS[tag].successor
    return EVENT_TYPES[tag]


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
    left = iter(records)
    page = _next_page(left)
    if len(page) <= 1:  # a step of a loop
        current = list(states)
        for record in page:
            for place in _places(tuple(projections)).get(record.tag, ()):
                current[place] = projections[place].apply(current[place], record)
        return current, page[-1] if page else None
    together = _Together(projections, states)
    last: Record | None = None
    while page:
        last = page[-1]
        together.take(page)
        page = _next_page(left)
    return together.done(), last


def _next_page(left: Iterator[Record]) -> list[Record]:
    page = list(islice(left, PAGE))
    if page and not isinstance(page[-1], Record):
        raise InvalidInputError(
            f"Invalid records: got {type(page[-1]).__name__}, expected the records of a run, such "
            "as ledger.read(run_id)."
        )
    return page


class _Together:
    """Several projections while pages of records are folded into all of them in one pass.

    A projection is begun with the first record that it reads: the state of one that reads none
    stays the same object.
    """

    def __init__(self, projections: Sequence[Projection[Any]], states: Sequence[Any]) -> None:
        self._projections = projections
        self._places = _places(tuple(projections))
        self._states = list(states)
        self._begun: dict[int, Folding[Any]] = {}
        # Of the projections that fold page by page, by their places: records of this page.
        self._gathered: dict[int, list[Record]] = {}
        self._takes: dict[str, tuple[Callable[[Event, Record], None], ...]] = {}

    def take(self, page: Sequence[Record]) -> None:
        known = self._takes
        for record in page:
            takes = known.get(record.tag)
            if takes is None:
                takes = known[record.tag] = tuple(self._taking(record.tag))
            if takes:
                event = record.event
                for take in takes:
                    take(event, record)
        for place, gathered in self._gathered.items():
            if gathered:
                apply_all = self._projections[place].apply_all
                self._states[place] = apply_all(self._states[place], tuple(gathered))
                gathered.clear()

    def _taking(self, tag: str) -> Iterator[Callable[[Event, Record], None]]:
        """What takes the events of a tag: methods of foldings, and lists of this page's records."""
        for place in self._places.get(tag, ()):
            projection = self._projections[place]
            if not isinstance(projection, BulkProjection):
                gathered = self._gathered.setdefault(place, [])
                yield lambda _, record, gathered=gathered: gathered.append(record)  # type: ignore[misc]
                continue
            if place not in self._begun:
                self._begun[place] = projection.begin(self._states[place])
            folding = self._begun[place]
            yield MethodType(folding.takes[_type_of(tag)], folding)

    def done(self) -> list[Any]:
        for place, folding in self._begun.items():
            self._states[place] = folding.done()
        return self._states


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
