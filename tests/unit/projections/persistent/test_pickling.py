"""Values as bytes and back: what comes back is written as the same JSON, to the byte."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import msgspec
import pytest
from hypothesis import given

from tests.unit.ledger.strategies import events
from turnledger.ledger import Codec, Event, ToolCallRecord
from turnledger.projections.digests import canonical
from turnledger.projections.persistent.pickling import packed, unpacked
from turnledger.projections.views.tool_calls import ToolCallView


class Odd(msgspec.Struct, omit_defaults=True, kw_only=True):
    """Defaults that are one object each, between fields that have none."""

    share: float = 1.5
    number: int
    name: str = "a default"
    pair: tuple[int, ...] = (1, 2)
    things: list[int] = []


class Own(msgspec.Struct, omit_defaults=True):
    """A struct that says itself how it is copied."""

    text: str = "a default"

    def __reduce__(self) -> Any:
        return (Own, ("its own way",))


@given(events())
def test_any_event_is_written_as_before(event: Event) -> None:
    """Made by a program or read from a ledger, with each default left out or given."""
    codec = Codec()
    read = codec.decode(*codec.encode(event))
    for one in (event, read):
        back = unpacked(packed(one))
        assert back == one
        assert type(back) is type(one)
        assert canonical(back) == canonical(one)


@pytest.mark.parametrize(
    "value",
    [
        ToolCallRecord("c", "search", "{}"),
        ToolCallRecord("c", "search", "{}", status="completed"),
        ToolCallView("c", "search"),
        ToolCallView("c", "search", arguments="".join("{}")),
        Odd(number=1),
        Odd(number=1, share=float("1.5"), name=" ".join(("a", "default")), things=[3]),
    ],
    ids=str,
)
def test_what_is_a_default_comes_back_as_that_very_default(value: Any) -> None:
    """And what only equals it does not become it: msgspec tells them apart."""
    text = canonical(value)
    assert canonical(unpacked(packed(value))) == text
    assert canonical(unpacked(packed({"deep": [(value,)]}))["deep"][0][0]) == text
    assert canonical(copy.deepcopy(value)) == text


def test_plain_pickle_would_not_do() -> None:
    """Why this is here: the day on which this fails, pickle is enough."""
    call = ToolCallRecord("c", "search", "{}")
    assert canonical(pickle.loads(pickle.dumps(call))) != canonical(call)


def test_a_struct_that_is_copied_in_its_own_way_still_is() -> None:
    """Its word counts more."""
    assert unpacked(packed(Own())).text == "its own way"
