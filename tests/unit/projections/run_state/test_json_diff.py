"""What differs between two JSON values: a JSON Patch that also says what was."""

from __future__ import annotations

from operator import eq
from typing import Any

import jsonpatch
import msgspec
from hypothesis import given
from hypothesis import strategies as st

from turnledger.projections.digests import canonical
from turnledger.projections.persistent.containers import PersistentList
from turnledger.projections.persistent.lazy_json import lazy_list
from turnledger.projections.run_state.json_diff import Change, changes

texts = st.sampled_from(["", "a", "b", "a/b", "~", "~1", "é"])
values = st.recursive(
    st.none() | st.booleans() | st.integers(-2, 2) | st.sampled_from([1.0, 0.5]) | texts,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts, inner, max_size=4),
    max_leaves=12,
)


@given(values, values)
def test_changes_are_a_json_patch(before: Any, after: Any) -> None:
    """Any program that knows RFC 6902 gets from one value to the other."""
    found = list(changes(before, after))
    for patch in (msgspec.to_builtins(found), [change.operation() for change in found]):
        assert canonical(jsonpatch.apply_patch(before, patch)) == canonical(after)


@given(values, values)
def test_the_way_back_is_the_same_the_other_way_round(before: Any, after: Any) -> None:
    """What one adds the other removes, and what was one's value is what the other's was."""
    back = {"add": "remove", "remove": "add", "replace": "replace"}
    there = [(back[c.op], c.path, c.value, c.was) for c in changes(before, after)]
    assert sorted(map(repr, there)) == sorted(
        repr((c.op, c.path, c.was, c.value)) for c in changes(after, before)
    )


def test_items_that_both_lists_end_with_stay() -> None:
    """What comes in at the front is one operation."""
    assert list(changes([2, 3], [1, 2, 3])) == [Change("add", "/0", value=1)]
    assert list(changes({"a": [1, 2, 3]}, {"a": [1, 3]})) == [Change("remove", "/a/1", was=2)]


def test_values_that_python_takes_for_equal_are_told_apart() -> None:
    """1, 1.0 and true are three values."""
    assert list(changes([1], [1.0])) == [Change("replace", "/0", was=1, value=1.0)]
    assert list(changes([1], [True])) == [Change("replace", "/0", was=1, value=True)]
    assert list(changes({"a": 1}, {"a": 1})) == []
    assert list(changes([1, {"a": 2}], [1.0, {"a": 2.0}], eq)) == []


def test_what_is_nested_very_deep_is_compared_too() -> None:
    """Up to a depth step by step, below that as a whole."""

    def nested(value: int) -> Any:
        found: Any = value
        for _ in range(500):
            found = [found]
        return found

    (change,) = changes(nested(1), nested(2))
    assert change.path == "/0" * 100
    assert list(changes(nested(1), nested(1))) == []


@given(st.lists(st.integers(0, 3), max_size=70), st.integers(0, 90), st.lists(st.integers(0, 3)))
def test_lazy_lists_have_the_changes_of_their_lists(
    items: list[int], place: int, more: list[int]
) -> None:
    """Also where objects differ that are equal, and in a list that grew and was changed."""
    earlier: PersistentList[list[int]] = PersistentList([[item] for item in items])
    later = earlier.extend([[item] for item in more])
    if place < len(items):
        later = later.replace(place, [(items[place] + 1) % 3])
    for one, other in ((earlier, later), (later, earlier)):
        found = list(changes({"a": lazy_list(one, list)}, {"a": lazy_list(other, list)}))
        assert found == list(changes({"a": list(one)}, {"a": list(other)}))


def test_of_lazy_lists_only_what_differs_is_made() -> None:
    """An item that is replaced long before the end, and one that is added."""
    made: list[int] = []

    def make(item: int) -> int:
        made.append(item)
        return item

    earlier = PersistentList(range(5_000))
    replaced = earlier.replace(70, -70)
    found = list(changes(lazy_list(earlier, make), lazy_list(replaced, make)))
    assert found == [Change("replace", "/70", 70, -70)]
    assert made == [70, -70]
    made.clear()
    found = list(changes(lazy_list(replaced, make), lazy_list(replaced.append(5), make)))
    assert found == [Change("add", "/5000", value=5)]
    assert made == [5]
