"""Normalizes events for comparison: drops ids, times and positions, and marks bookkeeping.

Two runs that did the same have other ids (of runs, sessions, requests, evaluations, messages),
times, workers and `state_digest`s, and other versions, turns and sequence numbers, which one
event more shifts for all that follow. These are left out. A call is identified by its place
among the calls of the message that asked for it, and its arguments are compared by value. A step
is identified by its path of names and keys, and aligned by it; a model call as a step by its name
alone, as its key is made of the request.

The rest is compared, but some of it is **bookkeeping**: it differs though the runs did the same,
or repeats what other events have in full. A difference in bookkeeping never makes two runs
different.

- Whole events: a claim, a resumption, checkpoints, and the start of a fork, which repeats its
  parent's. Also a failed model call that may be retried, and its retries: what comes of them is
  in the reply, or in an error that ends the run. A tool that runs twice is not bookkeeping: it
  may have had an effect twice.
- Fields: those that only describe an event (`since(describes=True)`), digests of what other
  events have in full (of a prompt, a request; both also cover the ids of calls), epochs and
  attempts, a run's tags and agent, the author of a decision, and the tokens, ids and signatures
  of a provider's reply. Also a reply as a step's caller got it, if a message has its content.

The digest of the tools is compared: no other event has the descriptions that a model was sent.
So are the adapter and the model, and the digest of a step's arguments where it has nothing else.
"""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import blake2b
from typing import Any, Final, NamedTuple

import msgspec

from turnledger.ledger import (
    CheckpointCleared,
    CheckpointReached,
    CheckpointStored,
    CustomEvent,
    EvaluationStarted,
    Event,
    MessageAppended,
    ModelCalled,
    ModelCallFailed,
    ModelReplied,
    Record,
    RunClaimed,
    RunResumed,
    RunStarted,
    SliceEventApplied,
    ToolCallStarted,
    ToolMessageAmended,
)
from turnledger.ledger.events.types import undescribed
from turnledger.projections.digests import canonical
from turnledger.projections.run_state.json_diff import DEEPEST

LEFT_OUT: Final = frozenset(
    {
        *("request_id", "session_id", "parent", "evaluation_id", "after"),
        *("message_id", "asked_id"),
        *("call_id", "call_ids", "tool_call_id"),
        *("requested_at", "deadline", "created_at"),
        *("at", "from_version", "sequence", "turn"),
        *("worker", "state_digest", "checkpoint", "catalogue"),
    }
)
BOOKKEEPING_FIELDS: Final = frozenset(
    {
        *("prompt_digest", "request_digest", "outcome_digest", "digest"),
        *("epoch", "attempt", "attempts", "tags", "agent", "decided_by"),
        *("usage", "provider_data", "blobs"),
        # In short what an error's text says, since catalogue 2.
        *("step", "reply_error"),
    }
)
BOOKKEEPING_EVENTS: Final = (
    RunClaimed,
    RunResumed,
    CheckpointReached,
    CheckpointStored,
    CheckpointCleared,
    # Repeats the tool's message and the answer, for the model's next turn.
    ToolMessageAmended,
)

# Of a cryptographic hash, so that equal keys mean equal events.
KEY_BYTES = 32


class NormalizedEvent(NamedTuple):
    """An event for comparison, as JSON text; `key` hashes it without bookkeeping."""

    version: int
    tag: str
    text: bytes
    key: bytes
    kind: bytes
    bookkeeping: bool

    @property
    def content(self) -> dict[str, Any]:
        found: dict[str, Any] = msgspec.json.decode(self.text)
        return found


class Normalizer:
    """Normalizes a run's events in order; keeps the place of each call in its message."""

    def __init__(self) -> None:
        # By the id of a call and of a tool's message: the place of the call in its message.
        self._calls: dict[str, int] = {}
        self._messages: dict[str, int | None] = {}
        # By the id of a step: its path, without ids that a provider made.
        self._steps: dict[str, str] = {}
        self._kinds: dict[bytes, bytes] = {}

    def copy(self) -> Normalizer:
        """A copy, for the events of a fork from here on."""
        other = Normalizer()
        other._calls, other._messages = dict(self._calls), dict(self._messages)
        other._steps = dict(self._steps)
        return other

    def normalize(self, records: Iterable[Record]) -> list[NormalizedEvent]:
        return [self._normalized(record) for record in records]

    def _normalized(self, record: Record) -> NormalizedEvent:
        event = record.event
        content = self._content(event)
        compared = {
            name: value for name, value in content.items() if name not in BOOKKEEPING_FIELDS
        }
        kind = canonical(_kind(event, content))
        return NormalizedEvent(
            record.version,
            event.tag,
            msgspec.json.encode(content),
            blake2b(canonical([event.tag, compared]), digest_size=KEY_BYTES).digest(),
            self._kinds.setdefault(kind, kind),
            _is_bookkeeping(event),
        )

    def _content(self, event: Event) -> dict[str, Any]:
        values = msgspec.to_builtins(undescribed(event))
        call: int | str | None = None
        if isinstance(event, MessageAppended):
            values = values["message"]
            calls = values.get("tool_calls", ())
            self._calls.update((one["call_id"], place) for place, one in enumerate(calls, 1))
            if event.message.tool_call_id is not None:
                call = self._calls.get(event.message.tool_call_id)
                self._messages[values["message_id"]] = call
        elif isinstance(event, ToolMessageAmended):
            call = self._messages.get(values["message_id"])
        elif isinstance(event, ToolCallStarted | ModelCalled) and _is_step(event):
            call = self._steps[event.call_id] = self._path(event)
        elif isinstance(values.get("call_id"), str):
            call = self._named(values["call_id"])
        content = {name: value for name, value in values.items() if name not in LEFT_OUT}
        if call is not None:
            content["call"] = call
        if "call_ids" in values:
            content["calls"] = [self._named(one) for one in values["call_ids"]]
        if "tool_calls" in content:
            content["tool_calls"] = [_asked(one) for one in content["tool_calls"]]
        if _is_step(event):
            _compare_by_value(event, content)
            for name in ("arguments", "request"):
                if name in content and self._calls:
                    content[name] = self._without_ids(content[name])
        return content

    def _without_ids(self, value: Any) -> Any:
        """A step's arguments, with a tool call's place for its id: a provider made that up."""
        if isinstance(value, str):
            place = self._calls.get(value)
            return value if place is None else f"call {place}"
        if isinstance(value, dict):
            return {name: self._without_ids(inner) for name, inner in value.items()}
        return [self._without_ids(one) for one in value] if isinstance(value, list) else value

    def _named(self, call_id: str) -> int | str | None:
        """How a call is identified: a step by its path, any other by its place."""
        return self._steps.get(call_id, self._calls.get(call_id))

    def _path(self, event: ToolCallStarted | ModelCalled) -> str:
        """The names and keys of a step and of those that it is in.

        Where the id of a tool call is a key, the call's place stands for it.
        """
        inside = self._named(event.parent) or event.parent
        own = event.call_id.removeprefix(f"{event.parent}/") if event.parent else event.call_id
        if isinstance(event, ModelCalled):
            own = event.name or own
        else:
            place = self._calls.get(own.removeprefix(f"{event.name}:"))
            own = own if place is None else f"{event.name}:{place}"
        return f"{inside}/{own}" if event.parent else own


def _is_step(event: Event) -> bool:
    """Whether it is of a durable step: a call that no message asked for."""
    return getattr(event, "evaluation_id", None) == "" and bool(getattr(event, "call_id", ""))


def _compare_by_value(event: Event, content: dict[str, Any]) -> None:
    """Have a step's arguments compared by value, by digest only if they are not on record."""
    if isinstance(event, ToolCallStarted):
        if event.arguments:
            content["arguments"] = _arguments(event.arguments)
        elif event.digest:
            content["arguments_digest"] = event.digest
    elif isinstance(event, ModelCalled) and event.request is None:
        content["arguments_digest"] = event.request_digest
    elif isinstance(event, ModelReplied) and event.message_id is not None:
        # The message has its content; ids and times are made by the provider.
        content["provider_data"] = [content.pop(name, None) for name in ("value", "provider_data")]


def _asked(call: dict[str, Any]) -> dict[str, Any]:
    """A call without its id, with arguments that compare by value where they are JSON."""
    arguments = _arguments(call["arguments"])
    return {**{k: v for k, v in call.items() if k != "call_id"}, "arguments": arguments}


def _arguments(text: str) -> Any:
    try:
        value = msgspec.json.decode(text)
    except (msgspec.DecodeError, ValueError, RecursionError):
        return text
    return value if _is_shallow(value) else text


def _is_shallow(value: Any) -> bool:
    """Whether it is nested as events may be: JSON that a model wrote may be nested deeper."""
    level = [value]
    for _ in range(DEEPEST):
        level = [inner for one in level for inner in _inside(one)]
        if not level:
            return True
    return False


def _inside(value: Any) -> Iterable[Any]:
    if isinstance(value, dict):
        return value.values()
    return value if isinstance(value, list) else ()


def _kind(event: Event, content: dict[str, Any]) -> list[str]:
    if _is_step(event) and "call" in content:
        return [event.tag, str(content["call"])]
    match event:
        case MessageAppended():
            return [event.tag, event.message.role]
        case SliceEventApplied():
            return [event.tag, event.slice]
        case CustomEvent():
            return [event.tag, event.kind]
        case _:
            return [event.tag]


def _is_bookkeeping(event: Event) -> bool:
    match event:
        case RunStarted():
            return event.kind == "fork" and event.request is None
        case ModelCalled():
            return event.attempt > 1
        case ModelCallFailed():
            return not event.final if event.call_id else event.retryable
        case _:
            return isinstance(event, BOOKKEEPING_EVENTS)


def one_line(event: NormalizedEvent, longest: int) -> str:
    """An event as one line of text, without bookkeeping and digests."""
    return _line(event.tag, event.content, longest)


def event_line(event: Event, longest: int) -> str:
    """Like `one_line`, for an event by itself: calls are named by their ids."""
    values = msgspec.to_builtins(undescribed(event))
    if isinstance(event, MessageAppended):
        values = values["message"]
    content = {name: value for name, value in values.items() if name not in LEFT_OUT}
    if isinstance(event, EvaluationStarted):
        content["tools"] = " ".join(tool.name for tool in event.tools)
    text = _line(event.tag, content, longest)
    call = values.get("call_id") or values.get("tool_call_id") or " ".join(_call_ids(values))
    return _cut(f"{call} {text}".strip() if call else text, longest)


def _call_ids(values: dict[str, Any]) -> Iterable[str]:
    return (call for call in values.get("call_ids", ()) if isinstance(call, str))


def _line(tag: str, content: dict[str, Any], longest: int) -> str:
    if tag == MessageAppended.tag:
        calls = (
            f"{one['name']}({_text(one['arguments'], longest)})"
            for one in content.get("tool_calls", ())
        )
        words = [f"{content['role']}:", content["content"][: longest + 1], *calls]
    else:
        words = [
            f"{name}={_text(value, longest)}"
            for name, value in content.items()
            if name not in BOOKKEEPING_FIELDS and not name.endswith("digest") and value != ""
        ]
    return _cut(" ".join(word for word in words if word), longest)


def _cut(text: str, longest: int) -> str:
    return text if len(text) <= longest else text[: longest - 1] + "…"


def _text(value: Any, longest: int) -> str:
    text = value if isinstance(value, str) else canonical(value).decode()
    return text[: longest + 1]
