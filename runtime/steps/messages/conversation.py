"""Conversation of a run whose calls each send it whole: the messages that are new, as events.

An SDK's request repeats everything that was said before. `Conversation` compares it with the
messages that the run has on record, so that each message is recorded once: a request that goes on
with a recorded conversation adds what is new to its evaluation, any other one (a subagent's)
begins an evaluation.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from threading import Lock
from typing import Any
from uuid import UUID

from turnledger.ledger import (
    EvaluationStarted,
    Event,
    InnerMessage,
    MessageAppended,
    Record,
)
from turnledger.ledger.clock import new_message_id
from turnledger.projections import ChatTurn
from turnledger.projections.digests import canonical
from turnledger.projections.history.message_fields import message_fields

PROMPT_NS = "steps"
# What makes two messages the same; a tool's name may be told or not.
_COMPARED = ("role", "content", "tool_calls", "tool_call_id", "parts")
_DEFAULTS = {"tool_calls": (), "tool_call_id": None, "parts": ()}


def _hash(fields: Mapping[str, Any]) -> bytes:
    compared = [fields.get(name, _DEFAULTS.get(name)) for name in _COMPARED]
    return sha256(canonical(compared)).digest()


@dataclass
class _Evaluation:
    """One conversation, as far as it is on record."""

    evaluation_id: str
    key: str
    system: str = ""
    # A hash of each message after the system text.
    said: list[bytes] = field(default_factory=list)
    sequence: int = 0
    turn: int = 0

    def add(self, message: InnerMessage) -> None:
        self.sequence, self.turn = message.sequence + 1, message.turn
        if message.role == "system":
            self.system = message.content
        else:
            self.said.append(_hash({name: getattr(message, name) for name in _COMPARED}))


@dataclass(frozen=True)
class Asked:
    """A request's place among the conversations of its run.

    Attributes:
        evaluation_id: The evaluation that it belongs to.
        events: The events of what is new in it, to be recorded with the call's start.
        key: The kind of request.
        system: The system text.
        said: The fields of its other messages.
    """

    evaluation_id: str
    events: tuple[Event, ...]
    key: str
    system: str
    said: tuple[dict[str, Any], ...]


class Conversation:
    """The conversations of one run. Thread-safe; lives as long as the run does in a process.

    Args:
        records: The run's records so far.
    """

    def __init__(self, records: Iterable[Record] = ()) -> None:
        self._lock = Lock()
        self._all: dict[str, _Evaluation] = {}
        for record in records:
            event = record.event
            if isinstance(event, EvaluationStarted) and event.prompt_ns == PROMPT_NS:
                one = _Evaluation(event.evaluation_id, event.prompt_key)
                self._all[one.evaluation_id] = one
            elif isinstance(event, MessageAppended):
                known = self._all.get(event.message.evaluation_id)
                if known is not None:
                    known.add(event.message)

    def asked(self, key: str, system: str, turns: Sequence[ChatTurn]) -> Asked:
        """Find the conversation that a request goes on with, or begin one.

        Args:
            key: The kind of request: only those of one kind can be one conversation.
            system: The system text.
            turns: All that the request holds beside it.
        """
        said = tuple(message_fields(turns))
        with self._lock:
            found = self._longest(key, system, [_hash(one) for one in said])
            if found is None:
                found, events = self._begin(key, system, said)
            else:
                events = [_appended(found, new) for new in said[len(found.said) :]]
        return Asked(found.evaluation_id, tuple(events), key, system, said)

    def replied(self, asked: Asked, turn: ChatTurn) -> tuple[tuple[Event, ...], UUID | None]:
        """The events of a reply, and the id of its last message.

        A second reply to the same messages begins an evaluation of its own.

        Args:
            asked: The request.
            turn: The assistant's turn.
        """
        with self._lock:
            known = self._all[asked.evaluation_id]
            events: list[Event] = []
            if len(known.said) != len(asked.said):
                known, events = self._begin(asked.key, asked.system, asked.said)
            reply = [_appended(known, fields) for fields in message_fields([turn])]
        last = reply[-1].message.message_id if reply else None
        return (*events, *reply), last

    def _longest(self, key: str, system: str, said: list[bytes]) -> _Evaluation | None:
        """The conversation that the messages go on with, or that has them all already."""
        fitting = [
            one
            for one in self._all.values()
            if one.key == key
            and one.system == system
            and all(a == b for a, b in zip(one.said, said, strict=False))
            and (one.said or not said)
        ]
        return max(fitting, key=lambda one: min(len(one.said), len(said)), default=None)

    def _begin(
        self, key: str, system: str, said: Iterable[dict[str, Any]]
    ) -> tuple[_Evaluation, list[Event]]:
        begun = _Evaluation(str(new_message_id()), key, system)
        self._all[begun.evaluation_id] = begun
        started = EvaluationStarted(
            evaluation_id=begun.evaluation_id,
            prompt_ns=PROMPT_NS,
            prompt_key=key,
            prompt_digest=sha256(system.encode("utf-8", "replace")).hexdigest(),
        )
        first = [{"role": "system", "content": system}] if system else []
        return begun, [started, *(_appended(begun, fields) for fields in (*first, *said))]


def _appended(to: _Evaluation, fields: dict[str, Any]) -> MessageAppended:
    """The event of one more message."""
    to.turn += fields["role"] == "assistant"
    message = InnerMessage(
        **fields,
        evaluation_id=to.evaluation_id,
        sequence=to.sequence,
        turn=to.turn,
        prompt_ns=PROMPT_NS,
        prompt_key=to.key,
    )
    to.add(message)
    return MessageAppended(message=message)
