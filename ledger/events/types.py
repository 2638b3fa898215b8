"""Event types: a closed union of immutable events, everything that a ledger can record.

The union `Event` is the registry. Events are stored under their `tag`, which is permanent; import
paths are never stored, so modules can move. Fields are only ever added, with a default that keeps
the old meaning; a changed meaning is a new tag and an upcaster (ledger/events/upcasters.py).
Content is stored once: the text of a message is in its MessageAppended, and other events refer to
it by `message_id`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache
from math import isfinite
from typing import Annotated, Any, ClassVar, Literal, TypeAlias, TypeVar, get_args, get_type_hints
from uuid import UUID, uuid5

import msgspec

from turnledger.ledger.arguments import check_arguments
from turnledger.ledger.errors import InvalidEventError, InvalidInputError, short_repr
from turnledger.ledger.events.messages import Count, InnerMessage, Moment, Value

# The version of this list of types: grows by one with every release that adds a tag or a field. A
# ledger stores the highest that wrote to it, which tells an unknown tag from a damaged one; a run
# records that of its writer, so that a replay compares only fields that the writer knew.
CATALOGUE = 6


def since(catalogue: int, *, describes: bool = False) -> msgspec.Meta:
    """Marks a field with the catalogue that brought it. Fields of catalogue 1 have no mark.

    Args:
        catalogue: The number of the catalogue.
        describes: The field tells people more about the event, and the loop decides the same
            whatever it holds. A replay does not compare it, and no digest of a state covers it.
    """
    return msgspec.Meta(extra={"since": catalogue, "describes": describes})


StructT = TypeVar("StructT", bound=msgspec.Struct)
# A key in the run index: short enough to be indexed, and without NUL, which PostgreSQL refuses.
Key = Annotated[str, msgspec.Meta(max_length=512, pattern=r"^[^\x00]*$")]
# The key of a prompt that has a stream: "ns/key" names one prompt only.
PromptKey = Annotated[str, msgspec.Meta(max_length=512, pattern=r"^[^\x00/]+\Z")]
CustomKind = Annotated[
    str, msgspec.Meta(max_length=200, pattern=r"^[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)+\Z")
]
CheckpointPhaseName = Literal["initialized", "post_tool", "completed", "failed"]
RunKind = Literal["run", "fork", "continuation", "turn"]
# The tag that every prompt stream has: its last version. It is never moved.
LATEST = "latest"
# The name of another tag; it can be the name of a file.
TAG_NAME = r"^(?!latest\Z)[A-Za-z0-9_-][A-Za-z0-9_.-]*\Z"
TagName = Annotated[str, msgspec.Meta(max_length=200, pattern=TAG_NAME)]
# The tag by which the run index holds a run's agent. No run may have it as a tag of its own.
AGENT_TAG = "turnledger.agent"
# The namespace of the ids of prompt streams; permanent.
_PROMPTS = UUID("9b6208e9-9ad1-5472-8ee5-21daf4a831d3")
OnInterruptName = Literal["", "retry", "fail", "ask"]
PromptChoice = Literal["", "recorded", "accepted"]
SliceOperation = Literal["apply", "append", "seed", "clear"]


class BaseEvent(
    msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True, gc=False
):
    """The base of all events."""

    tag: ClassVar[str]


class TokenLimits(Value, frozen=True):
    """The most tokens that a run may use."""

    max_total_tokens: Count | None = None
    max_input_tokens: Count | None = None
    max_output_tokens: Count | None = None


class TokenUsage(Value, frozen=True):
    """The tokens that one model call used."""

    input_tokens: Count = 0
    output_tokens: Count = 0
    cached_tokens: Count = 0
    reasoning_tokens: Count = 0
    # The provider sent none: these were counted on this side.
    estimated: Annotated[bool, since(6)] = False


# --- the run ---------------------------------------------------------------------


class RunStarted(BaseEvent, frozen=True, kw_only=True):
    """A run started: always and only the first event of its run.

    With `parent`, the run starts from its parent's version `at`, and its own first version is
    `at` + 1. A `fork` keeps conversation and slices, a `continuation` the slices only. A `turn` is
    the next message of a chat: it keeps both, and has a request of its own.

    `time_limit` counts running seconds; `deadline` is a point in time. A tag and its value may
    have 2,500 bytes together.
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
    # The most replies of the model; None means no limit, as in runs of catalogue 2 and before.
    max_turns: Annotated[Count | None, since(3, describes=True)] = None
    # The event catalogue of the program that writes what follows; 0 is one before catalogue 2.
    catalogue: Annotated[Count, since(2)] = 0
    # The name of the agent that the run belongs to; empty if its loop has no name.
    agent: Annotated[Key, since(5)] = ""

    def __post_init__(self) -> None:
        if isinstance(self.time_limit, float) and not isfinite(self.time_limit):
            raise InvalidEventError("time_limit is a finite number of seconds")
        if isinstance(self.tags, dict) and AGENT_TAG in self.tags:
            raise InvalidEventError(f"the tag {AGENT_TAG} is reserved: set agent instead")
        if (self.parent is None) != (self.kind == "run"):
            raise InvalidEventError("a parent goes with kind fork, continuation or turn only")
        if (self.parent is None) != (type(self.at) is int and self.at == 0):
            raise InvalidEventError("at is the parent's version to go on from, 1 or more")

    @property
    def keeps_conversation(self) -> bool:
        """Whether it goes on with what was said in its parent: a fork, or a chat turn."""
        return self.kind in ("fork", "turn")


class RunClaimed(BaseEvent, frozen=True, kw_only=True):
    """A worker claimed the run. Only `claim` appends it; other epochs are refused from then on."""

    tag = "run.claimed"

    worker: Key
    epoch: Count


class RunResumed(BaseEvent, frozen=True, kw_only=True):
    """A worker resumed a run that was interrupted."""

    tag = "run.resumed"

    attempt: Count
    from_version: Count
    # As in RunStarted: another version of the program may resume a run.
    catalogue: Annotated[Count, since(2)] = 0
    # The program's prompt is not the recorded one, and a person chose how the run goes on: with
    # the recorded prompt, or with the program's, which an evaluation with `accepted` begins.
    prompt: Annotated[PromptChoice, since(5)] = ""
    prompt_by: Annotated[str, since(5, describes=True)] = ""


class CheckpointReached(BaseEvent, frozen=True, kw_only=True):
    """The loop reached a transaction boundary; the state at it, as digests."""

    tag = "checkpoint.reached"

    phase: CheckpointPhaseName
    tool_calls_completed: Count
    state_digest: str
    outcome_digest: str = ""
    created_at: Moment


class CheckpointStored(BaseEvent, frozen=True, kw_only=True):
    """A user saved a checkpoint; `checkpoint` is its JSON text, byte for byte."""

    tag = "checkpoint.stored"

    checkpoint: str
    phase: CheckpointPhaseName
    tool_calls_completed: Count
    created_at: Moment


class CheckpointCleared(BaseEvent, frozen=True, kw_only=True):
    """The run's checkpoints were cleared; their events stay in the ledger."""

    tag = "checkpoint.cleared"

    reason: str = ""


class RunWaiting(BaseEvent, frozen=True, kw_only=True):
    """The run waits until a person decides about these tool calls."""

    tag = "run.waiting"

    reason: str
    call_ids: tuple[str, ...] = ()


class RunCompleted(BaseEvent, frozen=True, kw_only=True):
    """The run completed with a result."""

    tag = "run.completed"

    message_id: UUID | None = None
    output: Any = None
    outcome_digest: str = ""


class RunFailed(BaseEvent, frozen=True, kw_only=True):
    """The run failed with an error that the loop handled."""

    tag = "run.failed"

    error_type: str
    error_message: str
    phase: str = ""
    # The type of the error that caused it, if there is one: that of a deadline, for example.
    cause: str = ""
    # What could not be done, where the phase does not tell it: "encode" is a request that the
    # adapter could not build.
    step: Annotated[str, since(2)] = ""
    # The frames of the user's code, redacted and shortened.
    traceback: Annotated[str, since(3, describes=True)] = ""


class RunParked(BaseEvent, frozen=True, kw_only=True):
    """The run failed too often, and recovery no longer retries it."""

    tag = "run.parked"

    reason: str
    attempts: Count = 0


class RunAbandoned(BaseEvent, frozen=True, kw_only=True):
    """The run was abandoned: it will not be resumed."""

    tag = "run.abandoned"

    reason: str = ""


# --- the conversation --------------------------------------------------------------


class OfferedTool(Value, frozen=True):
    """A tool that a model may call, and the digest of its description and parameters."""

    name: str
    digest: str
    # The blob with the description and the schema, as JSON; empty before catalogue 3.
    spec: Annotated[str, since(3, describes=True)] = ""


class UsedOverrides(Value, frozen=True):
    """The overrides that a prompt was rendered with: the store, the tag asked for, the version.

    `digest` is of the texts that were applied, at `paths`; `authored` is of the prompt without
    them, which is what only the program decides.
    """

    store: str
    tag: str
    digest: str
    authored: str
    # None if the store keeps no versions.
    version: Count | None = None
    # Section paths, and "tool:NAME".
    paths: tuple[str, ...] = ()


class EvaluationStarted(BaseEvent, frozen=True, kw_only=True):
    """The evaluation of a prompt started. Its text is the system message that follows.

    With `after`, its conversation goes on from that evaluation's: the turns of that one come
    first, under this one's system text. It is the next turn of a chat; or, if it is `accepted`,
    the same turn under a changed prompt, and open calls are this evaluation's from then on.
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
    # None if no overrides store was asked; before catalogue 4 that is not recorded.
    overrides: Annotated[UsedOverrides | None, since(4)] = None
    after: Annotated[str, since(5)] = ""
    accepted: Annotated[bool, since(5)] = False
    accepted_by: Annotated[str, since(5, describes=True)] = ""


class MessageAppended(BaseEvent, frozen=True, kw_only=True):
    """A message was added to the conversation."""

    tag = "message.appended"

    message: InnerMessage


class ToolMessageAmended(BaseEvent, frozen=True, kw_only=True):
    """The content of a tool's message was replaced."""

    tag = "tool_message.amended"

    message_id: UUID
    content: str
    reason: str = ""


class EvaluationSuperseded(BaseEvent, frozen=True, kw_only=True):
    """The evaluation is started again; its messages no longer count."""

    tag = "evaluation.superseded"

    evaluation_id: str
    reason: str = ""
    overrides: dict[str, str] = {}


class EvaluationFinished(BaseEvent, frozen=True, kw_only=True):
    """The evaluation finished with a message, and perhaps a parsed output."""

    tag = "evaluation.finished"

    evaluation_id: str
    message_id: UUID | None = None
    output: Any = None


class OutputRejected(BaseEvent, frozen=True, kw_only=True):
    """A reply could not be parsed as the output that was asked for, and the model is asked again.

    `message_id` is of the rejected reply. The user message that follows tells the model what is
    wrong; its id is `asked_id`.
    """

    tag = "output.rejected"

    evaluation_id: str
    message_id: UUID | None = None
    asked_id: UUID
    error: str


# --- the model ---------------------------------------------------------------------


class ModelCalled(BaseEvent, frozen=True, kw_only=True):
    """A request to the model is about to be sent, identified by its digest.

    A request of a step has a `call_id` and no evaluation (see ToolCallStarted); `attempt` counts
    how often the step was begun.
    """

    tag = "model.called"

    evaluation_id: str
    turn: Count
    request_digest: str
    adapter: str = ""
    model: str = ""
    attempt: Count = 1
    call_id: Annotated[str, since(6)] = ""
    parent: Annotated[str, since(6)] = ""
    # The kind of request: "openai.chat.completions".
    name: Annotated[str, since(6)] = ""
    # The request itself, as its integration keeps it: what differs from the call before, say.
    request: Annotated[Any, since(6)] = None
    # What made the request: a package and its version.
    client: Annotated[str, since(6, describes=True)] = ""
    on_interrupt: Annotated[OnInterruptName, since(6, describes=True)] = ""
    # As in ToolCallStarted.
    aside: Annotated[bool, since(6, describes=True)] = False


class ModelReplied(BaseEvent, frozen=True, kw_only=True):
    """The model replied: usage and provider data. The message is an event of its own.

    The reply to a step's request has its `call_id`, and in `value` all that the step's caller
    got; `blobs` are those that `value` names.
    """

    tag = "model.replied"

    evaluation_id: str
    turn: Count
    message_id: UUID | None = None
    usage: TokenUsage = TokenUsage()
    finish_reason: str = ""
    model: str = ""
    provider_data: Any = None
    call_id: Annotated[str, since(6)] = ""
    value: Annotated[Any, since(6)] = None
    blobs: Annotated[tuple[str, ...], since(6)] = ()


class ModelCallFailed(BaseEvent, frozen=True, kw_only=True):
    """A request to the model failed.

    Of a step's request, which has a `call_id`, it is one attempt; the `final` one is what the
    step's caller got.
    """

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
    call_id: Annotated[str, since(6)] = ""
    final: Annotated[bool, since(6)] = False
    # The answer that the step's caller got, if one came: its status and body, say.
    value: Annotated[Any, since(6)] = None


# --- the tools ---------------------------------------------------------------------


class ToolCallStarted(BaseEvent, frozen=True, kw_only=True):
    """A tool call is about to run; on disk before the handler is called.

    `on_interrupt` is the tool's policy for a call whose outcome is lost, as it was at the start;
    empty before catalogue 3.

    A step is a call that no message asked for. It has no evaluation, and its `call_id` is made of
    the step that it is in (`parent`), its name and its key. `digest` is of its arguments, which
    are JSON text, and left out if they are long.
    """

    tag = "tool_call.started"

    evaluation_id: str
    call_id: str
    name: str
    attempt: Count = 1
    on_interrupt: Annotated[OnInterruptName, since(3, describes=True)] = ""
    parent: Annotated[str, since(6)] = ""
    digest: Annotated[str, since(6)] = ""
    arguments: Annotated[str, since(6)] = ""
    # Whether another thread or task asked for the step than the one that `parent` runs in: then
    # its place among the others is not compared.
    aside: Annotated[bool, since(6, describes=True)] = False


class ToolCallCompleted(BaseEvent, frozen=True, kw_only=True):
    """A tool call completed; the text for the model is in the message, which a step has none of.

    With `unrecordable`, the step happened, and its result can't be recorded: why not.
    """

    tag = "tool_call.completed"

    evaluation_id: str
    call_id: str
    name: str
    message_id: UUID | None = None
    value: Any = None
    attempt: Count = 1
    unrecordable: Annotated[str, since(6)] = ""


class ToolCallFailed(BaseEvent, frozen=True, kw_only=True):
    """A tool call failed, or was not run because its arguments are invalid."""

    tag = "tool_call.failed"

    evaluation_id: str
    call_id: str
    name: str
    message_id: UUID | None = None
    error_type: str
    error_message: str
    retryable: bool | None = None
    attempt: Count = 1
    # The frames of the user's code, redacted and shortened.
    traceback: Annotated[str, since(3, describes=True)] = ""


class ToolCallInDoubt(BaseEvent, frozen=True, kw_only=True):
    """A tool call was started, and its outcome is unknown: it is in doubt."""

    tag = "tool_call.in_doubt"

    evaluation_id: str
    call_id: str
    name: str
    attempt: Count = 1
    reason: str = ""


class SliceChange(
    msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True, gc=False
):
    """A change of session state that a decision brings: a `SliceEventApplied` to be."""

    slice: Key
    event_type: Key
    operation: SliceOperation = "apply"
    payload: Any = None


class ToolCallDecided(BaseEvent, frozen=True, kw_only=True):
    """A person decided the outcome of a call in doubt, or that it is run again.

    It is about one attempt: a later attempt needs a decision of its own. An `attempt` of 0, as
    before catalogue 3, is about the attempt that was the last one then. `changes` are what a
    completed call changed in the session. With `until_resumed` it is consent that was given with
    one resume of the run: it ends with the next one, and never replaces a decision.
    """

    tag = "tool_call.decided"

    call_id: str
    decision: Literal["completed", "failed", "retry"]
    value: Any = None
    text: str = ""
    decided_by: str = ""
    attempt: Annotated[Count, since(3)] = 0
    changes: Annotated[tuple[SliceChange, ...], since(3)] = ()
    until_resumed: Annotated[bool, since(3)] = False


class ApprovalRequested(BaseEvent, frozen=True, kw_only=True):
    """It was found out whether a tool call needs a person's approval before it runs.

    That is asked once for each call of a tool that may need it, and never again.
    """

    tag = "approval.requested"

    evaluation_id: str
    call_id: str
    name: str
    needed: bool = True


class ApprovalDecided(BaseEvent, frozen=True, kw_only=True):
    """A person approved a tool call, denied it, or approved it with other arguments.

    It is about one attempt of the call, the next one after `attempt`, in this run only. `text` is
    what the model is told of a denied call; `arguments` is the JSON text that the handler gets
    instead of the model's, also in a later attempt.
    """

    tag = "approval.decided"

    call_id: str
    decision: Literal["approved", "denied", "edited"]
    attempt: Count = 0
    text: str = ""
    arguments: str = ""
    decided_by: str = ""


# --- the session -------------------------------------------------------------------


class SliceEventApplied(BaseEvent, frozen=True, kw_only=True):
    """A change of session state: the event that was given to a slice's reducer.

    `slice` and `event_type` are names that the program declares, never import paths.
    """

    tag = "slice.event_applied"

    slice: Key
    event_type: Key
    operation: SliceOperation = "apply"
    payload: Any = None
    call_id: str | None = None


class StateRestored(BaseEvent, frozen=True, kw_only=True):
    """Session state was restored from a snapshot."""

    tag = "state.restored"

    snapshot: Any
    reason: str = ""


class ResourceSnapshotted(BaseEvent, frozen=True, kw_only=True):
    """The files of a resource that changed (path to blob name), and the paths removed."""

    tag = "resource.snapshotted"

    resource: Key
    files: dict[str, str] = {}
    removed: tuple[str, ...] = ()
    digest: str = ""


# --- prompts: a stream for each, with id prompt_stream_id(prompt_ns, prompt_key) ------


class PromptOverrideSet(BaseEvent, frozen=True, kw_only=True):
    """A text of a prompt was overridden: that of a section, or a tool's description.

    `path` is a section's path, or "tool:NAME". `replaces` is the digest of the authored text: the
    override is applied only while the prompt has that text. Empty, it is applied in any case.
    """

    tag = "prompt.override_set"

    prompt_ns: Key
    prompt_key: PromptKey
    path: Key
    body: str
    replaces: str = ""
    note: str = ""
    set_by: str = ""


class PromptOverrideCleared(BaseEvent, frozen=True, kw_only=True):
    """The override of a text was removed: the authored text counts again."""

    tag = "prompt.override_cleared"

    prompt_ns: Key
    prompt_key: PromptKey
    path: Key
    note: str = ""
    cleared_by: str = ""


class PromptTagMoved(BaseEvent, frozen=True, kw_only=True):
    """A tag names a version of the prompt stream from now on.

    "latest" is always the last version, and can't be moved. Version 0 is before the first
    override: the authored texts.
    """

    tag = "prompt.tag_moved"

    prompt_ns: Key
    prompt_key: PromptKey
    tag_name: TagName
    version: Count
    note: str = ""
    moved_by: str = ""


# --- custom events -----------------------------------------------------------------


class CustomEvent(BaseEvent, frozen=True, kw_only=True):
    """An event of the user's own: a namespaced `kind` ("acme.invoice_sent") and JSON."""

    tag = "custom"

    kind: CustomKind
    data: Any = None
    # The blobs that `data` names.
    blobs: Annotated[tuple[str, ...], since(6)] = ()


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
    | OutputRejected
    | ModelCalled
    | ModelReplied
    | ModelCallFailed
    | ToolCallStarted
    | ToolCallCompleted
    | ToolCallFailed
    | ToolCallInDoubt
    | ToolCallDecided
    | ApprovalRequested
    | ApprovalDecided
    | SliceEventApplied
    | StateRestored
    | ResourceSnapshotted
    | PromptOverrideSet
    | PromptOverrideCleared
    | PromptTagMoved
    | CustomEvent
)
"""Every event type: the closed union that is the registry."""

EVENT_TYPES: dict[str, type[Event]] = {kind.tag: kind for kind in get_args(Event)}
# The events that a prompt stream consists of, and that no run has.
PromptEvent: TypeAlias = PromptOverrideSet | PromptOverrideCleared | PromptTagMoved
PROMPT_TAGS = frozenset(kind.tag for kind in get_args(PromptEvent))


def is_in_its_stream(event: Event, run_id: str, kind: str) -> bool:
    """Whether an event may stand in a stream of this kind: a prompt's in its own, others in runs.

    Args:
        event: The event.
        run_id: The stream's id, as it is stored.
        kind: The kind in its row of the index; of a stream's first event, its own kind.
    """
    if not isinstance(event, PromptEvent):
        return kind != "prompt"
    return kind == "prompt" and run_id == str(prompt_stream_id(event.prompt_ns, event.prompt_key))


@check_arguments
def prompt_stream_id(ns: str, key: str) -> UUID:
    """The id of a prompt's stream of overrides, the same in every ledger."""
    if not key or "/" in key:
        raise InvalidInputError(
            f"Invalid prompt key {short_repr(key)}: expected text without '/', and not empty."
        )
    try:
        return uuid5(_PROMPTS, f"{ns}/{key}")
    except UnicodeEncodeError as error:
        raise InvalidInputError(f"Invalid prompt name: it is not Unicode text: {error}.") from None


# --- catalogues --------------------------------------------------------------------


@cache
def fields_since(kind: type[msgspec.Struct]) -> dict[str, int]:
    """The fields of a type that catalogue 1 did not have, and the catalogue that brought each."""
    return {name: mark["since"] for name, mark in _marks(kind).items()}


@cache
def _marks(kind: type[msgspec.Struct]) -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = {}
    for name, hint in get_type_hints(kind, include_extras=True).items():
        for mark in getattr(hint, "__metadata__", ()):
            if isinstance(mark, msgspec.Meta) and mark.extra and "since" in mark.extra:
                found[name] = mark.extra
    return found


def as_of(value: StructT, catalogue: int) -> StructT:
    """An event as a program with this catalogue would make it: later fields have their default.

    So an event of today's can be compared with one that an older program recorded. Parts of the
    event, a message say, are treated alike.
    """
    if catalogue >= CATALOGUE:
        return value
    return _reset(value, lambda mark: mark["since"] > catalogue)


def undescribed(value: StructT) -> StructT:
    """An event without what merely describes it: such fields, and those of parts, are reset."""
    return _reset(value, _describes) if _is_described(type(value)) else value


def _describes(mark: dict[str, Any]) -> bool:
    return bool(mark["describes"])


@cache
def _is_described(kind: type[msgspec.Struct]) -> bool:
    """Whether a type, or a part of it, has fields that merely describe."""
    if any(map(_describes, _marks(kind).values())):
        return True
    return any(map(_is_described, _structs_in(*get_type_hints(kind).values())))


def _structs_in(*hints: Any) -> Iterator[type[msgspec.Struct]]:
    for hint in hints:
        if isinstance(hint, type) and issubclass(hint, msgspec.Struct):
            yield hint
        yield from _structs_in(*get_args(hint))


# Made from the annotations each time: without the cache it is most of what comparing runs costs.
_fields = cache(msgspec.structs.fields)


def _reset(value: StructT, is_reset: Callable[[dict[str, Any]], bool]) -> StructT:
    """The value with some fields at their default, in its parts as well."""
    changed: dict[str, Any] = {}
    marks = _marks(type(value))
    for field in _fields(type(value)):
        now = getattr(value, field.name)
        mark = marks.get(field.name)
        if mark is not None and is_reset(mark):
            made = field.default_factory
            changed[field.name] = field.default if made is msgspec.NODEFAULT else made()
        elif isinstance(now, msgspec.Struct):
            changed[field.name] = _reset(now, is_reset)
        elif isinstance(now, tuple) and any(isinstance(one, msgspec.Struct) for one in now):
            changed[field.name] = tuple(
                _reset(one, is_reset) if isinstance(one, msgspec.Struct) else one for one in now
            )
    return msgspec.structs.replace(value, **changed) if changed else value
