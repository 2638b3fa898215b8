"""States of a run at any version: windows of its views, what an event changed, and diffs."""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice
from threading import Event as Flag
from typing import Annotated, Any, Literal, NamedTuple, TypeAlias
from uuid import UUID

import msgspec
from fastapi import Depends, Path, Query
from starlette.requests import Request
from starlette.responses import Response

from turnledger.adapters.http.protocol import problems
from turnledger.adapters.http.protocol.answers import FOREVER, FRESH, Json, etag, not_modified
from turnledger.adapters.http.protocol.api import Answer, Api
from turnledger.adapters.http.protocol.bodies import JSON
from turnledger.adapters.http.protocol.cut import Cut, cut_fields, plain_fields
from turnledger.adapters.http.protocol.parameters import (
    LARGEST,
    AtOrLast,
    CutLarge,
    IfNoneMatch,
    Limit,
    RunPath,
)
from turnledger.adapters.http.protocol.problems import ProblemError
from turnledger.adapters.http.served import Served
from turnledger.ledger import InvalidInputError
from turnledger.ledger.errors import error_message
from turnledger.projections import Change, RunState, step, window
from turnledger.projections.run_state.json_diff import changes
from turnledger.projections.run_state.state import unshared_json

View: TypeAlias = Literal[
    "history", "tools", "slices", "checkpoints", "usage", "summary", "timeline", "prompt"
]
ViewPath: TypeAlias = Annotated[View, Path(description="The view.")]
ListName: TypeAlias = Annotated[
    str | None,
    Query(
        alias="list",
        pattern="^[A-Za-z_]{1,40}$",
        description="The list of the view, if it has several: `messages`. Default: the first.",
    ),
]
From: TypeAlias = Annotated[
    int,
    Query(
        alias="from",
        ge=-1000,
        le=LARGEST,
        description="The index of the first item; -50 for the last 50.",
    ),
]
Version: TypeAlias = Annotated[int, Query(ge=0, le=LARGEST, description="A version; 0: the start.")]
EventVersion: TypeAlias = Annotated[
    int, Query(ge=1, le=LARGEST, description="The version of the event.")
]
MOST_CHANGES = 10_000


class Slice(NamedTuple):
    """The parameters that every view takes: version, list, first item, count, known ETag."""

    at: int | None
    name: str | None
    start: int
    limit: int
    is_cut: bool
    if_none_match: str | None


# Coroutines: FastAPI would run plain functions in threads.
async def _slice(
    at: AtOrLast = None,
    start: From = 0,
    limit: Limit = 100,
    is_cut: CutLarge = False,
    if_none_match: IfNoneMatch = None,
) -> Slice:
    return Slice(at, None, start, limit, is_cut, if_none_match)


async def _slice_of_list(
    at: AtOrLast = None,
    name: ListName = None,
    start: From = 0,
    limit: Limit = 100,
    is_cut: CutLarge = False,
    if_none_match: IfNoneMatch = None,
) -> Slice:
    return Slice(at, name, start, limit, is_cut, if_none_match)


# Of a view that has one list, and of one that may have several.
OnlySlice: TypeAlias = Annotated[Slice, Depends(_slice)]
ListSlice: TypeAlias = Annotated[Slice, Depends(_slice_of_list)]


class ViewWindow(msgspec.Struct, frozen=True):
    """A slice of one list of a view, and in `rest` what the view has besides its lists.

    `lists` are all lists of the view. `cut` is there if it was asked for.
    """

    version: int
    name: str
    total: int
    start: int
    items: tuple[Any, ...]
    rest: dict[str, Any]
    lists: tuple[str, ...]
    cut: list[Cut] | msgspec.UnsetType = msgspec.UNSET


class Conversation(msgspec.Struct, frozen=True):
    """Turns of a conversation and tool calls, both at one version."""

    turns: ViewWindow
    tools: ViewWindow


class Changes(msgspec.Struct, frozen=True):
    """A JSON Patch (RFC 6902); of each operation but `add`, `was` is what was there before.

    `complete` is false if there are more changes than are listed. `cut` is there if it was asked
    for.
    """

    version: int
    changes: list[Change]
    complete: bool = True
    cut: list[Cut] | msgspec.UnsetType = msgspec.UNSET


class States:
    """The operations on a run's state."""

    def __init__(self, served: Served) -> None:
        self._served = served
        self._ledger = served.ledger
        self._moments = served.moments

    def add_to(self, api: Api) -> None:
        """Add the operations."""
        known = Answer("A slice of the view", {JSON: ViewWindow}, ("etag",))
        same = Answer("Not modified", {})
        missing = (problems.RUN_NOT_FOUND, problems.EVENT_NOT_FOUND, problems.NOT_FOUND)
        for path, endpoint in (
            ("state/{view}", self.get_view),
            ("messages", self.get_messages),
            ("tools", self.get_tools),
            ("timeline", self.get_timeline),
            ("usage", self.get_usage),
        ):
            api.add(
                "GET",
                f"/v1/runs/{{run}}/{path}",
                endpoint,
                role="reader",
                answers={200: known, 304: same},
                refuses=missing,
            )
        api.add(
            "GET",
            "/v1/runs/{run}/conversation",
            self.get_conversation,
            role="reader",
            answers={
                200: Answer("Slices of both views", {JSON: Conversation}, ("etag",)),
                304: same,
            },
            refuses=missing,
        )
        for path, compared in (("changes", self.get_changes), ("diff", self.get_diff)):
            api.add(
                "GET",
                f"/v1/runs/{{run}}/{path}",
                compared,
                role="reader",
                answers={200: Answer("What changed", {JSON: Changes})},
                refuses=missing,
            )

    async def get_view(
        self, request: Request, run: RunPath, view: ViewPath, part: ListSlice
    ) -> Response:
        """Get a view of a run's state at a version: a slice of its list, and its other fields."""
        return await self._window(request, run, view, part)

    async def get_messages(self, request: Request, run: RunPath, part: OnlySlice) -> Response:
        """Get the turns of a run's conversation, as a model gets them."""
        return await self._window(request, run, "history", part)

    async def get_tools(self, request: Request, run: RunPath, part: OnlySlice) -> Response:
        """Get a run's tool calls and steps, in the order in which they began."""
        return await self._window(request, run, "tools", part)

    async def get_conversation(self, request: Request, run: RunPath, part: OnlySlice) -> Response:
        """Get the turns of a conversation and the tool calls in one answer."""

        def both(state: RunState) -> Conversation:
            return Conversation(_window(state, "history", part), _window(state, "tools", part))

        return await self._answer(request, run, part, both)

    async def get_timeline(self, request: Request, run: RunPath, part: ListSlice) -> Response:
        """Get a run's timeline: spans of calls, or with `list` those of workers, or gaps."""
        return await self._window(request, run, "timeline", part)

    async def get_usage(self, request: Request, run: RunPath, part: OnlySlice) -> Response:
        """Get the tokens that a run used: for each turn, and in total by model."""
        return await self._window(request, run, "usage", part)

    async def get_changes(
        self, request: Request, run: RunPath, at: EventVersion, is_cut: CutLarge = False
    ) -> Response:
        """Get what one event changed in the state, as a JSON Patch."""
        found = await self._served.cancellable(
            request,
            lambda gone: step(self._ledger, run, at, moments=self._moments, cancelled=gone.is_set),
        )
        return await self._patch(Changes(at, list(found.changes)), is_cut)

    async def get_diff(
        self,
        request: Request,
        run: RunPath,
        start: Annotated[
            int, Query(alias="from", ge=0, le=LARGEST, description="A version; 0: the start.")
        ],
        to: Version,
        is_cut: CutLarge = False,
    ) -> Response:
        """Get what changed between two versions of a run's state, as a JSON Patch."""
        before = await self._served.state(request, run, start)
        after = await self._served.state(request, run, to)

        def compared(gone: Flag) -> list[Change]:
            if start <= to:
                one, other = unshared_json(before, after)
            else:
                other, one = unshared_json(after, before)
            return list(islice(changes(one, other), MOST_CHANGES + 1))

        found = await self._served.work.fold(request, compared)
        shown = found[:MOST_CHANGES]
        return await self._patch(Changes(to, shown, len(shown) == len(found)), is_cut)

    async def _patch(self, made: Changes, is_cut: bool) -> Response:
        if is_cut:
            plain: Any = [plain_fields(one) for one in made.changes]
            whole = msgspec.structs.replace(made, changes=plain)
            made = await self._served.work.read(lambda: cut_fields(whole, "changes"))
        return Json(made, headers=FOREVER)

    async def _window(self, request: Request, run: UUID, view: View, part: Slice) -> Response:
        wanted = view if part.name is None else f"{view}/{part.name}"
        return await self._answer(request, run, part, lambda state: _window(state, wanted, part))

    async def _answer(
        self, request: Request, run: UUID, part: Slice, made: Callable[[RunState], msgspec.Struct]
    ) -> Response:
        state = await self._served.state(request, run, part.at)
        tag = etag(state.version)
        if same := not_modified(tag, part.if_none_match):
            return same
        try:
            found = await self._served.work.read(lambda: made(state))
        except InvalidInputError as error:  # the view is known, and has no such list
            raise ProblemError(problems.NOT_FOUND, error_message(error)) from None
        return Json(found, headers={"etag": tag, **(FRESH if part.at is None else FOREVER)})


def _window(state: RunState, wanted: str, part: Slice) -> ViewWindow:
    made = ViewWindow(*msgspec.structs.astuple(window(state, wanted, part.start, part.limit)))
    return cut_fields(made, "items", "rest") if part.is_cut else made
