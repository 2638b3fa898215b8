"""Checkpoints as people save and load them, and where they are kept.

The loop's own checkpoints are events that are derived from the run (`CheckpointReached`); a
`Checkpoint` is one as a value, that can be written elsewhere and be recovered from alone. The
ledger is a place to keep them, and so is a folder of files.
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


@dataclass(slots=True, frozen=True)
class Checkpoint:
    """A run at a transaction boundary, with all that it takes to go on from there."""

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
        """The checkpoint as JSON text."""
        return msgspec.json.encode(
            {
                "run_id": self.run_id,
                "request_id": self.request_id,
                "created_at": self.created_at,
                "composite_snapshot": msgspec.Raw(self.composite_snapshot.to_json().encode()),
                "request_payload": self.request_payload,
                "request_type": self.request_type,
                "tool_calls_completed": self.tool_calls_completed,
                "phase": self.phase.value,
                "adapter_state": self.adapter_state,
            }
        ).decode()

    @classmethod
    def from_json(cls, text: str) -> Checkpoint:
        """The checkpoint that a text means; CheckpointCorruptedError if it is none."""
        try:
            form = msgspec.json.decode(text, type=_Form)
            return cls(
                run_id=form.run_id,
                request_id=form.request_id,
                created_at=form.created_at,
                composite_snapshot=CompositeSnapshot.from_json(
                    bytes(form.composite_snapshot).decode()
                ),
                request_payload=form.request_payload,
                request_type=form.request_type,
                tool_calls_completed=form.tool_calls_completed,
                phase=CheckpointPhase(form.phase),
                adapter_state=form.adapter_state,
            )
        except (ValueError, SnapshotRestoreError) as error:
            raise CheckpointCorruptedError(f"This is no checkpoint: {error}") from error


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
    """Where checkpoints are kept: the latest of each run."""

    def save(self, run_id: UUID, checkpoint: Checkpoint) -> None:
        """Keep a checkpoint; it takes the place of the run's earlier one."""
        ...

    def load(self, run_id: UUID) -> Checkpoint | None:
        """The run's latest checkpoint; None if there is none that counts."""
        ...

    def delete(self, run_id: UUID) -> None:
        """The run's checkpoint no longer counts; harmless if there is none."""
        ...

    def list_incomplete(self) -> Sequence[UUID]:
        """The runs with a checkpoint that is not of a completed run."""
        ...


@dataclass(slots=True, frozen=True)
class RecoveryConfig:
    """How runs are recovered. `max_attempts` is how often before a run is parked."""

    backend: CheckpointBackend | None = None
    checkpoint_interval: int = 1
    cleanup_on_success: bool = True
    max_resume_age: timedelta = timedelta(hours=24)
    max_attempts: int = 3

    def __post_init__(self) -> None:
        for name in ("checkpoint_interval", "max_attempts"):
            value = getattr(self, name)
            if type(value) is not int or value < 1:
                raise InvalidInputError(f"RecoveryConfig.{name} is 1 or more, not {value!r}.")
        if self.max_resume_age <= timedelta(0):
            raise InvalidInputError("RecoveryConfig.max_resume_age is longer than nothing.")


@dataclass(slots=True, frozen=True)
class RecoverableRun:
    """A run that was interrupted and can be recovered."""

    run_id: UUID
    request_id: UUID
    phase: CheckpointPhase
    tool_calls_completed: int
    created_at: datetime


@dataclass(slots=True)
class FilesystemCheckpointBackend:
    """Checkpoints as files of a folder, `{run_id}.checkpoint.json`, each written atomically.

    `skipped` are the files that could not be read when the folder was last listed.
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
        try:
            text = self._path(run_id).read_text()
        except FileNotFoundError:
            return None
        except (OSError, UnicodeDecodeError) as error:
            raise CheckpointCorruptedError(
                f"{self._path(run_id)} can't be read: {error}", run_id=str(run_id)
            ) from error
        try:
            checkpoint = Checkpoint.from_json(text)
        except CheckpointCorruptedError as error:
            raise CheckpointCorruptedError(
                f"{self._path(run_id)}: {error}", run_id=str(run_id)
            ) from error
        if checkpoint.run_id != run_id:
            raise CheckpointCorruptedError(
                f"{self._path(run_id)} holds a checkpoint of run {checkpoint.run_id}.",
                run_id=str(run_id),
            )
        return checkpoint

    def delete(self, run_id: UUID) -> None:
        self._path(run_id).unlink(missing_ok=True)

    def list_incomplete(self) -> Sequence[UUID]:
        """The runs to recover; a file that can't be read is skipped, and told in `skipped`."""
        found: list[UUID] = []
        self.skipped = {}
        for path in sorted(self.root.glob(f"*{_SUFFIX}")):
            try:
                run_id = UUID(path.name.removesuffix(_SUFFIX))
                checkpoint = self.load(run_id)
            except (ValueError, CheckpointCorruptedError) as error:
                self.skipped[path] = str(error)
                logger.warning("%s is left out: %s", path, error)
                continue
            if checkpoint is not None and checkpoint.phase is not CheckpointPhase.COMPLETED:
                found.append(run_id)
        return found

    def _path(self, run_id: UUID) -> Path:
        return self.root / f"{run_id}{_SUFFIX}"


def _sync_folder(folder: Path) -> None:
    """Make the renaming durable too."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
