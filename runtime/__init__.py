"""The doing: the loop that decides, performs and records."""

from runtime.adapter import (
    AdapterResumeState,
    ProviderAdapter,
)
from runtime.bus import (
    ControlBus,
    EventBus,
    EventHandler,
    HandlerFailure,
    InProcessEventBus,
    PublishError,
    PublishResult,
    format_publish_failures,
)
from runtime.bus_events import (
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
    ToolInvoked,
)
from runtime.checkpoints import (
    Checkpoint,
    CheckpointBackend,
    FilesystemCheckpointBackend,
    RecoverableRun,
    RecoveryConfig,
)
from runtime.disclosure import (
    OPEN_SECTIONS,
    OpenSections,
)
from runtime.errors import (
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
from runtime.execution_state import (
    CompositeSnapshot,
    ExecutionState,
    Snapshotable,
)
from runtime.filesystem import (
    FilesystemSnapshot,
    SnapshotableFilesystem,
)
from runtime.json_values import (
    read_json,
    to_plain,
)
from runtime.ledger_checkpoints import (
    LedgerCheckpointBackend,
)
from runtime.limits import (
    Budget,
    BudgetTracker,
    Deadline,
    RunningTime,
    deadline_for,
    deadline_provider_payload,
)
from runtime.main_loop import (
    MainLoop,
    MainLoopConfig,
)
from runtime.prompt import (
    Prompt,
    PromptTemplate,
)
from runtime.rendering import (
    PromptOverridesStore,
    RenderedPrompt,
    ShownSection,
)
from runtime.requests import (
    Reply,
    Request,
    ToolCall,
    ToolChoice,
)
from runtime.response import (
    PromptResponse,
)
from runtime.schemas import (
    decode,
    json_schema,
)
from runtime.scripted import (
    ScriptedAdapter,
    ScriptError,
)
from runtime.sections import (
    MarkdownSection,
    Section,
)
from runtime.session import (
    Overlay,
    Session,
    enable_inner_message_recording,
)
from runtime.session_slices import (
    SessionMutation,
    SliceMutation,
    SliceView,
)
from runtime.snapshot import (
    Snapshot,
    SnapshotSlice,
)
from runtime.structured_output import (
    OutputSpec,
)
from runtime.throttle import (
    FailedAttempt,
    RetryAdvice,
    RetryCancelledError,
    ThrottlePolicy,
    call_with_retries,
    retry_advice,
)
from runtime.tool_calls import (
    Invocation,
    call_by_name,
    call_tool,
    invoke,
    parse_arguments,
    render_result,
)
from runtime.tools import (
    Tool,
    ToolContext,
    ToolRegistry,
    ToolResult,
    tool_to_spec,
)
from runtime.visibility import (
    SectionVisibility,
    SetVisibilityOverride,
    VisibilityExpansionRequired,
    VisibilityOverrides,
)

__all__ = [
    "AdapterResumeState",
    "Budget",
    "BudgetExceededError",
    "BudgetTracker",
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
    "MainLoop",
    "MainLoopCompleted",
    "MainLoopConfig",
    "MainLoopFailed",
    "MainLoopRequest",
    "MarkdownSection",
    "OPEN_SECTIONS",
    "OpenSections",
    "OutputParseError",
    "OutputSpec",
    "Overlay",
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
    "Reply",
    "Request",
    "RequestTypeMismatchError",
    "ResourceSnapshotError",
    "RetryAdvice",
    "RetryCancelledError",
    "RunningTime",
    "SchemaError",
    "ScopeClosedError",
    "ScriptError",
    "ScriptedAdapter",
    "Section",
    "SectionVisibility",
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
    "invoke",
    "json_schema",
    "parse_arguments",
    "read_json",
    "render_result",
    "retry_advice",
    "to_plain",
    "tool_to_spec",
]
