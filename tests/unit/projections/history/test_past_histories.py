"""Evaluations that take turns: what is put away is written once, and all of it can be seen."""

from __future__ import annotations

import os
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.projections.given import records, said
from turnledger.ledger import MessageAppended
from turnledger.projections import Conversation, fold
from turnledger.projections.history import archive as past_histories
from turnledger.projections.history.archive import PastHistories, _AwayHistory
from turnledger.projections.history.blocks import ChatTurn, TextBlock, ToolResultBlock, ToolUseBlock
from turnledger.projections.history.message_history import MessageHistory
from turnledger.projections.history.turns import chain_until, digest_of
from turnledger.projections.persistent import spill as attic
from turnledger.projections.views.conversation import ConversationState


@pytest.fixture(autouse=True)
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    """Little is left in memory, on whatever disk."""
    monkeypatch.setattr(attic, "_RESERVE", 4096)
    monkeypatch.setattr(past_histories, "_MOST_TURNS", 40)
    monkeypatch.setattr(past_histories, "_TURNS_LEFT", 20)
    monkeypatch.setattr(past_histories, "_AGAIN", 8)


def taking_turns(evaluations: int, messages: int) -> list[MessageAppended]:
    """So many evaluations, of which each says one thing before the next one speaks."""
    return [
        said(
            "user" if number // evaluations % 2 == 0 else "assistant",
            f"{number:06}",
            number,
            evaluation_id=f"e{number % evaluations}",
        )
        for number in range(messages)
    ]


@pytest.mark.parametrize("evaluations", [2, 3, 12, 40])
def test_what_a_step_writes_does_not_grow_with_the_histories(
    monkeypatch: pytest.MonkeyPatch, evaluations: int
) -> None:
    """A history that goes on is not written anew for every message that it gets."""
    written: list[int] = []
    pwrite = os.pwrite

    def counted(fd: int, content: Any, at: int) -> int:
        written.append(len(content))
        return pwrite(fd, content, at)

    monkeypatch.setattr(os, "pwrite", counted)
    state: ConversationState | None = None
    all_records = records(taking_turns(evaluations, 3200))
    shares: list[int] = []
    for start in range(0, 3200, 800):
        written.clear()
        state = fold(all_records[start : start + 800], Conversation(), state)
        shares.append(sum(written))
    assert shares[-1] <= 1.5 * shares[1] + 1000
    assert state is not None
    assert sum(len(history) for _, history in state.earlier.items()) > 40
    assert state.earlier._turns <= 40 + 3200 // evaluations


def test_turns_are_counted_once_however_often_an_evaluation_is_left() -> None:
    """Or histories would be put away that are small and used all the time."""
    past = PastHistories()
    history = MessageHistory.new().add_user_text("hello")
    for _ in range(100):
        past = past.put("e1", history).remove("e2").put("e2", history).remove("e1")
    assert past._turns == 1
    assert past.get("e2") is history


steps = st.lists(
    st.one_of(
        st.builds(lambda text: ChatTurn("user", (TextBlock(text),)), st.sampled_from("abc")),
        st.builds(
            lambda text, calls: ChatTurn(
                "assistant", (TextBlock(text), *(ToolUseBlock(c, "t", "{}") for c in calls))
            ),
            st.sampled_from("abc"),
            st.lists(st.sampled_from("xyz"), max_size=3),
        ),
        st.builds(
            lambda call: ChatTurn("user", (ToolResultBlock(call, "r"),)), st.sampled_from("xyz")
        ),
    ),
    max_size=40,
)


@given(steps, st.sets(st.integers(0, 40)), st.booleans())
def test_a_history_that_is_put_away_now_and_then_is_the_history(
    turns: list[ChatTurn], places: set[int], lead: bool
) -> None:
    """Turns, open calls, repairs and digests, asked for on the way or not; and it goes on so."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(past_histories, "_AGAIN", 2)
        whole = fetched = MessageHistory.new("Be brief.", synthetic_lead=lead)
        for place, turn in enumerate(turns):
            whole, fetched = whole.add(turn), fetched.add(turn)
            if place % 5 == 0:
                assert fetched.digest == whole.digest
            if place in places:
                fetched = _AwayHistory(fetched).fetched()
        assert fetched.to_list() == whole.to_list()
        assert fetched.for_send() == whole.for_send()
        assert fetched.for_send("skip") == whole.for_send("skip")
        assert fetched.for_send_after(()) == (0, list(whole.for_send()))
        assert (fetched.open_calls, fetched.repairs) == (whole.open_calls, whole.repairs)
        assert (fetched.digest, fetched.describe()) == (whole.digest, whole.describe())
        away = _AwayHistory(whole)
        away._digest = None
        assert away.digest == MessageHistory.from_list(whole.to_list(), "Be brief.").digest


@given(steps)
def test_a_turn_has_the_digest_that_it_had_while_it_grew(turns: list[ChatTurn]) -> None:
    """Read from a file or in memory, it is the same turn."""
    turn = MessageHistory.from_list(turns, "")._tip
    while turn is not None:
        assert digest_of(turn.complete()) == turn.digest(stubs=True)
        assert len(chain_until(turn)) == 32
        turn = turn.before
