"""Projections: pure folds of a run's events into views, states and tables."""

if __name__ != "turnledger.projections":  # a bare import would be a second copy of every class
    raise ImportError("Import turnledger.projections, not the bare name projections.")

from turnledger.projections.comparison.runs import Comparison, compare
from turnledger.projections.history.blocks import (
    Block,
    ChatTurn,
    MediaBlock,
    TextBlock,
    ToolResultBlock,
    ToolUseBlock,
)
from turnledger.projections.history.message_history import MessageHistory
from turnledger.projections.history.validate import Repair
from turnledger.projections.projection import Projection, fold, fold_together
from turnledger.projections.records.search import (
    Found,
    Hit,
    UnreadableRecord,
    search,
    search_all,
)
from turnledger.projections.records.shape import (
    SHAPE_CHARACTERS,
    Shape,
    ShapeCharacter,
    Shapes,
    shape,
)
from turnledger.projections.run_state.blame import blame
from turnledger.projections.run_state.changes import Step, diff, step
from turnledger.projections.run_state.follow import Follower, follow
from turnledger.projections.run_state.json_diff import Change
from turnledger.projections.run_state.moments import FoldCancelledError, Moments
from turnledger.projections.run_state.state import RunState, state_at
from turnledger.projections.run_state.state_json import state_json
from turnledger.projections.run_state.window import Window, window
from turnledger.projections.session.declarations import Declarations
from turnledger.projections.session.messages import (
    get_inner_messages,
    get_latest_evaluation_id,
    get_pending_tool_calls,
)
from turnledger.projections.session.reducers import (
    Reducer,
    ReducerContext,
    append_all,
    inner_message_append,
    reducer,
    replace_latest,
    replace_latest_by,
    upsert_by,
)
from turnledger.projections.session.slices import SessionSlices
from turnledger.projections.tables.builtin import ToolStatistics, UsageByDay
from turnledger.projections.tables.catch_up import catch_up
from turnledger.projections.tables.rebuild import Difference, Rebuilt, rebuild
from turnledger.projections.tables.storage import TableRows, table_rows
from turnledger.projections.tables.table import (
    RebuildOvertakenError,
    Table,
    TableDamagedError,
    TableNotMadeError,
)
from turnledger.projections.views.checkpoints import CheckpointEntry, CheckpointView
from turnledger.projections.views.conversation import Conversation
from turnledger.projections.views.prompt import PromptOverride, PromptOverrides, PromptState
from turnledger.projections.views.summary import RunSummary
from turnledger.projections.views.timeline import Timeline
from turnledger.projections.views.tools import PendingTools, ToolCallView
from turnledger.projections.views.usage import Usage

__all__ = [
    "Block",
    "Change",
    "ChatTurn",
    "CheckpointEntry",
    "CheckpointView",
    "Comparison",
    "Conversation",
    "Declarations",
    "Difference",
    "FoldCancelledError",
    "Follower",
    "Found",
    "Hit",
    "MediaBlock",
    "MessageHistory",
    "Moments",
    "PendingTools",
    "Projection",
    "PromptOverride",
    "PromptOverrides",
    "PromptState",
    "RebuildOvertakenError",
    "Rebuilt",
    "Reducer",
    "ReducerContext",
    "Repair",
    "RunState",
    "RunSummary",
    "SHAPE_CHARACTERS",
    "SessionSlices",
    "Shape",
    "ShapeCharacter",
    "Shapes",
    "Step",
    "Table",
    "TableDamagedError",
    "TableNotMadeError",
    "TableRows",
    "TextBlock",
    "Timeline",
    "ToolCallView",
    "ToolResultBlock",
    "ToolStatistics",
    "ToolUseBlock",
    "UnreadableRecord",
    "Usage",
    "UsageByDay",
    "Window",
    "append_all",
    "blame",
    "catch_up",
    "compare",
    "diff",
    "fold",
    "fold_together",
    "follow",
    "get_inner_messages",
    "get_latest_evaluation_id",
    "get_pending_tool_calls",
    "inner_message_append",
    "rebuild",
    "reducer",
    "replace_latest",
    "replace_latest_by",
    "search",
    "search_all",
    "shape",
    "state_at",
    "state_json",
    "step",
    "table_rows",
    "upsert_by",
    "window",
]
