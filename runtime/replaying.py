"""Replay: any run again, from its record alone.

At the first depth its events are folded, and every checkpoint's digest is compared. At the second
the user's own loop runs again: models, tools, ids and times answer from the record, and every
step that the code decides on is compared. No provider is asked, no handler is called, and
nothing is written.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal
from uuid import UUID

from ledger import (
    CheckpointReached,
    Event,
    IntegrityFailureError,
    Ledger,
    MessageAppended,
    Record,
    RunResumed,
    RunStarted,
    SliceEventApplied,
    TurnledgerError,
)
from ledger.requesting import RunId, canonical_id
from projections import Declarations, RunState
from runtime import changes
from runtime.bus import InProcessEventBus
from runtime.divergence import Divergence, Trying, diff_of, plain
from runtime.driving import Assignment, drive
from runtime.execution_state import ExecutionState
from runtime.json_values import to_plain
from runtime.main_loop import MainLoop
from runtime.recorded_answers import RecordedAnswers
from runtime.recording import Recording, is_resumed
from runtime.replay_journal import AttemptOver, Diverged, RecordOver, ReplayJournal
from runtime.request_types import request_from
from runtime.session import Session, enable_inner_message_recording
from runtime.visibility import VisibilityOverrides

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
    return _Execution(ledger, run, records, loop).run()


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


# --- running it again ------------------------------------------------------------------------


@dataclass
class _Stage:
    """The user's loop as `drive` sees it: his code, and nothing of his world."""

    loop: MainLoop[Any, Any]
    _bus: InProcessEventBus = field(default_factory=InProcessEventBus)
    beside: None = None
    # What the loop is asked to do.
    asked: Any = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self.loop, name)

    def _build_resources(self) -> Mapping[str, Any] | None:
        return None  # what files were is on record


class _Execution:
    """One loop, run again on one record."""

    def __init__(
        self, ledger: Ledger, run: UUID, records: Iterator[Record], loop: MainLoop[Any, Any]
    ) -> None:
        self._run = run
        self._stage = _Stage(loop)
        self._session = loop._session()
        self._recording = Recording(records)
        self._journal = _Journal(ledger, run, self._recording, self._session, self._stage)
        self._journal.answers = RecordedAnswers(self._journal)
        self._attempts = 0

    def run(self) -> Replayed:
        try:
            started = self._begin()
            while started is not None:
                self._attempt(started)
                if not self._goes_on():
                    break
        except RecordOver:
            pass
        except Diverged as parted:
            return self._replayed(parted.divergence)
        return self._replayed(None)

    def _replayed(self, divergence: Divergence | None) -> Replayed:
        journal = self._journal
        version = journal.followed if divergence is None else divergence.version - 1
        state = journal._known.run
        return Replayed(self._run, "execute", version, state, divergence, self._attempts)

    def _begin(self) -> RunStarted | None:
        """Take the run's beginning, and what it goes on from if it is a fork."""
        journal, started = self._journal, None
        while (record := self._recording.peek()) is not None:
            if isinstance(record.event, RunStarted):
                started = record.event
            elif str(record.run_id) == str(self._run):
                break
            journal.take()
        journal.take_inputs()
        if started is None:
            return None
        request_from(
            str(self._run), self._stage.request_type, started.request_type, started.request
        )
        self._session.session_id = started.session_id or self._session.session_id
        return journal.progress.started

    def _attempt(self, started: RunStarted) -> None:
        self._attempts += 1
        stage: Any = self._stage
        request = request_from(
            str(self._run), stage.request_type, started.request_type, started.request
        )
        stage.asked = request
        try:
            # What create_session did is compared as soon as the run has anything of it.
            self._session.attach(self._journal)
            drive(
                Assignment(
                    loop=stage,
                    run_id=self._run,
                    journal=self._journal,
                    session=self._session,
                    request=request,
                    started=started,
                    state=ExecutionState(session=self._session, resources={}),
                )
            )
        except AttemptOver:
            pass
        except (RecordOver, Diverged):
            raise
        except Exception:
            # It failed, or waits: as recorded, or it would have parted there.
            return

    def _goes_on(self) -> bool:
        """Take what was recorded between two attempts; whether there is another one."""
        journal = self._journal
        journal.take_inputs()
        record = self._recording.peek()
        if record is None:
            return False
        if is_resumed(record):
            resumed = journal.take().event
            assert isinstance(resumed, RunResumed)
            journal.take_inputs()
            return True
        if journal.state.summary.status in ("completed", "failed", "abandoned", "parked"):
            journal.take()  # what others noted about it afterwards
            return self._goes_on()
        raise Diverged(Divergence.of_a_step(record, "the end of the run"))


class _Journal(ReplayJournal):
    """What finding causes needs to know, beside what is compared."""

    def __init__(
        self,
        ledger: Ledger,
        run: UUID,
        recording: Recording,
        session: Session,
        stage: _Stage,
    ) -> None:
        super().__init__(ledger, run, recording, session.declarations)
        self._session = session
        self._stage = stage
        self._touched: dict[str, None] = {}

    @property
    def trying(self) -> Trying:
        return self

    def take(self) -> Record:
        record = super().take()
        if isinstance(record.event, SliceEventApplied):
            self._touched[record.event.slice] = None
        elif isinstance(record.event, CheckpointReached):
            self._touched = {}
        return record

    @property
    def prompt_text(self) -> str | None:
        return None if self.evaluation is None else self.evaluation.rendered.text

    def prompt_text_again(self) -> str | None:
        if self.evaluation is None:
            return None
        try:
            prompt = self._stage.loop.create_prompt(self._stage.asked)
            return self.evaluation.rendering_of(prompt).text
        except Exception:
            return None

    @property
    def slices_touched(self) -> Sequence[str]:
        return tuple(self._touched)

    def slice_value(self, name: str) -> Any:
        return [to_plain(one) for one in self.known.run.slices.all(name)]

    def folds_alike(self) -> bool:
        version = self.known.version
        digests = {self.folded(version).run.state_digest for _ in range(2)}
        return digests == {self.known.run.state_digest}

    def opening_again(self) -> Sequence[Event]:
        try:
            session = self._stage.loop._session()
            return changes.recorded_by_session(session.journal.records())
        except Exception:
            return ()

    def system_text(self) -> str | None:
        record = self.recording.later(MessageAppended)
        event = record.event if record is not None else None
        if not isinstance(event, MessageAppended) or event.message.role != "system":
            return None
        return event.message.content
