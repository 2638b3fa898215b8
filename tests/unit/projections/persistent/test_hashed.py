"""Lists and maps that are values: their laws, whatever is put in and in whatever order."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.ledger.strategies import json_values
from turnledger.projections.digests import combine, list_add, list_start, map_add, map_digest
from turnledger.projections.persistent.hashed import (
    HashedList,
    HashedMap,
    OrderedMap,
    open_digest,
    own_copy,
    with_item,
    without_item,
)

values = json_values.filter(lambda value: value is not None)
keys = st.sampled_from([*"abcdefgh", "", "\n", "ü"])
# A step puts a value under a key, or removes the key (None); after some the digest is asked for.
steps = st.lists(st.tuples(keys, st.none() | values, st.booleans()), max_size=60)


def list_of(items: list[Any]) -> HashedList[Any]:
    found: HashedList[Any] = HashedList("test")
    for item in items:
        found = found.append(item)
    return found


def itself(value: Any) -> Any:
    return value


def map_digest_of(entries: dict[str, Any]) -> bytes:
    total = 0
    for key, value in entries.items():
        total = map_add(total, key, value)
    return combine("map", map_digest(total))


@given(st.lists(json_values))
def test_a_list_holds_what_was_appended_and_its_digest_is_the_running_hash(
    items: list[Any],
) -> None:
    """In order, from its domain on."""
    found = list_of(items)
    running = list_start("test")
    for item in items:
        running = list_add(running, item)
    assert (list(found), found.to_tuple(), len(found)) == (items, tuple(items), len(items))
    assert found.last == (items[-1] if items else None)
    assert found.digest == running


@settings(max_examples=50)
@given(st.lists(st.lists(json_values, max_size=5), max_size=8), st.integers(0, 8))
def test_a_list_that_grew_by_several_at_once_is_the_same(
    chunks: list[list[Any]], looked_at: int
) -> None:
    """Whether or not its digest was asked for on the way."""
    found: HashedList[Any] = HashedList("test")
    for place, chunk in enumerate(chunks):
        found = found.extend(tuple(chunk))
        if place == looked_at:
            assert found.digest
    items = [item for chunk in chunks for item in chunk]
    assert (list(found), len(found), found.digest) == (items, len(items), list_of(items).digest)
    assert list(reversed(found)) == items[::-1]


@given(st.lists(json_values, min_size=1), st.data())
def test_appending_leaves_the_old_list_as_it_was(items: list[Any], data: st.DataObject) -> None:
    """Two lists may go on from the same one, and share its digest's work."""
    cut = data.draw(st.integers(0, len(items) - 1))
    old = list_of(items[:cut])
    if data.draw(st.booleans()):
        assert old.digest
    one, two = old.append("one"), old.append("two")
    assert (list(old), list(one), list(two)) == (
        items[:cut],
        [*items[:cut], "one"],
        [*items[:cut], "two"],
    )
    assert one.digest != two.digest
    assert old.digest == list_of(items[:cut]).digest
    assert one.digest == list_of([*items[:cut], "one"]).digest


def test_lists_of_different_domains_have_different_digests() -> None:
    """Also while they are empty."""
    assert HashedList[int]("a").digest != HashedList[int]("b").digest


@given(steps)
def test_a_map_is_like_a_dict(given_steps: list[tuple[str, Any, bool]]) -> None:
    """The same entries in the same order; the digest is a function of the entries alone."""
    ours: HashedMap[Any] = HashedMap()
    plain: OrderedMap[Any] = OrderedMap()
    theirs: dict[str, Any] = {}
    for key, value, asked in given_steps:
        if value is None:
            ours, plain = ours.remove(key), plain.remove(key)
            theirs.pop(key, None)
        else:
            ours, plain = ours.put(key, value), plain.put(key, value)
            theirs[key] = value
        if asked:
            assert ours.digest == map_digest_of(theirs)
    for found in (ours, plain):
        assert list(found.items()) == list(theirs.items())
        assert (list(found), list(found.values())) == (list(theirs), list(theirs.values()))
        assert list(reversed(found)) == list(reversed(theirs))
        assert len(found) == len(theirs)
        assert all((key in found) == (key in theirs) for key in "abcxyz")
    assert ours.digest == map_digest_of(theirs)


@given(steps, st.integers(0, 60))
def test_changing_leaves_the_old_map_as_it_was(
    given_steps: list[tuple[str, Any, bool]], cut: int
) -> None:
    """Its entries and its digest, whoever asked for which when."""
    current: HashedMap[Any] = HashedMap()
    old, before = current, b""
    for place, (key, value, asked) in enumerate(given_steps):
        if place == cut:
            old = current
            before = old.digest if asked else b""
            entries = dict(old.items())
        current = current.remove(key) if value is None else current.put(key, value)
        if asked:
            assert current.digest
    if cut < len(given_steps):
        assert dict(old.items()) == entries
        assert old.digest == (before or map_digest_of(entries))


@settings(max_examples=50)
@given(steps)
def test_what_is_under_way_is_like_a_dict(given_steps: list[tuple[str, Any, bool]]) -> None:
    """Few things or many."""
    things: Any = {}
    theirs: dict[str, Any] = {}
    many = [(f"k{place}", place, False) for place in range(40)]
    ends = [(f"k{place}", None, False) for place in range(39, 3, -1)]
    for key, value, _ in [*given_steps, *many, *given_steps, *ends, *given_steps]:
        old, before = things, dict(things.items())
        if value is None:
            things = without_item(own_copy(things), key)
            theirs.pop(key, None)
        else:
            things = with_item(own_copy(things), key, value, itself)
            theirs[key] = value
        assert dict(old.items()) == before
        assert list(things.items()) == list(theirs.items())
        assert things.get(key) == theirs.get(key)
        assert open_digest(things, itself) == map_digest_of(theirs)


def test_a_map_forgets_keys_that_are_gone() -> None:
    """Ten thousand that came and went leave no more behind than a few."""
    found: OrderedMap[bool] = OrderedMap()
    for number in range(10_000):
        found = found.put(f"k{number}", True).remove(f"k{number - 3}")
    assert [*found] == ["k9997", "k9998", "k9999"]
    assert found._keys is not None
    assert found._keys.size < 100
    assert found._map.size < 100


def test_values_that_are_no_json_say_what_of_them_is_hashed() -> None:
    """`plain` for a map, `step` for a list."""
    of_lengths: HashedMap[bytes] = HashedMap(plain=len)
    assert of_lengths.put("a", b"xx").digest == of_lengths.put("a", b"yy").digest
    assert of_lengths.put("a", b"x").digest != of_lengths.put("a", b"yy").digest
    assert of_lengths.put("a", b"x").remove("a").digest == of_lengths.digest

    def step(running: bytes, item: object) -> bytes:
        return list_add(running, repr(item))

    one: HashedList[object] = HashedList("test", step)
    assert one.append(1).append({2}).digest == list_of(["1", "{2}"]).digest
