"""Checkpoint: a run at a transaction boundary as a value, and the backend for files.

The loop's own checkpoints are events (`CheckpointReached`), derived from the run. A `Checkpoint`
holds everything itself: it can be stored elsewhere, and a run can be recovered from it alone.
Backends store them: a folder of files here, the ledger in `checkpoints.ledger_backend`.
"""

from __future__ import annotations

import os
import stat
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

from turnledger.ledger import InvalidInputError, InvalidRunIdError
from turnledger.ledger.arguments import explain_methods
from turnledger.ledger.redaction.safe_logging import logger_of
from turnledger.runtime.checkpoints.execution_state import CompositeSnapshot
from turnledger.runtime.errors import CheckpointCorruptedError, SnapshotRestoreError

logger = logger_of("turnledger.recovery")
_SUFFIX = ".checkpoint.json"
# A larger file is not a checkpoint, or would take all memory.
MAX_BYTES = 256 * 1024 * 1024


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
    the reason. Files are readable by their owner only, and so is a folder that is made, unless
    `private` is False: then the umask decides on the folder. What is not a plain file of at most
    `max_bytes` is neither followed nor read: CheckpointCorruptedError.
    """

    root: Path
    skipped: dict[Path, str] = field(default_factory=dict)
    private: bool = True
    max_bytes: int = MAX_BYTES

    def __post_init__(self) -> None:
        self.root = Path(self.root)

    def save(self, run_id: UUID, checkpoint: Checkpoint) -> None:
        self.root.mkdir(0o700 if self.private else 0o777, parents=True, exist_ok=True)
        path, content = self._path(run_id), checkpoint.to_json().encode()
        if len(content) > self.max_bytes:
            raise InvalidInputError(
                f"The checkpoint of run {run_id} has {len(content)} bytes, and would not be read "
                f"again: expected at most {self.max_bytes} (max_bytes)."
            )
        handle, name = tempfile.mkstemp(prefix=f".{path.stem}", dir=self.root)
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            Path(name).replace(path)
        except BaseException:
            with suppress(OSError):
                Path(name).unlink()
            raise
        _sync_folder(self.root)

    def load(self, run_id: UUID) -> Checkpoint | None:
        path, run = self._path(run_id), str(run_id)
        try:
            checkpoint = Checkpoint.from_json(_read(path, self.max_bytes).decode())
        except FileNotFoundError:
            return None
        except (OSError, UnicodeDecodeError) as error:
            raise CheckpointCorruptedError(f"{path} can't be read: {error}", run_id=run) from error
        except CheckpointCorruptedError as error:
            raise CheckpointCorruptedError(f"{path}: {error}", run_id=run) from error
        if str(checkpoint.run_id) != path.name.removesuffix(_SUFFIX):
            raise CheckpointCorruptedError(
                f"{path} holds a checkpoint of run {checkpoint.run_id}.", run_id=run
            )
        return checkpoint

    def delete(self, run_id: UUID) -> None:
        path = self._path(run_id)
        try:
            path.unlink(missing_ok=True)
        except OSError as error:  # a directory, or a folder that this user may not change
            raise CheckpointCorruptedError(
                f"{path} can't be removed: {error}. Remove it by hand.", run_id=str(run_id)
            ) from error

    def list_incomplete(self) -> Sequence[UUID]:
        """Return the runs to recover; a file that can't be read is added to `skipped`."""
        found: list[UUID] = []
        self.skipped = {}
        for path in sorted(self.root.glob(f"*{_SUFFIX}")):
            try:
                run_id = UUID(path.name.removesuffix(_SUFFIX))
                if self._path(run_id) != path:
                    raise ValueError(f"expected the name {self._path(run_id).name}")
                checkpoint = self.load(run_id)
            except (ValueError, CheckpointCorruptedError) as error:
                self.skipped[path] = str(error)
                logger.warning("%r is skipped: %s", str(path), error)
                continue
            if checkpoint is not None and checkpoint.phase is not CheckpointPhase.COMPLETED:
                found.append(run_id)
        return found

    def _path(self, run_id: UUID) -> Path:
        # Whatever is given: text that is not an id could lead out of the folder.
        try:
            return self.root / f"{UUID(str(run_id))}{_SUFFIX}"
        except ValueError as error:
            raise InvalidRunIdError(f"Invalid run id {run_id!r:.100}: expected a UUID.") from error


def _read(path: Path, max_bytes: int) -> bytes:
    """The bytes of a plain file; OSError for anything else, without following or waiting."""
    _check_plain(path.lstat(), max_bytes)  # before it is opened: a device may act on that
    handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(handle, "rb") as file:
        _check_plain(os.fstat(handle), max_bytes)  # it may have been replaced meanwhile
        return file.read(max_bytes)


def _check_plain(found: os.stat_result, max_bytes: int) -> None:
    if not stat.S_ISREG(found.st_mode):
        raise OSError("expected a plain file, found a link, a directory, a pipe or a device")
    if found.st_size > max_bytes:
        raise OSError(f"it has {found.st_size} bytes, expected at most {max_bytes} (max_bytes)")


def _sync_folder(folder: Path) -> None:
    """Make the rename durable."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
