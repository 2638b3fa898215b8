"""Checkpoints: execution state, snapshots of directories, and backends that store them."""

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
from turnledger.runtime.checkpoints.filesystem import FilesystemSnapshot, SnapshotableFilesystem
from turnledger.runtime.checkpoints.ledger_backend import LedgerCheckpointBackend

__all__ = [
    "Checkpoint",
    "CheckpointBackend",
    "CheckpointPhase",
    "CompositeSnapshot",
    "ExecutionState",
    "FilesystemCheckpointBackend",
    "FilesystemSnapshot",
    "LedgerCheckpointBackend",
    "RecoverableRun",
    "RecoveryConfig",
    "Snapshotable",
    "SnapshotableFilesystem",
]
