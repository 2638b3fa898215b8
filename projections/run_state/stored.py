"""Stored folds: where a run stands, without folding all of it again.

One row per run and projection on a shelf of the ledger, overwritten as the run grows. It holds
no message bodies, so it stays small however long the run is. It is derived data: one that is
missing, stale, damaged or of another history is noticed, and the run is folded from its events.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from hashlib import sha256
from itertools import islice
from typing import Any, NamedTuple

import msgspec

from turnledger.ledger import Ledger, Record, StoreUnavailableError
from turnledger.ledger.runs.append_request import RunId, canonical_id
from turnledger.projections.digests import canonical
from turnledger.projections.persistent.containers import NotLoadedError
from turnledger.projections.projection import Projection, fold_pages
from turnledger.projections.run_state.state import RunState, built_in

SHELF = "folds"
# A row is written anew when more events came than this, and no more than
# one for this many of its bytes: an event then never costs more than that.
FEWEST_EVENTS = 500
BYTES_AN_EVENT = 1024
# Events after which a fold that is to be stored lets go of what is not stored.
STRETCH = 20_000


class Stored(msgspec.Struct, frozen=True):
    """A row: the state after a version, and what it must fit."""

    fingerprint: str
    version: int
    # The chain's digest at that version: another history has another.
    chain: str
    # The state's digest as its projection gives it, and one of the state's very text.
    digest: str
    check: str
    state: msgspec.Raw


_decoder = msgspec.json.Decoder(Stored)


def standing(ledger: Ledger, run_id: RunId) -> RunState:
    """Where a run stands: its state now, from stored folds and the events since.

    Open calls, sums, the latest checkpoint and every digest are there. What lies behind may
    not be (NotLoadedError): `state_at` folds all of it.
    """
    projections = built_in()
    states, version = fold_stored(ledger, run_id, projections)
    return RunState(version, projections, states)


def fold_stored(
    ledger: Ledger, run_id: RunId, projections: Sequence[Projection[Any]]
) -> tuple[list[Any], int]:
    """The states of projections now, and the version that they are at.

    They are kept for the next time if enough has happened since they last were.
    """
    run = canonical_id(run_id)
    folded = _fold_on(ledger, run, projections) or _fold_all(ledger, run, projections)
    last = folded.last
    if last is None:
        return folded.states, 0
    due = max(FEWEST_EVENTS, folded.size // BYTES_AN_EVENT)
    if last.version - folded.covered > due:
        with suppress(StoreUnavailableError):  # it was worth a try, and is no more than that
            keep(ledger, run, projections, folded.states, last)
    return folded.states, last.version


def keep(
    ledger: Ledger,
    run: str,
    projections: Sequence[Projection[Any]],
    states: Sequence[Any],
    last: Record,
) -> bool:
    """Store the states after a record; False if one of the projections keeps none."""
    rows: dict[str, str | None] = {}
    for projection, state in zip(projections, states, strict=True):
        row = row_of(projection, state, last)
        if row is None:
            return False
        rows[key_of(run, projection)] = row
    return ledger.shelf(SHELF).put(rows, 0)


def row_of(projection: Projection[Any], state: Any, last: Record) -> str | None:
    """What is stored of a state after a record."""
    kept = projection.stored(state)
    if kept is None:
        return None
    text = canonical(kept)
    stored = Stored(
        projection.fingerprint,
        last.version,
        last.digest,
        projection.digest(state).hex(),
        sha256(text).hexdigest(),
        msgspec.Raw(text),
    )
    return msgspec.json.encode(stored).decode()


def state_of(projection: Projection[Any], row: Stored) -> Any:
    """The state that a row holds; ValueError if it is stale or damaged."""
    if row.fingerprint != projection.fingerprint:
        raise ValueError(f"it was made by {row.fingerprint}")
    if sha256(bytes(row.state)).hexdigest() != row.check:
        raise ValueError("it is not as it was written")
    try:
        state = projection.restored(msgspec.json.decode(row.state))
    except (TypeError, KeyError) as error:
        raise ValueError(str(error)) from error
    if projection.digest(state).hex() != row.digest:
        raise ValueError("its state has another digest")
    return state


class _Folded(NamedTuple):
    """States after a record, and what of them was stored: up to where, in how many bytes."""

    states: list[Any]
    last: Record | None
    covered: int = 0
    size: int = 0


def _fold_all(ledger: Ledger, run: str, projections: Sequence[Projection[Any]]) -> _Folded:
    return _Folded(*fold_cold(ledger, run, projections))


def fold_cold(
    ledger: Ledger, run: str, projections: Sequence[Projection[Any]], until: int | None = None
) -> tuple[list[Any], Record | None]:
    """States of a whole run for those who store them, and its last record.

    What a stored fold leaves out is let go on the way, so that a long run fills no memory; a
    run in which something of old is changed is folded as a whole.
    """
    states: list[Any] = [p.initial() for p in projections]
    last: Record | None = None
    records = ledger.read(run, until=until)
    try:
        while True:
            states, found = fold_pages(islice(records, STRETCH), projections, states)
            if found is None:
                return states, last
            last = found
            if last.version % STRETCH == 0:
                states = [p.cooled(state) for p, state in zip(projections, states, strict=True)]
    except NotLoadedError:
        whole = ledger.read(run, until=until)
        return fold_pages(whole, projections, [p.initial() for p in projections])


def _fold_on(ledger: Ledger, run: str, projections: Sequence[Projection[Any]]) -> _Folded | None:
    """From what is stored; None if that can't be."""
    keys = [key_of(run, projection) for projection in projections]
    rows = ledger.shelf(SHELF).get(keys, 0)
    try:
        kept = [_decoder.decode(rows[key]) for key in keys]
        states = [state_of(p, row) for p, row in zip(projections, kept, strict=True)]
    except (KeyError, ValueError):
        return None
    if not kept or len({(row.version, row.chain) for row in kept}) != 1:
        return None
    covered = kept[0].version
    # The record that it covers last is read too: it says whether this is the same history.
    records = ledger.read(run, after=covered - 1)
    first = next(records, None)
    if first is None or first.digest != kept[0].chain:
        return None
    try:
        states, last = fold_pages(records, projections, states)
    except NotLoadedError:
        return None  # an event changes something of old
    return _Folded(states, last or first, covered, sum(len(rows[key]) for key in keys))


def key_of(run: str, projection: Projection[Any]) -> str:
    """Under which key a run's row is kept."""
    return f"{run} {projection.name}"
