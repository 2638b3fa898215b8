"""Replay: any run again, from its record alone.

At the first depth its events are folded, and every checkpoint's digest is compared. At the second
the user's own loop runs again: models, tools, ids and times answer from the record, and every
step that the code decides on is compared. No provider is asked, no handler is called, and
nothing is written.
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
from turnledger.ledger.runs.append_request import RunId, canonical_id
from turnledger.projections import Declarations, RunState
from turnledger.runtime.agent.visibility import VisibilityOverrides
from turnledger.runtime.main_loop import MainLoop
from turnledger.runtime.replaying.divergence import Divergence, diff_of, plain
from turnledger.runtime.replaying.execution import Execution
from turnledger.runtime.session.session import Session, enable_inner_message_recording

Depth = Literal["fold", "execute"]


class ReplayDivergedError(TurnledgerError):
    """A replay came out differently."""

    def __init__(self, run_id: str, divergence: Divergence) -> None:
        self.run_id = run_id
        self.divergence = divergence
        super().__init__(f"Run {run_id} parts from its record at {divergence}")


@dataclass(frozen=True)
class Replayed:
    """What a replay came to.

    `version` is the last one that was followed, and `state` all that is known there. Without a
    `divergence` it is what was recorded.
    """

    run_id: UUID
    depth: Depth
    version: int
    state: RunState
    divergence: Divergence | None = None
    # How often the loop was begun: once, and again for every attempt on record.
    attempts: int = 0
    # Checkpoints whose state was compared; and those that only the loop's own reducers can make.
    compared: int = 0
    not_compared: int = 0

    @property
    def ok(self) -> bool:
        return self.divergence is None

    def check(self) -> Replayed:
        """ReplayDivergedError if it parted from its record."""
        if self.divergence is not None:
            raise ReplayDivergedError(str(self.run_id), self.divergence)
        return self


def replay(
    ledger: Ledger,
    run_id: RunId,
    *,
    loop: MainLoop[Any, Any] | None = None,
    until: int | None = None,
    declarations: Declarations | None = None,
    verify: bool = True,
) -> Replayed:
    """Go through a run again, up to a version or to its end.

    Without a `loop` its events are folded, by the reducers of `declarations`. With one, that
    loop's own code runs again on the record. The chain is verified first: a record that was
    changed is an IntegrityFailureError, and never a divergence.
    """
    run = UUID(canonical_id(run_id))
    if verify:
        check_chain(ledger, run)
    records = ledger.read(run, until=until)
    if loop is None:
        return _folded(run, records, declarations)
    done = Execution(ledger, run, records, loop)
    divergence = done.run()
    state = done.last_known
    return Replayed(run, "execute", state.version, state, divergence, done.attempts)


def check_chain(ledger: Ledger, run: UUID) -> None:
    """IntegrityFailureError if a run is not as it was recorded."""
    report = ledger.verify(run)
    if not report.ok:
        problem = report.problems[0]
        raise IntegrityFailureError(
            f"Run {run} is not as it was recorded, so there is nothing to compare with: {problem}"
        )


# --- folding --------------------------------------------------------------------------------


def _folded(run: UUID, records: Iterable[Record], declarations: Declarations | None) -> Replayed:
    """Rebuild every view; the state at each checkpoint has the digest that was recorded.

    Where nobody says which reducers there are, states that a reducer made can't be compared.
    """
    is_known = declarations is not None
    state = RunState.initial(declarations if declarations is not None else _usual())
    page: list[Record] = []
    compared = skipped = 0
    comparable = True
    for record in records:
        event = record.event
        if isinstance(event, SliceEventApplied) and event.operation == "apply":
            comparable = comparable and (is_known or event.slice in _OWN_SLICES)
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


# The slices whose reducers come with the package.
_OWN_SLICES = frozenset({VisibilityOverrides.__name__})


def _usual() -> Declarations:
    """What a loop declares for every session."""
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
