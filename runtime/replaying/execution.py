"""Re-execution: the user's loop runs again on a recorded run, attempt by attempt.

An attempt is what one process did: a run that was interrupted and recovered has several. Within
an attempt every step of the loop is compared; what was recorded between two attempts is taken as
it was. So is all that came before a person chose how the run goes on under a changed prompt, if
this program does not have the prompt of that time. The user's code runs, but no effect of it
reaches the world.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Sequence
from copy import copy
from dataclasses import replace
from itertools import count
from typing import Any
from uuid import UUID

import msgspec

from turnledger.ledger import (
    CheckpointReached,
    EvaluationStarted,
    Event,
    InvalidInputError,
    Ledger,
    MessageAppended,
    Record,
    RunResumed,
    RunStarted,
    SliceEventApplied,
    StateRestored,
    TurnledgerError,
    blob_name,
)
from turnledger.projections import RunState
from turnledger.runtime.agent.prompts.output import OutputSpec
from turnledger.runtime.agent.prompts.prompt import Prompt
from turnledger.runtime.agent.schema.values import to_plain
from turnledger.runtime.bus import InProcessEventBus
from turnledger.runtime.checkpoints.execution_state import ExecutionState
from turnledger.runtime.journal.loop_progress import BY_PROMPT, CREATE_PROMPT
from turnledger.runtime.loop.evaluation import evaluate_with
from turnledger.runtime.loop.host import LoopHost
from turnledger.runtime.loop.perform.record_result import checkpoint
from turnledger.runtime.loop.run import RunWork, run_to_end
from turnledger.runtime.main_loop import MainLoop
from turnledger.runtime.recovery.recover import has_begun
from turnledger.runtime.recovery.request_types import request_from
from turnledger.runtime.replaying.cursor import RecordCursor
from turnledger.runtime.replaying.divergence import Divergence
from turnledger.runtime.replaying.divergence_cause import Probe
from turnledger.runtime.replaying.effects import RecordedEffects
from turnledger.runtime.replaying.journal import (
    AttemptOver,
    Diverged,
    RecordOver,
    ReplayJournal,
    TakenCall,
    without_ids_and_times,
)
from turnledger.runtime.replaying.user_code import calling_users_code
from turnledger.runtime.session import changes
from turnledger.runtime.session.overlay import Overlay
from turnledger.runtime.session.session import Session

_CHANGES = (SliceEventApplied, StateRestored, MessageAppended)
_OVER = ("completed", "failed", "abandoned", "parked")


class Execution:
    """One re-execution of one run."""

    def __init__(
        self, ledger: Ledger, run: UUID, records: Iterator[Record], loop: MainLoop[Any, Any]
    ) -> None:
        self.attempts = 0
        # The evaluations before the run's last choice about a changed prompt, if this program's
        # is another: they were taken as recorded.
        self.not_compared: tuple[str, ...] = ()
        self._run = run
        # The user's code without its listeners, resources and checkpoint files: listeners heard
        # of the run when it was live, and what files were is on record.
        self._host = replace(
            loop.loop_host, ledger=ledger, bus=InProcessEventBus(), resources=dict, backend=None
        )
        with calling_users_code(ledger.redact_text):
            self._session = self._host.create_session()
        if self._session.was_attached:
            raise InvalidInputError(
                "The loop keeps a session that was in a run already, and a replay would move it. "
                "Make another loop for the replay."
            )
        self._cursor = RecordCursor(records)
        self._journal = _Journal(ledger, run, self._cursor, self._session, self._host)
        effects = RecordedEffects(self._journal)
        self._host = replace(
            self._host,
            evaluate=evaluate_with(effects, self._host.adapter),
            prepare=effects.prepare,
            optimize=effects.optimize,
        )
        # What create_session recorded, if the run has to be handed it.
        self._session_changes: Sequence[Event] = ()

    @property
    def taken_calls(self) -> tuple[TakenCall, ...]:
        """Calls of earlier attempts under another adapter or model, taken as recorded."""
        return tuple(self._journal.taken_calls)

    @property
    def recorded_prompts(self) -> tuple[str, ...]:
        """Evaluations whose prompt was taken from the record."""
        return tuple(self._journal.recorded_prompts)

    @property
    def last_known(self) -> RunState:
        """The state where the replay ended."""
        return self._journal.last_known().run

    def run(self) -> Divergence | None:
        """Follow the record to its end; a divergence if it ends before that."""
        try:
            started = self._begin()
            goes_on = started is not None and (started.kind != "fork" or self._goes_on())
            while goes_on:
                try:
                    self._attempt()
                    goes_on = self._goes_on()
                except Diverged:
                    if not self._take_to_choice():
                        raise
                    goes_on = self._goes_on()
        except RecordOver:
            return None
        except Diverged as stopped:
            return stopped.divergence
        return None

    def _begin(self) -> RunStarted | None:
        """Take the run's first event, and all of the run that it goes on from."""
        journal, started = self._journal, None
        while (record := self._cursor.peek()) is not None:
            if isinstance(record.event, RunStarted):
                started = record.event
            elif record.run_key == str(self._run):
                break
            journal.take()
        if started is None:
            return None
        journal.take_inputs()
        if started.kind == "fork":
            # Its first events were written by the fork itself (an edit, say). A recovery goes
            # on from there, and that is what is compared.
            while _next(journal) is not None and not self._cursor.ends_an_attempt():
                journal.take()
        elif started.kind != "run":
            self._take_changes_before()
        self._session.session_id = started.session_id or self._session.session_id
        return started

    def _take_changes_before(self) -> None:
        """Take what was changed in the session between its last run and this one.

        Code outside of the loop did that, and it does not run again.
        """
        journal = self._journal
        while isinstance(event := _next(journal), _CHANGES):
            if isinstance(event, SliceEventApplied) and event.call_id in BY_PROMPT:
                return  # the loop does that again
            journal.take()

    def _attempt(self) -> None:
        self.attempts += 1
        journal, host = self._journal, self._host
        started = journal.progress.started
        assert started is not None
        journal.request = request_from(
            str(self._run), host.request_type, started.request_type, started.request
        )
        try:
            self._attach(started)
            run_to_end(
                RunWork(
                    host=host,
                    run_id=self._run,
                    journal=journal,
                    session=self._session,
                    request=journal.request,
                    started=started,
                    state=ExecutionState(session=self._session, resources={}),
                )
            )
        except AttemptOver:
            pass
        except (RecordOver, Diverged):
            raise
        except SystemExit as error:
            journal.raise_if_users(error, f"SystemExit: {error}")
            raise
        except Exception:
            # It failed, or waits: as recorded, or `Diverged` would have been raised.
            return

    def _attach(self, started: RunStarted) -> None:
        """Attach the session; what create_session recorded is compared when the run begins."""
        journal = self._journal
        self._session_changes = self._session.attach(journal) or self._session_changes
        if started.kind == "fork" and not has_begun(journal):
            journal.add(*self._session_changes)

    def _goes_on(self) -> bool:
        """Take what was recorded between two attempts; whether another attempt follows."""
        journal = self._journal
        while (event := _next(journal)) is not None:
            latest = journal.state.checkpoints.latest
            if isinstance(event, RunResumed):
                journal.take()
                journal.take_inputs()
                if latest is not None and latest.is_users:
                    self._go_back(latest.phase)
                return True
            is_over = journal.state.summary.status in _OVER
            if not is_over and not self._cursor.ends_an_attempt():
                journal.diverged("the end of the run")
            journal.take()  # it was abandoned, or something was appended after its end
        return False

    def _take_to_choice(self) -> bool:
        """Take what came before the run's last choice about a changed prompt; whether there is one.

        The program that began the run had another prompt: what it did is taken as it was, and
        this one is compared from the choice on.
        """
        journal = self._journal
        at = self._last_choice()
        underway = journal.last_known().progress.evaluation
        if at < self._next_version():
            return False
        taken = [underway.evaluation_id] if underway is not None and underway.goes_on else []
        while self._next_version() < at:
            event = journal.take().event
            if isinstance(event, EvaluationStarted):
                taken.append(event.evaluation_id)
        self.not_compared = tuple(dict.fromkeys(taken))
        return True

    def _last_choice(self) -> int:
        """The version of the last RunResumed that says how a changed prompt is dealt with."""
        found = 0
        for record in self._journal.ledger.read(self._run):
            if record.tag == RunResumed.tag:
                assert isinstance(record.event, RunResumed)
                found = record.version if record.event.prompt else found
        return found

    def _next_version(self) -> int:
        record = self._cursor.peek()
        return record.version if record is not None else sys.maxsize

    def _go_back(self, phase: str) -> None:
        """Take what recovery restored from a checkpoint that a user saved."""
        journal = self._journal
        while not isinstance(journal.expected().event, CheckpointReached):
            journal.take()
        journal.add(checkpoint(journal, phase))


def _next(journal: ReplayJournal) -> Event | None:
    journal.take_inputs()
    record = journal.cursor.peek()
    return None if record is None else record.event


class _Journal(ReplayJournal):
    """The journal of a re-execution, which is also the `Probe` for the cause of a divergence."""

    def __init__(
        self,
        ledger: Ledger,
        run: UUID,
        cursor: RecordCursor,
        session: Session,
        host: LoopHost,
    ) -> None:
        super().__init__(ledger, run, cursor, session.declarations)
        self._session = session
        self._host = host
        # The request, for calling create_prompt once more.
        self.request: Any = None
        # The slices that were changed since the last checkpoint, in order.
        self._touched: dict[str, None] = {}

    @property
    def probe(self) -> Probe:
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

    @property
    def last_model(self) -> str:
        call = self.last_call[1]
        return "" if call is None else f"{call.adapter} {call.model}".strip()

    @property
    def output(self) -> OutputSpec[Any] | None:
        return None if self.evaluation is None else self.evaluation.rendered.output

    def prompt_differs_from_itself(self) -> bool:
        evaluation, again = self.evaluation, self._prompt_again()
        if evaluation is None or again is None:
            return False
        try:
            return evaluation.rendering_of(again[0]).digest != evaluation.rendered.digest
        except Exception:
            return False

    def prompt_digest_without(self, setting: str) -> str | None:
        evaluation = self.evaluation
        if evaluation is None:
            return None
        template = copy(evaluation.prompt.template)
        setattr(template, setting, None)
        try:
            return evaluation.rendering_of(replace(evaluation.prompt, template=template)).digest
        except Exception:
            return None

    def prompt_changes_again(self) -> Sequence[Event] | None:
        again = self._prompt_again()
        return None if again is None else again[1]

    def _prompt_again(self) -> tuple[Prompt[Any], Sequence[Event]] | None:
        """The prompt made once more and what that records; None if create_prompt raises."""
        at = self.progress.prompted_at
        overlay = Overlay(self, CREATE_PROMPT, known=self.folded(at) if at else None)
        try:
            with self._session.scope(overlay):
                prompt = self._host.create_prompt(self.request)
        except Exception:
            overlay.close()
            return None
        return prompt, self._redacted(overlay.close())

    def _redacted(self, events: Iterable[Event]) -> list[Event]:
        """Events as they would be recorded."""
        return [self.ledger.redact(event) for event in events]

    @property
    def slices_touched(self) -> Sequence[str]:
        return tuple(self._touched)

    def slice_value(self, name: str) -> Any:
        return [to_plain(one) for one in self.known.run.slices.all(name)]

    def folds_alike(self) -> bool:
        version = self.known.version
        digests = {self.folded(version).run.state_digest for _ in range(2)}
        return digests == {self.known.run.state_digest}

    def session_again(self) -> Sequence[Event] | None:
        try:
            session = self._host.create_session()
            return self._redacted(changes.recorded_by_session(session.journal.records()))
        except Exception:
            return None

    def system_text(self) -> str | None:
        record = self.cursor.later(MessageAppended)
        event = record.event if record is not None else None
        if not isinstance(event, MessageAppended) or event.message.role != "system":
            return None
        return event.message.content

    def opening_messages(self) -> tuple[list[Any], list[Any]]:
        recorded: list[Any] = []
        for place in count(2):  # after the beginning of the evaluation and the system text
            record = self.cursor.peek(place)
            if record is None or not isinstance(record.event, MessageAppended):
                break
            recorded.append(_message_content(record.event))
        try:
            made = self.evaluation.opening_messages() if self.evaluation is not None else []
        except Exception:
            made = []
        return recorded, [_message_content(one) for one in made]

    def tool_spec(self, blob: str) -> Any:
        made = self.evaluation.rendered.specs if self.evaluation is not None else ()
        content = next((one for one in made if blob_name(one) == blob), None)
        if content is None and not blob:
            return None  # a record of an earlier program
        try:
            return msgspec.json.decode(self.ledger.blob(blob) if content is None else content)
        except (TurnledgerError, ValueError):
            return None  # its blob is missing or damaged


def _message_content(event: MessageAppended) -> Any:
    """A message as JSON data, without the ids and times that every execution makes itself."""
    plain: dict[str, Any] = to_plain(without_ids_and_times(event).message)
    plain.pop("evaluation_id", None)
    return plain
