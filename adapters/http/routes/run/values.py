"""Values: windows of any value of a run's state or of an event, and the events that changed it."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from itertools import islice
from threading import Event as Flag
from time import monotonic
from typing import Annotated, Any, Literal, TypeAlias

import msgspec
from fastapi import Query
from msgspec import UNSET, UnsetType
from starlette.requests import Request
from starlette.responses import Response

from turnledger.adapters.http.protocol import problems
from turnledger.adapters.http.protocol.answers import FOREVER, FRESH, Json, etag, not_modified
from turnledger.adapters.http.protocol.api import Answer, Api
from turnledger.adapters.http.protocol.bodies import JSON
from turnledger.adapters.http.protocol.cut import Cut, cut, cut_fields, plain_fields
from turnledger.adapters.http.protocol.parameters import (
    LARGEST,
    AtOrLast,
    IfNoneMatch,
    RunPath,
    StatePointer,
    VersionPath,
)
from turnledger.adapters.http.protocol.problems import ProblemError
from turnledger.adapters.http.served import Served
from turnledger.projections import RunState
from turnledger.projections.persistent.lazy_json import MISSING, LazyList, pointer_parts, resolve
from turnledger.projections.run_state.blame import ValueChange, value_changes

# Characters of a text in one window.
CHARACTERS = 20_000
# Seconds that a search for changes takes at most before it answers with what it has.
SECONDS = 5.0
Pointer: TypeAlias = Annotated[
    str,
    Query(
        max_length=2000,
        pattern="^(/([^~/]|~[01])*)*$",
        description="A JSON Pointer; empty: the whole.",
    ),
]
Before: TypeAlias = Annotated[
    int | None, Query(ge=0, le=LARGEST, description="`next` of the page before.")
]
From: TypeAlias = Annotated[
    int,
    Query(
        alias="from",
        ge=-1000,
        le=LARGEST,
        description="The first entry, or character of a text; -50 for the last 50.",
    ),
]
Entries: TypeAlias = Annotated[
    int, Query(ge=1, le=200, description="How many entries at most; a text has 20,000 characters.")
]


class ValueWindow(msgspec.Struct, frozen=True, kw_only=True):
    """A slice of a value: of a text, of a list's items, or of an object's fields in their order.

    `total` is how many characters (Unicode code points) or entries the value has; of other kinds
    it is 1, and `value` is there. Large entries are shortened, and listed in `cut`.
    """

    version: int
    pointer: str
    kind: Literal["text", "list", "object", "number", "boolean", "null"]
    total: int
    start: int
    text: str | UnsetType = UNSET
    items: list[Any] | UnsetType = UNSET
    fields: list[tuple[str, Any]] | UnsetType = UNSET
    value: bool | int | float | UnsetType | None = UNSET
    cut: list[Cut]


class ChangedValue(msgspec.Struct, frozen=True):
    """An event that changed a value: `was` is the value before it unless it added the value.

    `value` is the value after it unless it removed the value.
    """

    version: int
    type: str
    op: Literal["add", "remove", "replace"]
    was: Any = UNSET
    value: Any = UNSET


class ValueChanges(msgspec.Struct, frozen=True):
    """Events that changed a value, newest first; `next` is `before` of the next page, or null.

    Large values are shortened, and listed in `cut`.
    """

    changes: list[ChangedValue]
    next: int | None
    cut: list[Cut]


class Values:
    """The operations on single values."""

    def __init__(self, served: Served) -> None:
        self._served = served
        self._ledger = served.ledger

    def add_to(self, api: Api) -> None:
        """Add the operations."""
        found = Answer("A slice of the value", {JSON: ValueWindow}, ("etag",))
        missing = (problems.RUN_NOT_FOUND, problems.EVENT_NOT_FOUND, problems.NOT_FOUND)
        api.add(
            "GET",
            "/v1/runs/{run}/value",
            self.get_value,
            role="reader",
            answers={200: found, 304: Answer("Not modified", {})},
            refuses=missing,
        )
        api.add(
            "GET",
            "/v1/runs/{run}/events/{version}/value",
            self.get_event_value,
            role="reader",
            answers={200: found},
            refuses=missing,
        )

        api.add(
            "GET",
            "/v1/runs/{run}/value/changes",
            self.get_value_changes,
            role="reader",
            answers={200: Answer("The events that changed it", {JSON: ValueChanges})},
            refuses=(problems.RUN_NOT_FOUND,),
        )

    async def get_value(
        self,
        request: Request,
        run: RunPath,
        pointer: Pointer = "",
        at: AtOrLast = None,
        start: From = 0,
        limit: Entries = 100,
        if_none_match: IfNoneMatch = None,
    ) -> Response:
        """Get a slice of any value of a run's state.

        It costs the slice, not the run's length, but for gaps of the timeline.
        """
        state = await self._served.state(request, run, at)
        tag = etag(state.version)
        if same := not_modified(tag, if_none_match):
            return same
        made = await self._served.work.read(
            lambda: value_window(_in_state(state, pointer), state.version, pointer, start, limit)
        )
        return Json(made, headers={"etag": tag, **(FRESH if at is None else FOREVER)})

    async def get_event_value(
        self,
        run: RunPath,
        version: VersionPath,
        pointer: Pointer = "",
        start: From = 0,
        limit: Entries = 100,
    ) -> Response:
        """Get a slice of any value of an event's data."""

        def made() -> tuple[str, ValueWindow]:
            record = self._ledger.record(run, version)
            found = resolve(msgspec.json.decode(record.row.data), pointer_parts(pointer))
            return record.digest, value_window(found, version, pointer, start, limit)

        digest, answer = await self._served.work.read(made)
        return Json(answer, headers={"etag": f'"{digest}"', **FOREVER})

    async def get_value_changes(
        self,
        request: Request,
        run: RunPath,
        pointer: StatePointer,
        before: Before = None,
        limit: Annotated[int, Query(ge=1, le=200, description="How many at most.")] = 50,
    ) -> Response:
        """Find the events that changed a value of the state, or what is in it, newest first.

        After five seconds it answers with what it has; `next` is where to go on.
        """

        def found(gone: Flag) -> ValueChanges:
            self._ledger.run(run)
            changed = value_changes(
                self._ledger,
                run,
                pointer,
                moments=self._served.moments,
                before=before,
                cancelled=gone.is_set,
            )
            return cut_fields(_page(changed, limit, monotonic() + SECONDS), "changes")

        return Json(await self._served.cancellable(request, found), headers=FRESH)


def _page(changed: Iterable[ValueChange | int], limit: int, deadline: float) -> ValueChanges:
    made: list[Any] = []
    following: int | None = None
    for one in changed:
        if isinstance(one, ValueChange):
            made.append(plain_fields(_changed(one)))
            reached = one.record.version
        else:
            reached = one
        if len(made) == limit or monotonic() > deadline:
            following = reached if reached > 1 else None
            break
    return ValueChanges(made, following, [])


def _changed(one: ValueChange) -> ChangedValue:
    was, value = (UNSET if value is MISSING else value for value in (one.was, one.value))
    op: Literal["add", "remove", "replace"] = "replace"
    if was is UNSET or value is UNSET:
        op = "add" if was is UNSET else "remove"
    return ChangedValue(one.record.version, one.record.tag, op, was, value)


def _in_state(state: RunState, pointer: str) -> Any:
    """The value that a pointer names in a state; MISSING if it names nothing."""
    if not pointer:
        return state.lazy_json()
    view, *within = pointer_parts(pointer)
    if view not in state.view_names:
        return MISSING
    return resolve(state.lazy_view(view), within)


def value_window(value: Any, version: int, pointer: str, start: int, limit: int) -> ValueWindow:
    """A slice of a value.

    Args:
        value: The value, plain or lazy JSON.
        version: The version that it is of.
        pointer: Where it is.
        start: The first entry or character; -50 for the last 50.
        limit: How many entries at most.

    Raises:
        ProblemError: The value is MISSING.
    """
    if start < 0:
        start = max(0, len(value) + start) if isinstance(value, str | dict | list | LazyList) else 0
    made = partial(ValueWindow, version=version, pointer=pointer, start=start, cut=[])
    if isinstance(value, str):
        text = value[start : start + CHARACTERS]
        return made(kind="text", total=len(value), text=text)
    if isinstance(value, dict):
        pairs = [list(pair) for pair in islice(value.items(), start, start + limit)]
        shown, found = cut({"fields": pairs}, fields=True, pairs=True)
        return made(kind="object", total=len(value), fields=shown["fields"], cut=found)
    if isinstance(value, list | LazyList):
        rest = value.after(start) if isinstance(value, LazyList) else value[start : start + limit]
        shown, found = cut({"items": list(islice(rest, limit))}, fields=True)
        return made(kind="list", total=len(value), items=shown["items"], cut=found)
    if value is None:
        return made(kind="null", total=1, value=None)
    if isinstance(value, bool):
        return made(kind="boolean", total=1, value=value)
    if isinstance(value, int | float):
        return made(kind="number", total=1, value=value)
    raise ProblemError(problems.NOT_FOUND, f"The pointer {pointer!r} names no value.")
