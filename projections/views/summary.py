"""View of a run's summary: request, status, limits, attempts, output or error."""

from __future__ import annotations

from datetime import datetime
from typing import Any, assert_never, final, get_args

import msgspec

from turnledger.ledger import (
    ApprovalDecided,
    EvaluationFinished,
    EvaluationStarted,
    Record,
    RunAbandoned,
    RunClaimed,
    RunCompleted,
    RunFailed,
    RunParked,
    RunResumed,
    RunStarted,
    RunWaiting,
    TokenLimits,
    ToolCallDecided,
)
from turnledger.ledger.arguments import explain_methods
from turnledger.ledger.runs.index import RunStatus
from turnledger.projections.digests import canonical, combine
from turnledger.projections.projection import Projection, as_json


@final
class Summary(msgspec.Struct, frozen=True, omit_defaults=True):
    """The summary of a run."""

    status: RunStatus = "running"
    kind: str = "run"
    parent: str | None = None
    parent_version: int = 0
    request_id: str | None = None
    request_type: str = ""
    session_id: str | None = None
    tags: dict[str, str] = {}
    deadline: datetime | None = None
    time_limit: float | None = None
    budget: TokenLimits | None = None
    started_at: datetime | None = None
    ended_at: datetime | None = None
    worker: str = ""
    epoch: int = 0
    attempts: int = 0
    evaluations: int = 0
    prompt: str = ""
    waiting_for: tuple[str, ...] = ()
    output: Any = None
    error_type: str | None = None
    error_message: str | None = None
    # The name of the agent that the run belongs to.
    agent: str = ""


_Read = (
    RunStarted
    | RunClaimed
    | RunResumed
    | RunWaiting
    | RunCompleted
    | RunFailed
    | RunParked
    | RunAbandoned
    | EvaluationStarted
    | EvaluationFinished
    | ToolCallDecided
    | ApprovalDecided
)


@explain_methods(skip=("apply", "apply_all", "begin"))
class RunSummary(Projection[Summary]):
    """Folds a run's start, claims, evaluations and end."""

    name = "summary"
    reads = get_args(_Read)

    def initial(self) -> Summary:
        return Summary()

    def apply(self, state: Summary, record: Record) -> Summary:
        event = record.event
        assert isinstance(event, _Read)
        change = msgspec.structs.replace
        match event:
            case RunStarted():
                return _begun(state, event, record.recorded_at)
            case RunClaimed():
                return change(state, worker=event.worker, epoch=event.epoch)
            case RunResumed():
                return change(
                    state,
                    status="running",
                    attempts=event.attempt,
                    ended_at=None,
                    waiting_for=(),
                    error_type=None,
                    error_message=None,
                )
            case RunWaiting():
                return change(state, status="waiting", waiting_for=event.call_ids)
            case ToolCallDecided() | ApprovalDecided():
                left = tuple(call for call in state.waiting_for if call != event.call_id)
                status = "running" if state.status == "waiting" else state.status
                return change(state, status=status, waiting_for=left)
            case RunCompleted():
                output = state.output if event.output is None else event.output
                return change(state, status="completed", output=output, ended_at=record.recorded_at)
            case RunFailed():
                return change(
                    state,
                    status="failed",
                    error_type=event.error_type,
                    error_message=event.error_message,
                    ended_at=record.recorded_at,
                )
            case RunParked():
                return change(state, status="parked", ended_at=record.recorded_at)
            case RunAbandoned():
                return change(state, status="abandoned", ended_at=record.recorded_at)
            case EvaluationStarted():
                return change(
                    state,
                    evaluations=state.evaluations + 1,
                    prompt=f"{event.prompt_ns}/{event.prompt_key}",
                )
            case EvaluationFinished():
                return change(state, output=event.output)
            case _:
                assert_never(event)

    def to_json(self, state: Summary) -> Any:
        return {"status": state.status, **as_json(state)}

    def digest(self, state: Summary) -> bytes:
        # Without the times: the store sets them after a digest is made.
        timeless = msgspec.structs.replace(state, started_at=None, ended_at=None)
        return combine("summary", canonical(timeless))

    def outcome(self, state: Summary) -> bytes:
        return canonical([state.status, state.output])


def _begun(before: Summary, event: RunStarted, moment: datetime) -> Summary:
    # Forks of older programs do not say whose they are.
    inherited = before.agent if event.kind == "fork" else ""
    return Summary(
        kind=event.kind,
        parent=str(event.parent) if event.parent else None,
        parent_version=event.at,
        request_id=str(event.request_id) if event.request_id else None,
        request_type=event.request_type,
        session_id=str(event.session_id) if event.session_id else None,
        tags=dict(event.tags),
        deadline=event.deadline,
        time_limit=event.time_limit,
        budget=event.budget,
        started_at=moment,
        agent=event.agent or inherited,
    )
