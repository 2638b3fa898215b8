"""Given a run and the next turn of its chat, when it is folded, then views keep what was said."""

from __future__ import annotations

from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.projections.given import (
    START,
    answers,
    asks,
    calls_model,
    changes,
    completes,
    evaluation,
    folded,
    records,
    replies,
    said,
    starts,
    supersedes,
    system,
    turns_on,
)
from tests.unit.projections.random_runs import messages
from turnledger.ledger import (
    CheckpointReached,
    EvaluationStarted,
    Event,
    MessageAppended,
    RunCompleted,
    RunStarted,
)
from turnledger.projections import Conversation, MessageHistory, fold
from turnledger.projections.history.message_history import add_message


def after(earlier: str, evaluation_id: str = "e2") -> EvaluationStarted:
    """An evaluation that goes on from another."""
    return msgspec.structs.replace(evaluation(evaluation_id), after=earlier)


def said_in(evaluation_id: str, role: str, text: str, sequence: int) -> MessageAppended:
    number = sequence + 100 * int(evaluation_id[1:])
    message = said(role, text, number, evaluation_id=evaluation_id).message
    return MessageAppended(message=msgspec.structs.replace(message, sequence=sequence))


FIRST: tuple[Event, ...] = (
    RunStarted(session_id=None, tags={"of": "first"}, agent="a"),
    evaluation(),
    system("Be brief."),
    said("user", "one", 1),
    calls_model(),
    asks(2, "c1"),
    replies(input_tokens=5),
    starts(),
    changes("Plan", {"step": 1}),
    completes(message=3),
    answers(3, "c1"),
    said("assistant", "done", 4, turn=2),
    RunCompleted(output="done"),
)
SECOND: tuple[Event, ...] = (
    turns_on(len(FIRST), agent="a"),
    after("e1"),
    said_in("e2", "system", "Be kind.", 0),
    said_in("e2", "user", "two", 1),
)


def texts(history: MessageHistory) -> list[list[Any]]:
    return [[getattr(block, "text", block) for block in turn.blocks] for turn in history.to_list()]


def test_a_turn_has_what_was_said_before_its_user_message() -> None:
    """Under its own system text; the earlier evaluation stays as it was."""
    before, state = folded(*FIRST), folded(*FIRST, *SECOND)
    known = state.conversation.history("e2")
    assert known.system == "Be kind."
    assert texts(known) == [*texts(before.history), ["two"]]
    assert state.conversation.history("e1") == before.history
    assert state.history is known


def test_its_history_shares_the_turns_of_the_one_before() -> None:
    """Nothing of the past is copied: the turns are the very same objects."""
    state = folded(*FIRST, *SECOND)
    one, other = (state.conversation.history(name).to_list() for name in ("e1", "e2"))
    assert all(mine is theirs for mine, theirs in zip(other, one, strict=False))


def test_a_turn_keeps_state_and_calls_and_begins_the_rest_anew() -> None:
    """Usage, checkpoints, spans, status and tags are the turn's own."""
    reached = CheckpointReached(
        phase="completed",
        tool_calls_completed=1,
        state_digest="d",
        created_at=START,
    )
    state = folded(*FIRST, reached, turns_on(len(FIRST) + 1, agent="a", request_type="str"))
    assert state.slices.all("Plan") == ({"step": 1},)
    assert [call.status for call in state.tools.calls] == ["completed"]
    assert state.usage.total.total_tokens == 0
    assert not len(state.checkpoints.entries)
    assert not len(state.timeline.spans)
    summary = state.summary
    assert (summary.status, summary.kind, summary.agent) == ("running", "turn", "a")
    assert (summary.tags, summary.output, summary.evaluations) == ({}, None, 0)


def test_an_evaluation_that_replaces_one_goes_on_from_the_same() -> None:
    """Sections were opened in the middle of a turn: what it said before that is not repeated."""
    state = folded(
        *FIRST,
        *SECOND,
        supersedes("e2"),
        after("e1", "e3"),
        said_in("e3", "system", "Be kinder.", 0),
        said_in("e3", "user", "two", 1),
    )
    assert texts(state.history) == texts(folded(*FIRST, *SECOND).history)
    assert state.history.system == "Be kinder."


def test_a_turn_after_an_unanswered_message_joins_it() -> None:
    """The parent failed before the model replied: two user messages are one turn, as ever."""
    first = (RunStarted(), evaluation(), system(), said("user", "one", 1))
    state = folded(*first, turns_on(4), after("e1"), said_in("e2", "user", "two", 1))
    assert texts(state.history) == [["one", "two"]]


def test_an_unknown_earlier_evaluation_is_no_history() -> None:
    """A record that names one that is not there still folds."""
    state = folded(RunStarted(), after("gone"), said_in("e2", "user", "two", 1))
    assert texts(state.history) == [["two"]]


@given(st.lists(messages, max_size=12), st.lists(messages, max_size=12))
def test_the_history_is_the_earlier_one_and_then_its_own(
    first: list[MessageAppended], second: list[MessageAppended]
) -> None:
    """Whatever was said: as if its messages had been added to the earlier conversation."""

    def of(name: str, events: list[MessageAppended]) -> list[MessageAppended]:
        change = msgspec.structs.replace
        return [change(e, message=change(e.message, evaluation_id=name)) for e in events]

    events = [evaluation(), *of("e1", first), turns_on(9), after("e1"), *of("e2", second)]
    state = fold(records(events), Conversation())
    expected = state.history("e1").with_system("")
    for event in second:
        if event.message.role == "system":
            expected = expected.with_system(event.message.content)
        else:
            tip, repairs = add_message(expected._tip, expected._repairs, event.message)
            expected = MessageHistory(tip, expected._system, repairs)
    assert state.history("e2") == expected
    assert state.history("e2").repairs == expected.repairs
