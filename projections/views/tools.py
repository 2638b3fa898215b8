"""The tool calls of a run: what the assistant asked for, and what became of each.

A call is pending until its handler starts, and in doubt if that was the last that was
heard of it. A tool's message alone closes its call, with or without a status event. The
calls of an evaluation that was superseded wait for nobody. Once the assistant speaks in
another turn, what has ended is settled: the same id then means another call.
"""

from __future__ import annotations

from itertools import chain, islice
from typing import Any

from turnledger.ledger import (
    EvaluationSuperseded,
    MessageAppended,
    RunStarted,
    ToolCallCompleted,
    ToolCallDecided,
    ToolCallFailed,
    ToolCallInDoubt,
    ToolCallStarted,
    ToolMessageAmended,
)
from turnledger.projections.digests import combine
from turnledger.projections.persistent.hashed import digest_of
from turnledger.projections.persistent.lazy_json import Items, not_shared, whole
from turnledger.projections.projection import BulkProjection, as_json
from turnledger.projections.views.tool_calls import (
    CallStatus,
    ToolCallView,
    ToolsState,
    call_number,
    itself,
    plain_call,
)
from turnledger.projections.views.tools_tool_folding import ToolsFolding

__all__ = ["CallStatus", "PendingTools", "ToolCallView", "ToolsState"]


class PendingTools(BulkProjection[ToolsState]):
    """Folds calls, starts and ends."""

    name = "tools"
    reads = (
        RunStarted,
        MessageAppended,
        ToolCallStarted,
        ToolCallCompleted,
        ToolCallFailed,
        ToolCallInDoubt,
        ToolCallDecided,
        ToolMessageAmended,
        EvaluationSuperseded,
    )

    def initial(self) -> ToolsState:
        return ToolsState()

    def begin(self, state: ToolsState) -> ToolsFolding:
        return ToolsFolding(state)

    def to_json(self, state: ToolsState) -> Any:
        return whole(self.outline(state))

    def outline(self, state: ToolsState) -> Any:
        return Items(state.in_order, _call_json, state, _same_calls)

    def digest(self, state: ToolsState) -> bytes:
        return combine(
            "tools",
            state.settled.digest,
            digest_of(state.open, plain_call),
            digest_of(state.ended, plain_call),
            digest_of(state.superseded, itself),
            state.amended.digest,
            b"%d" % state.count,
            state.spoke.encode(),
        )


def _call_json(call: ToolCallView) -> Any:
    return {**as_json(call), "status": call.status}


def _same_calls(earlier: ToolsState, later: ToolsState) -> int:
    """How many calls both begin with: all that are numbered below one that only one has.

    Calls are numbered without a gap, and those that are the same object say the same.
    """
    if not later.settled.goes_on_from(earlier.settled):
        return 0
    if len(later.amended) != len(earlier.amended):
        return 0
    if not later.amended.goes_on_from(earlier.amended):
        return 0
    newly = islice(later.settled.backwards(), len(later.settled) - len(earlier.settled))
    ours = chain(earlier.open.values(), earlier.ended.values())
    theirs = chain(later.open.values(), later.ended.values(), newly)
    first = min(not_shared(ours, theirs, call_number), default=earlier.count + 1)
    return first - 1
