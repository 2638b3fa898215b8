"""The persistent list: it is a list, its versions stay as they were and share what they can."""

from __future__ import annotations

from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from turnledger.projections.digests import list_add, list_start
from turnledger.projections.persistent.containers import ListBuilder, PersistentList
from turnledger.projections.persistent.hashed import HashedList

# Around the widths of one, two and three levels of branches.
LENGTHS = (0, 1, 31, 32, 33, 63, 64, 1023, 1024, 1055, 1056, 1057, 32 * 1024 + 40)


class Step(msgspec.Struct):
    """One of the lists so far is gone on from: some items more, and one of its own replaced."""

    which: int
    more: int
    replaced: int
    asked: bool = False


steps = st.lists(
    st.builds(
        Step,
        st.integers(0, 100),
        st.sampled_from((0, 1, 2, 30, 33, 70, 1030)),
        st.integers(-1, 2000),
        st.booleans(),
    ),
    max_size=12,
)


def differing(ours: list[Any], theirs: list[Any]) -> list[int]:
    pairs = zip(ours, theirs, strict=False)
    return [place for place, (one, other) in enumerate(pairs) if one is not other]


@given(steps)
def test_lists_that_branch_off_are_lists(given_steps: list[Step]) -> None:
    """Whatever goes on from where: items both ways, by place and by slice, and what differs."""
    known: list[tuple[PersistentList[Any], list[Any]]] = [(PersistentList(), [])]
    for step in given_steps:
        ours, plain = known[step.which % len(known)]
        more = [object() for _ in range(step.more)]
        ours, plain = ours.extend(more), [*plain, *more]
        if 0 <= step.replaced < len(plain):
            plain[step.replaced] = object()
            ours = ours.replace(step.replaced, plain[step.replaced])
        known.append((ours, plain))
    for ours, plain in known:
        assert (list(ours), list(reversed(ours)), len(ours)) == (plain, plain[::-1], len(plain))
        assert [ours[place] for place in range(len(plain))] == plain
        assert list(ours.after(33)) == plain[33:]
        assert (ours[5:40], ours[-3:], ours[::2]) == (plain[5:40], plain[-3:], plain[::2])
        for other, others in known:
            assert list(ours.differences(other)) == differing(plain, others)


@given(steps)
def test_a_hashed_list_has_the_digest_of_its_items(given_steps: list[Step]) -> None:
    """Whichever list was asked before, of those that share its items."""
    known: list[tuple[HashedList[Any], list[Any]]] = [(HashedList("test"), [])]
    for number, step in enumerate(given_steps):
        ours, plain = known[step.which % len(known)]
        if step.asked:
            assert ours.digest
        more = [f"{number}.{item}" for item in range(step.more)]
        known.append((ours.extend(more), [*plain, *more]))
    for ours, plain in reversed(known):
        running = list_start("test")
        for item in plain:
            running = list_add(running, item)
        assert ours.digest == running


def test_lists_of_every_depth_grow_by_one_and_at_once() -> None:
    """The same items, and one more in each place where a tree could break."""
    grown: PersistentList[int] = PersistentList()
    for number in range(max(LENGTHS) + 1):
        if number in LENGTHS:
            assert list(grown) == list(PersistentList(range(number))) == list(range(number))
            assert number == 0 or (grown[0], grown[-1]) == (0, number - 1)
            if number:
                changed = grown.replace(number // 2, -1)
                assert (changed[number // 2], grown[number // 2]) == (-1, number // 2)
        grown = grown.append(number)


def test_a_digest_hashes_what_came_since_the_last_one() -> None:
    """Also where the list that was asked is thrown away, and its parent goes on."""
    hashed: list[int] = []

    def step(running: bytes, item: int) -> bytes:
        hashed.append(item)
        return list_add(running, item)

    parent: HashedList[int] = HashedList("test", step, range(10_000))
    assert parent.append(1).digest
    hashed.clear()
    for number in range(100):
        assert parent.append(number).digest
        parent = parent.append(number)
    assert len(hashed) <= 100 * 33
    hashed.clear()
    for number in range(100):
        parent = parent.append(number)
        assert parent.digest
    assert len(hashed) <= 100 + 32


def test_a_builder_makes_its_changes_at_once() -> None:
    """Items of before and new ones, replaced or not; the list that it began with stays."""
    before = PersistentList(range(100))
    builder = ListBuilder(before)
    assert builder.append(100) == 100
    builder.replace(100, -100)
    builder.replace(7, -7)
    assert len(builder) == 101
    assert list(reversed(builder)) == list(builder.done())[::-1]
    assert list(builder.done()) == [*range(7), -7, *range(8, 100), -100]
    assert list(before) == list(range(100))
