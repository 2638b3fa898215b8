"""Events to append: one of each kind, and short ways to write the plain ones."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from uuid import UUID, uuid4

from turnledger.ledger import (
    ApprovalDecided,
    ApprovalRequested,
    CheckpointCleared,
    CheckpointReached,
    CheckpointStored,
    CustomEvent,
    Draft,
    EvaluationFinished,
    EvaluationStarted,
    EvaluationSuperseded,
    Event,
    InnerMessage,
    MediaContent,
    MessageAppended,
    ModelCalled,
    ModelCallFailed,
    ModelReplied,
    OutputRejected,
    Record,
    ResourceSnapshotted,
    RunAbandoned,
    RunCompleted,
    RunFailed,
    RunParked,
    RunResumed,
    RunStarted,
    RunWaiting,
    SliceEventApplied,
    StateRestored,
    TextContent,
    TokenLimits,
    TokenUsage,
    ToolCallCompleted,
    ToolCallDecided,
    ToolCallFailed,
    ToolCallInDoubt,
    ToolCallRecord,
    ToolCallStarted,
    ToolMessageAmended,
    blob_name,
)

WHEN = datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=UTC)
SOME_ID = UUID("0195f5a0-0000-7000-8000-00000000abcd")
PICTURE = b"\x89PNG not really \x00\xff"


def note(number: int = 0, **data: object) -> CustomEvent:
    """A plain event that anyone may append."""
    return CustomEvent(kind="test.note", data={"number": number, **data})


def notes(count: int, start: int = 0) -> list[Event]:
    return [note(number) for number in range(start, start + count)]


def message(content: str = "hello", sequence: int = 0, **fields: object) -> MessageAppended:
    """An event that only a run's worker may append while the run is claimed."""
    values: dict[str, object] = {"created_at": WHEN, "message_id": SOME_ID, **fields}
    return MessageAppended(message=InnerMessage("user", content, "e1", sequence, **values))  # type: ignore[arg-type]


def draft(event: Event | None = None) -> Draft:
    return Draft(event if event is not None else note(), uuid4())


def drafts(count: int) -> list[Draft]:
    return [draft(note(number)) for number in range(count)]


def numbers(records: Iterable[Record]) -> list[int]:
    """What tells notes apart."""
    return [record.event.data["number"] for record in records]  # type: ignore[union-attr]


def custom(content: bytes) -> CustomEvent:
    """An event that names a blob, as the two below do."""
    return CustomEvent(kind="acme.scan", data={"n": 1}, blobs=(blob_name(content),))


def replied(content: bytes) -> ModelReplied:
    return ModelReplied(evaluation_id="", turn=0, call_id="ask#1", blobs=(blob_name(content),))


def showing(content: bytes) -> MessageAppended:
    return message(parts=(MediaContent("image", blob=blob_name(content)),))


def one_of_each() -> list[Event]:
    """Every kind of event but RunStarted (only ever first) and RunClaimed (made by `claim`).

    Some are of steps, which no message asked for. Four of them name the blob PICTURE.
    """
    return [
        RunResumed(attempt=2, from_version=1),
        EvaluationStarted(evaluation_id="e1", prompt_ns="ns", prompt_key="key", prompt_digest="d"),
        MessageAppended(
            message=InnerMessage(
                "assistant",
                "text ü 🦜 \x00",
                "e1",
                1,
                tool_calls=(ToolCallRecord("c1", "search", '{"q": 1}', "completed"),),
                turn=1,
                created_at=WHEN,
                message_id=SOME_ID,
                parts=(
                    TextContent("see"),
                    MediaContent("image", blob=blob_name(PICTURE), mime="image/png"),
                ),
                value={"nested": [1, 2.5, None, True, "x"]},
                step_num=3,
                role_hint_for_llm="user",
            )
        ),
        ToolMessageAmended(message_id=SOME_ID, content="shorter", reason="too long"),
        ModelCalled(evaluation_id="e1", turn=1, request_digest="r", model="m"),
        ModelReplied(
            evaluation_id="e1",
            turn=1,
            message_id=SOME_ID,
            usage=TokenUsage(input_tokens=10, output_tokens=5),
            provider_data={"id": "x"},
        ),
        ModelCalled(
            evaluation_id="",
            turn=0,
            request_digest="r2",
            call_id="outer#1/ask:k",
            parent="outer#1",
            name="openai.chat.completions",
            request={"messages": []},
            client="openai 3",
            on_interrupt="retry",
        ),
        ModelReplied(
            evaluation_id="",
            turn=0,
            usage=TokenUsage(input_tokens=1, estimated=True),
            call_id="outer#1/ask:k",
            value={"status": 200, "body": blob_name(PICTURE)},
            blobs=(blob_name(PICTURE),),
        ),
        ModelCallFailed(
            evaluation_id="",
            turn=0,
            error_type="RateLimitError",
            error_message="slow down",
            call_id="ask#2",
            final=True,
            value={"status": 429},
        ),
        ModelCallFailed(
            evaluation_id="e1", turn=2, error_type="Timeout", error_message="slow", status=504
        ),
        ToolCallStarted(evaluation_id="e1", call_id="c1", name="search"),
        ToolCallCompleted(
            evaluation_id="e1", call_id="c1", name="search", message_id=SOME_ID, value=[1]
        ),
        ToolCallFailed(
            evaluation_id="e1",
            call_id="c2",
            name="search",
            message_id=SOME_ID,
            error_type="ValueError",
            error_message="bad",
            retryable=False,
        ),
        ToolCallStarted(
            evaluation_id="",
            call_id="outer#1/pay:k",
            name="pay",
            on_interrupt="ask",
            parent="outer#1",
            digest="d",
            arguments='{"euros":5}',
        ),
        ToolCallCompleted(
            evaluation_id="", call_id="outer#1/pay:k", name="pay", unrecordable="a generator"
        ),
        ToolCallInDoubt(evaluation_id="e1", call_id="c3", name="pay", reason="crash"),
        RunWaiting(reason="a call is in doubt", call_ids=("c3",)),
        ToolCallDecided(call_id="c3", decision="retry", decided_by="ann"),
        ApprovalRequested(evaluation_id="e1", call_id="c3", name="pay"),
        ApprovalDecided(call_id="c3", decision="edited", arguments='{"euros":5}', decided_by="ann"),
        OutputRejected(evaluation_id="e1", asked_id=SOME_ID, error="expected a number"),
        SliceEventApplied(slice="plan", event_type="Step", payload={"n": 1}, call_id="c1"),
        StateRestored(snapshot={"plan": []}, reason="rollback"),
        ResourceSnapshotted(
            resource="fs", files={"a.png": blob_name(PICTURE)}, removed=("b",), digest="d"
        ),
        CheckpointReached(
            phase="post_tool", tool_calls_completed=1, state_digest="s", created_at=WHEN
        ),
        CheckpointStored(
            checkpoint="{}", phase="initialized", tool_calls_completed=0, created_at=WHEN
        ),
        CheckpointCleared(reason="done"),
        EvaluationSuperseded(evaluation_id="e1", reason="expanded", overrides={"a": "full"}),
        EvaluationFinished(evaluation_id="e1", message_id=SOME_ID, output={"answer": 42}),
        CustomEvent(
            kind="acme.invoice_sent",
            data={"total": "12.50", "scan": blob_name(PICTURE)},
            blobs=(blob_name(PICTURE),),
        ),
        RunFailed(error_type="ValueError", error_message="bad"),
        RunParked(reason="too often", attempts=3),
        RunAbandoned(reason="nobody cares"),
        RunCompleted(message_id=SOME_ID, output="done"),
    ]


def started(**fields: object) -> RunStarted:
    """The first event of a run that says all that it can."""
    values: dict[str, object] = {
        "request_id": SOME_ID,
        "request_type": "Ask",
        "request": {"question": "?"},
        "requested_at": WHEN,
        "session_id": SOME_ID,
        "tags": {"team": "red", "env": "test"},
        "deadline": WHEN,
        "time_limit": 12.5,
        "budget": TokenLimits(max_total_tokens=1000),
        **fields,
    }
    return RunStarted(**values)  # type: ignore[arg-type]
