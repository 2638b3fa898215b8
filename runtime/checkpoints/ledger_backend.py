"""LedgerCheckpointBackend: checkpoints in the ledger, derived from events or saved by a user.

Nothing is overwritten: the latest checkpoint that was not cleared is the run's.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any
from uuid import UUID

import msgspec

from turnledger.ledger import (
    ANY,
    CheckpointCleared,
    CheckpointReached,
    CheckpointStored,
    Ledger,
    Record,
    RunStarted,
)
from turnledger.ledger.arguments import explain_methods
from turnledger.ledger.errors import DAMAGE
from turnledger.ledger.redaction.safe_logging import logger_of
from turnledger.projections import CheckpointEntry, CheckpointView, Declarations, fold
from turnledger.projections.views.checkpoints import CheckpointsState
from turnledger.runtime.checkpoints.checkpoint import Checkpoint, CheckpointPhase
from turnledger.runtime.checkpoints.execution_state import CompositeSnapshot, resource_at
from turnledger.runtime.checkpoints.save import saved_in
from turnledger.runtime.journal.known import Known
from turnledger.runtime.session.snapshot import Snapshot

logger = logger_of("turnledger.recovery")


@explain_methods()
class LedgerCheckpointBackend:
    """Checkpoint backend over a ledger; `declarations` are the types of session state."""

    def __init__(self, ledger: Ledger, declarations: Declarations | None = None) -> None:
        self.ledger = ledger
        self.declarations = declarations

    def save(self, run_id: UUID, checkpoint: Checkpoint) -> None:
        """Store a checkpoint, with secrets redacted; an unknown run is begun with it."""
        checkpoint = self._redacted(checkpoint)
        stored = CheckpointStored(
            checkpoint=checkpoint.to_json(),
            phase=checkpoint.phase.value,
            tool_calls_completed=checkpoint.tool_calls_completed,
            created_at=checkpoint.created_at,
        )
        if self.ledger.head(run_id):
            self._append(run_id, stored)
            return
        begun = saved_in(checkpoint).started
        started = RunStarted(
            agent=begun.agent if begun is not None else "",
            request_id=checkpoint.request_id,
            request_type=checkpoint.request_type,
            request=_json_or_none(checkpoint.request_payload),
            requested_at=checkpoint.created_at,
        )
        self.ledger.append(run_id, [started, stored], ANY)

    def load(self, run_id: UUID) -> Checkpoint | None:
        if not self.ledger.head(run_id):
            return None
        latest = self._latest(run_id)
        if latest is None:
            return None
        if latest.stored is not None:
            return Checkpoint.from_json(latest.stored)
        records = self.ledger.read(run_id, until=latest.version)
        known = Known.initial(self.declarations).after(records)
        started = known.progress.started
        if started is None or started.request_id is None:
            return None
        return Checkpoint(
            run_id=run_id,
            request_id=started.request_id,
            created_at=latest.created_at,
            composite_snapshot=CompositeSnapshot(
                session=Snapshot.of_slices(known.run.slices, self.declarations),
                resources={
                    name: resource_at(files, self.ledger.blob)
                    for name, files in known.session.resources.items()
                },
            ),
            request_payload=msgspec.json.encode(started.request),
            request_type=started.request_type,
            tool_calls_completed=latest.tool_calls_completed,
            phase=CheckpointPhase(latest.phase),
        )

    def delete(self, run_id: UUID) -> None:
        """Clear the run's checkpoints; its events stay."""
        known = self.ledger.head(run_id) > 0
        if known and self._latest(run_id) is not None:
            self._append(run_id, CheckpointCleared(reason="deleted"))

    def list_incomplete(self) -> Sequence[UUID]:
        found: list[UUID] = []
        for info in self.ledger.runs(on_damage=warn_of_damage):
            try:
                latest = self._latest(info.run_id)
            except DAMAGE as error:
                warn_of_damage(str(info.run_id), error)
                continue
            if latest is not None and latest.phase != CheckpointPhase.COMPLETED.value:
                found.append(info.run_id)
        return found

    def _latest(self, run_id: UUID) -> CheckpointEntry | None:
        """Return the run's last checkpoint, unless it was cleared."""
        return recent_checkpoints(self.ledger, run_id).latest

    def _redacted(self, checkpoint: Checkpoint) -> Checkpoint:
        """Redact the bytes first: as base64 in JSON, secrets in them would not be found."""
        state = checkpoint.adapter_state
        return replace(
            checkpoint,
            request_payload=self._without_secrets(checkpoint.request_payload),
            adapter_state=self._without_secrets(state) if state is not None else None,
        )

    def _without_secrets(self, content: bytes) -> bytes:
        try:
            return self.ledger.redact_text(content.decode()).encode()
        except UnicodeDecodeError:
            return content

    def _append(self, run_id: UUID, event: CheckpointStored | CheckpointCleared) -> None:
        """Append as the run's worker; RunClaimedError if another worker has claimed it."""
        worker = f"{self.ledger.worker}/checkpoints"
        with self.ledger.claim(run_id, worker=worker) as claim:
            self.ledger.append(run_id, event, ANY, claim.epoch)


def recent_checkpoints(ledger: Ledger, run_id: UUID) -> CheckpointsState:
    """The run's last checkpoint, and whether it was cleared, without those before it.

    It is read from the run's end, so that it costs what was recorded since that checkpoint.
    """
    found: list[Record] = []
    for record in ledger.read(run_id, backwards=True, page_size=_FEW):
        if record.tag in _CHECKPOINTS:
            found.append(record)
        if record.tag in _CHECKPOINTS and record.tag != CheckpointCleared.tag:
            break
        if record.tag == RunStarted.tag:  # what a run goes on from has checkpoints of its own
            break
    return fold(reversed(found), CheckpointView())


_FEW = 50
_CHECKPOINTS = frozenset(
    kind.tag for kind in (CheckpointReached, CheckpointStored, CheckpointCleared)
)


def _json_or_none(payload: bytes) -> Any:
    """Decode the request; None if it is not JSON: the checkpoint keeps it as it is."""
    try:
        return msgspec.json.decode(payload)
    except ValueError:
        return None


def warn_of_damage(run_id: str, error: Exception) -> None:
    """Log that a damaged run is not listed."""
    logger.warning(
        "run %s is not listed, it is damaged: %s. Run `turnledger verify %s`", run_id, error, run_id
    )
