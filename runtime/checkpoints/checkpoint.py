"""Checkpoint: a run at a transaction boundary as a value, and the backend for files.

The loop's own checkpoints are events (`CheckpointReached`), derived from the run. A `Checkpoint`
holds everything itself: it can be stored elsewhere, and a run can be recovered from it alone.
Backends store them: a folder of files here, the ledger in `checkpoints.ledger_backend`.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import Enum
from pathlib import Path
from typing import Protocol
from uuid import UUID

import msgspec

from turnledger.ledger import InvalidInputError
from turnledger.ledger.arguments import explain_methods
from turnledger.ledger.redaction.safe_logging import logger_of
from turnledger.runtime.checkpoints.execution_state import CompositeSnapshot
from turnledger.runtime.errors import CheckpointCorruptedError, SnapshotRestoreError

logger = logger_of("turnledger.recovery")
_SUFFIX = ".checkpoint.json"


class CheckpointPhase(Enum):
    """How far a run was when a checkpoint was taken."""

    INITIALIZED = "initialized"
    POST_TOOL = "post_tool"
    COMPLETED = "completed"
    FAILED = "failed"


@explain_methods()
@dataclass(slots=True, frozen=True)
class Checkpoint:
    """A run at a transaction boundary, with everything that is needed to continue it."""

    run_id: UUID
    request_id: UUID
    created_at: datetime
    composite_snapshot: CompositeSnapshot
    request_payload: bytes
    request_type: str
    tool_calls_completed: int
    phase: CheckpointPhase
    adapter_state: bytes | None = None

    def to_json(self) -> str:
        """Encode the checkpoint as JSON text."""
        fields = {name: getattr(self, name) for name in _Form.__struct_fields__}
        fields["composite_snapshot"] = msgspec.Raw(self.composite_snapshot.to_json().encode())
        return msgspec.json.encode(fields).decode()

    @classmethod
    def from_json(cls, text: str) -> Checkpoint:
        """Decode a checkpoint; CheckpointCorruptedError if the text is invalid."""
        try:
            fields = msgspec.structs.asdict(msgspec.json.decode(text, type=_Form))
            snapshot = CompositeSnapshot.from_json(bytes(fields["composite_snapshot"]))
            phase = CheckpointPhase(fields["phase"])
            return cls(**fields | {"composite_snapshot": snapshot, "phase": phase})
        except (ValueError, SnapshotRestoreError) as error:
            raise CheckpointCorruptedError(f"Invalid checkpoint: {error}") from error


class _Form(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    run_id: UUID
    request_id: UUID
    created_at: datetime
    composite_snapshot: msgspec.Raw
    request_payload: bytes
    request_type: str
    tool_calls_completed: int
    phase: str
    adapter_state: bytes | None = None


class CheckpointBackend(Protocol):
    """Stores the latest checkpoint of each run."""

    def save(self, run_id: UUID, checkpoint: Checkpoint) -> None:
        """Store a checkpoint in place of the run's earlier one."""
        ...

    def load(self, run_id: UUID) -> Checkpoint | None:
        """Return the run's latest checkpoint; None if it has none, or it was deleted."""
        ...

    def delete(self, run_id: UUID) -> None:
        """Delete the run's checkpoint; does nothing if there is none."""
        ...

    def list_incomplete(self) -> Sequence[UUID]:
        """Return the runs whose latest checkpoint is not that of a completed run."""
        ...


@explain_methods()
@dataclass(slots=True, frozen=True)
class RecoveryConfig:
    """How checkpoints are made and runs recovered.

    Attributes:
        backend: Stores checkpoints beside the ledger; by default none does.
        checkpoint_interval: Make a checkpoint after every so many completed tool calls.
        cleanup_on_success: Delete the checkpoint of a completed run.
        max_resume_age: Refuse to recover from an older checkpoint.
        max_attempts: Park a run after so many recoveries without progress.
    """

    backend: CheckpointBackend | None = None
    checkpoint_interval: int = 1
    cleanup_on_success: bool = True
    max_resume_age: timedelta = timedelta(hours=24)
    max_attempts: int = 3

    def __post_init__(self) -> None:
        for name in ("checkpoint_interval", "max_attempts"):
            value = getattr(self, name)
            if type(value) is not int or value < 1:
                raise InvalidInputError(
                    f"Invalid RecoveryConfig.{name} {value!r}: expected an integer from 1."
                )
        if self.max_resume_age <= timedelta(0):
            raise InvalidInputError(
                f"Invalid RecoveryConfig.max_resume_age {self.max_resume_age}: expected above 0."
            )


@dataclass(slots=True, frozen=True)
class RecoverableRun:
    """An interrupted run that can be recovered."""

    run_id: UUID
    request_id: UUID
    phase: CheckpointPhase
    tool_calls_completed: int
    created_at: datetime


@explain_methods()
@dataclass(slots=True)
class FilesystemCheckpointBackend:
    """Checkpoint files in a folder, `{run_id}.checkpoint.json`, each written atomically.

    `skipped` are the files that `list_incomplete` could not read when it was last called, with
    the reason.
    """

    root: Path
    skipped: dict[Path, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.root = Path(self.root)

    def save(self, run_id: UUID, checkpoint: Checkpoint) -> None:
        self.root.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(prefix=f".{run_id}", dir=self.root)
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(checkpoint.to_json().encode())
                file.flush()
                os.fsync(file.fileno())
            Path(name).replace(self._path(run_id))
        except BaseException:
            with suppress(OSError):
                Path(name).unlink()
            raise
        _sync_folder(self.root)

    def load(self, run_id: UUID) -> Checkpoint | None:
        path, run = self._path(run_id), str(run_id)
        try:
            checkpoint = Checkpoint.from_json(path.read_text())
        except FileNotFoundError:
            return None
        except (OSError, UnicodeDecodeError) as error:
            raise CheckpointCorruptedError(f"{path} can't be read: {error}", run_id=run) from error
        except CheckpointCorruptedError as error:
            raise CheckpointCorruptedError(f"{path}: {error}", run_id=run) from error
        if checkpoint.run_id != run_id:
            raise CheckpointCorruptedError(
                f"{path} holds a checkpoint of run {checkpoint.run_id}.", run_id=run
            )
        return checkpoint

    def delete(self, run_id: UUID) -> None:
        self._path(run_id).unlink(missing_ok=True)

    def list_incomplete(self) -> Sequence[UUID]:
        """Return the runs to recover; a file that can't be read is added to `skipped`."""
        found: list[UUID] = []
        self.skipped = {}
        for path in sorted(self.root.glob(f"*{_SUFFIX}")):
            try:
                run_id = UUID(path.name.removesuffix(_SUFFIX))
                checkpoint = self.load(run_id)
            except (ValueError, CheckpointCorruptedError) as error:
                self.skipped[path] = str(error)
                logger.warning("%s is skipped: %s", path, error)
                continue
            if checkpoint is not None and checkpoint.phase is not CheckpointPhase.COMPLETED:
                found.append(run_id)
        return found

    def _path(self, run_id: UUID) -> Path:
        return self.root / f"{run_id}{_SUFFIX}"


def _sync_folder(folder: Path) -> None:
    """Make the rename durable."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
