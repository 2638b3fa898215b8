"""Comparison of two runs over HTTP: in slices, which compare the runs once."""

from __future__ import annotations

from collections import OrderedDict
from itertools import islice
from threading import Event as Flag
from threading import Lock
from typing import Annotated, Any, NamedTuple, TypeAlias
from uuid import UUID

import msgspec
from fastapi import Query
from starlette.requests import Request
from starlette.responses import Response

from turnledger.adapters.http.protocol import problems
from turnledger.adapters.http.protocol.answers import FOREVER, FRESH, Json
from turnledger.adapters.http.protocol.api import Answer, Api
from turnledger.adapters.http.protocol.bodies import JSON
from turnledger.adapters.http.protocol.cut import Cut, cut_fields, plain_fields
from turnledger.adapters.http.protocol.parameters import LARGEST, CutLarge
from turnledger.adapters.http.served import Served
from turnledger.ledger import Ledger
from turnledger.projections import Change, Comparison, compare
from turnledger.projections.comparison.runs import Divergence, Row
from turnledger.projections.comparison.states import state_changes

# Differences whose rows are listed; rows of all comparisons that are kept, and bytes of what
# changed in them.
MOST_DIFFERENCES, MOST_ROWS, MOST_BYTES = 1_000, 300_000, 50_000_000
MOST_CHANGES = 1_000


First: TypeAlias = Annotated[UUID, Query(description="A run.")]
Second: TypeAlias = Annotated[UUID, Query(description="Another run.")]
Version: TypeAlias = Annotated[int, Query(ge=0, le=LARGEST, description="Its version; 0: before.")]


class _Key(NamedTuple):
    first: UUID
    first_version: int
    second: UUID
    second_version: int


class RowSlice(msgspec.Struct, frozen=True):
    """Two runs compared, and a slice of the rows: every event of both stands in one of them.

    `shared` events are the very same records. `differences` are the numbers of the rows, of all
    `total`, that are not the same and not bookkeeping; `complete` is false if there are more than
    the first 1,000. `after` are the last versions of both runs before the slice, 0 for none. `cut`
    is there if it was asked for.
    """

    first: str
    second: str
    shared: int
    divergence: Divergence | None
    rows: list[Row]
    start: int
    total: int
    differences: list[int]
    complete: bool
    after: tuple[int, int]
    cut: list[Cut] | msgspec.UnsetType = msgspec.UNSET


class StateDifferences(msgspec.Struct, frozen=True):
    """What differs between the states of two runs, as a JSON Patch from the first to the second.

    What always differs is left out: ids, times, workers. `complete` is false if more differs than
    is listed. `cut` is there if it was asked for.
    """

    first_version: int
    second_version: int
    changes: list[Change]
    complete: bool = True
    cut: list[Cut] | msgspec.UnsetType = msgspec.UNSET


class _Compared(NamedTuple):
    comparison: Comparison
    differences: list[int]
    size: int


class Comparisons:
    """The operations that compare runs. The comparisons made last are kept."""

    def __init__(self, served: Served) -> None:
        self._served = served
        self._lock = Lock()
        self._kept: OrderedDict[_Key, _Compared] = OrderedDict()

    def add_to(self, api: Api) -> None:
        """Add the operations."""
        api.add(
            "GET",
            "/v1/compare",
            self.compare_runs,
            role="reader",
            answers={200: Answer("What differs", {JSON: RowSlice})},
            refuses=(problems.RUN_NOT_FOUND,),
        )
        api.add(
            "GET",
            "/v1/compare/state",
            self.compare_states,
            role="reader",
            answers={200: Answer("What differs in the states", {JSON: StateDifferences})},
            refuses=(problems.RUN_NOT_FOUND, problems.EVENT_NOT_FOUND),
        )

    async def compare_runs(
        self,
        request: Request,
        a: First,
        b: Second,
        start: Annotated[
            int, Query(alias="from", ge=0, le=LARGEST, description="The first row.")
        ] = 0,
        limit: Annotated[
            int | None, Query(ge=1, le=1000, description="How many rows at most. Default: all.")
        ] = None,
        is_cut: CutLarge = False,
    ) -> Response:
        """Compare the events of two runs: what is the same, changed, or in one of them only."""

        def found(ledger: Ledger) -> RowSlice:
            made = _slice(self._compared(ledger, a, b), start, limit)
            return _cut(made) if is_cut else made

        return Json(await self._served.fold(request, found), headers=FRESH)

    async def compare_states(
        self,
        request: Request,
        a: First,
        a_at: Version,
        b: Second,
        b_at: Version,
        is_cut: CutLarge = False,
    ) -> Response:
        """Compare the states of two runs, at a version each, without ids and times."""
        first = await self._served.state(request, a, a_at)
        second = await self._served.state(request, b, b_at)

        def compared(gone: Flag) -> StateDifferences:
            found = list(islice(state_changes(first, second), MOST_CHANGES + 1))
            shown = found[:MOST_CHANGES]
            made = StateDifferences(a_at, b_at, shown, len(shown) == len(found))
            if not is_cut:
                return made
            plain: Any = [plain_fields(one) for one in shown]
            return cut_fields(msgspec.structs.replace(made, changes=plain), "changes")

        return Json(await self._served.work.fold(request, compared), headers=FOREVER)

    def _compared(self, ledger: Ledger, a: UUID, b: UUID) -> _Compared:
        key = _Key(a, ledger.head(a), b, ledger.head(b))
        with self._lock:
            known = self._kept.get(key)
            if known is not None:
                self._kept.move_to_end(key)
                return known
        made = compare(ledger, a, b)
        different = (
            place
            for place, row in enumerate(made.rows)
            if row.kind != "same" and not row.bookkeeping
        )
        found = _Compared(made, list(different), _size(made))
        if key == (a, ledger.head(a), b, ledger.head(b)):  # nothing came in between
            self._keep(key, found)
        return found

    def _keep(self, key: _Key, found: _Compared) -> None:
        with self._lock:
            self._kept[key] = found
            while self._is_full():
                self._kept.popitem(last=False)

    def _is_full(self) -> bool:
        rows = sum(len(one.comparison.rows) for one in self._kept.values())
        return rows > MOST_ROWS or sum(one.size for one in self._kept.values()) > MOST_BYTES


def _size(made: Comparison) -> int:
    """Bytes of the values that changed; counted until they are too many to be kept."""
    size = 0
    for row in made.rows:
        size += len(msgspec.json.encode(row.changes)) if row.changes else 0
        if size > MOST_BYTES:
            break
    return size


def _slice(found: _Compared, start: int, limit: int | None) -> RowSlice:
    made, different, _ = found
    end = None if limit is None else start + limit
    return RowSlice(
        made.first,
        made.second,
        made.shared,
        made.divergence,
        list(made.rows[start:end]),
        start,
        len(made.rows),
        different[:MOST_DIFFERENCES],
        len(different) <= MOST_DIFFERENCES,
        _versions(made.rows[:start]),
    )


def _versions(rows: tuple[Row, ...]) -> tuple[int, int]:
    """The last versions of both runs in these rows."""
    first = next((row.first for row in reversed(rows) if row.first is not None), 0)
    second = next((row.second for row in reversed(rows) if row.second is not None), 0)
    return first, second


def _cut(made: RowSlice) -> RowSlice:
    rows: Any = [
        {**plain_fields(row), "changes": [plain_fields(one) for one in row.changes]}
        for row in made.rows
    ]
    return cut_fields(msgspec.structs.replace(made, rows=rows), "rows")
