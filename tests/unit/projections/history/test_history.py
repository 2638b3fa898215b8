"""`MessageHistory` as its users meet it: a value that is added to, read, sent and described."""

from __future__ import annotations

import copy
import gc
import pickle
import threading
from typing import Any

import pytest

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
from turnledger.projections.history.message_history import (
    MessageHistory,
    completed,
    listed_turns,
)
from turnledger.projections.history.validate import Repair
from turnledger.projections.persistent.containers import PersistentMap

X, Y = ToolUseBlock("x", "search", '{"q":"a"}'), ToolUseBlock("y", "fetch", "{}")
RX, RY = ToolResultBlock("x", "found"), ToolResultBlock("y", "fetched")
STUB_X = ToolResultBlock("x", STUB_TEXT, is_error=True)
STUB_Y = ToolResultBlock("y", STUB_TEXT, is_error=True)
HI, ONE, TWO = TextBlock("hi"), TextBlock("one"), TextBlock("two")


def user(*blocks: Any) -> ChatTurn:
    return ChatTurn("user", blocks)


def assistant(*blocks: Any) -> ChatTurn:
    return ChatTurn("assistant", blocks)


def test_an_empty_history_has_nothing_to_send() -> None:
    """No turns, no last one, no repairs; and it says so."""
    history = MessageHistory.new()
    assert history.to_list() == []
    assert history.for_send() == history.for_send("skip") == ()
    assert history.last is None
    assert len(history) == 0
    assert history.open_calls == history.repairs == ()
    assert history.describe() == "no turns"


def test_the_ways_in_are_one_way() -> None:
    """add_user, add_assistant, add_user_text and from_list do what add does."""
    picture = MediaBlock("image", blob="b" * 64, mime="image/png", prompt_hint="a map", id="m1")
    turns = [user(HI, picture), assistant(ONE, X), user(RX, TWO)]
    by_hand = MessageHistory.new("Be brief.").add_user(HI, picture).add_assistant(ONE, X)
    by_hand = by_hand.add_user(RX).add_user_text("two")
    assert by_hand == MessageHistory.from_list(turns, "Be brief.")
    assert by_hand.to_list() == turns == list(by_hand.for_send())
    assert by_hand.last == turns[-1]
    assert len(by_hand) == 3


def test_two_futures_of_one_history() -> None:
    """Both are whole, and what they came from is as it was."""
    asked = MessageHistory.new().add_user(HI).add_assistant(X, Y)
    left, right = asked.add_user(RX), asked.add_user(RY)
    assert left.to_list()[-1] == user(RX)
    assert right.to_list()[-1] == user(RY)
    assert left.add_user(RY) == right.add_user(RX) == asked.add_user(RX, RY)
    assert asked.open_calls == (X, Y)
    assert left.open_calls == (Y,)
    assert asked.to_list() == [user(HI), assistant(X, Y)]
    assert left.add_assistant(ONE).to_list()[2] == user(RX, STUB_Y)
    assert right.add_assistant(ONE).to_list()[2] == user(STUB_X, RY)


def test_the_list_is_the_readers_own() -> None:
    """Changing it changes no history."""
    history = MessageHistory.new().add_user(HI)
    history.to_list().clear()
    assert history.to_list() == [user(HI)]


@pytest.mark.parametrize(
    ("given", "stubbed", "skipped"),
    [
        ([user(HI)], [user(HI)], [user(HI)]),
        ([user(HI), assistant(ONE)], [user(HI), assistant(ONE)], [user(HI), assistant(ONE)]),
        (
            [user(HI), assistant(ONE, X)],
            [user(HI), assistant(ONE, X), user(STUB_X)],
            [user(HI), assistant(ONE)],
        ),
        ([user(HI), assistant(X)], [user(HI), assistant(X), user(STUB_X)], [user(HI)]),
        (
            [user(HI), assistant(X, Y), user(RY)],
            [user(HI), assistant(X, Y), user(STUB_X, RY)],
            [user(HI), assistant(Y), user(RY)],
        ),
        (
            [user(HI), assistant(X, Y), user(TWO, RY)],
            [user(HI), assistant(X, Y), user(STUB_X, RY, TWO)],
            [user(HI), assistant(Y), user(RY, TWO)],
        ),
        (
            [user(HI), assistant(X), user(TWO)],
            [user(HI), assistant(X), user(STUB_X, TWO)],
            [user(HI, TWO)],
        ),
        (
            [user(HI), assistant(Y), user(RY, ONE), assistant(X), user(TWO)],
            [user(HI), assistant(Y), user(RY, ONE), assistant(X), user(STUB_X, TWO)],
            [user(HI), assistant(Y), user(RY, ONE, TWO)],
        ),
        (
            [user(HI), assistant(X), user(ONE), assistant(Y), user(TWO)],
            [user(HI), assistant(X), user(STUB_X, ONE), assistant(Y), user(STUB_Y, TWO)],
            [user(HI), assistant(X), user(STUB_X, ONE, TWO)],
        ),
        (
            [SYNTHETIC_LEAD, assistant(X)],
            [SYNTHETIC_LEAD, assistant(X), user(STUB_X)],
            [SYNTHETIC_LEAD],
        ),
        (
            [SYNTHETIC_LEAD, assistant(X), user(TWO)],
            [SYNTHETIC_LEAD, assistant(X), user(STUB_X, TWO)],
            [user(TWO)],
        ),
    ],
)
def test_open_calls_are_stubbed_or_skipped_when_sending(
    given: list[ChatTurn], stubbed: list[ChatTurn], skipped: list[ChatTurn]
) -> None:
    """Exactly so, and the history itself keeps them open."""
    history = MessageHistory.rebuilt(given)
    before = history.to_list()
    assert list(history.for_send()) == list(history.for_send("stub")) == stubbed
    assert list(history.for_send("skip")) == skipped
    assert violations(stubbed) == violations(skipped) == []
    assert history.to_list() == before


def test_from_list_gives_a_call_that_is_open_at_the_end_a_stub() -> None:
    """S3-5: beside results that are there, on record; the copy of a history leaves it open."""
    turns = [user(HI), assistant(X, Y), user(RX)]
    history = MessageHistory.from_list(turns, "Be brief.")
    assert history.to_list() == [*turns[:2], user(RX, STUB_Y)]
    assert history.open_calls == ()
    assert history.repairs == (Repair("stubbed", STUB_TEXT, "y"),)
    assert history.system == "Be brief."
    waiting = MessageHistory.rebuilt(turns)
    assert waiting.to_list() == copy.deepcopy(waiting).to_list() == turns


def test_an_unknown_way_of_sending_is_refused() -> None:
    """It is a mistake of the program, not of a message."""
    with pytest.raises(ValueError, match="'stub' or 'skip', not 'drop'"):
        MessageHistory.new().for_send("drop")


def test_repairs_say_what_why_and_which_call() -> None:
    """In the order they were met; a stub is on record when the assistant goes on."""
    history = MessageHistory.new().add_user(HI).add_assistant(X, Y).add_user(ONE)
    assert history.repairs == ()
    after = history.add_assistant(X).add_user(ToolResultBlock("z", "?"), TWO)
    assert after.repairs == (
        Repair("stubbed", STUB_TEXT, "x"),
        Repair("stubbed", STUB_TEXT, "y"),
        Repair("orphan_result", "the last assistant turn did not ask for it", "z"),
    )
    assert history.repairs == ()


def test_a_history_that_starts_with_the_assistant() -> None:
    """The lead that nobody said keeps the assistant's first turn, is marked, and can be sent."""
    history = MessageHistory.new("You are a poet.", synthetic_lead=True)
    assert history.has_synthetic_lead
    assert history.for_send() == (SYNTHETIC_LEAD,)
    spoken = history.add_assistant(ONE, X).add_user(RX)
    assert spoken.to_list() == [SYNTHETIC_LEAD, assistant(ONE, X), user(RX)]
    assert spoken.has_synthetic_lead
    assert spoken.repairs == ()
    assert MessageHistory.from_list(spoken.to_list(), spoken.system) == spoken
    said_it = MessageHistory.new("You are a poet.").add_user(*SYNTHETIC_LEAD.blocks)
    assert not said_it.has_synthetic_lead
    assert said_it != history


def test_a_real_user_makes_the_lead_unnecessary() -> None:
    """Then the history is as if there had been none."""
    history = MessageHistory.new(synthetic_lead=True).add_user(HI).add_assistant(ONE)
    assert not history.has_synthetic_lead
    assert history == MessageHistory.new().add_user(HI).add_assistant(ONE)


def test_the_system_text_stands_apart() -> None:
    """It can be replaced, counts as content, and is no turn."""
    history = MessageHistory.new("one").add_user(HI)
    other = history.with_system("two")
    assert (history.system, other.system) == ("one", "two")
    assert history != other
    assert history == other.with_system("one")
    assert history.to_list() == other.to_list()
    assert history.with_system("a\ud800").system == "a\ufffd"
    assert history.with_system("a\ud800").repairs[0].kind == "replaced_text"
    with pytest.raises(TypeError, match="system is text, not NoneType"):
        MessageHistory.new(None)


def test_it_describes_itself_in_a_line() -> None:
    """How long it is, who spoke last, what it waits for, how much was repaired."""
    history = MessageHistory.new(synthetic_lead=True)
    assert history.describe() == "no messages: only the synthetic lead"
    history = history.add_assistant(X, Y)
    assert history.describe() == (
        "1 turn after a synthetic lead, the assistant spoke last; waiting for 2 tools:"
        " search, fetch"
    )
    assert repr(history) == f"<MessageHistory: {history.describe()}>"
    plain = MessageHistory.new().add_user(HI).add_user()
    assert plain.describe() == "1 turn, the user spoke last (1 repair)"


def test_it_can_be_copied_and_sent_to_another_process() -> None:
    """Also a long one: content, open calls and repairs are the same there."""
    history = MessageHistory.new("sys", synthetic_lead=True)
    for _ in range(2_000):
        history = history.add_assistant(X, Y).add_user(RY)
    for twin in (pickle.loads(pickle.dumps(history)), copy.copy(history), copy.deepcopy(history)):
        assert twin == history
        assert twin.repairs == history.repairs
        assert len(twin.repairs) == 1_999
        assert twin.add_user(RX) == history.add_user(RX)
        assert twin.open_calls == history.open_calls == (X,)


def test_the_list_of_a_history_goes_on_from_an_earlier_one() -> None:
    """Its turns are those of `to_list`, also where a turn goes on or another follows it, and what
    two histories have in common is the same objects."""
    history, known = MessageHistory.new("s", synthetic_lead=True), []
    for number in range(1_200):
        message = (user(HI), assistant(ONE, X), assistant(TWO), user(RX))[number % 7 % 4]
        history = history.add(message)
        known.append((history, listed_turns(history)))
    for one, turns in (*known[::97], *known[-5:]):
        assert [completed(turn) for turn in turns] == one.to_list()
    (_, earlier), (_, later) = known[-200], known[-1]
    assert list(later.differences(earlier)) in ([], [len(earlier) - 1])
    assert list(later.differences(known[-2][1])) in ([], [len(known[-2][1]) - 1])
    assert len(listed_turns(MessageHistory.new())) == 0


def test_it_equals_nothing_else() -> None:
    """A history is not its list."""
    assert MessageHistory.new() != []
    assert len({MessageHistory.new(), MessageHistory.new("").with_system("")}) == 1


@pytest.mark.slow
@pytest.mark.parametrize(
    "message", [assistant(ONE, X), user(HI), None], ids=["turns", "blocks", "repairs"]
)
def test_a_very_long_history_is_freed_without_recursion(message: Any) -> None:
    """200,000 messages and the repairs that they cause are dropped on a small stack."""
    failures: list[BaseException] = []

    def live_and_die() -> None:
        try:
            history = MessageHistory.new().add_user(HI)
            for number in range(100_000):
                history = history.add(message).add_user(ToolResultBlock("x", "ok"))
                if number % 3_700 == 0:  # such lists hold the same turns as the chain
                    assert len(listed_turns(history)) == len(history)
            assert len(history.digest) == 32
            assert len(history.for_send()) == len(history)
            del history
            gc.collect()
        except BaseException as error:
            failures.append(error)

    size = threading.stack_size(256 * 1024)
    try:
        thread = threading.Thread(target=live_and_die)
        thread.start()
    finally:
        threading.stack_size(size)
    thread.join()
    assert not failures


def test_a_persistent_map_is_a_map() -> None:
    """Each of its versions has what was put into it, also with many entries and collisions."""

    class Same(str):
        __slots__ = ()

        def __hash__(self) -> int:
            return 7

    for keys in ([f"k{n}" for n in range(2_000)], [Same(f"s{n}") for n in range(1_200)]):
        versions: list[PersistentMap[int]] = [PersistentMap()]
        for n, key in enumerate(keys):
            versions.append(versions[-1].put(key, n))
        for size in (0, 1, 16, 17, 33, len(keys)):
            held = versions[size]
            assert held.size == size
            assert [held.get(key) for key in keys[:size]] == list(range(size))
            assert all(held.get(key) is None for key in keys[size : size + 50])
        again = versions[-1].put(keys[3], -1)
        assert (again.size, again.get(keys[3]), versions[-1].get(keys[3])) == (len(keys), -1, 3)
