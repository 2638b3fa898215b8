"""How far a run's loop is: what `decide` looks at beside the views that people look at.

A fold like any other. Everything that the loop remembers from one step to the next is here or
in the views, so that a loop in another process goes on as if it had never stopped.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, final
from uuid import UUID

import msgspec

from turnledger.ledger import (
    CheckpointStored,
    EvaluationFinished,
    EvaluationStarted,
    EvaluationSuperseded,
    MessageAppended,
    ModelCalled,
    ModelCallFailed,
    ModelReplied,
    Record,
    RunResumed,
    RunStarted,
    SliceEventApplied,
    ToolCallCompleted,
    ToolCallFailed,
)
from turnledger.projections import Projection
from turnledger.projections.persistent.hashed import OrderedMap
from turnledger.projections.projection import as_json

change = msgspec.structs.replace
# The call id of session changes that were made while the prompt was.
CREATE_PROMPT = "create_prompt"


@final
class EvaluationProgress(msgspec.Struct, frozen=True, kw_only=True):
    """One evaluation: what it is of, and what was said in it so far."""

    evaluation_id: str
    prompt_ns: str
    prompt_key: str
    prompt_digest: str = ""
    tools_digest: str = ""
    adapter: str = ""
    # The number of the next message, and of the last turn.
    sequence: int = 0
    turn: int = 0
    # The last message, if the assistant said it and everything it asked for is answered.
    replied: bool = False
    reply_id: UUID | None = None
    reply_text: str = ""
    calls: int = 0
    # Requests that went out for the next turn, and failed ones among them.
    requests: int = 0
    finished: bool = False
    superseded: bool = False
    output: Any = None
    # What the provider sent beyond its messages, by the place of the turn in the history.
    provider_data: OrderedMap[Any] = OrderedMap()
    # What it parsed of the last reply.
    parsed: Any = None
    model: str = ""


@final
class ProgressState(msgspec.Struct, frozen=True, kw_only=True):
    """The evaluation that the loop is in, and counts over the whole run."""

    started: RunStarted | None = None
    evaluation: EvaluationProgress | None = None
    evaluations: int = 0
    expansions: int = 0
    tool_calls_completed: int = 0
    # The version that the run's prompt was made from, once anything came of that.
    prompted_at: int | None = None
    # Replies and tools so far, and how many there were when the run was last resumed.
    steps: int = 0
    steps_at_resume: int | None = None
    attempts: int = 0

    @property
    def next_attempt(self) -> int:
        """The number of the next attempt: from 1 again if the last one got anywhere."""
        return self.attempts + 1 if self.steps_at_resume == self.steps else 1

    def of(self, evaluation_id: str) -> EvaluationProgress | None:
        """The evaluation if it is the one that the loop is in."""
        found = self.evaluation
        return found if found is not None and found.evaluation_id == evaluation_id else None


class Progress(Projection[ProgressState]):
    """Folds what a loop has done so far."""

    name = "progress"
    reads = (
        RunStarted,
        EvaluationStarted,
        MessageAppended,
        ModelCalled,
        ModelCallFailed,
        ModelReplied,
        EvaluationFinished,
        EvaluationSuperseded,
        ToolCallCompleted,
        ToolCallFailed,
        CheckpointStored,
        RunResumed,
        SliceEventApplied,
    )

    def initial(self) -> ProgressState:
        return ProgressState()

    def apply(self, state: ProgressState, record: Record) -> ProgressState:
        event = record.event
        match event:
            case RunStarted():
                return _begun(state, event)
            case EvaluationStarted():
                # What was said in it before it is begun was brought along.
                evaluation = change(
                    state.of(event.evaluation_id) or _nothing_said(event),
                    prompt_digest=event.prompt_digest,
                    tools_digest=event.tools_digest,
                    adapter=event.adapter,
                )
                at = record.version - 1 if state.prompted_at is None else state.prompted_at
                return change(
                    state,
                    evaluation=evaluation,
                    evaluations=state.evaluations + 1,
                    prompted_at=at,
                )
            case MessageAppended():
                return _said(state, event)
            case ToolCallCompleted():
                done = state.tool_calls_completed + 1
                return change(state, tool_calls_completed=done, steps=state.steps + 1)
            case ToolCallFailed():
                return change(state, steps=state.steps + 1)
            case CheckpointStored():
                return change(state, tool_calls_completed=event.tool_calls_completed)
            case SliceEventApplied():
                if state.prompted_at is None and event.call_id == CREATE_PROMPT:
                    return change(state, prompted_at=record.version - 1)
                return state
            case RunResumed():
                return change(state, attempts=event.attempt, steps_at_resume=state.steps)
            case _:
                return _about_an_evaluation(state, event)

    def to_json(self, state: ProgressState) -> Any:
        found = state.evaluation
        shown = None
        if found is not None:
            shown = {
                "evaluation_id": found.evaluation_id,
                "turn": found.turn,
                "sequence": found.sequence,
                "replied": found.replied,
                "finished": found.finished,
                "superseded": found.superseded,
                "requests": found.requests,
            }
        return {
            "evaluation": as_json(shown),
            "evaluations": state.evaluations,
            "expansions": state.expansions,
            "tool_calls_completed": state.tool_calls_completed,
        }


def _begun(state: ProgressState, event: RunStarted) -> ProgressState:
    """A fork goes on with the conversation, a continuation with nothing of it."""
    if event.kind != "fork":
        return ProgressState(started=event)
    first = state.started
    if first is not None and event.request is None:
        # What was asked for is the parent's to say.
        event = change(
            event,
            request_id=first.request_id,
            request_type=first.request_type,
            request=first.request,
            requested_at=first.requested_at,
            session_id=first.session_id,
        )
    return change(state, started=event, tool_calls_completed=0)


def _nothing_said(event: EvaluationStarted) -> EvaluationProgress:
    return EvaluationProgress(
        evaluation_id=event.evaluation_id,
        prompt_ns=event.prompt_ns,
        prompt_key=event.prompt_key,
    )


def _said(state: ProgressState, event: MessageAppended) -> ProgressState:
    message = event.message
    found = state.of(message.evaluation_id) or EvaluationProgress(
        # A conversation that was brought along: a snapshot's, say.
        evaluation_id=message.evaluation_id,
        prompt_ns=message.prompt_ns,
        prompt_key=message.prompt_key,
    )
    by_assistant = message.role == "assistant"
    evaluation = change(
        found,
        sequence=max(found.sequence, message.sequence + 1),
        turn=max(found.turn, message.turn),
        replied=by_assistant,
        reply_id=message.message_id if by_assistant else found.reply_id,
        calls=found.calls + (len(message.tool_calls) if by_assistant else 0),
        reply_text=message.content if by_assistant else found.reply_text,
        requests=0 if by_assistant else found.requests,
        parsed=None if by_assistant else found.parsed,
        # Whoever says something after the answer wants another one.
        finished=found.finished and message.role != "user",
    )
    return change(state, evaluation=evaluation)


def _about_an_evaluation(state: ProgressState, event: Any) -> ProgressState:
    found = state.of(event.evaluation_id)
    expansions = state.expansions + isinstance(event, EvaluationSuperseded)
    if found is None:
        return change(state, expansions=expansions)
    match event:
        case ModelCalled():
            found = change(found, requests=max(found.requests + 1, event.attempt))
        case ModelReplied():
            found = _replied(found, event)
        case EvaluationFinished():
            found = change(found, finished=True, output=event.output)
        case EvaluationSuperseded():
            found = change(found, superseded=True)
    steps = state.steps + isinstance(event, ModelReplied)
    return change(state, evaluation=found, expansions=expansions, steps=steps)


def _replied(found: EvaluationProgress, event: ModelReplied) -> EvaluationProgress:
    data = event.provider_data if isinstance(event.provider_data, dict) else {}
    kept = found.provider_data
    if data.get("provider") is not None and type(data.get("place")) is int:
        kept = kept.put(str(data["place"]), data["provider"])
    return change(found, provider_data=kept, parsed=data.get("parsed"), model=event.model)


def provider_data(reply_data: Any, parsed: Any, place: int) -> Any:
    """What a ModelReplied holds of a reply beyond its message; None if there is nothing.

    `place` is that of the reply's turn in the history: where the data belongs when it is sent
    back.
    """
    kept = {"provider": reply_data, "parsed": parsed}
    said = {name: value for name, value in kept.items() if value is not None}
    if reply_data is not None:
        said["place"] = place
    return said or None


class ByPlace(Mapping[int, Any]):
    """What providers sent beyond their messages: looked up, and not copied for every request."""

    def __init__(self, kept: OrderedMap[Any]) -> None:
        self._kept = kept

    def __getitem__(self, place: int) -> Any:
        found = self._kept.get(str(place))
        if found is None:
            raise KeyError(place)
        return found

    def __iter__(self) -> Iterator[int]:
        return (int(place) for place, _ in self._kept.items())

    def __len__(self) -> int:
        return self._kept.size
