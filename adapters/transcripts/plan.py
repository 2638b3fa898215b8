"""Import plan: the events of the run that a transcript becomes. Pure; writes nothing.

The turns go through `MessageHistory`, so that what is recorded can be sent as it is. Ids follow
from what is said: the same conversation is the same run, however often it is imported.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from hashlib import sha256
from pathlib import PurePath
from typing import Any
from uuid import UUID, uuid5

import msgspec

from turnledger.adapters.transcripts.messages import MessageWriter
from turnledger.adapters.transcripts.transcript import Note, Transcript, TranscriptError
from turnledger.ledger import (
    Draft,
    EvaluationFinished,
    EvaluationStarted,
    Event,
    ModelReplied,
    RunCompleted,
    RunStarted,
)
from turnledger.projections import ChatTurn, MessageHistory, Repair
from turnledger.projections.history.blocks import SYNTHETIC_LEAD
from turnledger.projections.history.validate import well_formed
from turnledger.runtime.journal.loop_progress import provider_data

PROMPT_NS = "imported"
REQUEST_TYPE = "transcript"
TAG = "imported"
# Where the ids of imported runs come from; never changed, or nothing would be known again.
_RUNS = UUID("6b1f3c0e-8f0a-5d52-9a37-0c7f4f0f6a11")


@dataclass(frozen=True)
class Plan:
    """A run to be imported: its conversation, and notes on what was left out."""

    run_id: UUID
    digest: str
    format: str
    model: str
    history: MessageHistory
    # What the provider wants back with a turn, by the turn's place in the history, from 1.
    beyond: Mapping[int, Any]
    blobs: Mapping[str, bytes]
    repairs: tuple[Repair, ...]
    notes: tuple[Note, ...]
    source: str
    place: str

    @property
    def ended(self) -> bool:
        """Whether the assistant spoke last, and waits for nothing."""
        last = self.history.last
        return last is not None and last.role == "assistant" and not self.history.open_calls

    def drafts(self, moment: datetime) -> list[Draft]:
        """The events of the run, as if all had been said at that moment."""
        return [
            Draft(event, uuid5(self.run_id, f"event {number}"))
            for number, event in enumerate(_EventWriter(self, moment).events(), 1)
        ]


def plan_of(transcript: Transcript, *, source: str = "", place: str = "") -> Plan:
    """The run that a transcript becomes; TranscriptError if nothing is said in it."""
    history, beyond, lost = _told(transcript)
    notes = [*transcript.notes, *(Note("", f"{transcript.format}: {why}") for why in lost)]
    if not history.system.strip() and len(history) == history.has_synthetic_lead:
        raise TranscriptError("it has no messages.", source=source, place=place)
    model = well_formed(transcript.model)
    digest = _digest(transcript.format, model, history, beyond)
    return Plan(
        run_id=uuid5(_RUNS, digest),
        digest=digest,
        format=transcript.format,
        model=model,
        history=history,
        beyond=beyond,
        blobs=transcript.blobs,
        repairs=history.repairs,
        notes=tuple(notes),
        source=well_formed(source),
        place=place,
    )


def _told(transcript: Transcript) -> tuple[MessageHistory, dict[int, Any], list[str]]:
    """The conversation, what goes back with which of its turns, and why some of that does not."""
    history = MessageHistory.new(transcript.system, synthetic_lead=True)
    beyond: dict[int, Any] = {}
    lost: list[str] = []
    for index, turn in enumerate(transcript.turns):
        if index == 0 and turn.blocks == SYNTHETIC_LEAD.blocks:
            continue  # the history has it already
        before, history = history.last, history.add(turn)
        kept, place = transcript.provider_data.get(index), len(history)
        if history.last is before:
            if kept is not None:
                lost.append("what goes back with a turn: not imported, nothing is left of it")
        elif turn.role == "assistant" and before is not None and before.role == "assistant":
            if beyond.pop(place, None) is not None or kept is not None:
                lost.append("what goes back with a turn: not imported, two turns became one")
        elif kept is not None:
            beyond[place] = kept
    return history, beyond, lost


def _digest(wire: str, model: str, history: MessageHistory, beyond: Mapping[int, Any]) -> str:
    turns = msgspec.to_builtins(history.to_list())
    said = [wire, model, history.system, turns, sorted(beyond.items())]
    return sha256(json.dumps(said, sort_keys=True).encode()).hexdigest()


class _EventWriter:
    """Writes the events of one run."""

    def __init__(self, plan: Plan, moment: datetime) -> None:
        self._plan = plan
        self._moment = moment
        self._evaluation = str(uuid5(plan.run_id, "evaluation"))
        self._messages = MessageWriter(
            self._evaluation,
            moment,
            lambda number: uuid5(plan.run_id, f"message {number}"),
            prompt_ns=PROMPT_NS,
            prompt_key=plan.format,
        )
        self._reply: UUID | None = None

    def events(self) -> Iterator[Event]:
        plan = self._plan
        request = {"format": plan.format, "source": PurePath(plan.source).name}
        if plan.model:
            request["model"] = plan.model
        yield RunStarted(
            request_type=REQUEST_TYPE,
            request=request,
            requested_at=self._moment,
            tags={TAG: plan.format},
        )
        yield EvaluationStarted(
            evaluation_id=self._evaluation,
            prompt_ns=PROMPT_NS,
            prompt_key=plan.format,
            prompt_digest=plan.digest,
        )
        if plan.history.system:
            yield self._messages.system(plan.history.system)
        for place, turn in enumerate(plan.history.to_list(), 1):
            if turn.role == "assistant":
                yield from self._assistant(turn, place)
            else:
                yield from self._messages.write(turn)
        if plan.ended:
            yield EvaluationFinished(evaluation_id=self._evaluation, message_id=self._reply)
            yield RunCompleted(message_id=self._reply)

    def _assistant(self, turn: ChatTurn, place: int) -> Iterator[Event]:
        for message in self._messages.write(turn):
            self._reply = message.message.message_id
            yield message
        beyond = self._plan.beyond.get(place)
        if beyond is not None and self._reply is not None:
            yield ModelReplied(
                evaluation_id=self._evaluation,
                turn=self._messages.turn,
                message_id=self._reply,
                model=self._plan.model,
                provider_data=provider_data({self._plan.format: beyond}, None, place),
            )
