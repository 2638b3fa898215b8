"""Every kind of fact that a ledger can hold: a closed union of immutable events.

The union `Event` is the registry. An event's `tag` is permanent and is what the
disk knows; no import path ever reaches it. Fields are only ever added, with a
default that keeps the old meaning; a changed meaning is a new tag and an upcaster
(ledger/events/upcasters.py). Content stands once: the text of a message is in its
MessageAppended, and other events name it by `message_id`.
"""

from __future__ import annotations

from functools import cache
from math import isfinite
from typing import Annotated, Any, ClassVar, Literal, TypeAlias, TypeVar, get_args, get_type_hints
from uuid import UUID

import msgspec

from turnledger.ledger.events.messages import Count, InnerMessage, Moment

# Grows by one with every release that adds a tag or a field. A ledger remembers the
# highest that wrote to it, so that an unknown tag can be told from a damaged one; a run
# names that of its writer, so that a replay compares only fields that the writer knew.
CATALOGUE = 2


def since(catalogue: int) -> msgspec.Meta:
    """Marks a field with the catalogue that brought it. Fields of catalogue 1 have no mark."""
    return msgspec.Meta(extra={"since": catalogue})


StructT = TypeVar("StructT", bound=msgspec.Struct)
# A key in the run index: short enough to index, and text that every store can hold.
Key = Annotated[str, msgspec.Meta(max_length=512, pattern=r"^[^\x00]*$")]
CustomKind = Annotated[
    str, msgspec.Meta(max_length=200, pattern=r"^[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)+\Z")
]
CheckpointPhaseName = Literal["initialized", "post_tool", "completed", "failed"]
RunKind = Literal["run", "fork", "continuation"]


class BaseEvent(
    msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True, gc=False
):
    """What all events share: a permanent tag."""

    tag: ClassVar[str]


class TokenLimits(
    msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True, gc=False
):
    """How many tokens a run may use."""

    max_total_tokens: Count | None = None
    max_input_tokens: Count | None = None
    max_output_tokens: Count | None = None


class TokenUsage(
    msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True, gc=False
):
    """What one model call used."""

    input_tokens: Count = 0
    output_tokens: Count = 0
    cached_tokens: Count = 0
    reasoning_tokens: Count = 0


# --- the run ---------------------------------------------------------------------


class RunStarted(BaseEvent, frozen=True, kw_only=True):
    """A run begins. Only ever the first event of its run.

    With `parent`, the run goes on from its parent's version `at` and its own first
    version is `at` + 1: a `fork` keeps conversation and slices, a `continuation` the
    slices only. `time_limit` counts running seconds; `deadline` is a moment. A tag and its
    value may have 2,500 bytes together.
    """

    tag = "run.started"

    request_id: UUID | None = None
    request_type: Key = ""
    request: Any = None
    requested_at: Moment | None = None
    session_id: UUID | None = None
    tags: dict[Key, Key] = {}
    parent: UUID | None = None
    at: Count = 0
    kind: RunKind = "run"
    deadline: Moment | None = None
    time_limit: Annotated[float, msgspec.Meta(ge=0)] | None = None
    budget: TokenLimits | None = None
    # The event catalogue of the program that writes what follows; 0 is one before catalogue 2.
    catalogue: Annotated[Count, since(2)] = 0

    def __post_init__(self) -> None:
        if isinstance(self.time_limit, float) and not isfinite(self.time_limit):
            raise ValueError("time_limit is a finite number of seconds")
        if (self.parent is None) != (self.kind == "run"):
            raise ValueError("a parent goes with kind fork or continuation, and only then")
        if (self.parent is None) != (self.at == 0):
            raise ValueError("at is the parent's version to go on from, 1 or more")


class RunClaimed(BaseEvent, frozen=True, kw_only=True):
    """A worker took the run. Appended by `claim` only: the epoch is the fence."""

    tag = "run.claimed"

    worker: Key
    epoch: Count


class RunResumed(BaseEvent, frozen=True, kw_only=True):
    """A worker goes on with a run that was interrupted."""

    tag = "run.resumed"

    attempt: Count
    from_version: Count
    # As in RunStarted: another program may go on with a run.
    catalogue: Annotated[Count, since(2)] = 0


class CheckpointReached(BaseEvent, frozen=True, kw_only=True):
    """A transaction boundary: the state so far, by its digests."""

    tag = "checkpoint.reached"

    phase: CheckpointPhaseName
    tool_calls_completed: Count
    state_digest: str
    outcome_digest: str = ""
    created_at: Moment


class CheckpointStored(BaseEvent, frozen=True, kw_only=True):
    """A checkpoint that a user saved, kept as it was given (`checkpoint` is its JSON text)."""

    tag = "checkpoint.stored"

    checkpoint: str
    phase: CheckpointPhaseName
    tool_calls_completed: Count
    created_at: Moment


class CheckpointCleared(BaseEvent, frozen=True, kw_only=True):
    """The run's checkpoints no longer count; the events stay."""

    tag = "checkpoint.cleared"

    reason: str = ""


class RunWaiting(BaseEvent, frozen=True, kw_only=True):
    """The run can't go on before a person decides about these calls."""

    tag = "run.waiting"

    reason: str
    call_ids: tuple[str, ...] = ()


class RunCompleted(BaseEvent, frozen=True, kw_only=True):
    """The run ended with a result."""

    tag = "run.completed"

    message_id: UUID | None = None
    output: Any = None
    outcome_digest: str = ""


class RunFailed(BaseEvent, frozen=True, kw_only=True):
    """The run ended with an error that was handled."""

    tag = "run.failed"

    error_type: str
    error_message: str
    phase: str = ""
    # The type of the error behind it, if one was: a deadline's, say.
    cause: str = ""
    # What could not be done, where the phase does not tell it: "encode" is a request that the
    # adapter could not build.
    step: Annotated[str, since(2)] = ""


class RunParked(BaseEvent, frozen=True, kw_only=True):
    """The run failed too often to be tried again by itself."""

    tag = "run.parked"

    reason: str
    attempts: Count = 0


class RunAbandoned(BaseEvent, frozen=True, kw_only=True):
    """Somebody gave the run up."""

    tag = "run.abandoned"

    reason: str = ""


# --- the conversation --------------------------------------------------------------


class OfferedTool(
    msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True, gc=False
):
    """A tool that a model may call, and the digest of what the model is told beside its name."""

    name: str
    digest: str


class EvaluationStarted(BaseEvent, frozen=True, kw_only=True):
    """A prompt is evaluated. Its text is the system message that follows.

    `prompt_ns` and `prompt_key` may have 2,500 bytes together.
    """

    tag = "evaluation.started"

    evaluation_id: str
    prompt_ns: Key
    prompt_key: Key
    prompt_name: str = ""
    prompt_digest: str
    tools_digest: str = ""
    adapter: str = ""
    tools: tuple[OfferedTool, ...] = ()


class MessageAppended(BaseEvent, frozen=True, kw_only=True):
    """A message became part of the conversation."""

    tag = "message.appended"

    message: InnerMessage


class ToolMessageAmended(BaseEvent, frozen=True, kw_only=True):
    """A tool's message reads differently from here on."""

    tag = "tool_message.amended"

    message_id: UUID
    content: str
    reason: str = ""


class EvaluationSuperseded(BaseEvent, frozen=True, kw_only=True):
    """The evaluation is begun anew; what it had said no longer counts."""

    tag = "evaluation.superseded"

    evaluation_id: str
    reason: str = ""
    overrides: dict[str, str] = {}


class EvaluationFinished(BaseEvent, frozen=True, kw_only=True):
    """The evaluation has its answer: a message, and perhaps a parsed output."""

    tag = "evaluation.finished"

    evaluation_id: str
    message_id: UUID | None = None
    output: Any = None


# --- the model ---------------------------------------------------------------------


class ModelCalled(BaseEvent, frozen=True, kw_only=True):
    """A request goes out; it is known by its digest."""

    tag = "model.called"

    evaluation_id: str
    turn: Count
    request_digest: str
    adapter: str = ""
    model: str = ""
    attempt: Count = 1


class ModelReplied(BaseEvent, frozen=True, kw_only=True):
    """The reply, but for its message: usage, and what the provider sent beyond it."""

    tag = "model.replied"

    evaluation_id: str
    turn: Count
    message_id: UUID
    usage: TokenUsage = TokenUsage()
    finish_reason: str = ""
    model: str = ""
    provider_data: Any = None


class ModelCallFailed(BaseEvent, frozen=True, kw_only=True):
    """A request that brought no reply."""

    tag = "model.call_failed"

    evaluation_id: str
    turn: Count
    error_type: str
    error_message: str
    retryable: bool = False
    status: int | None = None
    attempt: Count = 1
    # What is wrong with the reply; empty if none came.
    reply_error: Annotated[str, since(2)] = ""


# --- the tools ---------------------------------------------------------------------


class ToolCallStarted(BaseEvent, frozen=True, kw_only=True):
    """A tool is about to run: on disk before its handler is called."""

    tag = "tool_call.started"

    evaluation_id: str
    call_id: str
    name: str
    attempt: Count = 1


class ToolCallCompleted(BaseEvent, frozen=True, kw_only=True):
    """A tool ran; what the model is told is in the message."""

    tag = "tool_call.completed"

    evaluation_id: str
    call_id: str
    name: str
    message_id: UUID
    value: Any = None
    attempt: Count = 1


class ToolCallFailed(BaseEvent, frozen=True, kw_only=True):
    """A tool failed, or was never run because its arguments were wrong."""

    tag = "tool_call.failed"

    evaluation_id: str
    call_id: str
    name: str
    message_id: UUID
    error_type: str
    error_message: str
    retryable: bool | None = None
    attempt: Count = 1


class ToolCallInDoubt(BaseEvent, frozen=True, kw_only=True):
    """A tool was started and nobody knows how it ended."""

    tag = "tool_call.in_doubt"

    evaluation_id: str
    call_id: str
    name: str
    attempt: Count = 1
    reason: str = ""


class ToolCallDecided(BaseEvent, frozen=True, kw_only=True):
    """A person said what became of a call in doubt, or that it should run again."""

    tag = "tool_call.decided"

    call_id: str
    decision: Literal["completed", "failed", "retry"]
    value: Any = None
    text: str = ""
    decided_by: str = ""


# --- the session -------------------------------------------------------------------


class SliceEventApplied(BaseEvent, frozen=True, kw_only=True):
    """A change of session state: what was handed to a slice's reducer.

    `slice` and `event_type` are names that the program declares, never import paths.
    """

    tag = "slice.event_applied"

    slice: Key
    event_type: Key
    operation: Literal["apply", "append", "seed", "clear"] = "apply"
    payload: Any = None
    call_id: str | None = None


class StateRestored(BaseEvent, frozen=True, kw_only=True):
    """Session state was set back to a snapshot."""

    tag = "state.restored"

    snapshot: Any
    reason: str = ""


class ResourceSnapshotted(BaseEvent, frozen=True, kw_only=True):
    """What changed in a resource, a directory say: path to blob, and paths that are gone."""

    tag = "resource.snapshotted"

    resource: Key
    files: dict[str, str] = {}
    removed: tuple[str, ...] = ()
    digest: str = ""


# --- anyone's ----------------------------------------------------------------------


class CustomEvent(BaseEvent, frozen=True, kw_only=True):
    """A fact of the user's own: a namespaced `kind` ("acme.invoice_sent") and JSON."""

    tag = "custom"

    kind: CustomKind
    data: Any = None


Event: TypeAlias = (
    RunStarted
    | RunClaimed
    | RunResumed
    | CheckpointReached
    | CheckpointStored
    | CheckpointCleared
    | RunWaiting
    | RunCompleted
    | RunFailed
    | RunParked
    | RunAbandoned
    | EvaluationStarted
    | MessageAppended
    | ToolMessageAmended
    | EvaluationSuperseded
    | EvaluationFinished
    | ModelCalled
    | ModelReplied
    | ModelCallFailed
    | ToolCallStarted
    | ToolCallCompleted
    | ToolCallFailed
    | ToolCallInDoubt
    | ToolCallDecided
    | SliceEventApplied
    | StateRestored
    | ResourceSnapshotted
    | CustomEvent
)

EVENT_TYPES: dict[str, type[Event]] = {kind.tag: kind for kind in get_args(Event)}


# --- catalogues --------------------------------------------------------------------


@cache
def fields_since(kind: type[msgspec.Struct]) -> dict[str, int]:
    """The fields of a type that catalogue 1 did not have, and the catalogue that brought each."""
    found: dict[str, int] = {}
    for name, hint in get_type_hints(kind, include_extras=True).items():
        for mark in getattr(hint, "__metadata__", ()):
            if isinstance(mark, msgspec.Meta) and mark.extra:
                found[name] = mark.extra["since"]
    return found


def as_of(value: StructT, catalogue: int) -> StructT:
    """An event as a program with this catalogue would make it: later fields have their default.

    So an event of today's can be compared with one that an older program recorded. Parts of the
    event, a message say, are treated alike.
    """
    if catalogue >= CATALOGUE:
        return value
    changed: dict[str, Any] = {}
    added = fields_since(type(value))
    for field in msgspec.structs.fields(value):
        now = getattr(value, field.name)
        if added.get(field.name, 0) > catalogue:
            made = field.default_factory
            changed[field.name] = field.default if made is msgspec.NODEFAULT else made()
        elif isinstance(now, msgspec.Struct):
            changed[field.name] = as_of(now, catalogue)
        elif isinstance(now, tuple) and any(isinstance(one, msgspec.Struct) for one in now):
            changed[field.name] = tuple(
                as_of(one, catalogue) if isinstance(one, msgspec.Struct) else one for one in now
            )
    return msgspec.structs.replace(value, **changed) if changed else value
