"""Whatever is added, in whatever order, a history is valid at every step and forgets nothing.

Two judges who do not know the code: the providers' rules (provider_rules.py), and a plain
list-and-loop version of the history below, which copies everything at every step.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, seed, settings
from hypothesis import strategies as st

from tests.soaking import Search
from tests.unit.projections.provider_rules import violations
from turnledger.projections.history.blocks import (
    STUB_TEXT,
    SYNTHETIC_LEAD,
    ChatTurn,
    MediaBlock,
    TextBlock,
    ToolResultBlock,
    ToolUseBlock,
)
from turnledger.projections.history.message_history import MessageHistory

# --- messages, from sensible to hostile --------------------------------------------


class Hostile:
    """Answers every question with an error, also what its class is."""

    def __getattribute__(self, name: str) -> Any:
        raise RuntimeError(name)

    def __eq__(self, other: object) -> bool:
        raise RuntimeError("eq")

    def __bool__(self) -> bool:
        raise RuntimeError("bool")

    def __iter__(self) -> Any:
        raise RuntimeError("iter")

    __hash__ = None


class HostileText(str):
    """A text that can't be compared."""

    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        raise RuntimeError("eq")

    __hash__ = str.__hash__


class Word(StrEnum):
    USER = "user"
    A = "a"


odd: st.SearchStrategy[Any] = st.one_of(
    st.sampled_from([None, 0, 1.5, True, "", "user", b"x", (), [], {}, object, Hostile]),
    st.builds(Hostile),
    st.sampled_from([HostileText("user"), HostileText("a"), Word.USER, Word.A, "\ud800"]),
)
texts = st.sampled_from(["hi", "there", "", " ", "\n", "é", "\ud83d\ude00", "x\udfff"])
ids = st.sampled_from(["a", "b", "c", "d"])
calls = st.builds(ToolUseBlock, ids, st.just("tool"), st.sampled_from(["{}", '{"n":1}']))
results = st.builds(ToolResultBlock, ids, st.sampled_from(["ok", ""]), st.booleans())
media = st.builds(MediaBlock, st.just("image"), url=st.just("u"), prompt_hint=texts)
odd_blocks = st.one_of(
    odd,
    st.builds(TextBlock, odd),
    st.builds(MediaBlock, odd | st.just("image"), odd, odd, id=odd),
    st.builds(ToolUseBlock, odd | ids, odd | ids, odd),
    st.builds(ToolResultBlock, odd | ids, odd | texts, odd | st.booleans()),
)
user_blocks = st.one_of(results, results, st.builds(TextBlock, texts), media)
assistant_blocks = st.one_of(calls, calls, st.builds(TextBlock, texts))
any_blocks = st.one_of(user_blocks, assistant_blocks, odd_blocks)
few = {"max_size": 4}
turns = st.one_of(
    st.builds(ChatTurn, st.just("user"), st.lists(user_blocks, **few).map(tuple)),
    st.builds(ChatTurn, st.just("assistant"), st.lists(assistant_blocks, **few).map(tuple)),
)
messages = st.one_of(
    turns,
    turns,
    turns,
    st.builds(
        ChatTurn, st.sampled_from(["user", "assistant"]), st.lists(any_blocks, **few).map(tuple)
    ),
    st.builds(ChatTurn, odd, st.lists(any_blocks, **few), odd),
    st.builds(ChatTurn, st.just("user"), odd, st.booleans()),
    st.just(SYNTHETIC_LEAD),
    odd,
)
conversations = st.lists(messages, max_size=12)


# --- the second opinion ------------------------------------------------------------


class Plain:
    """The rules once more, with lists and loops: every step reads everything."""

    def __init__(self) -> None:
        self.turns: list[ChatTurn] = []

    def add(self, role: str, blocks: tuple[Any, ...]) -> None:
        turns = self.turns
        if role == "assistant":
            blocks = self._new_calls(blocks)
            if not blocks or not turns:
                return
            if turns[-1].role == "assistant":
                blocks = turns.pop().blocks + blocks
            else:
                turns[-1] = self._answered(turns[-1], ())
            turns.append(ChatTurn("assistant", blocks))
            return
        if turns and turns[-1].synthetic:
            if any(not isinstance(block, ToolResultBlock) for block in blocks):
                turns.clear()
            else:
                return
        before = turns.pop() if turns and turns[-1].role == "user" else ChatTurn("user", ())
        said = self._answered(before, blocks, stubs=False)
        if said.blocks:
            turns.append(said)

    def _new_calls(self, blocks: tuple[Any, ...]) -> tuple[Any, ...]:
        last = self.turns[-1] if self.turns else None
        seen = {b.call_id for b in last.blocks if isinstance(b, ToolUseBlock)} if last else set()
        kept = []
        for block in blocks:
            if isinstance(block, ToolUseBlock):
                if block.call_id in seen:
                    continue
                seen.add(block.call_id)
            kept.append(block)
        return tuple(kept)

    def _answered(self, turn: ChatTurn, more: tuple[Any, ...], stubs: bool = True) -> ChatTurn:
        """The user's turn with these blocks too, its results where they belong."""
        asker = [one for one in self.turns if one is not turn][-1:]
        asked = [b.call_id for one in asker for b in one.blocks if isinstance(b, ToolUseBlock)]
        came: dict[str, ToolResultBlock] = {}
        others = []
        for block in turn.blocks + more:
            if not isinstance(block, ToolResultBlock):
                others.append(block)
            elif block.call_id in asked:
                came.setdefault(block.call_id, block)
        if stubs:
            came = {c: came.get(c) or ToolResultBlock(c, STUB_TEXT, True) for c in asked}
        answers = [came[c] for c in asked if c in came]
        return ChatTurn("user", (*answers, *others), turn.synthetic)


# --- the laws ----------------------------------------------------------------------


def check_everything(conversation: list[Any]) -> None:
    """All laws on one sequence of messages."""
    history = MessageHistory.new()
    values = [history]
    for message in conversation:
        history = history.add(message)
        values.append(history)
    seen = [(one.to_list(), one.digest, one.repairs, one.open_calls, len(one)) for one in values]
    for value, (listed, digest, _, open_calls, length) in zip(values, seen, strict=True):
        assert violations(value.for_send()) == []
        assert violations(value.for_send("skip")) == []
        assert length == len(listed)
        assert value.last == (listed[-1] if listed else None)
        assert value.has_synthetic_lead == bool(listed and listed[0].synthetic)
        again = MessageHistory.rebuilt(listed)
        assert again.to_list() == listed
        assert again.digest == digest
        assert again == value
        assert again.repairs == ()
        assert again.open_calls == open_calls
        for turns in (listed, value.for_send()):
            assert MessageHistory.from_list(turns).to_list() == list(value.for_send())
        if not open_calls:
            assert list(value.for_send()) == list(value.for_send("skip")) == listed
    # A second future from every older value changes nothing of the first.
    for value in values:
        value.add_assistant(ToolUseBlock("a", "tool", "{}"), TextBlock("else")).add_user_text("z")
        value.add_user(ToolResultBlock("b", "else"), TextBlock("else")).add_assistant()
    now = [(one.to_list(), one.digest, one.repairs, one.open_calls, len(one)) for one in values]
    assert now == seen
    # Nothing vanishes silently: a message that changed nothing is on record.
    for older, newer in pairwise(values):
        if newer.to_list() == older.to_list():
            assert len(newer.repairs) > len(older.repairs)


@settings(max_examples=150)
@given(conversations)
def test_every_prefix_of_anything_is_valid(conversation: list[Any]) -> None:
    """Sendable both ways, rebuilt from its turns, equal digests, and older values stay."""
    check_everything(conversation)


def search(
    name: str, check: Callable[[Any], None], drawn: st.SearchStrategy[Any], goal: int, share: float
) -> None:
    """Try 1,000 examples a round, each round others, until there were so many or time is up."""
    tried = Search(name, goal={"sequences": goal})
    for number in tried.rounds(share):

        @seed(number)
        @settings(max_examples=1_000, derandomize=False)
        @given(drawn)
        def holds(example: Any) -> None:
            tried.count(sequences=1)
            check(example)

        with tried.blaming(f"round {number}"):
            holds()
    assert tried.problems == []


@pytest.mark.soak
def test_every_prefix_of_anything_is_valid_at_length() -> None:
    """The same with a hundred thousand sequences."""
    search("histories", check_everything, conversations, goal=100_000, share=0.02)


def check_against_plain(conversation: list[ChatTurn]) -> None:
    history, plain = MessageHistory.new(), Plain()
    for message in conversation:
        history = history.add(message)
        sound = [
            one
            for one in message.blocks
            if not (isinstance(one, TextBlock) and not one.text.strip())
        ]
        plain.add(message.role, tuple(sound))
        assert history.to_list() == plain.turns


@given(conversations)
def test_what_was_sent_and_what_came_since_is_the_whole(conversation: list[Any]) -> None:
    """Put together step by step, what is to be sent is what `for_send` gives, from any history."""
    history, sent = MessageHistory.new(synthetic_lead=True), []
    for message in conversation:
        history = history.add(message)
        standing, fresh = history.for_send_after(sent)
        sent = sent[:standing] + fresh
        assert tuple(sent) == history.for_send()
    again = MessageHistory.rebuilt(history.to_list())
    standing, fresh = again.for_send_after(sent)
    assert tuple(sent[:standing] + fresh) == again.for_send()


sound_texts = st.builds(TextBlock, st.sampled_from(["hi", "é", " "]))
sound_turns = st.one_of(
    st.builds(ChatTurn, st.just("user"), st.lists(results | sound_texts, **few).map(tuple)),
    st.builds(ChatTurn, st.just("assistant"), st.lists(calls | sound_texts, **few).map(tuple)),
)
sound_conversations = st.tuples(
    st.sampled_from([[], [ChatTurn("user", (TextBlock("go"),))]]),
    st.lists(sound_turns, max_size=14),
).map(lambda both: both[0] + both[1])


@settings(max_examples=150)
@given(sound_conversations)
def test_it_agrees_with_a_plain_version(conversation: list[ChatTurn]) -> None:
    """Turn by turn, the same outcome as code that copies and re-reads everything."""
    check_against_plain(conversation)


@pytest.mark.soak
def test_it_agrees_with_a_plain_version_at_length() -> None:
    """The same with twenty thousand sequences."""
    search("histories-plain", check_against_plain, sound_conversations, goal=20_000, share=0.01)


@settings(max_examples=150)
@given(conversations, conversations)
def test_digests_are_equal_exactly_when_contents_are(one: list[Any], other: list[Any]) -> None:
    """Digest, equality, hash and the list of turns say the same."""
    first, second = MessageHistory.rebuilt(one), MessageHistory.rebuilt(other)
    same = first.to_list() == second.to_list()
    assert (first.digest == second.digest) == (first == second) == same
    assert not same or hash(first) == hash(second)


@settings(max_examples=200)
@given(st.permutations(list("abcdef")), st.integers(0, 6), st.booleans())
def test_the_order_of_arrival_leaves_no_trace(
    arrival: list[str], before: int, together: bool
) -> None:
    """Parallel results give the same bytes and digest in every order, around a text or not."""
    asked = MessageHistory.new().add_user_text("go")
    asked = asked.add_assistant(*[ToolUseBlock(one, "tool", "{}") for one in "abcdef"])
    came = [ToolResultBlock(one, f"of {one}") for one in arrival]
    history = asked
    if together:
        history = history.add_user(*came[:before], TextBlock("hm"), *came[before:])
    else:
        for place in range(7):
            history = history.add_user_text("hm") if place == before else history
            history = history.add_user(came[place]) if place < 6 else history
    sorted_results = [ToolResultBlock(one, f"of {one}") for one in "abcdef"]
    expected = asked.add_user(*sorted_results, TextBlock("hm"))
    assert history.to_list() == expected.to_list()
    assert history.digest == expected.digest


@settings(max_examples=150)
@given(odd)
def test_add_takes_anything(thing: Any) -> None:
    """In every position: as a message, a role, the blocks, a block, a field of a block."""
    history = MessageHistory.new().add_user_text("hi").add_assistant(ToolUseBlock("a", "t", "{}"))
    for message in (
        thing,
        ChatTurn(thing, (TextBlock("x"),)),
        ChatTurn("user", thing),
        ChatTurn("user", (thing, TextBlock("x")), thing),
        ChatTurn("assistant", (thing, ToolUseBlock(thing, thing, thing))),
        ChatTurn("user", (ToolResultBlock(thing, thing, thing), MediaBlock(thing, thing))),
        ChatTurn("user", (ToolResultBlock("a", thing), TextBlock(thing))),
        ChatTurn("user", (ToolResultBlock("a", "ok", thing),)),
        ChatTurn("user", (ToolResultBlock(thing, "ok"),)),
        ChatTurn("user", (MediaBlock("image", "u", thing), MediaBlock("image", "u", id=thing))),
        ChatTurn("assistant", (ToolUseBlock(thing, "t", "{}"), ToolUseBlock("b", thing, "{}"))),
        ChatTurn("assistant", (ToolUseBlock("b", "t", thing),), thing),
    ):
        after = history.add(message)
        assert violations(after.for_send()) == []
        assert after.to_list()[0] == history.to_list()[0]
    assert violations(history.add_user_text(thing).for_send()) == []
