"""What the bus events hold, in the seeds' spelling, and that they are no ledger events."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable
from dataclasses import FrozenInstanceError, dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, get_args, get_type_hints
from uuid import UUID, uuid4

import pytest

from turnledger.ledger.clock import utc_now
from turnledger.ledger.events.types import EVENT_TYPES, CheckpointPhaseName
from turnledger.projections.views.usage import Tokens
from turnledger.runtime.agent.models.limits import Budget, Deadline
from turnledger.runtime.agent.tools.tool import RejectedToolParams, ToolResult
from turnledger.runtime.checkpoints.checkpoint import CheckpointPhase
from turnledger.runtime.loop import events as bus_events
from turnledger.runtime.loop.events import (
    CheckpointSaved,
    MainLoopCompleted,
    MainLoopFailed,
    MainLoopRequest,
    PromptExecuted,
    PromptRendered,
    PromptResponse,
    RecoveryCompleted,
    RecoveryFailed,
    RecoveryStarted,
    RunEnded,
    TextDelta,
    TextReceived,
    ToolEnded,
    ToolInvoked,
    ToolStarted,
    ToolStillRunning,
)

RUN, REQUEST, SESSION = UUID(int=1), UUID(int=2), UUID(int=3)
RESPONSE: PromptResponse[str] = PromptResponse(
    prompt_name="review", text="fine", output=None, tool_results=()
)


@dataclass(frozen=True)
class ReviewRequest:
    path: str


def rendered() -> PromptRendered:
    return PromptRendered(
        ns="reviews",
        key="code-review",
        name=None,
        adapter="scripted",
        session_id=SESSION,
        inputs=({"path": "a.py"},),
        text="Review a.py",
    )


def received() -> TextReceived:
    return TextReceived(
        prompt_name="review",
        adapter="scripted",
        session_id=SESSION,
        evaluation_id="e1",
        turn=1,
        attempt=1,
        text="It is",
    )


def invoked() -> ToolInvoked:
    return ToolInvoked(
        name="search",
        params=RejectedToolParams("{", "not JSON"),
        result=ToolResult("Those are no parameters.", success=False),
        call_id="c1",
        session_id=SESSION,
        prompt_name="review",
        adapter="scripted",
    )


def executed() -> PromptExecuted:
    return PromptExecuted(
        ns="reviews",
        key="code-review",
        name="review",
        adapter="scripted",
        session_id=SESSION,
        response=RESPONSE,
        usage=Tokens(1, 10, 5),
    )


# What a caller hears of its run, and the fields in order.
TOLD: dict[type, list[str]] = {
    TextDelta: ["text"],
    ToolStarted: ["call_id", "name", "arguments"],
    ToolEnded: ["call_id", "name", "result", "success"],
    RunEnded: ["result"],
}

# How each is made with what it can't do without, and its fields in order.
EVENTS: list[tuple[Callable[[], Any], list[str]]] = [
    (rendered, ["ns", "key", "name", "adapter", "session_id", "inputs", "text", "created_at"]),
    (
        invoked,
        [
            "name",
            "params",
            "result",
            "call_id",
            "session_id",
            "prompt_name",
            "adapter",
            "rendered_output",
            "created_at",
        ],
    ),
    (
        received,
        [
            "prompt_name",
            "adapter",
            "session_id",
            "evaluation_id",
            "turn",
            "attempt",
            "text",
            "created_at",
        ],
    ),
    (
        executed,
        ["ns", "key", "name", "adapter", "session_id", "response", "usage", "created_at"],
    ),
    (
        lambda: MainLoopRequest(ReviewRequest("a.py")),
        ["request", "budget", "deadline", "request_id", "created_at"],
    ),
    (
        lambda: MainLoopCompleted(REQUEST, RESPONSE, SESSION),
        ["request_id", "response", "session_id", "completed_at"],
    ),
    (
        lambda: MainLoopFailed(REQUEST, ValueError("no"), None),
        ["request_id", "error", "session_id", "failed_at"],
    ),
    (
        lambda: CheckpointSaved(RUN, UUID(int=4), CheckpointPhase.POST_TOOL, 2),
        ["run_id", "checkpoint_id", "phase", "tool_calls_completed", "created_at"],
    ),
    (
        lambda: RecoveryStarted(RUN, utc_now(), 2),
        ["run_id", "checkpoint_created_at", "tool_calls_completed", "started_at"],
    ),
    (lambda: RecoveryCompleted(RUN), ["run_id", "completed_at"]),
    (
        lambda: ToolStillRunning(name="pay", call_id="c", run_id=RUN, session_id=RUN, seconds=9.0),
        ["name", "call_id", "run_id", "session_id", "seconds", "created_at"],
    ),
    (lambda: RecoveryFailed(RUN, ValueError("no")), ["run_id", "error", "failed_at"]),
]


@pytest.mark.parametrize(("make", "fields"), EVENTS)
def test_an_event_has_the_fields_of_the_seeds(make: Callable[[], Any], fields: list[str]) -> None:
    """S2-4, S2-5, S2-6, S2-21, S4-5: in their order and spelling."""
    assert [field.name for field in dataclasses.fields(make())] == fields


@pytest.mark.parametrize(("kind", "fields"), TOLD.items())
def test_what_a_caller_hears_can_not_be_changed(kind: Any, fields: list[str]) -> None:
    """A stream's events are frozen, and have these fields by place."""
    event = kind(*fields)
    assert [field.name for field in dataclasses.fields(event)] == fields
    with pytest.raises(FrozenInstanceError):
        setattr(event, fields[0], None)


@pytest.mark.parametrize(("make", "fields"), EVENTS)
def test_the_last_field_is_the_moment_it_was_made(
    make: Callable[[], Any], fields: list[str]
) -> None:
    """In UTC, between before and after."""
    before = utc_now()
    moment = getattr(make(), fields[-1])
    assert before <= moment <= utc_now()
    assert moment.utcoffset() == timedelta(0)


@pytest.mark.parametrize(("make", "fields"), EVENTS)
def test_an_event_can_not_be_changed(make: Callable[[], Any], fields: list[str]) -> None:
    """It is told to several listeners, and each sees the same."""
    event = make()
    for field in fields:
        with pytest.raises(FrozenInstanceError):
            setattr(event, field, None)


@pytest.mark.parametrize(("make", "fields"), EVENTS)
def test_the_types_of_an_events_fields_can_be_read(
    make: Callable[[], Any], fields: list[str]
) -> None:
    """A session that keeps events in a slice needs them to read the slice back."""
    assert list(get_type_hints(type(make()))) == fields


def test_every_event_of_the_module_is_checked_here() -> None:
    """A new one has to be added to the list above."""
    found = {
        kind
        for _, kind in inspect.getmembers(bus_events, dataclasses.is_dataclass)
        if kind.__module__ == bus_events.__name__
    }
    assert found == {type(make()) for make, _ in EVENTS} | {PromptResponse, *TOLD}


def test_no_name_is_a_ledger_events_too() -> None:
    """Bus events tell listeners, ledger events are the facts; no class is both."""
    names = {type(make()).__name__ for make, _ in EVENTS}
    assert not names & {kind.__name__ for kind in EVENT_TYPES.values()}


def test_a_request_has_an_id_of_its_own() -> None:
    """S2-4: a UUID of version 4, another for each request."""
    one, other = (MainLoopRequest(ReviewRequest("a.py")) for _ in range(2))
    assert one.request_id != other.request_id
    assert one.request_id.version == 4


def test_a_request_carries_its_own_limits() -> None:
    """S2-4: as the seed writes it; without them they are None."""
    deadline = Deadline(expires_at=datetime.now(UTC) + timedelta(minutes=5))
    event = MainLoopRequest(
        request=ReviewRequest("a.py"),
        budget=Budget(max_total_tokens=10000),
        deadline=deadline,
    )
    assert event.budget == Budget(max_total_tokens=10000)
    assert event.deadline is deadline
    bare = MainLoopRequest(request=ReviewRequest("a.py"))
    assert (bare.budget, bare.deadline) == (None, None)


def test_subscripted_events_are_of_the_plain_class() -> None:
    """S2-10: on every supported Python, frozen as they are."""
    request = MainLoopRequest[ReviewRequest](request=ReviewRequest("a.py"))
    completed = MainLoopCompleted[str](
        request_id=request.request_id, response=RESPONSE, session_id=uuid4()
    )
    assert type(request) is MainLoopRequest
    assert type(completed) is MainLoopCompleted


def test_a_response_can_be_made_with_a_subscript_too() -> None:
    """S4-2: its five fields in the seed's order, then the run."""
    response = PromptResponse[str](prompt_name="p", text=None, output="x", tool_results=())
    assert type(response) is PromptResponse
    assert [field.name for field in dataclasses.fields(response)] == [
        "prompt_name",
        "text",
        "output",
        "tool_results",
        "provider_payload",
        "run_id",
    ]
    assert response.provider_payload is None


def test_checkpoint_phases_are_spelled_as_in_the_ledger() -> None:
    """S2-14: the enum's values are what CheckpointReached holds."""
    phases = tuple(phase.value for phase in CheckpointPhase)
    assert phases == ("initialized", "post_tool", "completed", "failed")
    assert phases == get_args(CheckpointPhaseName)
