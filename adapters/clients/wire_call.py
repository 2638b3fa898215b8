"""`WireCall`: what is recorded before and after one request of a wrapped client.

None of it awaits anything: the transports of both kinds of clients call the same methods, the
asynchronous one in threads.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial
from threading import Lock
from typing import Any
from urllib.parse import urlsplit

import msgspec

from turnledger.adapters.clients.recorded_answer import (
    Answer,
    RecordedStream,
    answer_of,
    error_of,
    stream_class,
)
from turnledger.adapters.clients.replies import (
    ReadReply,
    assembled,
    read_conversation,
    read_reply,
)
from turnledger.adapters.clients.wire_request import WireRequest, read_request
from turnledger.ledger import Event, RedactedPart, TurnledgerError
from turnledger.ledger.redaction.events import new_formats
from turnledger.ledger.redaction.safe_logging import warn_of_redacted
from turnledger.projections.digests import canonical
from turnledger.runtime.agent.tools.tool import OnInterrupt
from turnledger.runtime.steps import OpenStep, StepOutcome, StepScope, StepSpec, raise_outcome
from turnledger.runtime.steps.block import BLOCK, WORKFLOW
from turnledger.runtime.steps.messages.conversation import Asked, Conversation
from turnledger.runtime.steps.messages.request_delta import RequestDeltas
from turnledger.runtime.steps.spec import step_id

_MEMORY = "turnledger.clients"
RETRY_COUNT = "x-stainless-retry-count"
# Digits of a digest in a step's key: enough to tell the requests of a run from each other.
_KEY_DIGITS = 16
# Larger requests are recorded by their digest alone: an event has a limit.
_MOST_REQUEST = 2 * 1024 * 1024
# Requests that change nothing: repeated whatever the policy.
_SAFE = ("GET", "HEAD")


@dataclass(frozen=True)
class Wrapping:
    """What `wrap` knows of a client.

    Attributes:
        sdk: The SDK, a key of the tables in `endpoints`.
        version: The SDK's version.
        http: The HTTP module that the client is made on, httpx or httpx2.
        on_interrupt: What a resume does with a call of which nobody knows how it ended.
        error_base: The SDK's base class of errors; None if it wraps no errors of a transport.
    """

    sdk: str
    version: str
    http: Any
    on_interrupt: OnInterrupt = "retry"
    error_base: type[Exception] | None = None

    def through_sdk(self, error: TurnledgerError) -> None:
        """Make an error one of the SDK's base class too: any other is taken for the network's.

        The SDKs of OpenAI and Anthropic make an APIConnectionError of what a transport raises,
        and hand on their own errors as they are.
        """
        kind = type(error)
        if self.error_base is not None and not issubclass(kind, self.error_base):
            named = {"__module__": kind.__module__, "__doc__": kind.__doc__}
            error.__class__ = type(kind.__name__, (kind, self.error_base), named)


@dataclass
class _Memory:
    """What wrapped clients remember of a run in this process."""

    conversation: Conversation
    deltas: RequestDeltas = field(default_factory=RequestDeltas)
    asked: Counter[tuple[str, str, str]] = field(default_factory=Counter)
    lock: Lock = field(default_factory=Lock)

    @classmethod
    def of(cls, scope: StepScope) -> _Memory:
        known = scope.memory.get(_MEMORY)
        if known is None:
            said = Conversation(() if scope.is_replay else scope.ledger.read(scope.run_id))
            known = scope.memory.setdefault(_MEMORY, cls(said))
        assert isinstance(known, cls)
        return known

    def key(self, parent: str, request: WireRequest, *, again: bool) -> str:
        """The request's digest; the second one of the same digest has "-2" after it.

        Equal requests are interchangeable, so that their order of arrival may decide: each of
        them gets one of the recorded answers, and none gets another's.

        Args:
            parent: The id of the step that it is in.
            request: The request.
            again: Whether it is one more attempt of the last equal one.
        """
        short = request.digest[:_KEY_DIGITS]
        place = parent, request.name, short
        with self.lock:
            self.asked[place] += 0 if again and self.asked[place] else 1
            number = self.asked[place]
        return short if number == 1 else f"{short}-{number}"


class WireCall:
    """One request inside a run.

    Args:
        wrapping: The client.
        scope: The run.
        request: The HTTP request; its body has been read.
    """

    def __init__(self, wrapping: Wrapping, scope: StepScope, request: Any) -> None:
        self._wrapping, self.scope, self._request = wrapping, scope, request
        self.asked = read_request(wrapping.sdk, request, scope.ledger.redactor)
        self.is_model = self.asked.endpoint is not None
        self._memory = _Memory.of(scope)
        self._said: Asked | None = None
        self._blobs: Iterable[bytes] = ()
        self._is_kept = False

    # --- before ---

    def step(self) -> tuple[StepSpec, tuple[Event, ...]]:
        """The step to ask for, and the messages that are new in it; to be begun at once."""
        asked, wrapping = self.asked, self._wrapping
        # The SDK counts its own retries, of a copy of the client that has some.
        again = self._request.headers.get(RETRY_COUNT, "0") != "0"
        key = self._memory.key(self.scope.place.parent, asked, again=again)
        policy = "retry" if asked.method in _SAFE else wrapping.on_interrupt
        if not self.is_model:
            given = {"method": asked.method, "path": asked.path, "body": asked.short_body}
            return StepSpec(
                name=asked.name, key=key, arguments=given, on_interrupt=policy, again=again
            ), ()
        spec = StepSpec(
            name=asked.name,
            key=key,
            arguments=asked.digest,
            kind="model",
            on_interrupt=policy,
            model=asked.model,
            client=f"{wrapping.sdk} {wrapping.version}",
            request=self._recorded_request(),
            again=again,
        )
        return spec, self._new_messages(spec)

    def _recorded_request(self) -> dict[str, Any]:
        """The request as what differs from an earlier one; only its size if that is too large."""
        recorded = self._memory.deltas.recorded(self.asked.path, self.asked.short_body)
        size = len(canonical(recorded))
        self._is_kept = size <= _MOST_REQUEST
        return recorded if self._is_kept else {"path": self.asked.path, "bytes": size}

    def _new_messages(self, spec: StepSpec) -> tuple[Event, ...]:
        call_id = step_id(self.scope.place.parent, spec.name, spec.key, 0)
        index = self.scope.recorder.index
        entry = index.entries.get(call_id)
        is_answered = entry is not None and entry.outcome is not None and not spec.again
        # The conversation of an Agent's run, or of a framework's, is recorded by itself.
        is_ours = index.started is not None and index.started.request_type in (BLOCK, WORKFLOW)
        if self.scope.is_replay or is_answered or not is_ours or self._is_in_model_step:
            return ()
        wire = self.asked.endpoint.format if self.asked.endpoint else ""
        read = read_conversation(wire, self.asked.body)
        if read is None:
            return ()
        self._said = self._memory.conversation.asked(self.asked.name, read.system, read.turns)
        self._blobs = read.blobs.values()
        # Messages that name blobs are recorded after the start: it takes none.
        return () if read.blobs else self._said.events

    def begun(self, begun: StepOutcome | OpenStep) -> None:
        """Remember a call that is on record."""
        if self._is_kept:
            self._memory.deltas.add(begun.call_id, self.asked.short_body)
        if self._blobs and self._said is not None and isinstance(begun, OpenStep):
            self.scope.append(self._said.events, self._blobs)

    @property
    def _is_in_model_step(self) -> bool:
        """Whether a framework's model call, which is a step too, makes this request."""
        parent = self.scope.recorder.index.entries.get(self.scope.place.parent)
        return parent is not None and parent.kind == "model"

    # --- from the record ---

    def recorded(self, outcome: StepOutcome) -> Any:
        """The recorded outcome as a response, or raised as the error that it was."""
        http, request = self._wrapping.http, self._request
        error = error_of(outcome, http, request) if outcome.failed else None
        if outcome.failed and outcome.value is None and error is not None:
            raise error
        if outcome.unrecordable or (outcome.failed and outcome.value is None):
            raise_outcome(outcome)
        answer = answer_of(outcome.value, self.scope.ledger.blob)
        headers = {"content-type": answer.type}
        if answer.status >= 400:
            headers["x-should-retry"] = "false"
        if answer.location:
            headers["location"] = answer.location
        if error is None and not answer.left:
            return http.Response(answer.status, headers=headers, content=answer.body)
        kind = stream_class(RecordedStream, http.SyncByteStream, http.AsyncByteStream)
        end = partial(self.scope.recorder.read_on, outcome.call_id)
        stream = kind(answer.body, end if error is None else lambda: error)
        return http.Response(answer.status, headers=headers, stream=stream)

    # --- after ---

    def attempt_failed(self, step: OpenStep, failed: Any) -> None:
        """Record an attempt that is made again: a response, or the exception that came."""
        if self.is_model:
            step.attempt_failed(**self._failure(failed))

    def broke(self, step: OpenStep, error: Exception, answer: Answer | None = None) -> StepOutcome:
        """Record a broken connection, or a time-out, as the outcome.

        Args:
            step: The call.
            error: What was raised.
            answer: The part of a stream that came before it.
        """
        failure = self._failure(error)
        if answer is not None and self.is_model:
            redaction = _Redaction(self._redact)
            failure["value"], _ = answer.data(redaction, names_blobs=False)
            if redaction.parts:
                what = f"a stream that broke off is recorded redacted, call {step.call_id}"
                warn_of_redacted(what, redaction.parts)
        return step.fail_with(**failure)

    def answered(self, step: OpenStep, answer: Answer) -> StepOutcome:
        """Record an answer as the outcome."""
        if answer.status >= 400 and self.is_model:
            return step.fail_with(**self._failure(answer))
        redaction = _Redaction(self._redact)
        data, blobs = answer.data(redaction, names_blobs=self.is_model)
        if not self.is_model:
            return step.complete(data, redacted=redaction.parts)
        reply = self._read(answer)
        events: tuple[Event, ...] = ()
        message_id = None
        if self._said is not None and reply.turn is not None:
            events, message_id = self._memory.conversation.replied(self._said, reply.turn)
        return step.complete(
            data,
            events=events,
            blobs=[*blobs, *(reply.blobs if events else ())],
            # It counts once: a framework's call has it too.
            usage=None if self._is_in_model_step else reply.usage,
            finish_reason=reply.finish_reason,
            model=reply.model,
            message_id=message_id,
            redacted=redaction.parts,
        )

    def body(self, outcome: StepOutcome, step: OpenStep, body: bytes) -> bytes:
        """The body of an answer for the live program: as a resume gets it, if it was redacted.

        Args:
            outcome: The recorded answer.
            step: The call.
            body: What came.
        """
        if not (step.is_redacted or (outcome.failed and self.is_model)):
            return body
        return answer_of(outcome.value, self.scope.ledger.blob).body

    def _read(self, answer: Answer) -> ReadReply:
        assert self.asked.endpoint is not None
        wire, text = self.asked.endpoint.format, answer.text
        if text is None:
            return ReadReply()
        found: Any
        if answer.is_stream:
            found = assembled(wire, text)
        else:
            try:
                found = msgspec.json.decode(text)
            except (msgspec.DecodeError, RecursionError):
                return ReadReply()
        redactor = self.scope.ledger.redactor
        found = found if redactor is None else redactor.value(found)
        return read_reply(wire, self.asked.body, found if isinstance(found, dict) else None)

    def _failure(self, failed: Any) -> dict[str, Any]:
        """A failed attempt as it is recorded: an exception, a response or an answer."""
        if isinstance(failed, Exception):
            return {"error_type": type(failed).__name__, "error_message": str(failed)}
        answer = failed if isinstance(failed, Answer) else whole_answer(failed)
        data, _ = answer.data(self._redact, names_blobs=False)
        return {
            "error_type": "HTTPStatusError",
            "error_message": f"HTTP status {answer.status}",
            "status": answer.status,
            "value": data,
        }

    @property
    def _redact(self) -> Callable[[str], str]:
        return self.scope.ledger.redact_text


class _Redaction:
    """Redacts the text of an answer, and remembers what it found."""

    def __init__(self, redact: Callable[[str], str]) -> None:
        self._redact = redact
        self._formats: dict[str, None] = {}

    def __call__(self, text: str) -> str:
        made = self._redact(text)
        if made != text:
            self._formats.update(dict.fromkeys(new_formats(text, made)))
        return made

    @property
    def parts(self) -> tuple[RedactedPart, ...]:
        return (RedactedPart("value.text", tuple(self._formats)),) if self._formats else ()


def whole_answer(response: Any) -> Answer:
    """The answer of a response that has been read."""
    location = ""
    if response.has_redirect_location:
        leads = urlsplit(response.headers["location"])
        location = leads._replace(query="", fragment="").geturl()
    kind = response.headers.get("content-type", "")
    return Answer(response.status_code, kind, response.content, location=location)


def raise_if_unrecordable(outcome: StepOutcome) -> None:
    """UnrecordableResultError if the answer came and could not be recorded."""
    if outcome.unrecordable or outcome.error_type == "UnrecordableResultError":
        raise_outcome(outcome)
