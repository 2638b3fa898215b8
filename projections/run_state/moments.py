"""Moments: states of runs at intervals, kept so that any version is a short fold away.

States are persistent: two of one run share all that did not change between them. A kept state
therefore adds its own outline, and the content of the events since the kept state that it was
folded from. Both are estimated, and their sum over all runs is bounded.
"""

from __future__ import annotations

import threading
from bisect import bisect_right, insort
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from itertools import count
from sys import getsizeof
from typing import final

from turnledger.ledger import InvalidInputError, Ledger, Record, RecordNotFoundError
from turnledger.ledger.arguments import explain_methods
from turnledger.ledger.errors import TurnledgerError
from turnledger.ledger.runs.append_request import RunId, canonical_id
from turnledger.ledger.runs.lineage import Segment, lineage
from turnledger.projections.history.message_history import earlier_turns
from turnledger.projections.run_state.state import RunState
from turnledger.projections.session.declarations import Declarations

# A state is kept at each multiple of this, so that a fold to any version is shorter than it.
EVERY = 250
# States besides those: the last that were asked for, for readers that go on from there.
RECENT = 32
# Estimated bytes: of what a kept state shares with no other, and of an event in a state besides
# its text.
OUTLINE, EVENT = 32_768, 500
BUDGET = 256 * 2**20
# Seconds between two looks at `cancelled` while another reader's fold is waited for.
_LOOK = 0.05


@final
class FoldCancelledError(TurnledgerError):
    """A fold was cancelled by its caller before it was done; ask again to go on."""

    def __init__(self, run_id: str, version: int, reached: int) -> None:
        self.run_id = run_id
        self.version = version
        self.reached = reached
        super().__init__(
            f"The fold of run {run_id} to version {version} was cancelled at version {reached}. "
            "Ask again: it goes on from the nearest state that was kept."
        )


class _Moment:
    """A state and the moment that it was folded from.

    `content` is of the events in between. It stays in memory as long as this moment is kept or one
    that was folded from it: `holders` counts these. A moment that is not kept has no state.
    """

    __slots__ = ("base", "content", "holders", "owner", "state", "used", "version")

    def __init__(
        self, owner: str, state: RunState, base: _Moment | None = None, content: int = 0
    ) -> None:
        self.owner = owner
        self.version = state.version
        self.state: RunState | None = state
        self.base = base
        self.content = content
        self.holders = 0
        self.used = 0


class _Fold:
    """A fold under way along a lineage: the state that it has reached, and the moment of that."""

    __slots__ = ("is_done", "moment", "path", "state")

    def __init__(self, path: Sequence[Segment], moment: _Moment, state: RunState) -> None:
        self.path = path
        self.moment = moment
        # Its own reference: a moment loses its state when it is dropped.
        self.state = state
        self.is_done = False

    def ends_with(self, path: Sequence[Segment]) -> bool:
        """Whether it ends at the same moment as another one."""
        ours, theirs = self.path[-1], path[-1]
        return (ours.run_id, ours.until) == (theirs.run_id, theirs.until)

    def has_ahead(self, path: Sequence[Segment], nearest: int) -> bool:
        """Whether it will come by the end of a lineage, and is as near to it as what is kept."""
        end = path[-1]
        until = next((one.until for one in self.path if one.run_id == end.run_id), 0)
        return nearest <= self.state.version < end.until <= until


class _Kept:
    """The moments that are kept, by the run that holds their last event; callers hold a lock."""

    def __init__(self, budget: int) -> None:
        self._budget = budget
        self._by_run: dict[str, dict[int, _Moment]] = {}
        self._versions: dict[str, list[int]] = {}
        self._recent: OrderedDict[_Moment, None] = OrderedDict()
        self._uses = count(1)
        self.bytes = 0

    def nearest(self, path: Sequence[Segment]) -> _Moment | None:
        """The last kept moment of a lineage."""
        for segment in reversed(path):
            versions = self._versions.get(segment.run_id, ())
            place = bisect_right(versions, segment.until)
            if place:
                found = self._by_run[segment.run_id][versions[place - 1]]
                self._use(found)
                return found
        return None

    def _use(self, moment: _Moment) -> None:
        moment.used = next(self._uses)
        if moment in self._recent:
            self._recent.move_to_end(moment)

    def keep(self, moment: _Moment) -> None:
        """Keep a moment, and drop others if there are too many."""
        known = self._by_run.setdefault(moment.owner, {})
        if moment.version in known:
            return
        known[moment.version] = moment
        insort(self._versions.setdefault(moment.owner, []), moment.version)
        if moment.version % EVERY:
            self._recent[moment] = None
        self._use(moment)
        self.bytes += OUTLINE
        self._hold(moment)
        if len(self._recent) > RECENT:
            self._drop(next(iter(self._recent)))
        while self.bytes > self._budget:
            self._drop(min(self._ends(), key=lambda one: one.used))

    def _ends(self) -> Iterator[_Moment]:
        """Moments that no other was folded from: what drops its content with it."""
        for known in self._by_run.values():
            yield from (moment for moment in known.values() if moment.holders == 1)

    def _drop(self, moment: _Moment) -> None:
        known, versions = self._by_run[moment.owner], self._versions[moment.owner]
        del known[moment.version]
        versions.remove(moment.version)
        if not versions:
            del self._by_run[moment.owner], self._versions[moment.owner]
        self._recent.pop(moment, None)
        moment.state = None
        self.bytes -= OUTLINE
        self._release(moment)

    def _hold(self, moment: _Moment | None) -> None:
        while moment is not None:
            moment.holders += 1
            if moment.holders > 1:
                return
            self.bytes += moment.content
            moment = moment.base

    def _release(self, moment: _Moment | None) -> None:
        while moment is not None:
            moment.holders -= 1
            if moment.holders:
                return
            self.bytes -= moment.content
            moment = moment.base


@explain_methods()
@final
class Moments:
    """States of a ledger's runs at any version, at the cost of a short fold.

    One object serves all runs and all threads. A fork begins from its parent's moments. Readers of
    one moment wait for the first of them instead of folding it again.
    """

    def __init__(
        self, ledger: Ledger, *, declarations: Declarations | None = None, budget: int = BUDGET
    ) -> None:
        """Keep nothing yet.

        Args:
            ledger: The ledger that has the runs.
            declarations: Types and reducers of the programs' slices; without, slices are plain
                JSON.
            budget: Estimated bytes that all kept states may take. A run whose state is larger is
                folded from the last moment of it that fits.
        """
        if not isinstance(ledger, Ledger):
            raise InvalidInputError(
                f"Invalid ledger: got {type(ledger).__name__}, expected Ledger."
            )
        if budget < 0:
            raise InvalidInputError(f"Invalid budget: got {budget}, expected 0 bytes or more.")
        self._ledger = ledger
        self._initial = RunState.initial(declarations)
        self._kept = _Kept(budget)
        self._folds: list[_Fold] = []
        # Notified as a fold goes on and when it ends.
        self._changed = threading.Condition()

    @property
    def ledger(self) -> Ledger:
        """The ledger that the runs are of."""
        return self._ledger

    @property
    def estimated_bytes(self) -> int:
        """What the kept states are taken to hold; at most the budget."""
        return self._kept.bytes

    def at(
        self,
        run_id: RunId,
        version: int | None = None,
        *,
        cancelled: Callable[[], bool] | None = None,
    ) -> RunState:
        """A run's state after one of its versions; equal to that of `state_at`.

        Args:
            run_id: The run.
            version: The last version in it, 0 for none; by default the run's last.
            cancelled: Asked before each page of events; if it is true, the fold ends. An event of
                `threading` has one: `cancelled=event.is_set`.

        Raises:
            RunNotFoundError: The run is not in the ledger.
            RecordNotFoundError: The run has no event with that version.
            FoldCancelledError: `cancelled` was true before the state was there.
        """
        run = canonical_id(run_id)
        segments = lineage(run, self._ledger.store.run)
        head = self._ledger.head(run)
        wanted = head if version is None else version
        if not 0 <= wanted <= head:
            raise RecordNotFoundError(run, wanted, head)
        path = [
            Segment(one.run_id, one.after, min(one.until, wanted))
            for one in segments
            if one.after < wanted
        ]
        if not path:
            return self._initial

        def check(reached: int) -> None:
            if cancelled is not None and cancelled():
                raise FoldCancelledError(run, wanted, reached)

        fold = self._begin(path, check)
        if isinstance(fold, RunState):
            return fold
        try:
            while fold.state.version < wanted:
                check(fold.state.version)
                self._go_on(run, fold)
            fold.is_done = True
            return fold.state
        finally:
            with self._changed:
                self._folds.remove(fold)
                self._changed.notify_all()

    def _begin(self, path: Sequence[Segment], check: Callable[[int], None]) -> _Fold | RunState:
        """A fold that this thread has to make; or the state, once it is known."""
        awaited: _Fold | None = None
        while True:
            check(0)
            with self._changed:
                if awaited is not None and awaited.is_done and awaited.ends_with(path):
                    return awaited.state
                base = self._kept.nearest(path) or _Moment("", self._initial)
                assert base.state is not None
                if base.version == path[-1].until:
                    return base.state
                awaited = self._awaited(path, base.version)
                if awaited is None:
                    fold = _Fold(path, base, base.state)
                    self._folds.append(fold)
                    return fold
                self._changed.wait(_LOOK)

    def _awaited(self, path: Sequence[Segment], nearest: int) -> _Fold | None:
        """Another thread's fold that is going to have a moment, or one near to it, sooner."""
        is_far = path[-1].until - nearest > EVERY
        for fold in self._folds:
            if fold.ends_with(path) or (is_far and fold.has_ahead(path, nearest)):
                return fold
        return None

    def _go_on(self, run: str, fold: _Fold) -> None:
        """Fold up to the next moment that is kept."""
        state, end = fold.state, fold.path[-1].until
        until = min(end, state.version + EVERY - state.version % EVERY)
        records = list(self._ledger.read(run, state.version, until))
        state = state.after(records)
        # Made now: it goes on from the moment before, and a window finds it.
        earlier_turns(state.history)
        moment = _Moment(_owner(fold.path, until), state, fold.moment, _content(records))
        with self._changed:
            self._kept.keep(moment)
            fold.moment, fold.state = moment, state
            self._changed.notify_all()


def _owner(path: Sequence[Segment], version: int) -> str:
    """The run that holds the event of a version."""
    return next(one.run_id for one in path if one.after < version <= one.until)


def _content(page: Sequence[Record]) -> int:
    """Estimated bytes that the content of these events takes in a state."""
    return sum(EVENT + getsizeof(record.data) for record in page)
