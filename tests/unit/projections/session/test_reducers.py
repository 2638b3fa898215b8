"""Given the values of a slice and an event, when it is reduced, then the new values."""

from __future__ import annotations

from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.projections.given import folded, ident, inner, said
from turnledger.ledger import InnerMessage
from turnledger.projections import (
    Declarations,
    ReducerContext,
    append_all,
    inner_message_append,
    reducer,
    replace_latest,
    replace_latest_by,
    upsert_by,
)
from turnledger.projections.session.reducers import declared_reducers

CONTEXT = ReducerContext()
pairs = st.tuples(st.integers(0, 4), st.integers(0, 9))


def first(pair: tuple[int, int]) -> int:
    return pair[0]


def test_append_all_keeps_everything() -> None:
    """Also what is there already."""
    assert append_all((1, 2), 2, context=CONTEXT) == (1, 2, 2)


def test_replace_latest_keeps_one() -> None:
    """However many there were."""
    assert replace_latest((1, 2), 3, context=CONTEXT) == (3,)
    assert replace_latest((), 3, context=CONTEXT) == (3,)


@given(st.lists(pairs))
def test_upsert_by_keeps_one_value_a_key_at_the_first_ones_place(events: list[Any]) -> None:
    """As a dict does."""
    values: tuple[Any, ...] = ()
    for event in events:
        values = upsert_by(first)(values, event, context=CONTEXT)
    assert values == tuple({first(event): event for event in events}.values())


@given(st.lists(pairs))
def test_replace_latest_by_keeps_one_value_a_key_the_latest_last(events: list[Any]) -> None:
    """In the order of the latest of each key."""
    values: tuple[Any, ...] = ()
    for event in events:
        values = replace_latest_by(first)(values, event, context=CONTEXT)
    latest: dict[int, Any] = {}
    for event in events:
        latest.pop(first(event), None)
        latest[first(event)] = event
    assert values == tuple(latest.values())


def test_inner_message_append_ignores_a_message_it_has_seen() -> None:
    """By its id; the values are the very same."""
    values = (inner("user", "a", 0),)
    assert inner_message_append(values, inner("user", "b", 0), context=CONTEXT) is values


messages = st.builds(
    lambda evaluation_id, sequence, number: inner(
        "user", "x", sequence, evaluation_id=evaluation_id, message_id=ident(number)
    ),
    st.sampled_from(["e1", "e2"]),
    st.integers(0, 6),
    st.integers(0, 12),
)


@given(st.lists(messages, max_size=20))
def test_messages_stand_in_their_evaluations_order(given_messages: list[InnerMessage]) -> None:
    """Whatever order they came in; each id once; folding a slice gives the same."""
    values: tuple[InnerMessage, ...] = ()
    for message in given_messages:
        values = inner_message_append(values, message, context=CONTEXT)
    for evaluation_id in ("e1", "e2"):
        own = [m.sequence for m in values if m.evaluation_id == evaluation_id]
        assert own == sorted(own)
    assert {m.message_id for m in values} == {m.message_id for m in given_messages}
    assert len(values) == len({m.message_id for m in values})
    declarations = Declarations()
    declarations.register(InnerMessage, InnerMessage, inner_message_append)
    events = (
        said("user", "x", m.sequence, evaluation_id=m.evaluation_id, message_id=m.message_id)
        for m in given_messages
    )
    state = folded(*events, declarations=declarations).slices
    assert state.all("InnerMessage") == values


class Added(msgspec.Struct, frozen=True):
    by: int


class Total(msgspec.Struct, frozen=True):
    value: int = 10

    @reducer(on=Added)
    def add(self, event: Added) -> Total:
        return Total(self.value + event.by)

    def plain_method(self) -> int:
        return self.value


def test_a_declared_reducer_goes_on_from_the_latest_value_or_a_fresh_one() -> None:
    """And keeps that value only. The method is a method still."""
    found = declared_reducers(Total)
    assert list(found) == [Added]
    assert found[Added]((), Added(1), context=CONTEXT) == (Total(11),)
    assert found[Added]((Total(1), Total(2)), Added(1), context=CONTEXT) == (Total(3),)
    assert Total(1).add(Added(2)) == Total(3)


def test_a_class_without_reducers_declares_none() -> None:
    """Registering it registers nothing."""
    assert declared_reducers(Added) == {}
