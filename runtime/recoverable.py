"""Which runs can be recovered: interrupted ones of a loop's kind that nobody is at."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any
from uuid import UUID

from projections import standing
from runtime.bus_events import CheckpointPhase
from runtime.checkpoints import CheckpointBackend, RecoverableRun
from runtime.errors import CheckpointCorruptedError
from runtime.request_types import type_name
from runtime.saving import saved_in

if TYPE_CHECKING:
    from runtime.main_loop import MainLoop

logger = logging.getLogger("turnledger.recovery")


def recoverable(loop: MainLoop[Any, Any]) -> Sequence[RecoverableRun]:
    """The interrupted runs of this loop's kind that nobody is at, oldest first."""
    if loop._ledger is None:
        return _in_order(_saved_ones(loop, loop.backend))
    ledger, wanted = loop._ledger, type_name(loop.request_type)
    found: list[RecoverableRun] = []
    for status in ("running", "failed"):
        for info in ledger.runs(status=status):
            state = standing(ledger, info.run_id)
            kind = state.summary.request_type
            if state.summary.request_id is None or (wanted and kind and kind != wanted):
                continue
            latest = state.checkpoints.latest
            if latest is None and len(state.checkpoints.entries):
                continue
            if ledger.worker_of(info.run_id) is not None:
                continue
            found.append(
                RecoverableRun(
                    run_id=info.run_id,
                    request_id=UUID(state.summary.request_id),
                    phase=CheckpointPhase(latest.phase if latest else "initialized"),
                    tool_calls_completed=latest.tool_calls_completed if latest else 0,
                    created_at=latest.created_at if latest else info.started_at,
                )
            )
    elsewhere = [run for run in _saved_ones(loop, loop.beside) if not ledger.head(run.run_id)]
    return _in_order([*found, *elsewhere])


def _saved_ones(
    loop: MainLoop[Any, Any], backend: CheckpointBackend | None
) -> list[RecoverableRun]:
    recovery = loop._recovery
    if backend is None or recovery is None:
        return []
    wanted, found = type_name(loop.request_type), []
    for run_id in backend.list_incomplete():
        try:
            checkpoint = backend.load(run_id)
            if checkpoint is None or saved_in(checkpoint).attempts >= recovery.max_attempts:
                continue
        except CheckpointCorruptedError as error:
            logger.warning("the checkpoint of run %s is left out: %s", run_id, error)
            continue
        if wanted and checkpoint.request_type and checkpoint.request_type != wanted:
            continue
        found.append(
            RecoverableRun(
                run_id=run_id,
                request_id=checkpoint.request_id,
                phase=checkpoint.phase,
                tool_calls_completed=checkpoint.tool_calls_completed,
                created_at=checkpoint.created_at,
            )
        )
    return found


def _in_order(found: Sequence[RecoverableRun]) -> Sequence[RecoverableRun]:
    return sorted(found, key=lambda run: (run.created_at, run.run_id))
