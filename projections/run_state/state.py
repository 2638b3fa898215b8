"""State of a run at any version: all built-in views."""

from __future__ import annotations

from collections.abc import Iterable
from copy import deepcopy
from typing import Any, final

from turnledger.ledger import Ledger, Record, RecordNotFoundError
from turnledger.ledger.arguments import explain_arguments, explain_methods
from turnledger.ledger.errors import InvalidInputError, short_repr
from turnledger.ledger.runs.append_request import RunId
from turnledger.projections.digests import combine
from turnledger.projections.history.message_history import MessageHistory
from turnledger.projections.persistent.pickling import packed, unpacked
from turnledger.projections.projection import Projection, fold_pages
from turnledger.projections.session.declarations import Declarations
from turnledger.projections.session.slices import SessionSlices, SlicesState
from turnledger.projections.views.checkpoints import CheckpointsState, CheckpointView
from turnledger.projections.views.conversation import Conversation, ConversationState
from turnledger.projections.views.prompt import PromptOverrides, PromptState
from turnledger.projections.views.summary import RunSummary, Summary
from turnledger.projections.views.timeline import Timeline, TimelineState
from turnledger.projections.views.tools import PendingTools, ToolsState
from turnledger.projections.views.usage import Usage, UsageState


def built_in(declarations: Declarations | None = None) -> tuple[Projection[Any], ...]:
    """All built-in views, in the order of `RunState`'s fields."""
    return (
        Conversation(),
        PendingTools(),
        SessionSlices(declarations),
        CheckpointView(),
        Usage(),
        RunSummary(),
        Timeline(),
        PromptOverrides(),
    )


# Conversation, tools, slices, checkpoints, usage, summary, timeline and prompt.
_VIEWS = 8


@explain_methods()
@final
class RunState:
    """The state of a run, or of a prompt stream, at one version: all built-in views."""

    def __init__(
        self, version: int, projections: tuple[Projection[Any], ...], states: Iterable[Any]
    ) -> None:
        self.version = version
        self._projections = projections
        self._states: tuple[Any, ...] = tuple(states)
        if len(self._states) != _VIEWS:
            raise InvalidInputError(
                f"Invalid states: got {len(self._states)}, expected {_VIEWS}. RunState.initial() "
                "makes them."
            )
        self.conversation: ConversationState = self._states[0]
        self.tools: ToolsState = self._states[1]
        self.slices: SlicesState = self._states[2]
        self.checkpoints: CheckpointsState = self._states[3]
        self.usage: UsageState = self._states[4]
        self.summary: Summary = self._states[5]
        self.timeline: TimelineState = self._states[6]
        # Only a prompt stream has it; a run's JSON and digests are those without it.
        self.prompt: PromptState = self._states[7]

    @classmethod
    def initial(cls, declarations: Declarations | None = None) -> RunState:
        projections = built_in(declarations)
        return cls(0, projections, (p.initial() for p in projections))

    def after(self, records: Iterable[Record]) -> RunState:
        """The state after more records; this one stays as it is."""
        states, last = fold_pages(records, self._projections, self._states)
        return RunState(last.version if last else self.version, self._projections, states)

    def with_slices(self, declarations: Declarations, slices: SlicesState) -> RunState:
        """The same with session state that was folded by these declarations."""
        states = (*self._states[:2], slices, *self._states[3:])
        return RunState(self.version, built_in(declarations), states)

    def __reduce__(self) -> tuple[object, ...]:
        """Pickled so that it keeps its JSON and its digests."""
        return (_unpacked, (packed((self.version, self._projections, self._states)),))

    def __deepcopy__(self, memo: dict[int, Any]) -> RunState:
        return RunState(
            self.version, deepcopy(self._projections, memo), deepcopy(self._states, memo)
        )

    @property
    def history(self) -> MessageHistory:
        """The conversation as it would be sent now."""
        return self.conversation.history()

    @property
    def state_digest(self) -> str:
        """Digest of exactly this state, ids and attempts included."""
        return combine("state", *self._parts(lambda p, state: p.digest(state))).hex()

    @property
    def outcome_digest(self) -> str:
        """Digest of what an uninterrupted run and a recovered one have in common."""
        return combine("outcome", *self._parts(lambda p, state: p.outcome(state))).hex()

    def _pairs(self) -> list[tuple[Projection[Any], Any]]:
        pairs = list(zip(self._projections, self._states, strict=True))
        return pairs if self.prompt.key else pairs[:-1]

    def _parts(self, part: Any) -> list[bytes]:
        pairs = self._pairs()
        return [one for p, state in pairs for one in (p.name.encode(), part(p, state))]

    def to_json(self) -> dict[str, Any]:
        """The state as plain JSON, by the names of the views (see `state_json`)."""
        return {p.name: p.to_json(state) for p, state in self._pairs()}

    def lazy_json(self) -> dict[str, Any]:
        """The same, with long lists that are made item by item (`persistent.lazy_json`)."""
        return {p.name: p.lazy_json(state) for p, state in self._pairs()}

    @property
    def view_names(self) -> tuple[str, ...]:
        """The names of its views, as they are the keys of its JSON."""
        return tuple(projection.name for projection, _ in self._pairs())

    def lazy_view(self, name: str) -> Any:
        """The same of one view; InvalidInputError if there is no such view."""
        for projection, state in self._pairs():
            if projection.name == name:
                return projection.lazy_json(state)
        known = ", ".join(self.view_names)
        raise InvalidInputError(f"Unknown view {short_repr(name)}: expected one of {known}.")


def view_of(state: RunState, name: str) -> tuple[Projection[Any], Any]:
    """A built-in view, as a state has it: its projection and its own state."""
    pairs = zip(state._projections, state._states, strict=True)
    return next(pair for pair in pairs if pair[0].name == name)


def unshared_json(before: RunState, after: RunState) -> tuple[dict[str, Any], dict[str, Any]]:
    """The lazy JSON of two states, without the views that both have in common."""
    pairs = zip(before._projections, before._states, after._states, strict=True)
    shared = {p.name for p, one, other in pairs if one is other}
    old, new = (
        {p.name: p.lazy_json(view) for p, view in state._pairs() if p.name not in shared}
        for state in (before, after)
    )
    return old, new


def _unpacked(content: bytes) -> RunState:
    return RunState(*unpacked(content))


@explain_arguments
def state_at(
    ledger: Ledger,
    run_id: RunId,
    version: int | None = None,
    *,
    declarations: Declarations | None = None,
) -> RunState:
    """A run's state after one of its versions.

    Args:
        ledger: The ledger that has the run.
        run_id: The run.
        version: The last version to fold; by default all.
        declarations: Types and reducers of the program's slices; without, slices are plain JSON.
    """
    state = RunState.initial(declarations).after(ledger.read(run_id, until=version))
    if version is not None and state.version != version:
        raise RecordNotFoundError(str(run_id), version, ledger.head(run_id))
    return state
