"""Partly live effects: chosen parts are live, all others have their recorded outcome.

The loop is the user's own, and its events are written to a fork. The handler of a live tool is
called; the recorded outcome of any other is added to the fork. The model is called, or its
recorded reply is used.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn, TypeVar

from msgspec.structs import replace

from turnledger.ledger import (
    EvaluationSuperseded,
    Event,
    MessageAppended,
    ModelCallFailed,
    ResourceSnapshotted,
    SliceEventApplied,
    ToolCallFailed,
)
from turnledger.projections import ToolCallView
from turnledger.runtime.agent.models.request import Reply, Request
from turnledger.runtime.agent.models.retry import FailedAttempt
from turnledger.runtime.agent.tools.call import Invocation, PreparedCall
from turnledger.runtime.checkpoints.filesystem import FilesystemSnapshot
from turnledger.runtime.errors import DeadlineExceededError, EvaluationPhase, TurnLimitExceededError
from turnledger.runtime.journal.journal import Addition
from turnledger.runtime.journal.known import Known
from turnledger.runtime.loop.context import EvaluationContext
from turnledger.runtime.loop.effects import Effects, ModelTurn
from turnledger.runtime.loop.live_effects import LiveTurn, check_turns, may_ask_again
from turnledger.runtime.loop.perform.approval import ask_approval, requested
from turnledger.runtime.loop.perform.failures import RecordedError
from turnledger.runtime.loop.perform.record_result import add_result
from turnledger.runtime.loop.perform.run_tool import ended_by, prepared_call
from turnledger.runtime.loop.perform.run_tools import ParallelCalls, run_tools
from turnledger.runtime.replaying.effects import expansion_of
from turnledger.runtime.replaying.live.outcomes import Outcome, RecordedOutcomes, Replied
from turnledger.runtime.replaying.live.selection import MODEL, TOOL, Live, Part
from turnledger.runtime.session.overlay import Overlay

OutputT = TypeVar("OutputT")


@dataclass(frozen=True)
class Missing:
    """An outcome that is not available: the part that would have to be live to get it.

    `is_later` if it is recorded after the version at which the replay is to stop.
    """

    live: str
    asked: str
    is_later: bool


class Stopped(BaseException):
    """Ends the replay: the fork needs an outcome that is not available."""

    def __init__(self, missing: Missing) -> None:
        super().__init__(missing.asked)
        self.missing = missing


class PartlyLiveEffects:
    """`Effects` of a fork: some live, the others from the record."""

    def __init__(self, live: Live, outcomes: RecordedOutcomes, until: int | None) -> None:
        self._live = live
        self._outcomes = outcomes
        self._until = until
        # The effects whose outcome came from the record.
        self.recorded: list[Part] = []

    def begin(self, context: EvaluationContext[OutputT]) -> EvaluationContext[OutputT]:
        return dataclasses.replace(context, deadline=None)  # a deadline was for the time of the run

    def check_limits(
        self, context: EvaluationContext[Any], phase: EvaluationPhase, *, reserve: int = 0
    ) -> None:
        """No limits, as recorded outcomes take no time and no tokens, but for a live model's turns.

        TurnLimitExceededError ends the fork like any other failure.
        """
        if self._live.model:
            try:
                check_turns(context, phase)
            except TurnLimitExceededError as error:
                context.journal.commit()
                raise context.failed(str(error), "budget") from error

    # --- the model ---

    def model_turn(self, context: EvaluationContext[Any], request: Request) -> ModelTurn:
        if self._live.model:
            return LiveTurn(context, request)
        found = self._outcomes.reply(context.journal.progress.evaluations, request.turn)
        if found is None or self._is_later(found.version):
            asked = f"the model's reply in turn {request.turn}"
            self._stop(context, Missing(MODEL, asked, found is not None))
        self.recorded.append(Part(MODEL, request.turn, recorded=found.version))
        return _RecordedTurn(found)

    # --- tools ---

    def ask_approval(self, context: EvaluationContext[Any], calls: Sequence[ToolCallView]) -> None:
        """Ask live tools; for other calls, take what was recorded, and what a person decided.

        An approval was for the run and not for the fork: a call that is live waits for its own.
        """
        for call in calls:
            if call.name in self._live.tools or not _is_ready(context, call):
                ask_approval(context, [call])
                continue
            found = self._available(context, call, self._outcomes.find(call))
            needed = found.requested is not None and found.requested.needed
            context.journal.add(requested(call, needed=needed))
            if found.approval is not None:
                decided = replace(found.approval, call_id=call.call_id, attempt=call.attempts)
                context.journal.add(decided)

    def run_tools(self, context: EvaluationContext[Any], calls: Sequence[ToolCallView]) -> None:
        """Call the handlers of live tools; the other calls end as they did."""
        width = min(context.adapter.parallel_tools, len(calls))
        chosen = calls if width > 1 else calls[:1]
        # All outcomes are looked up before a call is started: one without an outcome must not
        # be left in doubt.
        given = {
            call.number: self._outcome(context, call)
            for call in chosen
            if call.name not in self._live.tools and _is_ready(context, call)
        }
        if not given:
            run_tools(context, self, chosen)
        else:
            _PartlyGiven(context, self, chosen, width, given, self.recorded).run()

    def asks_again(self, context: EvaluationContext[Any]) -> bool:
        return may_ask_again(context)

    def _outcome(self, context: EvaluationContext[Any], call: ToolCallView) -> Outcome:
        return self._available(context, call, self._outcomes.take(call))

    def _available(
        self, context: EvaluationContext[Any], call: ToolCallView, found: Outcome | None
    ) -> Outcome:
        """The outcome of a call; stops if there is none that may be used."""
        if found is None or self._is_later(found.version):
            asked = f"the outcome of the call {call.call_id}, {call.name} {call.arguments}"
            self._stop(context, Missing(TOOL + call.name, asked, found is not None))
        return found

    def _is_later(self, version: int) -> bool:
        return self._until is not None and version > self._until

    def _stop(self, context: EvaluationContext[Any], missing: Missing) -> NoReturn:
        context.journal.commit()
        raise Stopped(missing)


class _RecordedTurn:
    """A turn of the model with its recorded reply, or the failure that ended the run."""

    def __init__(self, found: Replied) -> None:
        self._came = found.came

    def reply(self, attempt: int) -> Reply:
        if isinstance(self._came, ModelCallFailed):
            raise RecordedError(self._came)
        return self._came

    def run_attempts(
        self, attempt: Callable[[int], None], failed: Callable[[FailedAttempt], None]
    ) -> None:
        try:
            attempt(1)
        except Exception as error:
            failed(FailedAttempt(1, error, getattr(error, "retryable", False), None))
            raise


class _PartlyGiven(ParallelCalls):
    """The calls of a turn, some of which have a recorded outcome: those end first.

    All are started in order, and the recorded ones end in the recorded order: the fork has the
    same shape as any run.
    """

    def __init__(
        self,
        context: EvaluationContext[Any],
        effects: Effects,
        calls: Sequence[ToolCallView],
        width: int,
        given: Mapping[int, Outcome],
        log: list[Part],
    ) -> None:
        super().__init__(context, effects, calls, width)
        self._given = given
        self._log = log
        self._known: list[ToolCallView] = []
        self._held: list[tuple[ToolCallView, PreparedCall, Overlay]] = []

    def _submit(self, call: ToolCallView, ready: PreparedCall, overlay: Overlay) -> None:
        if call.number in self._given:
            overlay.close()
            self._known.append(call)
        else:
            self._held.append((call, ready, overlay))

    def _take_ended(self) -> None:
        known, held = self._known, self._held
        self._known, self._held = [], []
        for call in sorted(known, key=lambda one: self._given[one.number].version):
            outcome = self._given[call.number]
            self._log.append(Part(TOOL + call.name, call.turn, call.call_id, outcome.version))
            try:
                _give(self._context, call, outcome)
            except Exception as ending:
                # The calls that run in parallel are recorded before it ends the turn.
                self._ending = self._ending or ending
        for one in held:
            super()._submit(*one)
        if not known:
            super()._take_ended()


def _is_ready(context: EvaluationContext[Any], call: ToolCallView) -> bool:
    """Whether the call can be made; the loop itself refuses one with wrong arguments."""
    return not isinstance(prepared_call(context, call), Invocation)


def _give(context: EvaluationContext[Any], call: ToolCallView, outcome: Outcome) -> None:
    """Add the recorded outcome of a call that was started."""
    event = outcome.event
    call = replace(call, edited_arguments="")  # the recorded text tells them already
    if isinstance(event, EvaluationSuperseded):
        ended_by(context, call, expansion_of(event))
        return
    first = [_again(one, call, outcome.evaluation_id) for one in outcome.changes]
    if not isinstance(event, ToolCallFailed):
        add_result(context, call, outcome.text, value=event.value, first=first)
    elif event.error_type == DeadlineExceededError.__name__:
        ended_by(context, call, DeadlineExceededError(event.error_message))
    else:
        error = (event.error_type, event.error_message)
        add_result(context, call, outcome.text, error=error, first=first)
    resources, journal = context.resources, context.journal
    if resources is not None and any(isinstance(e, ResourceSnapshotted) for e in outcome.changes):
        # Tools that run after it find the files that it left.
        resources.restore_recorded(journal.known, journal.blob)


def _again(event: Event, call: ToolCallView, evaluation_id: str) -> Addition:
    """A recorded change of a tool, as a change of this call in the fork."""
    match event:
        case SliceEventApplied():
            return replace(event, call_id=call.call_id)
        case MessageAppended() if event.message.evaluation_id == evaluation_id:
            return lambda known: _renumbered(known, event, call)
        case ResourceSnapshotted() if event.digest:
            return lambda known: _digested(known, event)
        case _:
            return event


def _renumbered(known: Known, event: MessageAppended, call: ToolCallView) -> MessageAppended:
    progress = known.progress.of(call.evaluation_id)
    sequence = progress.sequence if progress is not None else event.message.sequence
    message = replace(event.message, evaluation_id=call.evaluation_id, sequence=sequence)
    return MessageAppended(message=message)


def _digested(known: Known, event: ResourceSnapshotted) -> ResourceSnapshotted:
    files = {**known.session.resources.get(event.resource, {}), **event.files}
    left = {path: name for path, name in files.items() if path not in event.removed}
    return replace(event, digest=FilesystemSnapshot(left).digest)
