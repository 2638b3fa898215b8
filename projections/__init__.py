"""The meaning: pure folds of a run's events into what is known about it."""

from projections.blocks import (
    Block,
    ChatTurn,
    MediaBlock,
    TextBlock,
    ToolResultBlock,
    ToolUseBlock,
)
from projections.checkpoints import CheckpointEntry, CheckpointView
from projections.conversation import Conversation
from projections.history import MessageHistory
from projections.history_checks import Repair
from projections.inner_messages import (
    get_inner_messages,
    get_latest_evaluation_id,
    get_pending_tool_calls,
)
from projections.moments import RunState, blame, diff, state_at
from projections.projection import Projection, fold, fold_together
from projections.reducers import (
    Reducer,
    ReducerContext,
    append_all,
    inner_message_append,
    reducer,
    replace_latest,
    replace_latest_by,
    upsert_by,
)
from projections.slices import Declarations, SessionSlices
from projections.summary import RunSummary
from projections.timeline import Timeline
from projections.tools import PendingTools, ToolCallView
from projections.usage import Usage

__all__ = [
    "Block",
    "ChatTurn",
    "CheckpointEntry",
    "CheckpointView",
    "Conversation",
    "Declarations",
    "MediaBlock",
    "MessageHistory",
    "PendingTools",
    "Projection",
    "Reducer",
    "ReducerContext",
    "Repair",
    "RunState",
    "RunSummary",
    "SessionSlices",
    "TextBlock",
    "Timeline",
    "ToolCallView",
    "ToolResultBlock",
    "ToolUseBlock",
    "Usage",
    "append_all",
    "blame",
    "diff",
    "fold",
    "fold_together",
    "get_inner_messages",
    "get_latest_evaluation_id",
    "get_pending_tool_calls",
    "inner_message_append",
    "reducer",
    "replace_latest",
    "replace_latest_by",
    "state_at",
    "upsert_by",
]
