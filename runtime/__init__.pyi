# The public names of `turnledger.runtime`, each with the module or package it comes from.
from turnledger.runtime.agent.messages import MediaPart as MediaPart
from turnledger.runtime.agent.messages import Message as Message
from turnledger.runtime.agent.messages import MessageBuilder as MessageBuilder
from turnledger.runtime.agent.messages import OptionCallPayload as OptionCallPayload
from turnledger.runtime.agent.messages import OptionResultBuilder as OptionResultBuilder
from turnledger.runtime.agent.messages import OptionResultPayload as OptionResultPayload
from turnledger.runtime.agent.messages import TextPart as TextPart
from turnledger.runtime.agent.models import Budget as Budget
from turnledger.runtime.agent.models import BudgetTracker as BudgetTracker
from turnledger.runtime.agent.models import Deadline as Deadline
from turnledger.runtime.agent.models import Reply as Reply
from turnledger.runtime.agent.models import Request as Request
from turnledger.runtime.agent.models import Sending as Sending
from turnledger.runtime.agent.models import ThrottlePolicy as ThrottlePolicy
from turnledger.runtime.agent.models import ToolCall as ToolCall
from turnledger.runtime.agent.prompts import MarkdownSection as MarkdownSection
from turnledger.runtime.agent.prompts import Prompt as Prompt
from turnledger.runtime.agent.prompts import PromptOverridesStore as PromptOverridesStore
from turnledger.runtime.agent.prompts import PromptTemplate as PromptTemplate
from turnledger.runtime.agent.tool_context import ToolContext as ToolContext
from turnledger.runtime.agent.tools import Tool as Tool
from turnledger.runtime.agent.tools import ToolResult as ToolResult
from turnledger.runtime.agent.tools import tool_to_spec as tool_to_spec
from turnledger.runtime.agent.visibility import SectionVisibility as SectionVisibility
from turnledger.runtime.agent.visibility import SetVisibilityOverride as SetVisibilityOverride
from turnledger.runtime.agent.visibility import (
    VisibilityExpansionRequired as VisibilityExpansionRequired,
)
from turnledger.runtime.agent.visibility import VisibilityOverrides as VisibilityOverrides
from turnledger.runtime.bus import ControlBus as ControlBus
from turnledger.runtime.bus import EventBus as EventBus
from turnledger.runtime.bus import InProcessEventBus as InProcessEventBus
from turnledger.runtime.checkpoints import Checkpoint as Checkpoint
from turnledger.runtime.checkpoints import CheckpointBackend as CheckpointBackend
from turnledger.runtime.checkpoints import CheckpointPhase as CheckpointPhase
from turnledger.runtime.checkpoints import CompositeSnapshot as CompositeSnapshot
from turnledger.runtime.checkpoints import ExecutionState as ExecutionState
from turnledger.runtime.checkpoints import (
    FilesystemCheckpointBackend as FilesystemCheckpointBackend,
)
from turnledger.runtime.checkpoints import LedgerCheckpointBackend as LedgerCheckpointBackend
from turnledger.runtime.checkpoints import RecoverableRun as RecoverableRun
from turnledger.runtime.checkpoints import RecoveryConfig as RecoveryConfig
from turnledger.runtime.checkpoints import SnapshotableFilesystem as SnapshotableFilesystem
from turnledger.runtime.errors import AgentMismatchError as AgentMismatchError
from turnledger.runtime.errors import BudgetExceededError as BudgetExceededError
from turnledger.runtime.errors import ChatTurnRefusedError as ChatTurnRefusedError
from turnledger.runtime.errors import CheckpointCorruptedError as CheckpointCorruptedError
from turnledger.runtime.errors import CheckpointExpiredError as CheckpointExpiredError
from turnledger.runtime.errors import CheckpointNotFoundError as CheckpointNotFoundError
from turnledger.runtime.errors import ConversationNotFound as ConversationNotFound
from turnledger.runtime.errors import DataDecodeError as DataDecodeError
from turnledger.runtime.errors import DataEncodeError as DataEncodeError
from turnledger.runtime.errors import DeadlineExceededError as DeadlineExceededError
from turnledger.runtime.errors import DecisionRequiredError as DecisionRequiredError
from turnledger.runtime.errors import OutputParseError as OutputParseError
from turnledger.runtime.errors import PromptDefinitionError as PromptDefinitionError
from turnledger.runtime.errors import PromptError as PromptError
from turnledger.runtime.errors import PromptEvaluationError as PromptEvaluationError
from turnledger.runtime.errors import PromptMismatch as PromptMismatch
from turnledger.runtime.errors import PromptRenderError as PromptRenderError
from turnledger.runtime.errors import RecoveryError as RecoveryError
from turnledger.runtime.errors import ReducerFailedError as ReducerFailedError
from turnledger.runtime.errors import ReducerNotFoundError as ReducerNotFoundError
from turnledger.runtime.errors import RequestTypeMismatchError as RequestTypeMismatchError
from turnledger.runtime.errors import ResourceSnapshotError as ResourceSnapshotError
from turnledger.runtime.errors import SchemaError as SchemaError
from turnledger.runtime.errors import ScopeClosedError as ScopeClosedError
from turnledger.runtime.errors import SessionError as SessionError
from turnledger.runtime.errors import SnapshotRestoreError as SnapshotRestoreError
from turnledger.runtime.errors import TemplateTextError as TemplateTextError
from turnledger.runtime.errors import ThrottledError as ThrottledError
from turnledger.runtime.errors import ToolDefinitionError as ToolDefinitionError
from turnledger.runtime.errors import TurnLimitExceededError as TurnLimitExceededError
from turnledger.runtime.errors import UnsupportedTypeError as UnsupportedTypeError
from turnledger.runtime.loop.adapter import AdapterResumeState as AdapterResumeState
from turnledger.runtime.loop.adapter import ProviderAdapter as ProviderAdapter
from turnledger.runtime.loop.events import CheckpointSaved as CheckpointSaved
from turnledger.runtime.loop.events import MainLoopCompleted as MainLoopCompleted
from turnledger.runtime.loop.events import MainLoopFailed as MainLoopFailed
from turnledger.runtime.loop.events import MainLoopRequest as MainLoopRequest
from turnledger.runtime.loop.events import PromptExecuted as PromptExecuted
from turnledger.runtime.loop.events import PromptRendered as PromptRendered
from turnledger.runtime.loop.events import PromptResponse as PromptResponse
from turnledger.runtime.loop.events import RecoveryCompleted as RecoveryCompleted
from turnledger.runtime.loop.events import RecoveryFailed as RecoveryFailed
from turnledger.runtime.loop.events import RecoveryStarted as RecoveryStarted
from turnledger.runtime.loop.events import TextReceived as TextReceived
from turnledger.runtime.loop.events import ToolInvoked as ToolInvoked
from turnledger.runtime.loop.scripted import ScriptedAdapter as ScriptedAdapter
from turnledger.runtime.loop.scripted import ScriptError as ScriptError
from turnledger.runtime.main_loop import MainLoop as MainLoop
from turnledger.runtime.main_loop import MainLoopConfig as MainLoopConfig
from turnledger.runtime.replaying.divergence import Divergence as Divergence
from turnledger.runtime.replaying.live.replay import NotRecordedError as NotRecordedError
from turnledger.runtime.replaying.live.replay import replay_live as replay_live
from turnledger.runtime.replaying.replay import ReplayDivergedError as ReplayDivergedError
from turnledger.runtime.replaying.replay import Replayed as Replayed
from turnledger.runtime.replaying.replay import replay as replay
from turnledger.runtime.replaying.what_if.edit import ChangeRefusedError as ChangeRefusedError
from turnledger.runtime.replaying.what_if.fork import what_if as what_if
from turnledger.runtime.session import Session as Session
from turnledger.runtime.session import Snapshot as Snapshot
from turnledger.runtime.session import (
    enable_inner_message_recording as enable_inner_message_recording,
)
