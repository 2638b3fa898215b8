"""The run that a chat turn goes on from: read once with its digests checked, or refused."""

from __future__ import annotations

from uuid import UUID

import msgspec

from turnledger.ledger import Ledger, RunStarted
from turnledger.projections import Declarations
from turnledger.runtime.errors import ChatTurnRefusedError
from turnledger.runtime.journal.known import Known
from turnledger.runtime.recovery.find import check_agent
from turnledger.runtime.recovery.run_reader import RunReader


class ContinuedRun:
    """A run that has ended, and whose conversation and state the next turn of the chat has.

    Making one refuses a run of another agent, or one that has not ended, before any code of the
    user's is called.
    """

    def __init__(self, ledger: Ledger, run_id: UUID, name: str) -> None:
        """Read and check the run.

        Args:
            ledger: Where the run is.
            run_id: The run.
            name: The name of the agent that continues it.
        """
        self.run_id = run_id
        self._ledger = ledger
        self._reader = RunReader(ledger, run_id)
        check_agent(run_id, self._reader.known.run.summary.agent, name)
        self._check_ended()

    def declare(self, declarations: Declarations) -> Known:
        """The run's state by the session's declarations, at the version that the turn begins at."""
        known = self._reader.declare(declarations)
        self._check_ended()  # it may have been recovered since
        return known

    def next_turn(self, started: RunStarted) -> RunStarted:
        """The first event of the next turn, in the session of this run."""
        known = self._reader.known
        mine = known.progress.started
        session_id = mine.session_id if mine is not None else None
        return msgspec.structs.replace(
            started,
            parent=self.run_id,
            at=known.version,
            kind="turn",
            session_id=session_id or started.session_id,
        )

    def _check_ended(self) -> None:
        """ChatTurnRefusedError unless it is completed, or failed with no call open."""
        state, run_id = self._reader.known.run, str(self.run_id)
        status = state.summary.status
        open_calls = [call.call_id for call in state.tools.pending()]
        if status == "completed" or (status == "failed" and not open_calls):
            return
        worker = self._ledger.worker_of(self.run_id) if status == "running" else None
        raise ChatTurnRefusedError(run_id, status=status, worker=worker, call_ids=open_calls)
