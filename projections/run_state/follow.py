"""Incremental fold of a run that grows: each update folds only what was appended since."""

from __future__ import annotations

from typing import Generic, TypeVar, final

from turnledger.ledger import Ledger
from turnledger.ledger.arguments import explain_arguments, explain_methods
from turnledger.ledger.runs.append_request import RunId
from turnledger.projections.projection import Projection, fold_pages

S = TypeVar("S")


@explain_methods()
@final
class Follower(Generic[S]):
    """A projection's state of a run, up to a version; `update` brings it up to date.

    One thread at a time may update it. States that it gave stay as they are.
    """

    def __init__(self, ledger: Ledger, run_id: RunId, projection: Projection[S]) -> None:
        self._ledger = ledger
        self._run_id = run_id
        self._projection = projection
        self._state = projection.initial()
        self._version = 0

    @property
    def state(self) -> S:
        """The state after the last update."""
        return self._state

    @property
    def version(self) -> int:
        """The version of the last event that is in the state."""
        return self._version

    def update(self) -> S:
        """Fold what was appended since the last update, and return the state.

        If it raises, the state is the one before, and the next update reads the same events.
        """
        records = self._ledger.read(self._run_id, after=self._version)
        (state,), last = fold_pages(records, (self._projection,), (self._state,))
        if last is not None:
            self._state, self._version = state, last.version
        return self._state


@explain_arguments
def follow(ledger: Ledger, run_id: RunId, projection: Projection[S]) -> Follower[S]:
    """Fold a run up to now, and go on from there with each `update`.

    An update costs what was appended since, however long the run is.

    Args:
        ledger: The ledger that has the run.
        run_id: The run; what it shares with its ancestors is folded too.
        projection: What to fold.

    Raises:
        RunNotFoundError: The run is not in the ledger.
    """
    follower = Follower(ledger, run_id, projection)
    follower.update()
    return follower
