"""Values to JSON and back: what is kept, and what is refused, naming the place."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

import msgspec
import pydantic
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.runtime.kinds import Circle, Colour, json_data
from turnledger.ledger.errors import TurnledgerError
from turnledger.runtime import DataDecodeError, DataEncodeError
from turnledger.runtime.agent.schema import read_json, to_plain
from turnledger.runtime.agent.schema.values import MAX_DEPTH, to_text


@dataclass
class Holder:
    items: list[Any]


class Renamed(pydantic.BaseModel):
    inner: int = pydantic.Field(alias="innerValue")


class Pair(msgspec.Struct, array_like=True):
    left: int
    right: int


class Perhaps(msgspec.Struct):
    a: int
    b: int | msgspec.UnsetType = msgspec.UNSET


@given(json_data)
def test_plain_data_stays_as_it_is(data: Any) -> None:
    """And comes back from its text."""
    assert to_plain(data) == data
    assert read_json(json.dumps(data)) == data
    assert read_json(to_text(data)) == data


@pytest.mark.parametrize(
    ("value", "plain"),
    [
        (Colour.RED, "red"),
        ((1, 2), [1, 2]),
        ({"b", "a", "c"}, ["a", "b", "c"]),
        (frozenset({3, 1, 20}), [1, 20, 3]),
        (datetime(2026, 1, 2, tzinfo=UTC), "2026-01-02T00:00:00Z"),
        (UUID(int=1), "00000000-0000-0000-0000-000000000001"),
        (Decimal("1.50"), "1.50"),
        (timedelta(seconds=90), "PT90S"),
        (Circle(2.0), {"type": "Circle", "outerRadius": 2.0}),
        (Pair(1, 2), [1, 2]),
        (Perhaps(1), {"a": 1}),
        (Renamed(innerValue=3), {"innerValue": 3}),
        (Holder([Renamed(innerValue=3), Colour.BLUE]), {"items": [{"innerValue": 3}, "blue"]}),
        ({Colour.RED: 1}, {"red": 1}),
    ],
)
def test_values_of_a_program_become_plain(value: object, plain: Any) -> None:
    """Each as it would be read again; sets in an order of their own."""
    assert to_plain(value) == plain


@pytest.mark.parametrize(
    ("value", "path", "reason"),
    [
        (float("nan"), "", "JSON has no nan"),
        ({"a": [1, float("inf")]}, "a[1]", "JSON has no inf"),
        (Holder([{"b": b"x"}]), "items[0].b", "bytes"),
        ({"a": {1: 2}}, "a", "keys of an object are text"),
        ([object()], "[0]", "object is not JSON"),
        ({"a": "x\ud800"}, "a", "surrogate"),
        ({"a\udfff": 1}, "", "surrogate"),
        ({"n": 2**64}, "n", "64 bits"),
        ({"m": {"x": {1j}}}, "m.x[0]", "complex is not JSON"),
        (Holder, "", "type is not JSON"),
    ],
)
def test_what_json_cannot_hold_is_refused_naming_the_place(
    value: object, path: str, reason: str
) -> None:
    """With a typed error that is a ValueError too."""
    with pytest.raises(DataEncodeError, match=reason) as caught:
        to_plain(value)
    assert caught.value.path == path
    assert isinstance(caught.value, TurnledgerError)
    assert isinstance(caught.value, ValueError)


def test_a_value_that_holds_itself_is_refused() -> None:
    """As is one that the ledger would find too deep."""
    endless: list[Any] = []
    endless.append(endless)
    with pytest.raises(DataEncodeError, match="holds itself"):
        to_plain(endless)
    deep: Any = 0
    for _ in range(MAX_DEPTH):
        deep = [deep]
    assert to_plain(deep) == deep
    with pytest.raises(DataEncodeError, match="deeper"):
        to_plain([deep])


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "line 1, column 1"),
        ('{"a": 1,\n "b" 2}', "line 2, column 6"),
        ("NaN", "JSON has no NaN"),
        ("[1e999]", "JSON has no inf"),
        ('"\\ud800"', "surrogate"),
        ("[" * 100_000, "can't|cannot|not JSON"),
        ("[18446744073709551616]", "64 bits"),
        ("1" * 5000, "not JSON that can be read"),
        ("{'a': 1}", "line 1, column 2"),
    ],
)
def test_text_that_is_no_json_is_refused_saying_where(text: str, reason: str) -> None:
    """Whatever is wrong with it."""
    with pytest.raises(DataDecodeError, match=reason):
        read_json(text)


@given(st.text())
def test_reading_any_text_gives_data_or_a_typed_error(text: str) -> None:
    """Never another exception."""
    try:
        data = read_json(text)
    except DataDecodeError:
        return
    assert to_plain(data) == data
