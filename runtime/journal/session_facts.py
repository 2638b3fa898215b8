"""What a session has to know of its run beside the views that people look at.

Which messages the conversation has, so that none is recorded twice; which names of slices and
events were used, so that declaring one of them is known to matter; which files its resources
have, by blob; and whether anything has happened in the run yet. A fold like any other.
"""

from __future__ import annotations

from typing import Any, final

import msgspec

from turnledger.ledger import (
    CheckpointReached,
    EvaluationStarted,
    MessageAppended,
    Record,
    ResourceSnapshotted,
    RunStarted,
    SliceEventApplied,
    StateRestored,
)
from turnledger.projections import Projection
from turnledger.projections.persistent.containers import PersistentMap
from turnledger.projections.session.slices import slices_in

change = msgspec.structs.replace


@final
class FactsState(msgspec.Struct, frozen=True):
    """The conversation's messages by id, and each resource's files by path."""

    messages: PersistentMap[bool] = PersistentMap()
    resources: dict[str, dict[str, str]] = {}
    # Of slices and of events that were handed to them, in this run or those before it.
    names: frozenset[str] = frozenset()
    # Whether a session or a loop has recorded anything since the run was started.
    begun: bool = False


class Facts(Projection[FactsState]):
    """Folds what a session has to know."""

    name = "facts"
    reads = (
        RunStarted,
        MessageAppended,
        ResourceSnapshotted,
        SliceEventApplied,
        StateRestored,
        EvaluationStarted,
        CheckpointReached,
    )

    def initial(self) -> FactsState:
        return FactsState()

    def apply(self, state: FactsState, record: Record) -> FactsState:
        event = record.event
        match event:
            case MessageAppended():
                messages = state.messages.put(str(event.message.message_id), True)
                return change(_with_names(state, "InnerMessage"), messages=messages)
            case SliceEventApplied():
                return _with_names(state, event.slice, event.event_type)
            case StateRestored():
                return _with_names(state, *(name for name, _ in slices_in(event.snapshot)))
            case ResourceSnapshotted():
                return change(state, resources=_with_files(state, event), begun=True)
            case RunStarted():
                return _started(state, event)
            case _:
                return state if state.begun else change(state, begun=True)

    def to_json(self, state: FactsState) -> Any:
        return {
            "resources": state.resources,
            "names": sorted(state.names),
            "begun": state.begun,
        }


def _started(state: FactsState, event: RunStarted) -> FactsState:
    """A continuation has the same files and another conversation."""
    if event.kind == "run":
        return FactsState()
    if event.kind == "fork":
        return change(state, begun=False)
    return change(state, messages=PersistentMap(), begun=False)


def _with_names(state: FactsState, *names: str) -> FactsState:
    if state.begun and state.names.issuperset(names):
        return state
    return change(state, names=state.names.union(names), begun=True)


def _with_files(state: FactsState, event: ResourceSnapshotted) -> dict[str, dict[str, str]]:
    files = {**state.resources.get(event.resource, {}), **event.files}
    for path in event.removed:
        files.pop(path, None)
    return {**state.resources, event.resource: files}
