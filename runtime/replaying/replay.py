"""`replay`: check a recorded run, by folding its events or by re-executing the user's loop.

Depth "fold" folds the events and compares the digest at every checkpoint. Depth "execute" runs
the user's own loop again: replies, tool results, ids and times come from the record, and every
step that the code decides on is compared. No provider is called, no handler runs, and nothing is
written. A third depth, with chosen parts live, is `runtime.replaying.live`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal
from uuid import UUID

from turnledger.ledger import (
    CheckpointReached,
    IntegrityFailureError,
    Ledger,
    Record,
    SliceEventApplied,
    TurnledgerError,
)
from turnledger.ledger.arguments import explain_arguments
from turnledger.ledger.runs.append_request import RunId, canonical_id
from turnledger.projections import Declarations, RunState
from turnledger.runtime.agent.prompts.difference import diff_of
from turnledger.runtime.main_loop import MainLoop
from turnledger.runtime.recovery.find import agent_of, check_agent
from turnledger.runtime.replaying.divergence import Divergence, plain
from turnledger.runtime.replaying.execution import Execution
from turnledger.runtime.replaying.journal import TakenCall
from turnledger.runtime.session.session import Session, enable_inner_message_recording
from turnledger.runtime.session.types import OWN_SLICES

Depth = Literal["fold", "execute"]


class ReplayDivergedError(TurnledgerError):
    """A replay differs from its record; `divergence` says where, and the likely cause."""

    def __init__(self, run_id: str, divergence: Divergence) -> None:
        self.run_id = run_id
        self.divergence = divergence
        super().__init__(f"Run {run_id} differs from its record at {divergence}")


@dataclass(frozen=True)
class Replayed:
    """The result of a replay.

    `version` is the last one that was followed, and `state` the run's state there. Without a
    `divergence` the replay is equal to the record.
    """

    run_id: UUID
    depth: Depth
    version: int
    state: RunState
    divergence: Divergence | None = None
    # How many recorded attempts were re-executed.
    attempts: int = 0
    # Calls of earlier attempts under another adapter or model: taken as recorded, not compared.
    taken: tuple[TakenCall, ...] = ()
    # Checkpoints whose state was compared, and those whose reducers were not given.
    compared: int = 0
    not_compared: int = 0
    # Ids of evaluations whose overridden texts are not to be had any more: their prompt was
    # taken from the record, and the rest of it compared.
    recorded_prompts: tuple[str, ...] = ()
    # Ids of evaluations under another prompt, before the run was recovered with the recorded
    # prompt or with one that was accepted: taken as recorded, not compared.
    not_compared_evaluations: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        return self.divergence is None

    def check(self) -> Replayed:
        """Raise ReplayDivergedError if there is a divergence."""
        if self.divergence is not None:
            raise ReplayDivergedError(str(self.run_id), self.divergence)
        return self


@explain_arguments
def replay(
    ledger: Ledger,
    run_id: RunId,
    *,
    loop: MainLoop[Any, Any] | None = None,
    until: int | None = None,
    declarations: Declarations | None = None,
    verify: bool = True,
) -> Replayed:
    """Replay a run, up to a version or to its end.

    Args:
        ledger: Where the run is recorded.
        run_id: The run.
        loop: The loop to re-execute; without one the events are folded.
        until: The last version to follow.
        declarations: The reducers to fold with, if there is no loop.
        verify: Verify the run's hash chain first, so that a record that was changed is an
            IntegrityFailureError and never a divergence.
    """
    run = UUID(canonical_id(run_id))
    if verify:
        check_chain(ledger, run)
    records = ledger.read(run, until=until)
    if loop is None:
        return _folded(run, records, declarations)
    check_agent(run, agent_of(ledger, run), loop.loop_host.name)
    done = Execution(ledger, run, records, loop)
    divergence = done.run()
    state = done.last_known
    return Replayed(
        run,
        "execute",
        state.version,
        state,
        divergence,
        done.attempts,
        done.taken_calls,
        recorded_prompts=done.recorded_prompts,
        not_compared_evaluations=done.not_compared,
    )


def check_chain(ledger: Ledger, run: UUID) -> None:
    """Raise IntegrityFailureError if a run's hash chain does not verify."""
    report = ledger.verify(run)
    if not report.ok:
        problem = report.problems[0]
        raise IntegrityFailureError(
            f"Run {run} was changed after it was recorded and can't be replayed: {problem}"
        )


# --- folding --------------------------------------------------------------------------------


def _folded(run: UUID, records: Iterable[Record], declarations: Declarations | None) -> Replayed:
    """Fold every view, and compare the state at each checkpoint with the recorded digest.

    Without declarations, states that a reducer of the user's made can't be compared.
    """
    is_known = declarations is not None
    declarations = declarations if declarations is not None else _usual()
    own = {declarations.name_of(kind) for kind in OWN_SLICES}
    state = RunState.initial(declarations)
    page: list[Record] = []
    compared = skipped = 0
    comparable = True
    for record in records:
        event = record.event
        if isinstance(event, SliceEventApplied) and event.operation == "apply":
            comparable = comparable and (is_known or event.slice in own)
        if isinstance(event, CheckpointReached):
            state, page = state.after(page), []
            if not comparable:
                skipped += 1
            elif event.state_digest != state.state_digest:
                return Replayed(run, "fold", state.version, state, _of_a_state(record, state))
            else:
                compared += 1
        page.append(record)
    state = state.after(page)
    return Replayed(run, "fold", state.version, state, compared=compared, not_compared=skipped)


def _usual() -> Declarations:
    """The declarations that a loop makes for every session."""
    session = Session()
    enable_inner_message_recording(session)
    return session.declarations


def _of_a_state(record: Record, state: RunState) -> Divergence:
    recorded = plain(record.event)
    found = {**recorded, "state_digest": state.state_digest}
    return Divergence(
        record.version,
        record.tag,
        "reducer changed",
        recorded,
        found,
        diff_of(recorded, found),
        "the same events come to another state",
    )
