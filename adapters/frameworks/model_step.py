"""`ModelStep`: a framework's model call as a step, with the messages that are new in it.

A framework's request holds the whole conversation. The step is known by the digest of all of it,
and keeps what differs from an earlier request; each message is recorded once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Protocol

from turnledger.adapters.frameworks.sessions import transcript_of
from turnledger.ledger import Event, TokenUsage
from turnledger.projections import ChatTurn
from turnledger.runtime.steps import (
    OpenStep,
    StepOutcome,
    StepScope,
    StepSpec,
    off_loop,
    raise_outcome,
)
from turnledger.runtime.steps.messages.conversation import Asked, Conversation
from turnledger.runtime.steps.messages.request_delta import RequestDeltas
from turnledger.runtime.steps.scope import raise_failure

_MEMORY = "turnledger.frameworks.model_step"


class ModelErrors(Protocol):
    """Errors of a provider's SDK as they are recorded, and made again of the record."""

    def facts(self, error: Exception) -> tuple[int | None, Any] | None:
        """The status and the body of the answer; None if it is not an error of that SDK."""
        ...

    def again(self, outcome: StepOutcome) -> Exception | None:
        """The error of an outcome; None if it is not an error of that SDK."""
        ...


@dataclass
class _Memory:
    """What model steps remember of a run in this process."""

    conversation: Conversation
    deltas: RequestDeltas = field(default_factory=RequestDeltas)

    @classmethod
    def of(cls, scope: StepScope) -> _Memory:
        known = scope.memory.get(_MEMORY)
        if known is None:
            said = Conversation(scope.ledger.read(scope.run_id))
            known = scope.memory.setdefault(_MEMORY, cls(said))
        assert isinstance(known, cls)
        return known


class ModelStep:
    """One model call inside a run.

    Args:
        scope: The run.
        name: The step's name; one of its name at a time.
        wire: The wire format that the request is written in.
        body: The whole request, JSON in that format.
        client: The framework's package and version.
        model: The model, if its name is known.
    """

    def __init__(
        self,
        scope: StepScope,
        *,
        name: str,
        wire: str,
        body: dict[str, Any],
        client: str,
        model: str = "",
    ) -> None:
        self.scope, self._wire, self._body = scope, wire, body
        self._memory = _Memory.of(scope)
        self._said: Asked | None = None
        self._blobs: tuple[bytes, ...] = ()
        self.spec = StepSpec(
            name=name,
            arguments=body,
            kind="model",
            model=model,
            client=client,
            request=self._memory.deltas.recorded(name, body),
        )

    async def begin(self) -> StepOutcome | OpenStep:
        """The recorded outcome, or the step with its start on disk."""
        recorder = self.scope.recorder
        reserved = recorder.reserve(self.spec, self.scope.place)
        entry = recorder.index.entries.get(reserved.call_id)
        is_known = self.scope.is_replay or (entry is not None and entry.outcome is not None)
        events = () if is_known else self._new_messages()
        self._memory.deltas.add(reserved.call_id, self._body)
        try:
            begun = await off_loop(partial(recorder.begin, reserved, () if self._blobs else events))
        except asyncio.CancelledError:
            recorder.closed(reserved.call_id)
            raise
        if self._blobs and isinstance(begun, OpenStep):
            # A start takes no blobs: messages that name some are recorded after it.
            await off_loop(partial(self.scope.append, events, self._blobs))
        return begun

    def _new_messages(self) -> tuple[Event, ...]:
        read = transcript_of(self._wire, self._body)
        if read is None:
            return ()
        self._said = self._memory.conversation.asked(self.spec.name, read.system, read.turns)
        self._blobs = tuple(read.blobs.values())
        return self._said.events

    def complete(
        self,
        step: OpenStep,
        data: Any,
        *,
        turn: ChatTurn | None,
        usage: TokenUsage,
        model: str = "",
        finish_reason: str = "",
        takes: Callable[[Any], object] | None = None,
    ) -> StepOutcome:
        """Record the reply.

        Args:
            step: The step.
            data: All that the caller gets, as JSON.
            turn: What the model says, if it can be read.
            usage: The tokens.
            model: The model that replied.
            finish_reason: Why the reply ended.
            takes: Raises for a redacted value that the caller can't take.
        """
        events: tuple[Event, ...] = ()
        message_id = None
        if self._said is not None and turn is not None:
            events, message_id = self._memory.conversation.replied(self._said, turn)
        return step.complete(
            data,
            events=events,
            usage=usage,
            model=model,
            finish_reason=finish_reason,
            message_id=message_id,
            takes=takes,
        )

    async def fail(self, step: OpenStep, error: BaseException, errors: ModelErrors) -> None:
        """Record what a call raised, and raise what a resume will raise too.

        An interruption leaves the step without an outcome; then it returns.

        Args:
            step: The step.
            error: What was raised.
            errors: The errors of the provider's SDK.
        """
        if not isinstance(error, Exception):
            step.leave()
            return
        facts = errors.facts(error) if self.scope.recorder.halted is None else None
        if facts is None:
            await off_loop(partial(raise_failure, self.scope, step, error))
        status, value = facts or (None, None)
        record = partial(
            step.fail_with,
            error_type=type(error).__name__,
            error_message=str(error),
            status=status,
            value=value,
        )
        raise_model_outcome(await off_loop(record), errors)


def raise_model_outcome(
    outcome: StepOutcome, errors: ModelErrors, raises: tuple[type[Exception], ...] = ()
) -> None:
    """Raise a recorded outcome that is not a value.

    Args:
        outcome: The outcome.
        errors: The errors of the provider's SDK.
        raises: Other classes that are raised as themselves.
    """
    made = errors.again(outcome) if outcome.failed else None
    if made is not None:
        raise made
    raise_outcome(outcome, raises)


async def close_stream(stream: Any) -> None:
    """Close what was read from, if it can be: an async generator, say."""
    if hasattr(stream, "aclose"):
        await stream.aclose()
