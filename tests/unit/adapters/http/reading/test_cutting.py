"""Large values are cut for people: bounded, and never silently."""

from __future__ import annotations

import reprlib
from typing import Any, NamedTuple

import msgspec
from hypothesis import example, given
from hypothesis import strategies as st

from tests.unit.ledger.strategies import json_values
from turnledger.adapters.http.protocol.cut import CUTS, DEPTH, ENTRIES, TEXT, Cut, cut, cut_fields
from turnledger.projections.persistent.containers import PersistentList
from turnledger.projections.persistent.lazy_json import LazyList, lazy_list
from turnledger.projections.run_state.json_diff import escaped

# What a value and the list of what was shortened in it have together, at most.
BOUND = 200_000

texts = st.builds(lambda text, times: text * times, st.text(max_size=20), st.integers(0, 5000))
names = texts | st.text(max_size=8)
large_values = st.recursive(
    json_values | texts,
    lambda inner: st.one_of(
        st.builds(lambda one, times: [one] * times, inner, st.integers(0, 1200)),
        st.builds(
            lambda one, times, name: {f"{name}{n}": one for n in range(times)},
            inner,
            st.integers(0, 1200),
            st.text(max_size=5),
        ),
        st.builds(lambda one, times: nested(one, times), inner, st.integers(0, 40)),
        st.dictionaries(names, inner, max_size=4),
        st.lists(inner, max_size=4),
    ),
    max_leaves=6,
)


class Large(NamedTuple):
    """A value whose repr is short: hypothesis makes one of each example."""

    value: Any

    def __repr__(self) -> str:
        return reprlib.repr(self.value)


def nested(value: Any, levels: int) -> Any:
    for level in range(levels):
        value = {"a/~b": value} if level % 2 else [value]
    return value


def uncut(whole: Any, shown: Any, cuts: dict[str, Cut], pointer: str = "") -> set[str]:
    """The cuts in a value: each of them is true, and all the rest of it is as it was."""
    found = cuts.get(pointer)
    used = {pointer} if found else set[str]()
    if found is None:
        if not isinstance(whole, dict | list):
            assert msgspec.json.encode(shown) == msgspec.json.encode(whole), pointer
            return used
        assert len(shown) == len(whole), pointer
    else:
        assert found.total == len(whole), pointer
        if found.kind == "depth":
            assert shown is None
            return used
        assert len(shown) < len(whole), pointer
    if isinstance(whole, str):
        assert found is not None
        assert found.kind == "text"
        assert whole.startswith(shown)
        return used
    if isinstance(whole, dict):
        assert found is None or found.kind == "object"
        assert list(shown) == list(whole)[: len(shown)]
        pairs = [(name, whole[name], shown[name]) for name in shown]
    else:
        assert found is None or found.kind == "list"
        pairs = [(str(n), whole[n], one) for n, one in enumerate(shown)]
    for name, inner, one in pairs:
        used |= uncut(inner, one, cuts, f"{pointer}/{escaped(name)}")
    return used


@given(large_values.map(Large))
@example(Large({"a" * 30_000: 1, "b": 2}))
@example(Large({f"{n}" * 300: nested("x" * 2001, 3) for n in range(300)}))
@example(Large([["\x00" * 2001] * 100] * 100))
def test_what_is_cut_is_listed_and_the_answer_is_bounded(large: Large) -> None:
    """Each shortened value has its true length in the list; what is not there is unchanged."""
    fields = {"items": [large.value] * 200, "rest": {"one": large.value}}
    for value, (shown, cuts) in (
        (large.value, cut(large.value)),
        (fields, cut(fields, fields=True)),
    ):
        by_pointer = {one.pointer: one for one in cuts}
        assert len(by_pointer) == len(cuts) <= CUTS
        assert uncut(value, shown, by_pointer) == set(by_pointer)
        assert len(msgspec.json.encode((shown, cuts))) <= BOUND
    assert shown.keys() == fields.keys()


@given(json_values)
def test_a_small_value_stays_as_it_is(value: Any) -> None:
    """Nothing is cut off, and nothing is listed."""
    assert cut(value) == (value, [])


def test_limits_of_texts_entries_and_levels() -> None:
    """What is as long as it may be is whole; one more is cut off."""
    value = {"text": "é" * TEXT, "list": [0] * ENTRIES, "deep": nested(1, DEPTH - 1)}
    assert cut(value) == (value, [])
    more = {"text": "é" * (TEXT + 1), "list": [0] * (ENTRIES + 1), "deep": nested(1, DEPTH + 1)}
    shown, cuts = cut(more)
    assert (shown["text"], shown["list"]) == (value["text"], value["list"])
    assert [(one.kind, one.total) for one in cuts] == [
        ("text", TEXT + 1),
        ("list", ENTRIES + 1),
        ("depth", 1),
    ]
    assert shown["deep"] != more["deep"]


def test_small_parts_stay_whole_beside_large_ones() -> None:
    """One long item does not push those after it out of a window."""
    items = [{"n": n, "text": "short"} for n in range(20)]
    items[3]["text"] = ["x" * TEXT] * 100  # type: ignore[assignment]
    shown, cuts = cut({"items": items})
    assert len(shown["items"]) == len(items)
    assert [one for n, one in enumerate(shown["items"]) if n != 3] == items[:3] + items[4:]
    assert [one.pointer for one in cuts if one.kind == "list"] == ["/items/3/text"]
    # It has nearly all of the room.
    assert len(shown["items"][3]["text"]) > 40


def test_lazy_lists_are_not_made() -> None:
    """A list that grows with the run is named with its length, and costs nothing."""

    def make(item: int) -> Any:
        raise AssertionError("an item was made")

    items: LazyList[int] = lazy_list(PersistentList(range(5)), make)
    assert cut({"turns": items, "n": 1}) == (
        {"turns": [], "n": 1},
        [Cut("/turns", "list", 5)],
    )
    assert cut(lazy_list(PersistentList[int](), make)) == ([], [])


class Answer(msgspec.Struct):
    """An answer with a list that the client asked for."""

    items: Any
    rest: Any
    cut: Any = None


def test_fields_of_an_answer() -> None:
    """Lists of the answer itself have as many items as were asked for; pointers name the field."""
    made = cut_fields(Answer([1] * 500, {"long": [1] * 500}), "items", "rest")
    assert made.items == [1] * 500
    assert made.rest == {"long": [1] * ENTRIES}
    assert made.cut == [Cut("/rest/long", "list", 500)]
