"""Filter of runs: the parameters that a list of runs and its facets share."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime
from typing import Annotated, Any, Literal, NamedTuple, TypeAlias
from uuid import UUID

from fastapi import Depends, Query
from pydantic import Field

from turnledger.adapters.http.protocol.parameters import TEXT, Moment
from turnledger.ledger import Ledger, RunInfo
from turnledger.ledger.clock import to_micros
from turnledger.ledger.events.types import AGENT_TAG
from turnledger.ledger.runs.append_request import id_ends
from turnledger.ledger.runs.index import RunRow, RunStatus
from turnledger.ledger.stores.base import RunQuery


class RunFilter(NamedTuple):
    """Which runs are asked for. `tags` is None if no run can have them: two values of one key."""

    status: RunStatus | None
    tags: dict[str, str | None] | None
    prompt: str | None
    id_part: str | None
    parent: UUID | None
    since: datetime | None
    until: datetime | None
    kind: Literal["run", "prompt"]

    def rows(self, ledger: Ledger, before: RunRow | None, limit: int) -> list[RunRow]:
        """The rows of the index, as they are stored."""
        if self.tags is None:
            return []
        query = RunQuery(
            status=self.status,
            prompt=self.prompt,
            prompts=self.kind == "prompt",
            tags=tuple(self.tags.items()),
            since=None if self.since is None else to_micros(self.since),
            until=None if self.until is None else to_micros(self.until),
            before=None if before is None else (before.started_at, before.run_id),
            ends=None if self.id_part is None else id_ends(self.id_part),
            parent=None if self.parent is None else str(self.parent),
            limit=limit,
        )
        return ledger.store.list_runs(query)

    def runs(self, ledger: Ledger, **more: Any) -> Iterator[RunInfo]:
        """The runs, with further options of `Ledger.runs`."""
        if self.tags is None:
            return iter(())
        return ledger.runs(**self._asdict(), **more)


# A coroutine: FastAPI would run a plain function in a thread.
async def _filter(
    status: Annotated[RunStatus | None, Query(description="Only runs with this status.")] = None,
    tag: Annotated[
        list[Annotated[str, Field(pattern=TEXT)]] | None,
        Query(max_length=20, description="Only runs with this tag, `key=value` or `key`."),
    ] = None,
    prompt: Annotated[
        str | None,
        Query(max_length=1100, pattern=TEXT, description="Only runs of this prompt, `ns/key`."),
    ] = None,
    agent: Annotated[
        str | None, Query(max_length=512, pattern=TEXT, description="Only runs of this agent.")
    ] = None,
    id: Annotated[  # noqa: A002 - the name in the address
        str | None,
        Query(
            pattern="^-?([0-9A-Fa-f]-?){1,32}$",
            description="Only runs whose id begins or ends so.",
        ),
    ] = None,
    parent: Annotated[
        UUID | None, Query(description="Only forks and continuations of this run.")
    ] = None,
    since: Annotated[Moment | None, Query(description="Only runs started then or later.")] = None,
    until: Annotated[Moment | None, Query(description="Only runs started before.")] = None,
    kind: Annotated[
        Literal["run", "prompt"], Query(description="Runs, or streams of prompts.")
    ] = "run",
) -> RunFilter:
    agents = [] if agent is None else [f"{AGENT_TAG}={agent}"]
    tags = _tags([*(tag or ()), *agents])
    return RunFilter(status, tags, prompt, id, parent, since, until, kind)


FilterQuery: TypeAlias = Annotated[RunFilter, Depends(_filter)]


def _tags(given: Iterable[str]) -> dict[str, str | None] | None:
    """The tags that a run must have, all of them; None if no run can: two values of one key."""
    tags: dict[str, str | None] = {}
    for text in given:
        key, equals, value = text.partition("=")
        known = tags.get(key)
        if equals and known not in (None, value):
            return None
        tags[key] = value if equals else known
    return tags
