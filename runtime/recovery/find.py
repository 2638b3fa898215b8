"""`list_recoverable`: interrupted runs of an agent, of its request type, that no worker has.

Not listed are forks that were never run, as they were not interrupted, the forks of a replay
with live parts, as recovering one would make all of it live, and optimizations, which the recovery
of the run that they serve goes on with.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from uuid import UUID

from turnledger.ledger import Ledger, RunInfo, RunStarted
from turnledger.ledger.errors import DAMAGE
from turnledger.ledger.ledger import OnDamage
from turnledger.ledger.redaction.safe_logging import logger_of
from turnledger.ledger.runs.names import UNQUEUED_TAGS
from turnledger.runtime.checkpoints.checkpoint import (
    CheckpointPhase,
    RecoverableRun,
    RecoveryConfig,
)
from turnledger.runtime.checkpoints.ledger_backend import recent_checkpoints, warn_of_damage
from turnledger.runtime.checkpoints.save import Saved, saved_in
from turnledger.runtime.errors import AgentMismatchError, CheckpointCorruptedError
from turnledger.runtime.loop.host import LoopHost
from turnledger.runtime.recovery.request_types import takes_type
from turnledger.runtime.recovery.run_reader import RunReader

logger = logger_of("turnledger.recovery")


def recoverable(host: LoopHost, on_damage: OnDamage | None = None) -> Sequence[RecoverableRun]:
    """Interrupted runs of this loop's request type that no worker has, oldest first.

    The run index, a run's first record and its last checkpoint say all that is needed: only a
    fork has to be folded, for its calls in doubt.

    Args:
        host: The loop.
        on_damage: Called with the id and the error of each damaged run, which is left out. By
            default a warning is logged.
    """
    if host.ledger is None:
        return _in_order(_saved_runs(host))
    ledger, tell = host.ledger, on_damage or warn_of_damage
    found: list[RecoverableRun] = []
    for status in ("running", "failed"):
        for info in ledger.runs(status=status, agent=host.name or None, on_damage=tell):
            try:
                run = _interrupted(host, ledger, info)
            except DAMAGE as error:
                tell(str(info.run_id), error)
            else:
                found.extend([run] if run is not None else [])
    # Runs of a loop without a ledger may still be in checkpoint files.
    saved = [run for run in _saved_runs(host) if not ledger.head(run.run_id)]
    return _in_order([*found, *saved])


def _interrupted(host: LoopHost, ledger: Ledger, info: RunInfo) -> RecoverableRun | None:
    """The run as it is listed; None if it is not one for this loop, or not to be recovered."""
    if info.agent != host.name:
        return None
    if any(tag in info.tags for tag in UNQUEUED_TAGS) or (info.kind == "fork" and not info.epoch):
        return None
    started = request_event(ledger, info.run_id)
    if started is None or started.request_id is None:
        return None
    if not takes_type(host.request_type, started.request_type):
        return None
    if ledger.worker_of(info.run_id) is not None:
        return None
    if info.kind == "fork" and RunReader(ledger, info.run_id).in_doubt():
        return None
    checkpoints = recent_checkpoints(ledger, info.run_id)
    latest = checkpoints.latest
    if latest is None and len(checkpoints.entries):
        return None  # cleared
    return RecoverableRun(
        run_id=info.run_id,
        request_id=started.request_id,
        phase=CheckpointPhase(latest.phase if latest else "initialized"),
        tool_calls_completed=latest.tool_calls_completed if latest else 0,
        created_at=latest.created_at if latest else info.started_at,
    )


def request_event(ledger: Ledger, run_id: UUID) -> RunStarted | None:
    """The RunStarted that holds a run's request: its own, or for a fork its parent's.

    None if the run does not begin with a RunStarted.
    """
    found = None
    for found in _first_events(ledger, run_id):
        if found.request is not None:
            break
    return found


def agent_of(ledger: Ledger, run_id: UUID) -> str:
    """The name of the agent that a run belongs to: its own, or for an older fork its parent's."""
    return next((found.agent for found in _first_events(ledger, run_id) if found.agent), "")


def check_agent(run_id: UUID, found: str, name: str) -> None:
    """AgentMismatchError unless a run of the agent `found` is one of the loop `name`."""
    if found != name:
        raise AgentMismatchError(str(run_id), expected=name, found=found)


def _first_events(ledger: Ledger, run_id: UUID) -> Iterator[RunStarted]:
    """The first event of a run; then, as long as that is a fork, of what it was forked from."""
    info = ledger.run(run_id)
    while True:
        event = ledger.record(info.run_id, info.parent_version + 1).event
        if not isinstance(event, RunStarted):
            return
        yield event
        if event.kind != "fork" or event.parent is None:
            return
        info = ledger.run(event.parent)
        while info.parent is not None and event.at <= info.parent_version:
            info = ledger.run(info.parent)


def _saved_runs(host: LoopHost) -> list[RecoverableRun]:
    recovery, backend = host.recovery, host.backend
    if backend is None or recovery is None:
        return []
    found = list[RecoverableRun]()
    for run_id in backend.list_incomplete():
        try:
            checkpoint = backend.load(run_id)
            if checkpoint is None or not _is_listed(host, saved_in(checkpoint), recovery):
                continue
        except CheckpointCorruptedError as error:
            logger.warning("run %s is not listed, its checkpoint is corrupted: %s", run_id, error)
            continue
        if not takes_type(host.request_type, checkpoint.request_type):
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


def _is_listed(host: LoopHost, saved: Saved, recovery: RecoveryConfig) -> bool:
    """Whether a checkpoint is of this agent's, with attempts left, and enough to recover from."""
    started = saved.started or RunStarted()
    is_ours = started.agent == host.name and started.kind != "turn"
    return is_ours and saved.attempts < recovery.max_attempts


def _in_order(found: Sequence[RecoverableRun]) -> Sequence[RecoverableRun]:
    return sorted(found, key=lambda run: (run.created_at, run.run_id))
