"""Any moment of a run: its state at a version, what changed between two, and who changed it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any, final

import jsonpatch
import jsonpointer

from ledger import InvalidInputError, Ledger, Record, RecordNotFoundError
from ledger.requesting import RunId
from projections.checkpoints import CheckpointsState, CheckpointView
from projections.conversation import Conversation, ConversationState
from projections.declarations import Declarations
from projections.history import MessageHistory
from projections.projection import Projection, fold_pages, tags_read
from projections.running_hash import canonical, combine
from projections.slices import SessionSlices, SlicesState
from projections.summary import RunSummary, Summary
from projections.timeline import Timeline, TimelineState
from projections.tools import PendingTools, ToolsState
from projections.usage import Usage, UsageState

_INDEX = re.compile(r"0|[1-9][0-9]{0,17}")


def built_in(declarations: Declarations | None = None) -> tuple[Projection[Any], ...]:
    """Every view that comes with the package, in the order of `RunState`'s fields."""
    return (
        Conversation(),
        PendingTools(),
        SessionSlices(declarations),
        CheckpointView(),
        Usage(),
        RunSummary(),
        Timeline(),
    )


@final
class RunState:
    """All that is known of a run at one version."""

    def __init__(
        self, version: int, projections: tuple[Projection[Any], ...], states: Iterable[Any]
    ) -> None:
        self.version = version
        self._projections = projections
        self._states: tuple[Any, ...] = tuple(states)
        self.conversation: ConversationState = self._states[0]
        self.tools: ToolsState = self._states[1]
        self.slices: SlicesState = self._states[2]
        self.checkpoints: CheckpointsState = self._states[3]
        self.usage: UsageState = self._states[4]
        self.summary: Summary = self._states[5]
        self.timeline: TimelineState = self._states[6]

    @classmethod
    def initial(cls, declarations: Declarations | None = None) -> RunState:
        projections = built_in(declarations)
        return cls(0, projections, (p.initial() for p in projections))

    def after(self, records: Iterable[Record]) -> RunState:
        """The state some records later; this one stays as it is."""
        states, last = fold_pages(records, self._projections, self._states)
        return RunState(last.version if last else self.version, self._projections, states)

    @property
    def history(self) -> MessageHistory:
        """The conversation as it would be sent now."""
        return self.conversation.history()

    @property
    def state_digest(self) -> str:
        """Exactly this state, ids, times and attempts included."""
        return combine("state", *self._parts(lambda p, state: p.digest(state))).hex()

    @property
    def outcome_digest(self) -> str:
        """What an uninterrupted run and a recovered one have in common."""
        return combine("outcome", *self._parts(lambda p, state: p.outcome(state))).hex()

    def _parts(self, part: Any) -> list[bytes]:
        pairs = zip(self._projections, self._states, strict=True)
        return [one for p, state in pairs for one in (p.name.encode(), part(p, state))]

    def to_json(self) -> dict[str, Any]:
        pairs = zip(self._projections, self._states, strict=True)
        return {p.name: p.to_json(state) for p, state in pairs}


def state_at(
    ledger: Ledger,
    run_id: RunId,
    version: int | None = None,
    *,
    declarations: Declarations | None = None,
) -> RunState:
    """A run's state after one of its versions, by default its last."""
    state = RunState.initial(declarations).after(ledger.read(run_id, until=version))
    if version is not None and state.version != version:
        raise RecordNotFoundError(str(run_id), version, ledger.head(run_id))
    return state


def diff(
    ledger: Ledger,
    run_id: RunId,
    a: int,
    b: int,
    *,
    declarations: Declarations | None = None,
) -> list[dict[str, Any]]:
    """What changed from version a to version b, as a JSON Patch of the state."""
    first, last = (state_at(ledger, run_id, v, declarations=declarations) for v in (a, b))
    patch: list[dict[str, Any]] = jsonpatch.make_patch(first.to_json(), last.to_json()).patch
    return patch


def blame(
    ledger: Ledger,
    run_id: RunId,
    pointer: str,
    *,
    at: int | None = None,
    declarations: Declarations | None = None,
) -> Record:
    """The event that last set the value that a JSON Pointer names ("/usage/total/calls").

    It goes back from the end, and looks at the view's whole JSON at each event on its way:
    for something that was set long ago in a long conversation that takes its time.
    """
    path = _parsed(pointer)
    projections = {p.name: p for p in built_in(declarations)}
    projection = projections.get(path.parts[0]) if path.parts else None
    if projection is None:
        raise InvalidInputError(
            f"{pointer!r}: a pointer begins with a view, one of {', '.join(projections)}."
        )
    within = path.parts[1:]
    steps: list[tuple[Record, Any]] = []
    state = projection.initial()
    tags = tags_read(projection)
    version = 0
    for record in ledger.read(run_id, until=at):
        version = record.version
        if record.tag in tags:
            state = projection.apply(state, record)
            steps.append((record, state))
    if at is not None and version != at:
        raise RecordNotFoundError(str(run_id), at, ledger.head(run_id))
    value = _resolved(projection, steps[-1][1], within) if steps else None
    if value is None:
        raise InvalidInputError(f"{pointer!r} names nothing in the state of run {run_id}.")
    for place in range(len(steps) - 1, 0, -1):
        if _resolved(projection, steps[place - 1][1], within) != value:
            return steps[place][0]
    return steps[0][0]


def _parsed(pointer: str) -> Any:
    try:
        return jsonpointer.JsonPointer(pointer)
    except jsonpointer.JsonPointerException as error:
        raise InvalidInputError(f"{pointer!r} is no JSON Pointer: {error}") from error


def _resolved(projection: Projection[Any], state: Any, within: Sequence[str]) -> bytes | None:
    """The value there, as its one JSON text; None if there is none."""
    value = projection.to_json(state)
    for part in within:
        if isinstance(value, dict) and part in value:
            value = value[part]
        elif isinstance(value, list) and _INDEX.fullmatch(part) and int(part) < len(value):
            value = value[int(part)]
        else:
            return None
    return canonical(value)
