"""Internal projection of the loop's progress: its evaluation, turn, requests and attempts.

`decide` reads it beside the public views. The loop remembers nothing else from one step to the
next, so that a loop in another process goes on as if this one had never stopped.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, final
from uuid import UUID

import msgspec

from turnledger.ledger import (
    ApprovalDecided,
    CheckpointStored,
    EvaluationFinished,
    EvaluationStarted,
    EvaluationSuperseded,
    MessageAppended,
    ModelCalled,
    ModelCallFailed,
    ModelReplied,
    OutputRejected,
    Record,
    RunFailed,
    RunResumed,
    RunStarted,
    SliceEventApplied,
    ToolCallCompleted,
    ToolCallDecided,
    ToolCallFailed,
)
from turnledger.ledger.events.types import PromptChoice
from turnledger.projections import Projection
from turnledger.projections.persistent.hashed import OrderedMap
from turnledger.projections.projection import as_json
from turnledger.runtime.agent.prompts.override_texts import RecordedPrompt

change = msgspec.structs.replace
# The call ids of session changes that `create_prompt` made, and of those by which the loop had a
# workspace digest written for the prompt.
CREATE_PROMPT = "create_prompt"
OPTIMIZE = "optimize"
BY_PROMPT = frozenset({CREATE_PROMPT, OPTIMIZE})


@final
class EvaluationProgress(msgspec.Struct, frozen=True, kw_only=True):
    """One evaluation: its prompt, its turns so far, and the last reply."""

    evaluation_id: str
    prompt_ns: str
    prompt_key: str
    prompt_digest: str = ""
    tools_digest: str = ""
    adapter: str = ""
    # The prompt as it was recorded, and its text; None in a restored conversation.
    started: EvaluationStarted | None = None
    system: str = ""
    # The number of the next message, and of the last turn.
    sequence: int = 0
    turn: int = 0
    # Whether the last message is the assistant's: no tool result or user message follows it.
    replied: bool = False
    reply_id: UUID | None = None
    reply_text: str = ""
    calls: int = 0
    # Requests that went out for the next turn, and failed ones among them.
    requests: int = 0
    # Replies that could not be parsed, and were asked for again.
    rejections: int = 0
    finished: bool = False
    superseded: bool = False
    output: Any = None
    # What the provider sent beyond its messages (reasoning signatures, say), by the place of
    # the turn in the history.
    provider_data: OrderedMap[Any] = OrderedMap()
    # The structured output that the provider parsed of the last reply.
    parsed: Any = None
    model: str = ""

    @property
    def goes_on(self) -> bool:
        """Whether it is to be gone on with: it has begun, and was not superseded."""
        return not self.superseded and self.sequence > 0

    @property
    def recorded(self) -> RecordedPrompt | None:
        """The prompt that the evaluation was begun with."""
        return None if self.started is None else RecordedPrompt.of(self.started, self.system)


@final
class ProgressState(msgspec.Struct, frozen=True, kw_only=True):
    """The evaluation that the loop is in, and counts over the whole run."""

    started: RunStarted | None = None
    evaluation: EvaluationProgress | None = None
    # The evaluation of an earlier run that this run's conversation goes on from: it is a turn.
    before: EvaluationProgress | None = None
    evaluations: int = 0
    expansions: int = 0
    tool_calls_completed: int = 0
    # The version that the run's prompt was made from, once something it led to was recorded.
    prompted_at: int | None = None
    # Replies and tool results so far, and how many there were when the run was last resumed:
    # if there are no more, that attempt got nowhere.
    steps: int = 0
    steps_at_resume: int | None = None
    attempts: int = 0
    # Replies of the model in this run, and the cause of the failure that it ended with.
    replies: int = 0
    failed_by: str = ""
    # How the last resume said that the run goes on under a changed prompt, and who did, until it
    # was used.
    prompt_choice: PromptChoice = ""
    prompt_by: str = ""

    @property
    def next_attempt(self) -> int:
        """The number of the next attempt: from 1 again if the last one got anywhere."""
        return self.attempts + 1 if self.steps_at_resume == self.steps else 1

    @property
    def goes_on_from(self) -> str:
        """The evaluation that the next one of the run goes on from; "" if from none.

        That is of the first evaluation in a chat turn, and of one that replaces it.
        """
        begun = self.evaluation is not None and not self.evaluation.superseded
        return "" if begun or self.before is None else self.before.evaluation_id

    def of(self, evaluation_id: str) -> EvaluationProgress | None:
        """The evaluation with this id, if the loop is in it."""
        found = self.evaluation
        return found if found is not None and found.evaluation_id == evaluation_id else None


class Progress(Projection[ProgressState]):
    """Folds the loop's progress."""

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
        OutputRejected,
        ToolCallCompleted,
        ToolCallFailed,
        ToolCallDecided,
        ApprovalDecided,
        CheckpointStored,
        RunFailed,
        RunResumed,
        SliceEventApplied,
    )

    def initial(self) -> ProgressState:
        return ProgressState()

    def apply(self, state: ProgressState, record: Record) -> ProgressState:
        event = record.event
        match event:
            case RunStarted():
                return _run_started(state, event)
            case EvaluationStarted():
                # A restored conversation has messages before its evaluation is started again.
                evaluation = change(
                    state.of(event.evaluation_id) or _new_evaluation(state, event),
                    prompt_digest=event.prompt_digest,
                    tools_digest=event.tools_digest,
                    adapter=event.adapter,
                    started=event,
                )
                at = record.version - 1 if state.prompted_at is None else state.prompted_at
                return change(
                    state,
                    evaluation=evaluation,
                    evaluations=state.evaluations + 1,
                    prompted_at=at,
                    prompt_choice="" if event.accepted else state.prompt_choice,
                )
            case MessageAppended():
                return _message_appended(state, event)
            case ToolCallCompleted():
                # The steps inside of a tool are not calls of the loop.
                done = state.tool_calls_completed + bool(event.evaluation_id)
                return change(state, tool_calls_completed=done, steps=state.steps + 1)
            case ToolCallFailed() | ApprovalDecided():
                # A person's decision brings the run on as a result does.
                return change(state, steps=state.steps + 1)
            case ToolCallDecided():
                return change(state, steps=state.steps + (not event.until_resumed))
            case CheckpointStored():
                return change(state, tool_calls_completed=event.tool_calls_completed)
            case SliceEventApplied():
                if state.prompted_at is None and event.call_id in BY_PROMPT:
                    return change(state, prompted_at=record.version - 1)
                return state
            case RunFailed():
                return change(state, failed_by=event.cause)
            case RunResumed():
                return change(
                    state,
                    attempts=event.attempt,
                    steps_at_resume=state.steps,
                    failed_by="",
                    prompt_choice=event.prompt,
                    prompt_by=event.prompt_by,
                )
            case ModelReplied() if event.call_id:  # a step inside of a tool, no turn of the loop
                return change(state, steps=state.steps + 1)
            case ModelReplied():
                return _of_evaluation(change(state, replies=state.replies + 1), event)
            case _:
                return _of_evaluation(state, event)

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


def _run_started(state: ProgressState, event: RunStarted) -> ProgressState:
    """A fork goes on with the evaluation, a turn from it, a continuation with nothing of it."""
    if event.kind == "turn":
        found = state.evaluation
        said = found if found is not None and not found.superseded else state.before
        return ProgressState(started=event, before=said)
    if event.kind != "fork":
        return ProgressState(started=event)
    first = state.started
    if first is not None and event.request is None:
        # A fork's request is its parent's.
        event = change(
            event,
            request_id=first.request_id,
            request_type=first.request_type,
            request=first.request,
            requested_at=first.requested_at,
            session_id=first.session_id,
        )
    if first is not None and not event.agent:
        event = change(event, agent=first.agent)
    if first is not None and event.max_turns is None:
        event = change(event, max_turns=first.max_turns)
    return change(
        state, started=event, tool_calls_completed=0, replies=0, failed_by="", prompt_choice=""
    )


def _new_evaluation(state: ProgressState, event: EvaluationStarted) -> EvaluationProgress:
    """One that begins; with `after`, it has what providers sent beyond the messages before it.

    One that was accepted is as far as the one before it, and counts its own messages and turns.
    """
    found = state.of(event.after)
    if event.accepted and found is not None:
        return change(
            found,
            evaluation_id=event.evaluation_id,
            prompt_ns=event.prompt_ns,
            prompt_key=event.prompt_key,
            sequence=0,
            turn=0,
            finished=False,
            output=None,
        )
    new = EvaluationProgress(
        evaluation_id=event.evaluation_id,
        prompt_ns=event.prompt_ns,
        prompt_key=event.prompt_key,
    )
    for one in (state.before, state.evaluation):
        if event.after and one is not None and one.evaluation_id == event.after:
            return change(new, provider_data=one.provider_data)
    return new


def _message_appended(state: ProgressState, event: MessageAppended) -> ProgressState:
    message = event.message
    found = state.of(message.evaluation_id) or EvaluationProgress(
        # The first message of a restored conversation.
        evaluation_id=message.evaluation_id,
        prompt_ns=message.prompt_ns,
        prompt_key=message.prompt_key,
    )
    by_assistant = message.role == "assistant"
    evaluation = change(
        found,
        sequence=max(found.sequence, message.sequence + 1),
        turn=max(found.turn, message.turn),
        system=message.content if message.role == "system" else found.system,
        # The system text stands before the conversation, wherever it is recorded.
        replied=found.replied if message.role == "system" else by_assistant,
        reply_id=message.message_id if by_assistant else found.reply_id,
        calls=found.calls + (len(message.tool_calls) if by_assistant else 0),
        reply_text=message.content if by_assistant else found.reply_text,
        requests=0 if by_assistant else found.requests,
        parsed=None if by_assistant else found.parsed,
        # A user's message after the answer asks for another one.
        finished=found.finished and message.role != "user",
    )
    return change(state, evaluation=evaluation)


def _of_evaluation(state: ProgressState, event: Any) -> ProgressState:
    found = state.of(event.evaluation_id)
    expansions = state.expansions + isinstance(event, EvaluationSuperseded)
    if found is None:
        return change(state, expansions=expansions)
    match event:
        case ModelCalled():
            found = change(found, requests=max(found.requests + 1, event.attempt))
        case ModelReplied():
            found = _model_replied(found, event)
        case EvaluationFinished():
            found = change(found, finished=True, output=event.output)
            state = change(state, prompt_choice="")
        case EvaluationSuperseded():
            found = change(found, superseded=True)
        case OutputRejected():
            found = change(found, rejections=found.rejections + 1)
    steps = state.steps + isinstance(event, ModelReplied)
    return change(state, evaluation=found, expansions=expansions, steps=steps)


def _model_replied(found: EvaluationProgress, event: ModelReplied) -> EvaluationProgress:
    data = event.provider_data if isinstance(event.provider_data, dict) else {}
    kept = found.provider_data
    if data.get("provider") is not None and type(data.get("place")) is int:
        kept = kept.put(str(data["place"]), data["provider"])
    return change(found, provider_data=kept, parsed=data.get("parsed"), model=event.model)


def provider_data(reply_data: Any, parsed: Any, place: int) -> Any:
    """`ModelReplied.provider_data`: what a reply has beyond its message; None if nothing.

    Args:
        reply_data: What the provider sent and wants back with the next request.
        parsed: The structured output, if the provider parsed it.
        place: The place of the reply's turn in the history: where `reply_data` belongs.
    """
    given = {"provider": reply_data, "parsed": parsed}
    data = {name: value for name, value in given.items() if value is not None}
    if reply_data is not None:
        data["place"] = place
    return data or None


class ProviderData(Mapping[int, Any]):
    """Provider data by the place of its turn, read from the fold without copying it."""

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
