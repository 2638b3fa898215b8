"""Given events: short ways to write the facts of a run, and the records that they would be."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

from turnledger.ledger import (
    ApprovalDecided,
    ApprovalRequested,
    Codec,
    EvaluationStarted,
    EvaluationSuperseded,
    Event,
    InnerMessage,
    MessageAppended,
    ModelCalled,
    ModelReplied,
    Record,
    RunStarted,
    SliceEventApplied,
    StateRestored,
    TokenUsage,
    ToolCallCompleted,
    ToolCallFailed,
    ToolCallInDoubt,
    ToolCallRecord,
    ToolCallStarted,
    ToolMessageAmended,
)
from turnledger.ledger.clock import to_micros
from turnledger.ledger.runs.record import Row
from turnledger.projections import Declarations, RunState

RUN = "0195f5a0-0000-7000-8000-00000000abcd"
PARENT = UUID("0195f5a0-0000-7000-8000-000000000001")
START = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
CODEC = Codec()


def moment(version: int) -> datetime:
    """When the event of a version was recorded: one second after the one before."""
    return START + timedelta(seconds=version)


def ident(number: int) -> UUID:
    return UUID(int=number)


def record(event: Event, version: int) -> Record:
    tag, data = CODEC.encode(event)
    return raw_record(tag, data.decode(), version)


def raw_record(tag: str, data: str, version: int) -> Record:
    """A record of bytes, as an older program may have written them."""
    row = Row(
        version,
        RUN,
        version,
        tag,
        str(ident(10**6 + version)),
        to_micros(moment(version)),
        b"",
        data,
    )
    return Record(row, CODEC)


def records(events: Iterable[Event], after: int = 0) -> list[Record]:
    """The events as the records of one run, from version `after` + 1 on."""
    return [record(event, after + place) for place, event in enumerate(events, 1)]


def folded(*events: Event, declarations: Declarations | None = None) -> RunState:
    """All that is known after these events."""
    return RunState.initial(declarations).after(records(events))


# --- events, short -------------------------------------------------------------------


def evaluation(evaluation_id: str = "e1", key: str = "key") -> EvaluationStarted:
    return EvaluationStarted(
        evaluation_id=evaluation_id, prompt_ns="ns", prompt_key=key, prompt_digest="d"
    )


def inner(role: Any, content: str, sequence: int, **fields: Any) -> InnerMessage:
    values: dict[str, Any] = {
        "evaluation_id": "e1",
        "created_at": START + timedelta(minutes=sequence),
        "message_id": ident(sequence),
        **fields,
    }
    return InnerMessage(role, content, sequence=sequence, **values)


def said(role: Any, content: str, sequence: int, **fields: Any) -> MessageAppended:
    return MessageAppended(message=inner(role, content, sequence, **fields))


def system(text: str = "Be brief.", sequence: int = 0, **fields: Any) -> MessageAppended:
    return said("system", text, sequence, **fields)


def asks(sequence: int, *call_ids: str, turn: int = 1, **fields: Any) -> MessageAppended:
    """The assistant asks for calls of `search`."""
    calls = tuple(ToolCallRecord(call_id, "search", '{"q":1}') for call_id in call_ids)
    return said("assistant", "", sequence, tool_calls=calls, turn=turn, **fields)


def answers(sequence: int, call_id: str, text: str = "found", **fields: Any) -> MessageAppended:
    """A tool's message."""
    return said("tool", text, sequence, tool_call_id=call_id, tool_name="search", **fields)


def starts(call_id: str = "c1", attempt: int = 1, evaluation_id: str = "e1") -> ToolCallStarted:
    return ToolCallStarted(
        evaluation_id=evaluation_id, call_id=call_id, name="search", attempt=attempt
    )


def completes(call_id: str = "c1", value: Any = None, message: int = 2) -> ToolCallCompleted:
    return ToolCallCompleted(
        evaluation_id="e1", call_id=call_id, name="search", message_id=ident(message), value=value
    )


def fails(call_id: str = "c1", message: int = 2) -> ToolCallFailed:
    return ToolCallFailed(
        evaluation_id="e1",
        call_id=call_id,
        name="search",
        message_id=ident(message),
        error_type="ValueError",
        error_message="bad",
    )


def doubts(call_id: str = "c1") -> ToolCallInDoubt:
    return ToolCallInDoubt(evaluation_id="e1", call_id=call_id, name="search")


def asks_approval(call_id: str = "c1", *, needed: bool = True) -> ApprovalRequested:
    """It was found out whether a call of `search` needs approval."""
    return ApprovalRequested(evaluation_id="e1", call_id=call_id, name="search", needed=needed)


def approval(decision: Any, call_id: str = "c1", **fields: Any) -> ApprovalDecided:
    """A person's decision about a call that needs approval."""
    return ApprovalDecided(call_id=call_id, decision=decision, **fields)


def amends(message: int, text: str) -> ToolMessageAmended:
    return ToolMessageAmended(message_id=ident(message), content=text)


def supersedes(evaluation_id: str = "e1") -> EvaluationSuperseded:
    return EvaluationSuperseded(evaluation_id=evaluation_id, reason="expanded")


def calls_model(turn: int = 1, model: str = "m", attempt: int = 1) -> ModelCalled:
    return ModelCalled(
        evaluation_id="e1", turn=turn, request_digest="r", model=model, attempt=attempt
    )


def replies(turn: int = 1, model: str = "m", **usage: int) -> ModelReplied:
    return ModelReplied(
        evaluation_id="e1",
        turn=turn,
        message_id=ident(turn),
        model=model,
        usage=TokenUsage(**usage),
    )


def changes(slice_name: str, payload: Any, event_type: str | None = None) -> SliceEventApplied:
    return SliceEventApplied(slice=slice_name, event_type=event_type or slice_name, payload=payload)


def restores(**slices: list[Any]) -> StateRestored:
    """Back to a snapshot, spelled as S0's snapshot JSON spells it."""
    entries = [
        {"slice_type": f"app.state:{name}", "item_type": f"app.state:{name}", "items": items}
        for name, items in slices.items()
    ]
    return StateRestored(snapshot={"slices": entries})


def forks(at: int = 1) -> RunStarted:
    return RunStarted(parent=PARENT, at=at, kind="fork")


def continues(at: int = 1) -> RunStarted:
    return RunStarted(parent=PARENT, at=at, kind="continuation")


def turns_on(at: int = 1, **fields: Any) -> RunStarted:
    """The next turn of a chat starts."""
    return RunStarted(parent=PARENT, at=at, kind="turn", **fields)
