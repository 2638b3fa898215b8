"""Bus events: what the runtime publishes, the request that it takes, and the response.

They inform listeners in this process and are not recorded: the recorded events are
`ledger.events.types`, and no name is used in both. All but the response are immutable.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Generic, TypeAlias, TypeVar
from uuid import UUID, uuid4

from turnledger.ledger.clock import utc_now
from turnledger.projections.views.usage import Tokens
from turnledger.runtime.agent.models.limits import Budget, Deadline
from turnledger.runtime.agent.tools.tool import ToolResult
from turnledger.runtime.bus import EventBus
from turnledger.runtime.checkpoints.checkpoint import CheckpointPhase

UserRequestT = TypeVar("UserRequestT")
OutputT = TypeVar("OutputT")


# --- one evaluation ----------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptRendered:
    """A prompt is ready and goes to the provider next.

    `inputs` are the parameters that it was rendered with, in their order, as JSON data;
    `text` is the whole of what they made.
    """

    ns: str
    key: str
    name: str | None
    adapter: str
    session_id: UUID
    inputs: tuple[Any, ...]
    text: str
    created_at: datetime = field(default_factory=utc_now)


@dataclass(frozen=True, slots=True, kw_only=True)
class TextReceived:
    """A piece of a reply that is still coming in, from an adapter that streams.

    It is not a message before the reply is complete: when a call fails and is made again, its
    text comes again with the next `attempt`.
    """

    prompt_name: str
    adapter: str
    session_id: UUID
    evaluation_id: str
    turn: int
    attempt: int
    text: str
    created_at: datetime = field(default_factory=utc_now)


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolInvoked:
    """A tool's handler returned, or was not called because its arguments were invalid.

    It is published before the call is committed: a listener that raises undoes what the
    tool changed in the session. `params` is what the handler got, or `RejectedToolParams`;
    `rendered_output` is what the model is told.
    """

    name: str
    params: Any
    result: ToolResult[Any]
    call_id: str
    session_id: UUID
    prompt_name: str
    adapter: str
    rendered_output: str = ""
    created_at: datetime = field(default_factory=utc_now)


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolStillRunning:
    """A tool's handler has not returned for `seconds`; published every ten minutes of a call."""

    name: str
    call_id: str
    run_id: UUID
    session_id: UUID
    seconds: float
    created_at: datetime = field(default_factory=utc_now)


@dataclass(slots=True)
class PromptResponse(Generic[OutputT]):
    """A prompt's answer: `text`, or `output` if it was parsed.

    `tool_results` are the very events that were published. `provider_payload` is the
    provider's last answer as data, where it has such a form. `run_id` is the run that a
    `MainLoop` made of the request; None for a prompt that was evaluated by itself.
    """

    prompt_name: str
    text: str | None
    output: OutputT | None
    tool_results: tuple[ToolInvoked, ...]
    provider_payload: dict[str, Any] | None = None
    run_id: UUID | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptExecuted:
    """A prompt has its answer; `usage` is the sum of the evaluation's model calls."""

    ns: str
    key: str
    name: str | None
    adapter: str
    session_id: UUID
    response: PromptResponse[Any]
    usage: Tokens
    created_at: datetime = field(default_factory=utc_now)


# --- the main loop -----------------------------------------------------------------

# No slots on the generic ones: typing notes the subscript of MainLoopRequest[Review](...)
# on the new instance, and Python 3.11's frozen class with slots answers with a TypeError
# where typing expects an AttributeError.


@dataclass(frozen=True)
class MainLoopRequest(Generic[UserRequestT]):
    """A request to a loop. `budget` and `deadline` replace those of the loop's config."""

    request: UserRequestT
    budget: Budget | None = None
    deadline: Deadline | None = None
    request_id: UUID = field(default_factory=uuid4)
    created_at: datetime = field(default_factory=utc_now)


@dataclass(frozen=True)
class MainLoopCompleted(Generic[OutputT]):
    """A request has its response."""

    request_id: UUID
    response: PromptResponse[OutputT]
    session_id: UUID
    completed_at: datetime = field(default_factory=utc_now)


@dataclass(frozen=True, slots=True)
class MainLoopFailed:
    """A request failed; without a `session_id` it failed before there was a session."""

    request_id: UUID
    error: Exception
    session_id: UUID | None
    failed_at: datetime = field(default_factory=utc_now)


# --- checkpoints and recovery ------------------------------------------------------


@dataclass(frozen=True, slots=True)
class CheckpointSaved:
    """A checkpoint is on disk."""

    run_id: UUID
    checkpoint_id: UUID
    phase: CheckpointPhase
    tool_calls_completed: int
    created_at: datetime = field(default_factory=utc_now)


@dataclass(frozen=True, slots=True)
class RecoveryStarted:
    """The recovery of an interrupted run has begun."""

    run_id: UUID
    checkpoint_created_at: datetime
    tool_calls_completed: int
    started_at: datetime = field(default_factory=utc_now)


@dataclass(frozen=True, slots=True)
class RecoveryCompleted:
    """A recovered run is completed."""

    run_id: UUID
    completed_at: datetime = field(default_factory=utc_now)


@dataclass(frozen=True, slots=True)
class RecoveryFailed:
    """A run could not be recovered, or failed after it was."""

    run_id: UUID
    error: Exception
    failed_at: datetime = field(default_factory=utc_now)


# --- what a caller hears of its run ------------------------------------------------


@dataclass(frozen=True, slots=True)
class TextDelta:
    """A piece of a reply that is still coming in.

    A call of the model that fails in the middle is made again, and its text comes again.
    """

    text: str


@dataclass(frozen=True, slots=True)
class ToolStarted:
    """A tool's handler is about to run: its start is on disk. On the bus too.

    `arguments` is JSON text, as the model wrote it.
    """

    call_id: str
    name: str
    arguments: str


@dataclass(frozen=True, slots=True)
class ToolEnded:
    """A tool call's result is on disk, also one that was refused and never ran. On the bus too.

    `result` is what the model is told.
    """

    call_id: str
    name: str
    result: str
    success: bool


@dataclass(frozen=True)
class RunEnded(Generic[OutputT]):
    """The run has its result; the last event of a stream."""

    result: OutputT


RunEvent: TypeAlias = "TextDelta | ToolStarted | ToolEnded"
_WANTS_TEXT: ContextVar[bool] = ContextVar("turnledger_wants_text", default=False)


def wants_text() -> bool:
    """Whether the caller of this run listens to text as it comes."""
    return _WANTS_TEXT.get()


@contextmanager
def listening(bus: EventBus, on_event: Callable[[RunEvent], object]) -> Iterator[None]:
    """Within the block, tell of what runs with this bus do, with text as it comes.

    Called in the run's own thread. What it raises is logged and has no further effect.

    Args:
        bus: The bus of a loop. All runs that share it are told of: give each one of its own.
        on_event: Called with TextDelta, ToolStarted and ToolEnded.
    """

    def tell_text(received: TextReceived) -> None:
        on_event(TextDelta(received.text))

    token = _WANTS_TEXT.set(True)
    bus.subscribe(TextReceived, tell_text)
    bus.subscribe(ToolStarted, on_event)
    bus.subscribe(ToolEnded, on_event)
    try:
        yield
    finally:
        bus.unsubscribe(TextReceived, tell_text)
        bus.unsubscribe(ToolStarted, on_event)
        bus.unsubscribe(ToolEnded, on_event)
        _WANTS_TEXT.reset(token)
