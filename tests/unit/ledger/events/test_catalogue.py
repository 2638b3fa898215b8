"""Catalogues of events: which fields came when, and events as an older program would make them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any
from uuid import UUID

import msgspec
import pytest
from msgspec.structs import replace

from tests.unit.projections.given import folded
from turnledger.ledger import (
    Codec,
    CustomEvent,
    EvaluationStarted,
    Event,
    MessageAppended,
    ModelCalled,
    ModelCallFailed,
    ModelReplied,
    OfferedTool,
    RunFailed,
    RunResumed,
    RunStarted,
    ToolCallCompleted,
    ToolCallFailed,
    ToolCallStarted,
)
from turnledger.ledger.events import messages, types
from turnledger.ledger.events.types import (
    CATALOGUE,
    EVENT_TYPES,
    as_of,
    fields_since,
    since,
    undescribed,
)

FIRST: dict[str, list[str]] = json.loads(
    (Path(__file__).parent / "catalogue-1.json").read_text(encoding="utf-8")
)
PARTS = (
    types.OfferedTool,
    types.TokenLimits,
    types.TokenUsage,
    messages.InnerMessage,
    messages.MediaContent,
    messages.TextContent,
    messages.ToolCallRecord,
)
KINDS: dict[str, type[msgspec.Struct]] = {
    kind.__name__: kind for kind in (*EVENT_TYPES.values(), *PARTS)
}
LATER: list[Event] = [
    RunStarted(catalogue=2, max_turns=5),
    RunResumed(attempt=1, from_version=3, catalogue=2),
    EvaluationStarted(
        evaluation_id="e1",
        prompt_ns="tests",
        prompt_key="k",
        prompt_digest="d",
        tools=(OfferedTool(name="pay", digest="d", spec="s"),),
    ),
    ToolCallStarted(evaluation_id="e1", call_id="c1", name="pay", on_interrupt="ask"),
    ToolCallFailed(
        evaluation_id="e1",
        call_id="c1",
        name="pay",
        message_id=UUID(int=1),
        error_type="E",
        error_message="m",
        traceback="t",
    ),
    RunFailed(error_type="E", error_message="m", step="encode", traceback="t"),
    ModelCallFailed(
        evaluation_id="e1", turn=1, error_type="E", error_message="m", reply_error="empty"
    ),
    ModelCalled(evaluation_id="", turn=0, request_digest="d", client="openai 3", parent="a#1"),
    ModelReplied(evaluation_id="", turn=0, call_id="ask#1", value="hello"),
    ToolCallCompleted(evaluation_id="", call_id="pay#1", name="pay", unrecordable="a socket"),
    CustomEvent(kind="a.b", blobs=("sha256:0",)),
]

RESET: dict[str, dict[str, Any]] = {
    "run.started": {"max_turns": None},
    "evaluation.started": {"tools": (OfferedTool(name="pay", digest="d"),)},
    "tool_call.started": {"on_interrupt": ""},
    "tool_call.failed": {"traceback": ""},
    "model.called": {"client": ""},
    "run.failed": {"traceback": ""},
}
DESCRIBED: dict[str, Event] = {event.tag: event for event in LATER if event.tag in RESET}


class Leaf(msgspec.Struct, frozen=True):
    """A part of an event, with a field that came later."""

    kept: int = 1
    later: Annotated[int, since(CATALOGUE)] = 0


class Tree(msgspec.Struct, frozen=True):
    """An event with parts."""

    leaf: Leaf
    leaves: tuple[Leaf, ...]


@pytest.mark.parametrize("name", FIRST)
def test_a_field_without_a_mark_was_in_the_first_catalogue(name: str) -> None:
    """A new field says since when it is there: replays of older runs do not compare it."""
    kind = KINDS[name]
    assert [f for f in kind.__struct_fields__ if f not in fields_since(kind)] == FIRST[name]


def test_marks_are_numbers_of_catalogues() -> None:
    """None is of a catalogue that is yet to come."""
    marks = {mark for kind in KINDS.values() for mark in fields_since(kind).values()}
    assert marks == set(range(2, CATALOGUE + 1))


@pytest.mark.parametrize("event", LATER, ids=lambda event: event.tag)
def test_a_program_of_an_older_catalogue_made_no_such_field(event: Event) -> None:
    """As of its catalogue, the event has the bytes that it wrote."""
    old = as_of(event, 1)
    assert old != event
    assert not {
        f for f in fields_since(type(event)) if b'"%s":' % f.encode() in Codec().encode(old)[1]
    }
    assert b"spec" not in Codec().encode(old)[1]
    assert as_of(event, CATALOGUE) is event


def test_parts_of_an_event_are_treated_alike() -> None:
    """A field of a message, or of one tool among several."""
    found = as_of(Tree(Leaf(2, 2), (Leaf(3, 3), Leaf(4, 4))), CATALOGUE - 1)
    assert found == Tree(Leaf(2, 0), (Leaf(3, 0), Leaf(4, 0)))


def test_the_state_does_not_depend_on_them() -> None:
    """Digests of runs by older and newer programs are the same."""
    started = RunStarted(catalogue=CATALOGUE)
    # Older programs made no steps: what such events say of one is part of the state.
    events = [event for event in LATER[1:] if getattr(event, "evaluation_id", None) != ""]
    states = [
        folded(*(as_of(event, catalogue) for event in (started, *events)))
        for catalogue in (0, CATALOGUE)
    ]
    assert states[0].state_digest == states[1].state_digest
    assert states[0].outcome_digest == states[1].outcome_digest


def test_what_describes_an_event_is_marked() -> None:
    """These fields are for people: no replay compares them and no digest covers them."""
    found = {name: undescribed(kind) for name, kind in DESCRIBED.items()}
    assert found == {name: replace(DESCRIBED[name], **reset) for name, reset in RESET.items()}


def test_a_message_without_later_fields_is_itself() -> None:
    """What no catalogue has changed is compared whole."""
    message = MessageAppended(
        message=msgspec.convert(
            {
                "role": "user",
                "content": "hello",
                "evaluation_id": "e1",
                "sequence": 1,
                "created_at": "2025-01-31T18:00:00Z",
                "message_id": "11111111-1111-4111-8111-111111111111",
            },
            messages.InnerMessage,
        )
    )
    assert as_of(message, 0) == message
