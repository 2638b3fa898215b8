"""The doing: the loop that decides, performs and records."""

if __name__ != "turnledger.runtime":  # a bare import would be a second copy of every class
    raise ImportError("Import turnledger.runtime, not the bare name runtime.")

import importlib as _importlib
import typing as _typing

from turnledger.runtime.adapter import (
    AdapterResumeState,
    ProviderAdapter,
)
from turnledger.runtime.bus import (
    ControlBus,
    EventBus,
    EventHandler,
    HandlerFailure,
    InProcessEventBus,
    PublishError,
    PublishResult,
    format_publish_failures,
)
from turnledger.runtime.bus_events import (
    CheckpointPhase,
    CheckpointSaved,
    MainLoopCompleted,
    MainLoopFailed,
    MainLoopRequest,
    PromptExecuted,
    PromptRendered,
    RecoveryCompleted,
    RecoveryFailed,
    RecoveryStarted,
    RejectedToolParams,
    TextReceived,
    ToolInvoked,
)
from turnledger.runtime.checkpoints import (
    Checkpoint,
    CheckpointBackend,
    FilesystemCheckpointBackend,
    RecoverableRun,
    RecoveryConfig,
)
from turnledger.runtime.disclosure import (
    OPEN_SECTIONS,
    OpenSections,
)
from turnledger.runtime.divergence import (
    Divergence,
)
from turnledger.runtime.errors import (
    BudgetExceededError,
    CheckpointCorruptedError,
    CheckpointExpiredError,
    CheckpointNotFoundError,
    ConversationNotFound,
    DataDecodeError,
    DataEncodeError,
    DeadlineExceededError,
    DecisionRequiredError,
    OutputParseError,
    PromptDefinitionError,
    PromptError,
    PromptEvaluationError,
    PromptMismatch,
    PromptRenderError,
    RecoveryError,
    ReducerFailedError,
    ReducerNotFoundError,
    RequestTypeMismatchError,
    ResourceSnapshotError,
    SchemaError,
    ScopeClosedError,
    SessionError,
    SnapshotRestoreError,
    TemplateTextError,
    ThrottledError,
    ToolDefinitionError,
    UnsupportedTypeError,
)
from turnledger.runtime.event_changes import (
    ChangeRefusedError,
)
from turnledger.runtime.execution_state import (
    CompositeSnapshot,
    ExecutionState,
    Snapshotable,
)
from turnledger.runtime.filesystem import (
    FilesystemSnapshot,
    SnapshotableFilesystem,
)
from turnledger.runtime.json_values import (
    read_json,
    to_plain,
)
from turnledger.runtime.ledger_checkpoints import (
    LedgerCheckpointBackend,
)
from turnledger.runtime.limits import (
    Budget,
    BudgetTracker,
    Deadline,
    RunningTime,
    deadline_for,
    deadline_provider_payload,
)
from turnledger.runtime.live_parts import (
    LiveReplay,
    NotRecordedError,
    replay_live,
)
from turnledger.runtime.main_loop import (
    MainLoop,
    MainLoopConfig,
)
from turnledger.runtime.prompt import (
    Prompt,
    PromptTemplate,
)
from turnledger.runtime.rendering import (
    PromptOverridesStore,
    RenderedPrompt,
    ShownSection,
)
from turnledger.runtime.replaying import (
    ReplayDivergedError,
    Replayed,
    replay,
)
from turnledger.runtime.requests import (
    Reply,
    Request,
    Sending,
    ToolCall,
    ToolChoice,
)
from turnledger.runtime.response import (
    PromptResponse,
)
from turnledger.runtime.schemas import (
    decode,
    json_schema,
)
from turnledger.runtime.scripted import (
    ScriptedAdapter,
    ScriptError,
)
from turnledger.runtime.sections import (
    MarkdownSection,
    Section,
)
from turnledger.runtime.session import (
    Overlay,
    Session,
    enable_inner_message_recording,
)
from turnledger.runtime.session_slices import (
    SessionMutation,
    SliceMutation,
    SliceView,
)
from turnledger.runtime.snapshot import (
    Snapshot,
    SnapshotSlice,
)
from turnledger.runtime.structured_output import (
    OutputSpec,
)
from turnledger.runtime.throttle import (
    FailedAttempt,
    RetryAdvice,
    RetryCancelledError,
    ThrottlePolicy,
    call_with_retries,
    retry_advice,
)
from turnledger.runtime.tool_calls import (
    Invocation,
    call_by_name,
    call_tool,
    invoke,
    parse_arguments,
    render_result,
)
from turnledger.runtime.tools import (
    Tool,
    ToolContext,
    ToolRegistry,
    ToolResult,
    tool_to_spec,
)
from turnledger.runtime.visibility import (
    SectionVisibility,
    SetVisibilityOverride,
    VisibilityExpansionRequired,
    VisibilityOverrides,
)
from turnledger.runtime.what_if import (
    what_if,
)

if _typing.TYPE_CHECKING:
    from turnledger.runtime.message_building import (
        MessageBuilder,
        MessageBuildError,
    )
    from turnledger.runtime.message_records import (
        from_inner_message,
        from_inner_messages,
        to_inner_messages,
    )
    from turnledger.runtime.messages import (
        EXECUTOR_POLICY,
        RESERVED_POLICIES,
        RUNTIME_POLICY,
        MediaPart,
        Message,
        OptionCallPayload,
        OptionResultPayload,
        PartsPayload,
        RecordedAs,
        RoleHint,
        TextPart,
    )
    from turnledger.runtime.option_results import (
        NotAnOptionCallError,
        OptionMismatchError,
        OptionResultBuilder,
        run_option,
    )

# The messages with media and options are pydantic's, which takes its time to import.
_LATER = {
    "EXECUTOR_POLICY": "turnledger.runtime.messages",
    "MediaPart": "turnledger.runtime.messages",
    "Message": "turnledger.runtime.messages",
    "MessageBuildError": "turnledger.runtime.message_building",
    "MessageBuilder": "turnledger.runtime.message_building",
    "NotAnOptionCallError": "turnledger.runtime.option_results",
    "OptionCallPayload": "turnledger.runtime.messages",
    "OptionMismatchError": "turnledger.runtime.option_results",
    "OptionResultBuilder": "turnledger.runtime.option_results",
    "OptionResultPayload": "turnledger.runtime.messages",
    "PartsPayload": "turnledger.runtime.messages",
    "RESERVED_POLICIES": "turnledger.runtime.messages",
    "RUNTIME_POLICY": "turnledger.runtime.messages",
    "RecordedAs": "turnledger.runtime.messages",
    "RoleHint": "turnledger.runtime.messages",
    "TextPart": "turnledger.runtime.messages",
    "from_inner_message": "turnledger.runtime.message_records",
    "from_inner_messages": "turnledger.runtime.message_records",
    "run_option": "turnledger.runtime.option_results",
    "to_inner_messages": "turnledger.runtime.message_records",
}


def __getattr__(name: str) -> _typing.Any:
    home = _LATER.get(name)
    if home is None:
        raise AttributeError(f"module 'runtime' has no attribute {name!r}")
    return getattr(_importlib.import_module(home), name)


__all__ = [
    "AdapterResumeState",
    "Budget",
    "BudgetExceededError",
    "BudgetTracker",
    "ChangeRefusedError",
    "Checkpoint",
    "CheckpointBackend",
    "CheckpointCorruptedError",
    "CheckpointExpiredError",
    "CheckpointNotFoundError",
    "CheckpointPhase",
    "CheckpointSaved",
    "CompositeSnapshot",
    "ControlBus",
    "ConversationNotFound",
    "DataDecodeError",
    "DataEncodeError",
    "Deadline",
    "DeadlineExceededError",
    "DecisionRequiredError",
    "Divergence",
    "EXECUTOR_POLICY",
    "EventBus",
    "EventHandler",
    "ExecutionState",
    "FailedAttempt",
    "FilesystemCheckpointBackend",
    "FilesystemSnapshot",
    "HandlerFailure",
    "InProcessEventBus",
    "Invocation",
    "LedgerCheckpointBackend",
    "LiveReplay",
    "MainLoop",
    "MainLoopCompleted",
    "MainLoopConfig",
    "MainLoopFailed",
    "MainLoopRequest",
    "MarkdownSection",
    "MediaPart",
    "Message",
    "MessageBuildError",
    "MessageBuilder",
    "NotAnOptionCallError",
    "NotRecordedError",
    "OPEN_SECTIONS",
    "OpenSections",
    "OptionCallPayload",
    "OptionMismatchError",
    "OptionResultBuilder",
    "OptionResultPayload",
    "OutputParseError",
    "OutputSpec",
    "Overlay",
    "PartsPayload",
    "Prompt",
    "PromptDefinitionError",
    "PromptError",
    "PromptEvaluationError",
    "PromptExecuted",
    "PromptMismatch",
    "PromptOverridesStore",
    "PromptRenderError",
    "PromptRendered",
    "PromptResponse",
    "PromptTemplate",
    "ProviderAdapter",
    "PublishError",
    "PublishResult",
    "RESERVED_POLICIES",
    "RUNTIME_POLICY",
    "RecordedAs",
    "RecoverableRun",
    "RecoveryCompleted",
    "RecoveryConfig",
    "RecoveryError",
    "RecoveryFailed",
    "RecoveryStarted",
    "ReducerFailedError",
    "ReducerNotFoundError",
    "RejectedToolParams",
    "RenderedPrompt",
    "ReplayDivergedError",
    "Replayed",
    "Reply",
    "Request",
    "RequestTypeMismatchError",
    "ResourceSnapshotError",
    "RetryAdvice",
    "RetryCancelledError",
    "RoleHint",
    "RunningTime",
    "SchemaError",
    "ScopeClosedError",
    "ScriptError",
    "ScriptedAdapter",
    "Section",
    "SectionVisibility",
    "Sending",
    "Session",
    "SessionError",
    "SessionMutation",
    "SetVisibilityOverride",
    "ShownSection",
    "SliceMutation",
    "SliceView",
    "Snapshot",
    "SnapshotRestoreError",
    "SnapshotSlice",
    "Snapshotable",
    "SnapshotableFilesystem",
    "TemplateTextError",
    "TextPart",
    "TextReceived",
    "ThrottlePolicy",
    "ThrottledError",
    "Tool",
    "ToolCall",
    "ToolChoice",
    "ToolContext",
    "ToolDefinitionError",
    "ToolInvoked",
    "ToolRegistry",
    "ToolResult",
    "UnsupportedTypeError",
    "VisibilityExpansionRequired",
    "VisibilityOverrides",
    "call_by_name",
    "call_tool",
    "call_with_retries",
    "deadline_for",
    "deadline_provider_payload",
    "decode",
    "enable_inner_message_recording",
    "format_publish_failures",
    "from_inner_message",
    "from_inner_messages",
    "invoke",
    "json_schema",
    "parse_arguments",
    "read_json",
    "render_result",
    "replay",
    "replay_live",
    "retry_advice",
    "run_option",
    "to_inner_messages",
    "to_plain",
    "tool_to_spec",
    "what_if",
]
