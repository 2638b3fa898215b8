"""The doing: the loop that decides, performs and records."""

if __name__ != "turnledger.runtime":  # a bare import would be a second copy of every class
    raise ImportError("Import turnledger.runtime, not the bare name runtime.")

import importlib as _importlib
import typing as _typing

from turnledger.runtime.agent.models.limits import (
    Budget,
    BudgetTracker,
    Deadline,
    RunningTime,
    deadline_for,
    deadline_provider_payload,
)
from turnledger.runtime.agent.models.request import (
    Reply,
    Request,
    Sending,
    ToolCall,
    ToolChoice,
)
from turnledger.runtime.agent.models.retry import (
    FailedAttempt,
    RetryAdvice,
    RetryCancelledError,
    ThrottlePolicy,
    call_with_retries,
    retry_advice,
)
from turnledger.runtime.agent.prompts.open_sections_tool import (
    OPEN_SECTIONS,
    OpenSections,
)
from turnledger.runtime.agent.prompts.output import (
    OutputSpec,
)
from turnledger.runtime.agent.prompts.prompt import (
    Prompt,
    PromptTemplate,
)
from turnledger.runtime.agent.prompts.render import (
    PromptOverridesStore,
    RenderedPrompt,
    ShownSection,
)
from turnledger.runtime.agent.prompts.sections import (
    MarkdownSection,
    Section,
)
from turnledger.runtime.agent.schema.schema import (
    decode,
    json_schema,
)
from turnledger.runtime.agent.schema.values import (
    read_json,
    to_plain,
)
from turnledger.runtime.agent.tools.call import (
    Invocation,
    call_by_name,
    call_tool,
    invoke,
    parse_arguments,
    render_result,
)
from turnledger.runtime.agent.tools.tool import (
    RejectedToolParams,
    Tool,
    ToolContext,
    ToolRegistry,
    ToolResult,
    tool_to_spec,
)
from turnledger.runtime.agent.visibility import (
    SectionVisibility,
    SetVisibilityOverride,
    VisibilityExpansionRequired,
    VisibilityOverrides,
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
from turnledger.runtime.checkpoints.checkpoint import (
    Checkpoint,
    CheckpointBackend,
    CheckpointPhase,
    FilesystemCheckpointBackend,
    RecoverableRun,
    RecoveryConfig,
)
from turnledger.runtime.checkpoints.execution_state import (
    CompositeSnapshot,
    ExecutionState,
    Snapshotable,
)
from turnledger.runtime.checkpoints.filesystem import (
    FilesystemSnapshot,
    SnapshotableFilesystem,
)
from turnledger.runtime.checkpoints.ledger_backend import (
    LedgerCheckpointBackend,
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
from turnledger.runtime.loop.adapter import (
    AdapterResumeState,
    ProviderAdapter,
)
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
    TextReceived,
    ToolInvoked,
)
from turnledger.runtime.loop.scripted import (
    ScriptedAdapter,
    ScriptError,
)
from turnledger.runtime.main_loop import (
    MainLoop,
    MainLoopConfig,
)
from turnledger.runtime.replaying.divergence import (
    Divergence,
)
from turnledger.runtime.replaying.live.replay import (
    LiveReplay,
    NotRecordedError,
    replay_live,
)
from turnledger.runtime.replaying.replay import (
    ReplayDivergedError,
    Replayed,
    replay,
)
from turnledger.runtime.replaying.what_if.edit import (
    ChangeRefusedError,
)
from turnledger.runtime.replaying.what_if.fork import (
    what_if,
)
from turnledger.runtime.session.accessors import (
    SessionMutation,
    SliceMutation,
    SliceView,
)
from turnledger.runtime.session.session import (
    Overlay,
    Session,
    enable_inner_message_recording,
)
from turnledger.runtime.session.snapshot import (
    Snapshot,
    SnapshotSlice,
)

if _typing.TYPE_CHECKING:
    from turnledger.runtime.agent.messages.builder import (
        MessageBuilder,
        MessageBuildError,
    )
    from turnledger.runtime.agent.messages.convert import (
        from_inner_message,
        from_inner_messages,
        to_inner_messages,
    )
    from turnledger.runtime.agent.messages.message import (
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
    from turnledger.runtime.agent.messages.results import (
        NotAnOptionCallError,
        OptionMismatchError,
        OptionResultBuilder,
        run_option,
    )

# The messages with media and options are pydantic's, which takes its time to import.
_LATER = {
    "EXECUTOR_POLICY": "turnledger.runtime.agent.messages.message",
    "MediaPart": "turnledger.runtime.agent.messages.message",
    "Message": "turnledger.runtime.agent.messages.message",
    "MessageBuildError": "turnledger.runtime.agent.messages.builder",
    "MessageBuilder": "turnledger.runtime.agent.messages.builder",
    "NotAnOptionCallError": "turnledger.runtime.agent.messages.results",
    "OptionCallPayload": "turnledger.runtime.agent.messages.message",
    "OptionMismatchError": "turnledger.runtime.agent.messages.results",
    "OptionResultBuilder": "turnledger.runtime.agent.messages.results",
    "OptionResultPayload": "turnledger.runtime.agent.messages.message",
    "PartsPayload": "turnledger.runtime.agent.messages.message",
    "RESERVED_POLICIES": "turnledger.runtime.agent.messages.message",
    "RUNTIME_POLICY": "turnledger.runtime.agent.messages.message",
    "RecordedAs": "turnledger.runtime.agent.messages.message",
    "RoleHint": "turnledger.runtime.agent.messages.message",
    "TextPart": "turnledger.runtime.agent.messages.message",
    "from_inner_message": "turnledger.runtime.agent.messages.convert",
    "from_inner_messages": "turnledger.runtime.agent.messages.convert",
    "run_option": "turnledger.runtime.agent.messages.results",
    "to_inner_messages": "turnledger.runtime.agent.messages.convert",
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
