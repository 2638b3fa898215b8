"""Comparison of two runs: equal, changed and additional events, and the first divergence.

Events are aligned by their normalized content (`comparison.normalize`), not by their versions.
First those that are not bookkeeping: a common beginning, then equal events, then, between those,
events of the same kind, which have changed. So the first divergence is the first such event
that is not equal, however the rest is aligned. Bookkeeping is aligned in between.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Literal, TypeAlias

import msgspec

from turnledger.ledger import Ledger, Record
from turnledger.ledger.arguments import explain_arguments
from turnledger.ledger.runs.append_request import RunId, canonical_id
from turnledger.ledger.runs.lineage import NO_END, lineage
from turnledger.projections.comparison.align import Pair, align, gaps, whole
from turnledger.projections.comparison.normalize import NormalizedEvent, Normalizer, one_line
from turnledger.projections.run_state.json_diff import Change, changes
from turnledger.projections.run_state.state import state_at
from turnledger.projections.session.declarations import Declarations

# How much of an event a row quotes.
LONGEST_TEXT = 200

RowKind: TypeAlias = Literal["same", "changed", "only_first", "only_second"]


class Row(msgspec.Struct, frozen=True, gc=False):
    """An event of both runs or of one: its version in each, and what differs.

    `bookkeeping` rows never make two runs different. `text` is the event in one line, of the
    first run if it is in both. `changes` lead from the first run's normalized event to the
    second's.
    """

    kind: RowKind
    first: int | None
    second: int | None
    tag: str
    bookkeeping: bool
    text: str
    changes: tuple[Change, ...] = ()


class Divergence(msgspec.Struct, frozen=True, gc=False):
    """The first divergence: the versions of both events, and the one or two `rows` it is in."""

    first: int | None
    second: int | None
    rows: tuple[int, ...]


class Comparison(msgspec.Struct, frozen=True):
    """Two runs compared: every event of both once; `shared` events are the very same records."""

    first: str
    second: str
    shared: int
    divergence: Divergence | None
    rows: tuple[Row, ...]

    @property
    def same(self) -> bool:
        """True if both runs did the same; bookkeeping may differ."""
        return self.divergence is None

    @property
    def counts(self) -> dict[str, int]:
        """How many rows of each kind there are; `bookkeeping` are those that differ, in that only.

        The others are the same, or are not bookkeeping.
        """
        found = Counter(
            "bookkeeping" if row.bookkeeping and row.kind != "same" else row.kind
            for row in self.rows
        )
        kinds = ("same", "changed", "only_first", "only_second", "bookkeeping")
        return {kind: found[kind] for kind in kinds}


class StateComparison(msgspec.Struct, frozen=True):
    """Two runs' states at a version each; `same` is whether they have the same outcome digest."""

    first: str
    first_version: int
    second: str
    second_version: int
    same: bool
    changes: tuple[Change, ...]


@explain_arguments
def compare(
    ledger: Ledger, first: RunId, second: RunId, *, other_ledger: Ledger | None = None
) -> Comparison:
    """Compare the events of two runs.

    Costs about what reading both costs. What a fork shares with its parent is read once.

    Args:
        ledger: The ledger that has the first run.
        first: A run.
        second: Another run.
        other_ledger: The ledger that has the second run; by default the same.
    """
    one, other, shared = _normalized(ledger, first, second, other_ledger)
    rows = tuple(_rows(one, other, _pairs(one, other)))
    return Comparison(
        canonical_id(first), canonical_id(second), shared, _first_divergence(rows), rows
    )


def compare_states(
    ledger: Ledger,
    first: RunId,
    first_version: int,
    second: RunId,
    second_version: int,
    *,
    other_ledger: Ledger | None = None,
    declarations: Declarations | None = None,
) -> StateComparison:
    """Compare the state of one run at a version with that of another.

    Args:
        ledger: The ledger that has the first run.
        first: A run.
        first_version: Its version.
        second: Another run, or the same.
        second_version: Its version.
        other_ledger: The ledger that has the second run; by default the same.
        declarations: Types and reducers of the programs' slices; without, slices are plain JSON.
    """
    one = state_at(ledger, first, first_version, declarations=declarations)
    other = state_at(other_ledger or ledger, second, second_version, declarations=declarations)
    return StateComparison(
        canonical_id(first),
        first_version,
        canonical_id(second),
        second_version,
        one.outcome_digest == other.outcome_digest,
        tuple(changes(one.lazy_json(), other.lazy_json())),
    )


# --- reading -----------------------------------------------------------------------


def _normalized(
    ledger: Ledger, first: RunId, second: RunId, other_ledger: Ledger | None
) -> tuple[list[NormalizedEvent], list[NormalizedEvent], int]:
    """The normalized events of both runs, and how many they share; those are read once."""
    shared = _shared(ledger, first, second) if other_ledger in (None, ledger) else 0
    records = ledger.read(first)
    normalizer = Normalizer()
    common = normalizer.normalize(islice(records, shared) if shared < NO_END else records)
    going_on = normalizer.copy()
    one = [*common, *normalizer.normalize(records)]
    rest: Iterable[Record] = ()
    if shared < NO_END:
        rest = (other_ledger or ledger).read(second, shared)
    other = [*common, *going_on.normalize(rest)]
    return one, other, len(common)


def _shared(ledger: Ledger, first: RunId, second: RunId) -> int:
    """Up to which version two runs of a ledger are the very same records."""
    shared = 0
    one, other = (lineage(canonical_id(run), ledger.store.run) for run in (first, second))
    for segment, mate in zip(one, other, strict=False):
        if segment.run_id != mate.run_id:
            break
        shared = min(segment.until, mate.until)
        if segment.until != mate.until:
            break
    return shared


# --- aligning ----------------------------------------------------------------------


def _pairs(one: Sequence[NormalizedEvent], other: Sequence[NormalizedEvent]) -> list[Pair]:
    """Which events belong together: first those that are not bookkeeping, then the others."""
    every, every_other = range(len(one)), range(len(other))
    pairs = _matched(
        one,
        other,
        [place for place in every if not one[place].bookkeeping],
        [place for place in every_other if not other[place].bookkeeping],
    )
    between: list[Pair] = []
    for low, high, other_low, other_high in gaps(pairs, whole(one, other)):
        books = [place for place in range(low, high) if one[place].bookkeeping]
        mates = [place for place in range(other_low, other_high) if other[place].bookkeeping]
        if books and mates:
            between += _matched(one, other, books, mates)
    return sorted(pairs + between)


def _matched(
    one: Sequence[NormalizedEvent],
    other: Sequence[NormalizedEvent],
    places: list[int],
    mates: list[int],
) -> list[Pair]:
    """Equal events first; between them, those that are of one kind."""
    equal = align([one[p].key for p in places], [other[m].key for m in mates])
    found = list(equal)
    for low, high, other_low, other_high in gaps(equal, whole(places, mates)):
        changed = align(
            [one[p].kind for p in places[low:high]],
            [other[m].kind for m in mates[other_low:other_high]],
        )
        found += [(low + place, other_low + mate) for place, mate in changed]
    return sorted((places[place], mates[mate]) for place, mate in found)


# --- rows --------------------------------------------------------------------------


def _rows(
    one: Sequence[NormalizedEvent], other: Sequence[NormalizedEvent], pairs: list[Pair]
) -> Iterator[Row]:
    low = other_low = 0
    for high, other_high in (*pairs, (len(one), len(other))):
        for event in one[low:high]:
            yield _row("only_first", event, event.version, None)
        for event in other[other_low:other_high]:
            yield _row("only_second", event, None, event.version)
        if high < len(one):
            yield _both(one[high], other[other_high])
        low, other_low = high + 1, other_high + 1


def _row(kind: RowKind, event: NormalizedEvent, first: int | None, second: int | None) -> Row:
    text = one_line(event, LONGEST_TEXT)
    return Row(kind, first, second, event.tag, event.bookkeeping, text)


def _both(event: NormalizedEvent, mate: NormalizedEvent) -> Row:
    found = () if event is mate else tuple(changes(event.content, mate.content))
    return Row(
        "changed" if found else "same",
        event.version,
        mate.version,
        event.tag,
        event.bookkeeping or (bool(found) and event.key == mate.key),
        one_line(event, LONGEST_TEXT),
        found,
    )


def _first_divergence(rows: Sequence[Row]) -> Divergence | None:
    """The first row that is not the same and not bookkeeping.

    If it is in one run only, what the other run has in its place is looked for up to the next
    event that both have and that is not bookkeeping.
    """
    found: dict[RowKind, int] = {}
    for place, row in enumerate(rows):
        if row.bookkeeping:
            continue
        if found and row.kind in ("same", "changed"):
            break
        if row.kind == "changed":
            return Divergence(row.first, row.second, (place,))
        if row.kind != "same":
            found.setdefault(row.kind, place)
    if not found:
        return None
    first, second = found.get("only_first"), found.get("only_second")
    return Divergence(
        rows[first].first if first is not None else None,
        rows[second].second if second is not None else None,
        tuple(sorted(found.values())),
    )
