"""`Known`: the folded state of a run, as the loop, its session and the journal use it.

It holds the public views (`RunState`) and the internal projections of this folder, all at one
version. It is a value: `after` gives another one.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from turnledger.ledger import EvaluationStarted, Record, RunStarted, SliceEventApplied
from turnledger.projections import Declarations, RunState, SessionSlices, fold, fold_together
from turnledger.projections.projection import PAGE, tags_of
from turnledger.runtime.journal.loop_progress import BY_PROMPT, Progress, ProgressState
from turnledger.runtime.journal.session_index import SessionIndex, SessionIndexState

_INTERNAL = (Progress(), SessionIndex())


class Known(NamedTuple):
    """The folded state of a run at one version: the public views and the internal ones.

    `prompt_base` is the state that the run's prompt was made from, as soon as something was
    recorded that came of the prompt: a recovery makes the prompt from there again.
    `evaluation_base` is the state in which the latest evaluation began: when that is resumed,
    its prompt is rendered from there again.
    """

    run: RunState
    progress: ProgressState
    session: SessionIndexState
    prompt_base: Known | None = None
    evaluation_base: Known | None = None

    @classmethod
    def initial(cls, declarations: Declarations | None = None) -> Known:
        """Before the first event."""
        return cls(RunState.initial(declarations), ProgressState(), SessionIndexState())

    @property
    def version(self) -> int:
        return self.run.version

    def after(self, records: Iterable[Record]) -> Known:
        """The state some records later; they are held a page at a time."""
        known, page = self, list[Record]()
        unprompted = self.progress.prompted_at is None
        for record in records:
            begins = record.tag in _EVALUATION_STARTED
            if begins or (unprompted and _comes_of_prompt(record)):
                # Cut the page here: the state between these two records is kept.
                known, page = known._plus(page)._kept_before(record, begins=begins), []
                unprompted = False
                continue
            unprompted = unprompted or record.tag in _RUN_STARTED
            page.append(record)
            if len(page) == PAGE:
                known, page = known._plus(page), []
        return known._plus(page)

    def _kept_before(self, record: Record, *, begins: bool) -> Known:
        """The state after a record, with this one as that before the prompt or the evaluation."""
        known, base = self._plus([record]), self._replace(prompt_base=None, evaluation_base=None)
        if self.progress.prompted_at is None:
            known = known._replace(prompt_base=base)
        return known._replace(evaluation_base=base) if begins else known

    def _plus(self, page: Sequence[Record]) -> Known:
        if not page:
            return self
        progress, session = fold_together(page, _INTERNAL, (self.progress, self.session))
        # A continuation and a turn have prompts of their own, a fork goes on with its parent's.
        base = self.prompt_base if progress.prompted_at is not None else None
        began = self.evaluation_base if progress.evaluation is not None else None
        return Known(self.run.after(page), progress, session, base, began)

    def declared(self, declarations: Declarations, records: Sequence[Record]) -> Known:
        """The same with session state folded by these declarations.

        Args:
            declarations: The types and reducers of a session.
            records: All records up to here that `SessionSlices` reads, in their order.
        """
        slices, place = SessionSlices(declarations), 0
        state, declared = slices.initial(), dict[str, Known]()
        for name, base in sorted(self._bases().items(), key=lambda one: one[1].version):
            end = bisect_right(records, base.version, key=lambda record: record.version)
            state, place = fold(records[place:end], slices, state), end
            declared[name] = base._replace(run=base.run.with_slices(declarations, state))
        state = fold(records[place:], slices, state)
        return self._replace(run=self.run.with_slices(declarations, state), **declared)  # type: ignore[arg-type]

    def _bases(self) -> dict[str, Known]:
        """The earlier states that this one keeps, by the names of their fields."""
        bases = {"prompt_base": self.prompt_base, "evaluation_base": self.evaluation_base}
        return {name: base for name, base in bases.items() if base is not None}

    def redeclared(self, declarations: Declarations, since: int) -> Known | None:
        """The state by declarations that have changed, without folding the run again.

        A tool is often the first to name the type of a slice, which was folded as plain JSON
        until then. Its values are decoded in place, where that gives the same.

        Args:
            declarations: The declarations that this was folded by.
            since: How many of their changes were known then.

        Returns:
            None if the run has to be folded again.
        """
        slices, run = SessionSlices(declarations), self.run
        before, later = declarations.changes[:since], declarations.changes[since:]
        for name in self.session.names.intersection(later):
            # Once declared, a slice holds what reducers made: that can't be undone in place.
            if name in before or name in self.session.replaced:
                return None
            state = slices.retyped(run.slices, name)
            if state is None:
                return None
            run = run.with_slices(declarations, state)
        bases = self._bases()
        found = {name: base.redeclared(declarations, since) for name, base in bases.items()}
        if None in found.values():
            return None
        if run is self.run and all(found[name] is base for name, base in bases.items()):
            return self  # the same value, so that an overlay on top of it can be taken over
        return self._replace(run=run, **found)  # type: ignore[arg-type]

    def is_outdated(self, changes: Iterable[str]) -> bool:
        """Whether it may have to be folded again, as these names mean something else now."""
        return any(name in self.session.names for name in changes)


def _comes_of_prompt(record: Record) -> bool:
    """Whether this is recorded only after the prompt was made: see `ProgressState.prompted_at`."""
    if record.tag not in _MAY_COME_OF_PROMPT:
        return False
    event = record.event
    return not isinstance(event, SliceEventApplied) or event.call_id in BY_PROMPT


_RUN_STARTED = tags_of(RunStarted)
_EVALUATION_STARTED = tags_of(EvaluationStarted)
_MAY_COME_OF_PROMPT = tags_of(EvaluationStarted, SliceEventApplied)
