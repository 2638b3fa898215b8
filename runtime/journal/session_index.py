"""Internal projection of what a session looks up in its run, beside the public views.

- the ids of the conversation's messages, so that no message is recorded twice;
- the names of slices and slice events in use, so that declaring one of them folds them again;
- the files of each resource, by blob name;
- whether a session or a loop has recorded anything since the run was started.
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
class SessionIndexState(msgspec.Struct, frozen=True):
    """Message ids, resource files by path, slice names, and whether the run has begun."""

    messages: PersistentMap[bool] = PersistentMap()
    resources: dict[str, dict[str, str]] = {}
    # Of slices and of events that were handed to them, in this run or those before it.
    names: frozenset[str] = frozenset()
    # Slices whose values were not only appended, but replaced: seeded, cleared or restored.
    replaced: frozenset[str] = frozenset()
    # Whether a session or a loop has recorded anything since the run was started.
    begun: bool = False


class SessionIndex(Projection[SessionIndexState]):
    """Folds message ids, resource files and slice names."""

    name = "session_index"
    reads = (
        RunStarted,
        MessageAppended,
        ResourceSnapshotted,
        SliceEventApplied,
        StateRestored,
        EvaluationStarted,
        CheckpointReached,
    )

    def initial(self) -> SessionIndexState:
        return SessionIndexState()

    def apply(self, state: SessionIndexState, record: Record) -> SessionIndexState:
        event = record.event
        match event:
            case MessageAppended():
                messages = state.messages.put(str(event.message.message_id), True)
                return change(_with_names(state, "InnerMessage"), messages=messages)
            case SliceEventApplied():
                named = _with_names(state, event.slice, event.event_type)
                if event.operation in ("seed", "clear"):
                    return change(named, replaced=named.replaced.union((event.slice,)))
                return named
            case StateRestored():
                slices = slices_in(event.snapshot)
                names = {one for name, _, item_name in slices for one in (name, item_name)}
                named = _with_names(state, *names)
                return change(named, replaced=named.replaced.union(named.names))
            case ResourceSnapshotted():
                return change(state, resources=_with_files(state, event), begun=True)
            case RunStarted():
                return _started(state, event)
            case _:
                return state if state.begun else change(state, begun=True)

    def to_json(self, state: SessionIndexState) -> Any:
        return {
            "resources": state.resources,
            "names": sorted(state.names),
            "begun": state.begun,
        }


def _started(state: SessionIndexState, event: RunStarted) -> SessionIndexState:
    """A fork and a turn go on with all of it; a continuation has another conversation."""
    if event.kind == "run":
        return SessionIndexState()
    if event.keeps_conversation:
        return change(state, begun=False)
    return change(state, messages=PersistentMap(), begun=False)


def _with_names(state: SessionIndexState, *names: str) -> SessionIndexState:
    if state.begun and state.names.issuperset(names):
        return state
    return change(state, names=state.names.union(names), begun=True)


def _with_files(state: SessionIndexState, event: ResourceSnapshotted) -> dict[str, dict[str, str]]:
    files = {**state.resources.get(event.resource, {}), **event.files}
    for path in event.removed:
        files.pop(path, None)
    return {**state.resources, event.resource: files}
