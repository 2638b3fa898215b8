"""Approvals: whether a tool call needs one is asked once, and recorded before the call may run.

`decide` goes by the record from then on. A person decides with `turnledger resolve`, or with
`runtime.recovery.approvals`; a denied call ends with the person's text and never runs.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from turnledger.ledger import ApprovalRequested
from turnledger.ledger.redaction.safe_logging import logger_of
from turnledger.projections import ToolCallView
from turnledger.runtime.agent.tools.call import Invocation, PreparedCall
from turnledger.runtime.loop.context import EvaluationContext
from turnledger.runtime.loop.perform.run_tool import prepared_call, refuse

logger = logger_of("turnledger.tools")


def ask_approval(context: EvaluationContext[Any], calls: Sequence[ToolCallView]) -> None:
    """Ask the tools whether these calls need approval, and record each answer."""
    for call in calls:
        ready = prepared_call(context, call)
        if isinstance(ready, Invocation):
            refuse(context, call, ready)
        else:
            context.journal.add(requested(call, needed=_needs_approval(call, ready)))


def requested(call: ToolCallView, *, needed: bool) -> ApprovalRequested:
    """The event that says whether a call needs approval."""
    return ApprovalRequested(
        evaluation_id=call.evaluation_id, call_id=call.call_id, name=call.name, needed=needed
    )


def _needs_approval(call: ToolCallView, ready: PreparedCall) -> bool:
    """What the tool says; an error of its function means yes."""
    try:
        return ready.tool.asks_approval(ready.params)
    except Exception:
        logger.warning(
            "needs_approval of tool %s raised for call %s, which means that it needs approval",
            call.name,
            call.call_id,
            exc_info=True,
        )
        return True
