"""States of a run at any version: windows of its views, what an event changed, and diffs."""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice
from threading import Event as Flag
from typing import Annotated, Any, Literal, TypeAlias, TypeVar
from uuid import UUID

import msgspec
from fastapi import Path, Query
from starlette.requests import Request
from starlette.responses import Response

from turnledger.adapters.http.protocol import problems
from turnledger.adapters.http.protocol.answers import FOREVER, FRESH, Json, etag, not_modified
from turnledger.adapters.http.protocol.api import Answer, Api
from turnledger.adapters.http.protocol.bodies import JSON
from turnledger.adapters.http.protocol.parameters import (
    LARGEST,
    AtOrLast,
    IfNoneMatch,
    Limit,
    RunPath,
)
from turnledger.adapters.http.protocol.problems import ProblemError
from turnledger.adapters.http.served import Served
from turnledger.adapters.http.work import ClientGoneError
from turnledger.ledger import InvalidInputError
from turnledger.ledger.errors import error_message
from turnledger.projections import Change, FoldCancelledError, RunState, Window, step, window
from turnledger.projections.run_state.json_diff import changes
from turnledger.projections.run_state.state import unshared_json

R = TypeVar("R")
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
    int, Query(alias="from", ge=0, le=LARGEST, description="The place of the first item.")
]
Version: TypeAlias = Annotated[int, Query(ge=0, le=LARGEST, description="A version; 0: the start.")]
EventVersion: TypeAlias = Annotated[
    int, Query(ge=1, le=LARGEST, description="The version of the event.")
]
MOST_CHANGES = 10_000


class Changes(msgspec.Struct, frozen=True):
    """A JSON Patch (RFC 6902); of each operation but `add`, `was` is what was there before.

    `complete` is false if there are more changes than are listed.
    """

    version: int
    changes: list[Change]
    complete: bool = True


class States:
    """The operations on a run's state."""

    def __init__(self, served: Served) -> None:
        self._served = served
        self._ledger = served.ledger
        self._moments = served.moments

    def add_to(self, api: Api) -> None:
        """Add the operations."""
        known = Answer("A slice of the view", {JSON: Window}, ("etag",))
        same = Answer("The client has it", {})
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
        self,
        request: Request,
        run: RunPath,
        view: ViewPath,
        at: AtOrLast = None,
        name: ListName = None,
        start: From = 0,
        limit: Limit = 100,
        if_none_match: IfNoneMatch = None,
    ) -> Response:
        """Get a view of a run's state at a version: a slice of its list, and its other fields."""
        wanted = view if name is None else f"{view}/{name}"
        return await self._window(request, run, wanted, at, start, limit, if_none_match)

    async def get_messages(
        self,
        request: Request,
        run: RunPath,
        at: AtOrLast = None,
        start: From = 0,
        limit: Limit = 100,
        if_none_match: IfNoneMatch = None,
    ) -> Response:
        """Get the turns of a run's conversation, as a model gets them."""
        return await self._window(request, run, "history", at, start, limit, if_none_match)

    async def get_tools(
        self,
        request: Request,
        run: RunPath,
        at: AtOrLast = None,
        start: From = 0,
        limit: Limit = 100,
        if_none_match: IfNoneMatch = None,
    ) -> Response:
        """Get a run's tool calls and steps, in the order in which they began."""
        return await self._window(request, run, "tools", at, start, limit, if_none_match)

    async def get_timeline(
        self,
        request: Request,
        run: RunPath,
        at: AtOrLast = None,
        name: ListName = None,
        start: From = 0,
        limit: Limit = 100,
        if_none_match: IfNoneMatch = None,
    ) -> Response:
        """Get a run's timeline: spans of calls, or with `list` those of workers, or gaps."""
        wanted = "timeline" if name is None else f"timeline/{name}"
        return await self._window(request, run, wanted, at, start, limit, if_none_match)

    async def get_usage(
        self,
        request: Request,
        run: RunPath,
        at: AtOrLast = None,
        start: From = 0,
        limit: Limit = 100,
        if_none_match: IfNoneMatch = None,
    ) -> Response:
        """Get the tokens that a run used: of each turn, and in all by model."""
        return await self._window(request, run, "usage", at, start, limit, if_none_match)

    async def get_changes(self, request: Request, run: RunPath, at: EventVersion) -> Response:
        """Get what one event changed in the state, as a JSON Patch."""
        found = await self._folded(
            request,
            lambda gone: step(self._ledger, run, at, moments=self._moments, cancelled=gone.is_set),
        )
        return Json(Changes(at, list(found.changes)), headers=FOREVER)

    async def get_diff(
        self,
        request: Request,
        run: RunPath,
        start: Annotated[
            int, Query(alias="from", ge=0, le=LARGEST, description="A version; 0: the start.")
        ],
        to: Version,
    ) -> Response:
        """Get what changed between two versions of a run's state, as a JSON Patch."""
        before = await self._state(request, run, start)
        after = await self._state(request, run, to)

        def compared(gone: Flag) -> list[Change]:
            if start <= to:
                one, other = unshared_json(before, after)
            else:
                other, one = unshared_json(after, before)
            return list(islice(changes(one, other), MOST_CHANGES + 1))

        found = await self._served.work.fold(request, compared)
        shown = found[:MOST_CHANGES]
        return Json(Changes(to, shown, len(shown) == len(found)), headers=FOREVER)

    async def _state(self, request: Request, run: UUID, at: int | None) -> RunState:
        return await self._folded(
            request, lambda gone: self._moments.at(run, at, cancelled=gone.is_set)
        )

    async def _folded(self, request: Request, call: Callable[[Flag], R]) -> R:
        try:
            return await self._served.work.fold(request, call)
        except FoldCancelledError:
            raise ClientGoneError from None

    async def _window(
        self,
        request: Request,
        run: UUID,
        wanted: str,
        at: int | None,
        start: int,
        limit: int,
        if_none_match: str | None,
    ) -> Response:
        state = await self._state(request, run, at)
        tag = etag(state.version)
        if same := not_modified(tag, if_none_match):
            return same
        try:
            found: Any = await self._served.work.read(lambda: window(state, wanted, start, limit))
        except InvalidInputError as error:  # the view is known, and has no such list
            raise ProblemError(problems.NOT_FOUND, error_message(error)) from None
        return Json(found, headers={"etag": tag, **(FRESH if at is None else FOREVER)})
