"""One evaluation's conversation: the messages of other evaluations are skipped, not held.

In a chat it goes on from an earlier one: then the messages of that one belong to it too.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import final
from uuid import UUID

from turnledger.ledger import (
    EvaluationStarted,
    EvaluationSuperseded,
    Ledger,
    MessageAppended,
    OutputRejected,
    Record,
    RunStarted,
    ToolMessageAmended,
)
from turnledger.ledger.runs.append_request import RunId
from turnledger.projections.history.message_history import MessageHistory
from turnledger.projections.projection import fold, tags_of, tags_read
from turnledger.projections.views.conversation import Conversation

_TAGS = tags_read(Conversation())
_BEGINNING = tags_of(EvaluationStarted)
_SUPERSEDING = tags_of(EvaluationSuperseded, RunStarted)


@final
class OneConversation:
    """A history, whose it is, and which other evaluations there are."""

    def __init__(self, evaluation_id: str, before: Iterable[str] = ()) -> None:
        """Make an empty one.

        Args:
            evaluation_id: The evaluation.
            before: Those that it goes on from, directly or through others.
        """
        self.evaluation_id = evaluation_id
        self.before = frozenset(before)
        self.history = MessageHistory.new()
        # The same without amendments: what tools said.
        self.said = self.history
        # The steps of the blocks of `said`, by `id()`; empty if no message has a step number.
        self.steps: dict[int, int | None] = {}
        # Blocks of `said` by which the loop rejected an output, by `id()`.
        self.rejections: set[int] = set()
        self._asked: set[UUID] = set()
        self.superseded: set[str] = set()
        # In the order of their last messages.
        self._names: dict[str, None] = {}
        self._current: str | None = None
        self.is_amended = False
        self.has_steps = False

    @property
    def evaluations(self) -> tuple[str, ...]:
        """The evaluations with messages, in the order of their last ones."""
        return tuple(name for name in self._names if name)

    def fold(self, records: Iterable[Record]) -> OneConversation:
        state = fold(self._own(records), Conversation())
        self.history = self.said = state.history(self.evaluation_id)
        return self

    def fold_said(self, records: Iterable[Record]) -> None:
        """Fold the same records without amendments, one by one: blocks have a message's step."""
        view = Conversation()
        state = view.initial()
        said = (record for record in records if record.tag != ToolMessageAmended.tag)
        for record in OneConversation(self.evaluation_id, self.before)._own(said):
            state = view.apply(state, record)
            latest, turn = state.messages.last, state.current.last
            if latest is None or turn is None:
                continue
            if self.has_steps:
                for block in turn.blocks:
                    self.steps.setdefault(id(block), latest.step_num)
            if latest.message_id in self._asked:
                self.rejections.add(id(turn.blocks[-1]))
        self.said = state.history(self.evaluation_id)

    def _own(self, records: Iterable[Record]) -> Iterator[Record]:
        """The records that this history follows from."""
        for record in records:
            if record.tag == OutputRejected.tag:
                assert isinstance(record.event, OutputRejected)
                self._asked.add(record.event.asked_id)
            if record.tag not in _TAGS:
                continue
            event = record.event
            if isinstance(event, MessageAppended):
                name = event.message.evaluation_id
                if event.message.step_num is not None and self._has(name):
                    self.has_steps = True
            elif isinstance(event, EvaluationStarted):
                name = event.evaluation_id
            else:
                self._note(event)
                yield record
                continue
            if name != self._current:
                self._current = name
                self._names.pop(name, None)
                self._names[name] = None
            if self._has(name):
                yield record

    def _has(self, evaluation_id: str) -> bool:
        """Whether an evaluation's messages are in this history."""
        return evaluation_id == self.evaluation_id or evaluation_id in self.before

    def _note(self, event: object) -> None:
        if isinstance(event, EvaluationSuperseded):
            self.superseded.add(event.evaluation_id)
        elif isinstance(event, ToolMessageAmended):
            self.is_amended = True
        elif isinstance(event, RunStarted) and event.kind == "continuation":
            self.superseded.clear()
            self._names.clear()
            self._current = None


def one_conversation(
    ledger: Ledger, run_id: RunId, evaluation_id: str | None = None, *, until: int | None = None
) -> OneConversation:
    """An evaluation's conversation: the same history as `Conversation` has, and nothing else.

    Args:
        ledger: The ledger that has the run.
        run_id: The run.
        evaluation_id: The evaluation; by default the latest that was not superseded.
        until: The last version to read; by default all.
    """
    if evaluation_id is None:
        superseded = _superseded(ledger.read(run_id, until=until))
        evaluation_id = _latest(ledger.read(run_id, until=until, backwards=True), superseded)
    before = evaluations_before(evaluation_id, ledger.read(run_id, until=until))
    found = OneConversation(evaluation_id, before).fold(ledger.read(run_id, until=until))
    if found.is_amended or found.has_steps or found._asked:
        found.fold_said(ledger.read(run_id, until=until))
    return found


def evaluations_before(evaluation_id: str, records: Iterable[Record]) -> set[str]:
    """The evaluations that one goes on from, directly or through others."""
    after: dict[str, set[str]] = {}
    for record in records:
        if record.tag in _BEGINNING:
            event = record.event
            if isinstance(event, EvaluationStarted) and event.after:
                after.setdefault(event.evaluation_id, set()).add(event.after)
    found, new = set[str](), {evaluation_id}
    while new:
        new = {one for name in new for one in after.get(name, ())} - found
        found |= new
    return found - {evaluation_id}


def _superseded(records: Iterable[Record]) -> set[str]:
    """The superseded evaluations. They may go on after that, so all records are read."""
    found: set[str] = set()
    for record in records:
        if record.tag in _SUPERSEDING:
            event = record.event
            if isinstance(event, EvaluationSuperseded):
                found.add(event.evaluation_id)
            elif isinstance(event, RunStarted) and event.kind == "continuation":
                found.clear()
    return found


def _latest(backwards: Iterable[Record], superseded: set[str]) -> str:
    """The last evaluation with a message that was not superseded; "" without one."""
    for record in backwards:
        if record.tag not in _TAGS:
            continue
        event = record.event
        if isinstance(event, MessageAppended):
            if event.message.evaluation_id not in superseded:
                return event.message.evaluation_id
        elif isinstance(event, EvaluationStarted):
            if event.evaluation_id not in superseded:
                return event.evaluation_id
        elif isinstance(event, RunStarted) and event.kind == "continuation":
            break
    return ""
