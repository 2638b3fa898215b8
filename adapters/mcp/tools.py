"""Tools of the MCP server: they look at runs, and write nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from fnmatch import fnmatchcase
from itertools import islice
from typing import Annotated, Any, Final, TypeAlias, TypeVar
from uuid import UUID

import msgspec
from mcp.types import CallToolResult
from pydantic import Field

from turnledger.adapters.mcp.answer import answer
from turnledger.ledger import InvalidInputError, Ledger, Record, RecordNotFoundError, RunInfo
from turnledger.ledger.clock import moment_text
from turnledger.ledger.errors import DAMAGE
from turnledger.ledger.runs.index import RunStatus
from turnledger.projections import PendingTools, Timeline, ToolCallView, blame, compare, fold
from turnledger.projections import state_at as state_of
from turnledger.projections.comparison.normalize import event_line
from turnledger.projections.persistent.lazy_json import MISSING, pointer_parts, resolve
from turnledger.projections.projection import as_json
from turnledger.projections.run_state.changes import state_changes
from turnledger.projections.run_state.state import built_in
from turnledger.runtime.session.types import SliceTypes

T = TypeVar("T")

# Reducers of the package's own slices, such as plans.
OWN: Final = SliceTypes().declarations
VIEWS: Final = {view.name: view for view in built_in(OWN)}
OPEN: Final[tuple[RunStatus, ...]] = ("waiting", "running", "failed", "parked")
# Characters of an event's summary.
SUMMARY: Final = 200
REST_OF_EVENT: Final = "event(run, version, path, offset)"
REST_OF_STATE: Final = "state(run, at, path, offset)"

Run: TypeAlias = Annotated[
    str,
    Field(
        description="A run: its name, its id, the beginning or end of its id, @last, @-2 or a "
        "tag (customer=acme)."
    ),
]
Offset: TypeAlias = Annotated[int, Field(ge=0, le=2**40, description="Where to go on.")]
Limit: TypeAlias = Annotated[int, Field(ge=1, le=200, description="The most entries.")]
At: TypeAlias = Annotated[int | None, Field(ge=0, description="The version. Default: the last.")]
Path: TypeAlias = Annotated[
    str, Field(description="A JSON Pointer to a part of it, such as a `path` of `cut`.")
]
Version: TypeAlias = Annotated[int, Field(ge=0, description="A version of the run.")]


class LedgerTools:
    """The tools, over one ledger. Each public method is one; its docstring is its description.

    Args:
        ledger: The ledger, open for reading.
        find: Finds the run that a text names.
    """

    def __init__(self, ledger: Ledger, find: Callable[[str], UUID]) -> None:
        self._ledger = ledger
        self._find = find

    def all(self) -> tuple[Callable[..., CallToolResult], ...]:
        """Every tool."""
        return (
            self.runs,
            self.log,
            self.event,
            self.state,
            self.changes,
            self.blame,
            self.compare,
            self.timeline,
            self.pending,
        )

    def runs(
        self,
        status: Annotated[RunStatus | None, Field(description="Only runs with this.")] = None,
        tag: Annotated[str, Field(description="Only runs with this tag, key=value or key.")] = "",
        agent: Annotated[str, Field(description="Only runs of this agent.")] = "",
        limit: Limit = 20,
        offset: Offset = 0,
    ) -> CallToolResult:
        """List runs, newest first: id, status, agent, prompt, tags, times, number of events."""
        key, equals, value = tag.partition("=")
        damaged: list[dict[str, Any]] = []
        found = self._ledger.runs(
            status=status,
            tags={key: value if equals else None} if tag else None,
            agent=agent or None,
            on_damage=lambda run, error: damaged.append(_damage(run, error)),
        )
        page, following = _page(found, offset, limit)
        shown = [*map(_run, page), *damaged]
        return answer(shown, following=following, rest="runs(limit=1)")

    def log(
        self,
        run: Run,
        after: Annotated[int, Field(ge=0, description="Only versions above this.")] = 0,
        type: Annotated[  # noqa: A002 - the name that callers know
            str, Field(description="Only events of this type or pattern: tool_call.*")
        ] = "*",
        limit: Limit = 50,
    ) -> CallToolResult:
        """List a run's events: version, time, type and a summary. `event` shows one in full."""
        records = self._ledger.read(self._find(run), after)
        chosen = (record for record in records if fnmatchcase(record.tag, type))
        page = list(islice(chosen, limit))
        more = next(chosen, None) is not None
        following = {"after": page[-1].version} if more else None
        return answer([_line(one) for one in page], following=following, rest=REST_OF_EVENT)

    def event(
        self, run: Run, version: Version, path: Path = "", offset: Offset = 0
    ) -> CallToolResult:
        """Show one event of a run in full, or the rest of a text in it: see `cut`."""
        record = self._ledger.record(self._find(run), version)
        return _part(_event(record), path, offset, rest=REST_OF_EVENT)

    def state(self, run: Run, at: At = None, path: Path = "", offset: Offset = 0) -> CallToolResult:
        """Show a run's state, or a part of it: history, tools, slices, usage, summary and more."""
        run_id = self._find(run)
        view = VIEWS.get(_pointer(path)[0]) if path else None
        if view is None:
            value = state_of(self._ledger, run_id, at, declarations=OWN).lazy_json()
        else:
            records = self._ledger.read(run_id, until=at)
            self._check_version(run_id, at)
            value = {view.name: view.lazy_json(fold(records, view))}
        return _part(value, path, offset, rest=REST_OF_STATE)

    def changes(
        self,
        run: Run,
        after: Version,
        until: Version,
        limit: Limit = 50,
        offset: Offset = 0,
    ) -> CallToolResult:
        """Show how a run's state changed from one version to another, as a JSON Patch."""
        found = state_changes(self._ledger, self._find(run), after, until, declarations=OWN)
        page, following = _page((change.operation() for change in found), offset, limit)
        rest = f"{REST_OF_STATE}, with the path of the change"
        return answer(page, following=following, rest=rest)

    def blame(
        self,
        run: Run,
        path: Annotated[str, Field(description="A JSON Pointer into the state.")],
        at: At = None,
    ) -> CallToolResult:
        """Show the event that last set a value of the state, such as /summary/status."""
        _pointer(path)
        record = blame(self._ledger, self._find(run), path, at=at, declarations=OWN)
        return answer(_event(record), rest=REST_OF_EVENT)

    def compare(
        self,
        run: Run,
        other: Run,
        limit: Limit = 50,
        offset: Offset = 0,
    ) -> CallToolResult:
        """Compare two runs: the first divergence, and the events that differ."""
        found = compare(self._ledger, self._find(run), self._find(other))
        rows = (row for row in found.rows if row.kind != "same" and not row.bookkeeping)
        page, following = _page(rows, offset, limit)
        divergence = found.divergence
        shown = {
            "run": found.first,
            "other": found.second,
            "same": found.same,
            "counts": found.counts,
            "first_divergence": divergence
            and {"version": divergence.first, "version_of_other": divergence.second},
            "differences": [msgspec.to_builtins(row) for row in page],
        }
        return answer(shown, following=following, rest=REST_OF_EVENT)

    def timeline(self, run: Run, limit: Limit = 100, offset: Offset = 0) -> CallToolResult:
        """Show when a run called models and tools, for how long, and with what outcome."""
        spans = fold(self._ledger.read(self._find(run)), Timeline()).spans
        page, following = _page(spans, offset, limit)
        shown = [{**as_json(span), "outcome": span.outcome} for span in page]
        return answer(shown, following=following, rest=REST_OF_EVENT)

    def pending(
        self,
        run: Annotated[str, Field(description="A run. Default: all that have not ended.")] = "",
        limit: Limit = 50,
        offset: Offset = 0,
    ) -> CallToolResult:
        """List tool calls that have not ended: in doubt, waiting for approval, or running."""
        found = self._calls(self._ledger.run(self._find(run))) if run else self._all_calls()
        page, following = _page(found, offset, limit)
        rest = f"{REST_OF_STATE}, with the path of the call"
        return answer(page, following=following, rest=rest)

    def _all_calls(self) -> Iterator[dict[str, Any]]:
        damaged: list[dict[str, Any]] = []
        for status in OPEN:
            for info in self._ledger.runs(
                status=status,
                on_damage=lambda run, error: damaged.append(_damage(run, error)),
            ):
                try:
                    yield from self._calls(info)
                except DAMAGE as error:
                    damaged.append(_damage(str(info.run_id), error))
        yield from damaged

    def _calls(self, info: RunInfo) -> Iterator[dict[str, Any]]:
        calls = fold(self._ledger.read(info.run_id), PendingTools()).pending()
        return (_call(info, call) for call in calls)

    def _check_version(self, run_id: UUID, at: int | None) -> None:
        head = self._ledger.head(run_id)
        if at is not None and at > head:
            raise RecordNotFoundError(str(run_id), at, head)


def _page(found: Iterable[T], offset: int, limit: int) -> tuple[list[T], dict[str, Any] | None]:
    """A page of entries, and the arguments that give the next one."""
    entries = iter(found)
    page = list(islice(entries, offset, offset + limit))
    more = next(entries, None) is not None
    return page, {"offset": offset + limit} if more else None


def _part(value: Any, path: str, offset: int, *, rest: str) -> CallToolResult:
    """The answer with the part of a value that a JSON Pointer names."""
    part = resolve(value, _pointer(path))
    if part is MISSING:
        raise InvalidInputError(f"There is no value at {path!r}. Ask without a path first.")
    return answer(part, path=path, offset=offset, rest=rest)


def _pointer(path: str) -> tuple[str, ...]:
    try:
        return pointer_parts(path)
    except ValueError as error:
        raise InvalidInputError(str(error)) from None


# --- recorded things as JSON -------------------------------------------------------------


def _run(run: RunInfo) -> dict[str, Any]:
    names = ("run_id", "status", "kind", "parent", "agent", "prompt", "tags", "version")
    return {name: as_json(getattr(run, name)) for name in (*names, "started_at", "updated_at")}


def _damage(run: str, error: Exception) -> dict[str, Any]:
    """A run that can't be read; the others are shown all the same."""
    return {"run_id": run, "damaged": str(error)}


def _line(record: Record) -> dict[str, Any]:
    try:
        summary = event_line(record.event, SUMMARY)
    except DAMAGE:
        summary = record.data[:SUMMARY]
    time = moment_text(record.commit)
    return {"version": record.version, "time": time, "type": record.tag, "summary": summary}


def _event(record: Record) -> dict[str, Any]:
    return {
        "run_id": record.run_key,
        "version": record.version,
        "type": record.tag,
        "time": moment_text(record.commit),
        "event_id": str(record.event_id),
        "data": msgspec.json.decode(record.data),
    }


def _call(info: RunInfo, call: ToolCallView) -> dict[str, Any]:
    """A call that has not ended; `path` is where it stands in the state."""
    return {
        "run_id": str(info.run_id),
        "run_status": info.status,
        "call_id": call.call_id,
        "name": call.name,
        "status": "needs approval" if call.awaits_approval else call.status,
        "attempts": call.attempts,
        "decision": call.lasting_decision,
        "started_at": as_json(call.started_at),
        "arguments": call.given_arguments,
        "path": f"/tools/{call.number - 1}",
    }
