"""Limits as settings, and the check that free JSON is JSON."""

from __future__ import annotations

from typing import Any

import pytest

from turnledger.ledger import InvalidEventError, InvalidInputError, LimitExceededError, Limits
from turnledger.ledger.events.limits import BATCH_CEILING, check_json


@pytest.mark.parametrize("name", Limits.__struct_fields__)
@pytest.mark.parametrize("bad", [0, -1, 1.5, "7", None])
def test_a_limit_is_a_whole_number_above_zero(name: str, bad: Any) -> None:
    """The error names the setting."""
    with pytest.raises(InvalidInputError, match=name):
        Limits(**{name: bad})


def test_some_limits_have_a_ceiling() -> None:
    """A batch has to fit 12 bits, a depth the decoder's recursion."""
    assert Limits(max_batch_events=BATCH_CEILING).max_batch_events == 4096
    with pytest.raises(InvalidInputError, match="max_batch_events"):
        Limits(max_batch_events=BATCH_CEILING + 1)
    assert Limits(max_json_depth=200).max_json_depth == 200
    with pytest.raises(InvalidInputError, match="max_json_depth"):
        Limits(max_json_depth=201)


def test_what_json_can_hold_is_accepted() -> None:
    """Text, numbers of 64 bits, true, false, null, lists, tuples and objects of these."""
    for value in (
        None,
        True,
        "",
        0,
        -(2**63),
        2**64 - 1,
        1.5,
        [],
        (),
        {},
        {"a": [1, ("b", {"c": None})]},
    ):
        check_json(value, "field", Limits())


@pytest.mark.parametrize(
    ("value", "where"),
    [
        ({1}, "field: set"),
        (b"x", "field: bytes"),
        ([1, object()], r"field\[1\]: object"),
        ({"a": {"b": [None, 2j]}}, r"field\.a\.b\[1\]: complex"),
        ({"a": {7: 1}}, r"field\.a: object keys must be text, got 7"),
        (float("nan"), "field: JSON has no nan"),
        ([-float("inf")], r"field\[0\]: JSON has no -inf"),
        ({"n": 2**64}, r"field\.n: .* 64 bits"),
        (-(2**63) - 1, "field: .* 64 bits"),
        (iter([]), "field: list_iterator"),
    ],
)
def test_what_json_can_not_hold_is_refused_with_its_place(value: Any, where: str) -> None:
    """The path leads there."""
    with pytest.raises(InvalidEventError, match=where):
        check_json(value, "field", Limits())


def test_depth_is_counted_exactly() -> None:
    """A plain value has depth 0, a list of plain values 1."""
    limits = Limits(max_json_depth=2)
    check_json([["x"]], "field", limits)
    with pytest.raises(LimitExceededError, match="max_json_depth") as caught:
        check_json([[["x"]]], "field", limits)
    assert (caught.value.limit, caught.value.found) == (2, 3)


def test_data_that_contains_itself_is_too_deep() -> None:
    """A circle ends at the limit."""
    circle: list[Any] = []
    circle.append({"again": circle})
    with pytest.raises(LimitExceededError):
        check_json(circle, "field", Limits())
