"""`decide`: the next effect of an evaluation, from the folded state alone. A pure function.

A fresh evaluation, one that goes on, and one that another process left in the middle of a tool
are the same to it: it looks at the state and names what is missing.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from turnledger.projections import ToolCallView
from turnledger.runtime.agent.tools.tool import OnInterrupt
from turnledger.runtime.journal.known import Known


@dataclass(frozen=True)
class Begin:
    """Begin an evaluation: record what is asked."""


@dataclass(frozen=True)
class CallModel:
    """Ask the model for the reply of a turn."""

    turn: int
    attempt: int


@dataclass(frozen=True)
class Doubt:
    """Record that these calls are in doubt: started, with no recorded outcome."""

    calls: tuple[ToolCallView, ...]


@dataclass(frozen=True)
class AskApproval:
    """Find out whether these calls need a person's approval, and record it: it is asked once."""

    calls: tuple[ToolCallView, ...]


@dataclass(frozen=True)
class Settle:
    """Record the outcome of calls without running them: a decision, a denial, or "unknown"."""

    calls: tuple[ToolCallView, ...]


@dataclass(frozen=True)
class RunTools:
    """Run these calls, the first ones first."""

    calls: tuple[ToolCallView, ...]


@dataclass(frozen=True)
class Wait:
    """Wait for a person to decide about these calls: approvals, and calls in doubt."""

    calls: tuple[ToolCallView, ...]


@dataclass(frozen=True)
class Finish:
    """The last reply asks for nothing more: it is the answer."""


Effect: TypeAlias = Begin | CallModel | Doubt | AskApproval | Settle | RunTools | Wait | Finish


def decide(
    known: Known,
    evaluation_id: str | None,
    on_interrupt: Mapping[str, OnInterrupt],
    needing_approval: Collection[str] = (),
) -> Effect:
    """The next effect of an evaluation.

    Args:
        known: The state of the run.
        evaluation_id: The evaluation; it begins if the state has none or another.
        on_interrupt: For each tool, what to do about a call in doubt. A call of a tool that
            the prompt no longer has is not run: its outcome is unknown. Of this policy and the
            one that was recorded when the call started, the more careful one holds.
        needing_approval: The tools whose calls may need a person's approval. Whether a call
            does is asked once; then what is recorded holds, whatever the tool says now.
    """
    evaluation = known.progress.evaluation
    if evaluation is None or evaluation.evaluation_id != evaluation_id:
        return Begin()
    calls = [c for c in known.run.tools.pending() if c.evaluation_id == evaluation_id]
    # A call whose outcome a person decided is not in doubt; one to be retried can be again.
    decided = ("completed", "failed")
    started = tuple(
        call for call in calls if call.status == "started" and call.decision not in decided
    )
    if started:
        return Doubt(started)
    plans = [(call, _plan(call, on_interrupt, needing_approval)) for call in calls]
    for plan, effect in _EFFECTS:
        chosen = tuple(call for call, its in plans if its == plan)
        if chosen:
            return effect(chosen)
    if evaluation.replied or evaluation.finished:
        return Finish()
    return CallModel(evaluation.turn + 1, evaluation.requests + 1)


def _plan(
    call: ToolCallView, on_interrupt: Mapping[str, OnInterrupt], needing_approval: Collection[str]
) -> str:
    if call.status == "pending":
        if call.name not in on_interrupt and call.approval != "denied":
            return "run"  # there is no such tool: the loop tells the model so
        return _approved(call, needing_approval)
    if call.decision == "retry":
        return "run"  # a person's consent to this attempt
    if call.decision is not None:
        return "settle"
    plan = {"retry": "run", "fail": "settle", "ask": "wait"}[policy_of(call, on_interrupt)]
    return _approved(call, needing_approval) if plan == "run" else plan


def _approved(call: ToolCallView, needing_approval: Collection[str]) -> str:
    """The plan for a call that is run unless it needs approval, and has none."""
    if not call.approval:
        return "ask" if call.name in needing_approval else "run"
    return {"needed": "wait", "denied": "settle"}.get(call.approval, "run")


def policy_of(call: ToolCallView, on_interrupt: Mapping[str, OnInterrupt]) -> OnInterrupt:
    """What to do about a call in doubt: the more careful of the recorded policy and the code's."""
    now = on_interrupt.get(call.name, "fail")
    return max(now, call.on_interrupt or now, key=_CAREFUL.index)


_CAREFUL: tuple[OnInterrupt, ...] = ("retry", "fail", "ask")
# In this order: calls that need no approval are run before the run waits for the others.
_EFFECTS: tuple[tuple[str, Callable[[tuple[ToolCallView, ...]], Effect]], ...] = (
    ("ask", AskApproval),
    ("settle", Settle),
    ("run", RunTools),
    ("wait", Wait),
)
