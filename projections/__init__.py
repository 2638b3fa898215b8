"""The meaning: pure folds of a run's events into what is known about it."""

if __name__ != "turnledger.projections":  # a bare import would be a second copy of every class
    raise ImportError("Import turnledger.projections, not the bare name projections.")

from turnledger.projections.attic import StateFileError
from turnledger.projections.blaming import blame
from turnledger.projections.blocks import (
    Block,
    ChatTurn,
    MediaBlock,
    TextBlock,
    ToolResultBlock,
    ToolUseBlock,
)
from turnledger.projections.catching_up import catch_up
from turnledger.projections.checkpoints import CheckpointEntry, CheckpointView
from turnledger.projections.comparing import Comparison, compare
from turnledger.projections.containers import NotLoadedError
from turnledger.projections.conversation import Conversation
from turnledger.projections.declarations import Declarations
from turnledger.projections.history import MessageHistory
from turnledger.projections.history_checks import Repair
from turnledger.projections.inner_messages import (
    get_inner_messages,
    get_latest_evaluation_id,
    get_pending_tool_calls,
)
from turnledger.projections.ledger_tables import ToolStatistics, UsageByDay
from turnledger.projections.moments import RunState, diff, state_at
from turnledger.projections.projection import Projection, fold, fold_together
from turnledger.projections.rebuilding import Difference, Rebuilt, rebuild
from turnledger.projections.reducers import (
    Reducer,
    ReducerContext,
    append_all,
    inner_message_append,
    reducer,
    replace_latest,
    replace_latest_by,
    upsert_by,
)
from turnledger.projections.slices import SessionSlices
from turnledger.projections.stored import standing
from turnledger.projections.summary import RunSummary
from turnledger.projections.table_shelf import TableRows, table_rows
from turnledger.projections.tables import (
    RebuildOvertakenError,
    Table,
    TableDamagedError,
    TableNotMadeError,
)
from turnledger.projections.timeline import Timeline
from turnledger.projections.tools import PendingTools, ToolCallView
from turnledger.projections.usage import Usage

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
