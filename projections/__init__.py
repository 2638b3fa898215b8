"""The meaning: pure folds of a run's events into what is known about it."""

from projections.attic import StateFileError
from projections.blaming import blame
from projections.blocks import (
    Block,
    ChatTurn,
    MediaBlock,
    TextBlock,
    ToolResultBlock,
    ToolUseBlock,
)
from projections.catching_up import catch_up
from projections.checkpoints import CheckpointEntry, CheckpointView
from projections.comparing import Comparison, compare
from projections.containers import NotLoadedError
from projections.conversation import Conversation
from projections.declarations import Declarations
from projections.history import MessageHistory
from projections.history_checks import Repair
from projections.inner_messages import (
    get_inner_messages,
    get_latest_evaluation_id,
    get_pending_tool_calls,
)
from projections.ledger_tables import ToolStatistics, UsageByDay
from projections.moments import RunState, diff, state_at
from projections.projection import Projection, fold, fold_together
from projections.rebuilding import Difference, Rebuilt, rebuild
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
from projections.slices import SessionSlices
from projections.stored import standing
from projections.summary import RunSummary
from projections.table_shelf import TableRows, table_rows
from projections.tables import RebuildOvertakenError, Table, TableDamagedError, TableNotMadeError
from projections.timeline import Timeline
from projections.tools import PendingTools, ToolCallView
from projections.usage import Usage

__all__ = [
    "Block",
    "ChatTurn",
    "CheckpointEntry",
    "CheckpointView",
    "Comparison",
    "Conversation",
    "Declarations",
    "Difference",
    "MediaBlock",
    "MessageHistory",
    "NotLoadedError",
    "PendingTools",
    "Projection",
    "RebuildOvertakenError",
    "Rebuilt",
    "Reducer",
    "ReducerContext",
    "Repair",
    "RunState",
    "RunSummary",
    "SessionSlices",
    "StateFileError",
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
    "Usage",
    "UsageByDay",
    "append_all",
    "blame",
    "catch_up",
    "compare",
    "diff",
    "fold",
    "fold_together",
    "get_inner_messages",
    "get_latest_evaluation_id",
    "get_pending_tool_calls",
    "inner_message_append",
    "rebuild",
    "reducer",
    "replace_latest",
    "replace_latest_by",
    "standing",
    "state_at",
    "table_rows",
    "upsert_by",
]
