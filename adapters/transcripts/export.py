"""Transcript export: a run's conversation as a request body of a provider's API.

It is made by the wire format's encoder. To be sent it still needs what a conversation does not
hold: the tools, and a model if the run did not record one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, final
from uuid import UUID

import msgspec

from turnledger.adapters.providers.media import UnsupportedMediaError
from turnledger.adapters.providers.registry import FORMATS, wire_of
from turnledger.adapters.providers.wire import WhenUnsupported
from turnledger.adapters.transcripts.plan import REQUEST_TYPE
from turnledger.ledger import (
    EvaluationStarted,
    InvalidInputError,
    Ledger,
    ModelReplied,
    Record,
    RunStarted,
    TurnledgerError,
)
from turnledger.projections import Conversation, MessageHistory, Projection, fold_together
from turnledger.projections.history.message_history import Incomplete
from turnledger.projections.persistent.hashed import OrderedMap
from turnledger.projections.projection import as_json
from turnledger.projections.views.conversation import ConversationState
from turnledger.runtime import Request
from turnledger.runtime.journal.loop_progress import ProviderData


class NotExportedError(InvalidInputError):
    """A run can't be written in that format; `run_id` is the run."""

    def __init__(self, run_id: UUID, problem: str) -> None:
        self.run_id = run_id
        super().__init__(f"Run {run_id} can't be exported: {problem}")


class NothingSaidError(NotExportedError):
    """The run has no conversation."""

    def __init__(self, run_id: UUID) -> None:
        super().__init__(run_id, "it has no messages.")


class EvaluationNotFoundError(TurnledgerError, LookupError):
    """The run has no evaluation of that name."""

    def __init__(self, run_id: UUID, evaluation_id: str, known: list[str]) -> None:
        self.run_id, self.evaluation_id, self.known = run_id, evaluation_id, known
        there = f"It has {', '.join(known)}." if known else "It has none."
        super().__init__(f"Run {run_id} has no evaluation {evaluation_id!r}. {there}")


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """How a run is to be written."""

    format: str
    evaluation: str | None = None
    incomplete: Incomplete = "stub"
    unsupported_media: WhenUnsupported = "error"
    model: str = ""

    def __post_init__(self) -> None:
        if self.format not in FORMATS:
            raise InvalidInputError(
                f"Unknown format {self.format!r}. Expected one of: {', '.join(FORMATS)}."
            )


def export_transcript(ledger: Ledger, run_id: UUID, wanted: Wanted) -> dict[str, Any]:
    """The run's conversation as a request body of the format."""
    views = (Conversation(), _Replies())
    conversation, replies = fold_together(ledger.read(run_id), views)
    evaluation = _evaluation(run_id, conversation, wanted.evaluation)
    history = _sendable(conversation.history(evaluation), wanted.incomplete)
    if not history.system.strip() and len(history) == history.has_synthetic_lead:
        raise NothingSaidError(run_id)
    model = wanted.model or replies.model_for(wanted.format, evaluation)
    wire = wire_of(wanted.format, unsupported_media=wanted.unsupported_media, model=model)
    request = Request(
        evaluation_id=evaluation,
        turn=1,
        prompt_name="",
        system=history.system,
        history=history,
        provider_data=ProviderData(replies.beyond.get(evaluation, OrderedMap())),
        model=model,
        blob=ledger.blob,
    )
    try:
        body = wire.encode(request)
    except UnsupportedMediaError as error:
        raise NotExportedError(run_id, str(error)) from error
    return {name: value for name, value in body.items() if name != "model" or value}


def _evaluation(run_id: UUID, known: ConversationState, wanted: str | None) -> str:
    if wanted is None:
        return known.latest
    names = [name for name in (*known.earlier, known.evaluation_id) if name]
    if wanted not in names:
        raise EvaluationNotFoundError(run_id, wanted, names)
    return wanted


def _sendable(history: MessageHistory, incomplete: Incomplete) -> MessageHistory:
    """The history; with "skip", one without the calls at its end that have no result."""
    if incomplete == "stub" or not history.open_calls:
        return history
    return MessageHistory.from_list(history.for_send("skip"), history.system)


# --- what a run says about its replies ------------------------------------------------------


@final
class _RepliesState(msgspec.Struct, frozen=True):
    """By evaluation: the model that replied last, and what goes back with which turn."""

    # Of an imported run: its format, and the model that the transcript named.
    imported: str = ""
    model: str = ""
    models: dict[str, str] = {}
    beyond: dict[str, OrderedMap[Any]] = {}

    def model_for(self, wire: str, evaluation_id: str) -> str:
        """The recorded model; "" if it is known to be another provider's."""
        if self.imported and self.imported.partition("-")[0] != wire.partition("-")[0]:
            return ""
        return self.models.get(evaluation_id) or self.model


class _Replies(Projection[_RepliesState]):
    """Gathers what providers want back with later requests, of all evaluations of a run."""

    name = "transcripts.replies"
    reads = (RunStarted, EvaluationStarted, ModelReplied)

    def initial(self) -> _RepliesState:
        return _RepliesState()

    def apply(self, state: _RepliesState, record: Record) -> _RepliesState:
        event = record.event
        if isinstance(event, RunStarted):
            return _begun(state, event)
        if isinstance(event, EvaluationStarted):
            return _gone_on(state, event)
        assert isinstance(event, ModelReplied)
        evaluation = event.evaluation_id
        data = event.provider_data if isinstance(event.provider_data, dict) else {}
        beyond = state.beyond
        if data.get("provider") is not None and type(data.get("place")) is int:
            known = beyond.get(evaluation, OrderedMap())
            beyond = {**beyond, evaluation: known.put(str(data["place"]), data["provider"])}
        models = {**state.models, evaluation: event.model} if event.model else state.models
        return _RepliesState(state.imported, state.model, models, beyond)

    def to_json(self, state: _RepliesState) -> Any:
        return {"model": state.model, "models": as_json(state.models)}


def _gone_on(state: _RepliesState, event: EvaluationStarted) -> _RepliesState:
    """An evaluation has what belongs to the turns of the one that it goes on from."""
    known = state.beyond.get(event.after)
    if known is None or event.evaluation_id in state.beyond:
        return state
    return msgspec.structs.replace(state, beyond={**state.beyond, event.evaluation_id: known})


def _begun(state: _RepliesState, event: RunStarted) -> _RepliesState:
    """A fork and a turn go on with what was said; any other beginning has nothing yet."""
    if event.keeps_conversation:
        return state
    if event.request_type != REQUEST_TYPE or not isinstance(event.request, dict):
        return _RepliesState()
    named, model = event.request.get("format"), event.request.get("model")
    return _RepliesState(
        named if isinstance(named, str) else "", model if isinstance(model, str) else ""
    )
