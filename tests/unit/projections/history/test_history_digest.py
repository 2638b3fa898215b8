"""Digests: of the content, not of the way there; the same in every process; carried along."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from turnledger.projections import digests as running_hash
from turnledger.projections.digests import (
    canonical,
    combine,
    list_add,
    list_start,
    map_add,
    map_digest,
    map_remove,
)
from turnledger.projections.history.blocks import (
    MediaBlock,
    TextBlock,
    ToolResultBlock,
    ToolUseBlock,
)
from turnledger.projections.history.message_history import MessageHistory

# Never changed to make a test pass: recorded runs hold digests that were made of these.
EMPTY = "db678c637583d8b9666ce468b6b0417c085a20f4f4c116af5d8b99f042986d67"
SPOKEN = "493948e9677565b953644df802ece04684c654a60d6903fac541ccaa1eea6308"

entries = st.dictionaries(st.text(max_size=4), st.integers() | st.text(max_size=4), max_size=6)


def spoken() -> MessageHistory:
    """A history with a block of every kind, a stub, and a call that is open."""
    history = MessageHistory.new("Sei kurz.", synthetic_lead=True)
    history = history.add_assistant(TextBlock("Grüße"), ToolUseBlock("a", "look", '{"n":1}'))
    history = history.add_user(MediaBlock("image", url="https://example.com/a.png"))
    history = history.add_assistant(ToolUseBlock("b", "x", "{}"), ToolUseBlock("c", "y", "{}"))
    return history.add_user(ToolResultBlock("c", "no", is_error=True), TextBlock("\x00\u2028"))


def test_known_histories_have_known_digests() -> None:
    """Written down once: another version of anything must give the same bytes."""
    assert MessageHistory.new().digest.hex() == EMPTY
    assert spoken().digest.hex() == SPOKEN
    assert len(spoken().digest) == 32


@pytest.mark.process
@pytest.mark.parametrize("seed", ["0", "1", "4242"])
def test_another_process_with_another_hash_seed_agrees(seed: str) -> None:
    """No set order and no id gets into a digest."""
    code = (
        "from tests.unit.projections.history.test_history_digest import spoken\n"
        "print(spoken().digest.hex())"
    )
    environment = {**os.environ, "PYTHONHASHSEED": seed}
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == SPOKEN


def test_when_it_is_asked_for_makes_no_difference() -> None:
    """A digest asked for at every step is the digest asked for once."""
    often, once = MessageHistory.new(), MessageHistory.new()
    for n in range(50):
        for block in (TextBlock(str(n)), ToolResultBlock("a", "ok")):
            often, once = often.add_user(block), once.add_user(block)
            assert len(often.digest) == 32
        often = often.add_assistant(ToolUseBlock("a", "t", "{}"), ToolUseBlock("b", "t", "{}"))
        once = once.add_assistant(ToolUseBlock("a", "t", "{}"), ToolUseBlock("b", "t", "{}"))
        assert len(often.digest) == 32
    assert often.digest == once.digest


def test_every_part_of_the_content_counts() -> None:
    """A change of any field, of an order, of a role or of a border between blocks is seen."""
    new = MessageHistory.new
    ask = new().add_user_text("go").add_assistant(ToolUseBlock("a", "t", "{}"))
    different = [
        new(),
        new("s"),
        new(synthetic_lead=True),
        new().add_user_text("ab"),
        new().add_user(TextBlock("a"), TextBlock("b")),
        new().add_user(TextBlock("b"), TextBlock("a")),
        new("ab").add_user_text("x"),
        new().add_user_text("ab").add_assistant(TextBlock("x")),
        new().add_user_text("ab").add_assistant(TextBlock("x")).add_user_text("y"),
        new().add_user(MediaBlock("image", url="u")),
        new().add_user(MediaBlock("image", blob="u")),
        new().add_user(MediaBlock("image", url="u", mime="m")),
        ask,
        ask.add_user(ToolResultBlock("a", "ok")),
        ask.add_user(ToolResultBlock("a", "ok", is_error=True)),
        ask.add_user(ToolResultBlock("a", "")),
        ask.add_user_text("ok"),
        ask.add_user_text("ok").add_assistant(TextBlock("x")),
        new().add_user_text("go").add_assistant(ToolUseBlock("a", "t", "{ }")),
        new().add_user_text("go").add_assistant(ToolUseBlock("a", "u", "{}")),
        new().add_user_text("go").add_assistant(ToolUseBlock("b", "t", "{}")),
    ]
    assert len({history.digest for history in different}) == len(different)


# --- the helper that other projections use too -------------------------------------


@settings(max_examples=200)
@given(entries, st.randoms(use_true_random=False))
def test_a_maps_sum_has_no_order_and_can_be_undone(
    entries: dict[str, object], shuffle: st.DrawFn
) -> None:
    """Any order of adding gives one sum; removing what was added gives the sum before."""
    total = 0
    for key, value in entries.items():
        total = map_add(total, key, value)
    order = list(entries)
    shuffle.shuffle(order)
    other = 0
    for key in order:
        other = map_add(other, key, entries[key])
    assert other == total
    for key in entries:
        other = map_remove(other, key, entries[key])
    assert other == 0
    assert len(map_digest(total)) == 32


@settings(max_examples=200)
@given(entries, entries)
def test_different_maps_have_different_sums(
    one: dict[str, object], other: dict[str, object]
) -> None:
    """Equal exactly when the maps are, key by key and value by value."""
    sums = []
    for entries in (one, other):
        total = 0
        for key, value in entries.items():
            total = map_add(total, key, value)
        sums.append(total)
    assert (sums[0] == sums[1]) == (canonical(one) == canonical(other))


@settings(max_examples=200)
@given(st.lists(st.text(max_size=3), max_size=5), st.lists(st.text(max_size=3), max_size=5))
def test_a_lists_running_hash_has_an_order(one: list[str], other: list[str]) -> None:
    """Equal exactly when the lists are, item by item."""

    def running(items: list[str]) -> bytes:
        value = list_start("test")
        for item in items:
            value = list_add(value, item)
        return value

    assert (running(one) == running(other)) == (one == other)
    assert list_start("test") != list_start("tests")


def test_canonical_text_is_sorted_and_plain() -> None:
    """Whatever order keys were set in; and a struct's fields are sorted too."""
    assert canonical({"b": 1, "a": [True, None, "é"]}) == '{"a":[true,null,"é"],"b":1}'.encode()
    assert canonical(ToolUseBlock("i", "n", "{}")) == (
        b'{"arguments":"{}","call_id":"i","kind":"tool_use","name":"n"}'
    )


def test_parts_and_domains_are_kept_apart() -> None:
    """Moving a byte from one part or name to the next gives another digest."""
    made = {
        combine("a", b"bc"),
        combine("ab", b"c"),
        combine("a", b"b", b"c"),
        combine("a", b"b,c"),
    }
    assert len(made) == 4
    assert running_hash.combine("a") != running_hash.list_start("a")
