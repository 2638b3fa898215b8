"""`StepIndex`: the steps of a run as its records tell them, by id.

It is filled once when a run is entered, and then grows with each append; nothing in it is ever
searched through, so that a step costs the same whatever came before it.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from turnledger.ledger import (
    ModelCalled,
    ModelCallFailed,
    ModelReplied,
    Record,
    RunCompleted,
    RunFailed,
    RunResumed,
    RunStarted,
    ToolCallCompleted,
    ToolCallDecided,
    ToolCallFailed,
    ToolCallInDoubt,
    ToolCallStarted,
)
from turnledger.ledger.events.types import OnInterruptName
from turnledger.runtime.steps.messages.request_delta import whole_request

# A recorded word: the error type of a model's call whose reply can't be recorded.
UNRECORDABLE = "UnrecordableResultError"


@dataclass(frozen=True, kw_only=True)
class StepOutcome:
    """How a step ended: with a value, with an error, or with a value that can't be recorded."""

    call_id: str
    value: Any = None
    unrecordable: str = ""
    error_type: str = ""
    error_message: str = ""
    traceback: str = ""
    status: int | None = None

    @property
    def failed(self) -> bool:
        return bool(self.error_type)


@dataclass(kw_only=True)
class StepEntry:
    """One step: its start, and how it ended if it did."""

    call_id: str
    name: str
    parent: str
    kind: Literal["tool", "model"]
    digest: str
    # As it was recorded: the arguments, or a model's request.
    arguments: Any = None
    client: str = ""
    on_interrupt: OnInterruptName = ""
    # Whether another thread or task asked for it than the one that its parent runs in.
    aside: bool = False
    # The version of its first start, and its tag.
    version: int = 0
    tag: str = ""
    attempts: int = 0
    outcome: StepOutcome | None = None
    in_doubt: bool = False
    decision: ToolCallDecided | None = None
    # Whether the code has asked for it in this process, and whether it was performed here.
    asked: bool = False
    performed: bool = False


@dataclass
class StepIndex:
    """The steps of one run, and what else entering and leaving it needs."""

    started: RunStarted | None = None
    completed: RunCompleted | None = None
    failure: RunFailed | None = None
    # The version of the last record, and of the one that ended the run.
    version: int = 0
    ended_at: int = 0
    attempts: int = 0
    # Outcomes so far, and how many there were when the run was last resumed.
    progress: int = 0
    progress_at_resume: int | None = None
    entries: dict[str, StepEntry] = field(default_factory=dict)
    # By parent: the recorded steps of the parent's own thread or task, in their order, that the
    # code has not asked for yet.
    expected: dict[str, deque[StepEntry]] = field(default_factory=dict)
    # Steps that may be run again by consent that ends with the next resume.
    consents: list[StepEntry] = field(default_factory=list)

    def take(self, record: Record) -> None:
        """Fold one record."""
        self.version = max(self.version, record.version)
        taker = _TAKES.get(record.tag)
        if taker is not None:
            taker(self, record.event, record)

    def next_expected(self, parent: str) -> StepEntry | None:
        """The next step of a parent's own thread that is recorded, and not asked for yet."""
        waiting = self.expected.get(parent)
        while waiting and waiting[0].asked:
            waiting.popleft()
        return waiting[0] if waiting else None

    def unasked(self) -> StepEntry | None:
        """The first recorded step that the code should have asked for by now, and did not.

        Those in a step that was answered from the record are not asked for.
        """
        for entry in self.entries.values():
            parent = self.entries.get(entry.parent)
            if not entry.asked and (not entry.parent or (parent is not None and parent.performed)):
                return entry
        return None

    def without_outcome(self) -> tuple[str, ...]:
        """The steps that the code asked for and that never ended, but for those in ended ones."""
        found = []
        for entry in self.entries.values():
            around = self.entries.get(entry.parent)
            if entry.asked and entry.outcome is None and not (around and around.outcome):
                found.append(entry.call_id)
        return tuple(found)

    def undecided(self) -> list[StepEntry]:
        """The steps with on_interrupt="ask" of which nobody has said how they ended.

        Their code went on without them, so that it does not ask for them again.
        """
        return [
            entry
            for entry in self.entries.values()
            if entry.outcome is None
            and entry.on_interrupt == "ask"
            and (entry.decision is None or entry.decision.decision == "retry")
        ]

    def whole_request(self, request: Any) -> Any:
        """A model's request, whole: it may be recorded as what differs from an earlier call."""
        return whole_request(request, lambda call_id: self.entries[call_id].arguments)

    def whole(self, entry: StepEntry) -> StepEntry:
        """A step with its whole request."""
        if entry.kind == "tool":
            return entry
        return replace(entry, arguments=self.whole_request(entry.arguments))

    # --- folding ---

    def _run_started(self, event: RunStarted, record: Record) -> None:
        if event.kind == "fork":
            self.started = self.started or event
            self.completed = self.failure = None
            self.ended_at = 0
            return
        self.__init__(started=event, version=record.version)  # type: ignore[misc]

    def _resumed(self, event: RunResumed, record: Record) -> None:
        self.attempts, self.progress_at_resume = event.attempt, self.progress
        self.completed = self.failure = None
        for entry in self.consents:
            if entry.decision is not None and entry.decision.until_resumed:
                entry.decision = None
        self.consents = []

    def _completed(self, event: RunCompleted, record: Record) -> None:
        self.completed, self.ended_at = event, record.version

    def _failed(self, event: RunFailed, record: Record) -> None:
        self.failure, self.ended_at = event, record.version

    def _step_started(self, event: ToolCallStarted, record: Record) -> None:
        if event.evaluation_id:
            return  # a call that a message asked for
        self._start(
            event.call_id,
            record,
            StepEntry(
                call_id=event.call_id,
                name=event.name,
                parent=_path_around(event.call_id),
                kind="tool",
                digest=event.digest,
                arguments=event.arguments,
                on_interrupt=event.on_interrupt,
                aside=event.aside,
            ),
            event.attempt,
        )

    def _model_called(self, event: ModelCalled, record: Record) -> None:
        if not event.call_id:
            return
        self._start(
            event.call_id,
            record,
            StepEntry(
                call_id=event.call_id,
                name=event.name,
                parent=_path_around(event.call_id),
                kind="model",
                digest=event.request_digest,
                arguments=event.request,
                client=event.client,
                on_interrupt=event.on_interrupt,
                aside=event.aside,
            ),
            event.attempt,
        )

    def _start(self, call_id: str, record: Record, new: StepEntry, attempt: int) -> None:
        entry = self.entries.get(call_id)
        if entry is None:
            entry = self.entries[call_id] = new
            entry.version, entry.tag = record.version, record.tag
            if not entry.aside:
                self.expected.setdefault(entry.parent, deque()).append(entry)
        # An attempt after a failure that was handed on: what came of it is open again.
        entry.outcome = None
        entry.attempts, entry.in_doubt, entry.decision = attempt, False, None

    def _end(self, outcome: StepOutcome) -> None:
        entry = self.entries.get(outcome.call_id)
        if entry is not None:
            entry.outcome, entry.in_doubt = outcome, False
            self.progress += 1

    def _step_completed(self, event: ToolCallCompleted, record: Record) -> None:
        if not event.evaluation_id:
            self._end(
                StepOutcome(
                    call_id=event.call_id, value=event.value, unrecordable=event.unrecordable
                )
            )

    def _step_failed(self, event: ToolCallFailed, record: Record) -> None:
        if not event.evaluation_id:
            outcome = StepOutcome(
                call_id=event.call_id,
                error_type=event.error_type,
                error_message=event.error_message,
                traceback=event.traceback,
            )
            self._end(outcome)

    def _model_replied(self, event: ModelReplied, record: Record) -> None:
        if event.call_id:
            self._end(StepOutcome(call_id=event.call_id, value=event.value))

    def _model_failed(self, event: ModelCallFailed, record: Record) -> None:
        if event.call_id and event.final:
            outcome = StepOutcome(
                call_id=event.call_id,
                value=event.value,
                error_type=event.error_type,
                error_message=event.error_message,
                unrecordable=event.error_message if event.error_type == UNRECORDABLE else "",
                status=event.status,
            )
            self._end(outcome)

    def _in_doubt(self, event: ToolCallInDoubt, record: Record) -> None:
        entry = self.entries.get(event.call_id)
        if entry is not None and not event.evaluation_id:
            entry.in_doubt = True

    def _decided(self, event: ToolCallDecided, record: Record) -> None:
        entry = self.entries.get(event.call_id)
        if entry is None or entry.outcome is not None or event.attempt not in (0, entry.attempts):
            return
        if event.until_resumed and entry.decision is not None:
            return
        entry.decision = event
        if event.until_resumed:
            self.consents.append(entry)
        else:
            self.progress += 1


def _path_around(call_id: str) -> str:
    """What a step is in, as its id has it: of two tool calls with one id, which."""
    return call_id.rpartition("/")[0]


_TAKES: dict[str, Any] = {
    RunStarted.tag: StepIndex._run_started,
    RunResumed.tag: StepIndex._resumed,
    RunCompleted.tag: StepIndex._completed,
    RunFailed.tag: StepIndex._failed,
    ToolCallStarted.tag: StepIndex._step_started,
    ToolCallCompleted.tag: StepIndex._step_completed,
    ToolCallFailed.tag: StepIndex._step_failed,
    ToolCallInDoubt.tag: StepIndex._in_doubt,
    ToolCallDecided.tag: StepIndex._decided,
    ModelCalled.tag: StepIndex._model_called,
    ModelReplied.tag: StepIndex._model_replied,
    ModelCallFailed.tag: StepIndex._model_failed,
}
