"""Given the events of durable steps, when they are folded, then every view shows them."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.step_runs import (
    CHAT,
    answers,
    asks_model,
    begins,
    block,
    doubts,
    ends,
    order,
    raises,
    refuses,
)
from tests.unit.projections.given import (
    asks,
    evaluation,
    folded,
    forks,
    moment,
    records,
    starts,
)
from tests.unit.projections.random_runs import beginnings, steps
from turnledger.ledger import (
    EvaluationStarted,
    Event,
    RunResumed,
    RunWaiting,
    ToolCallDecided,
)
from turnledger.projections import RunState, ToolCallView
from turnledger.projections.views.timeline import Span


def call(state: RunState, call_id: str) -> ToolCallView:
    found = state.tools.get(call_id)
    assert found is not None, call_id
    return found


def pending(*events: Event) -> list[tuple[str, str]]:
    return [(one.call_id, one.status) for one in folded(*events).tools.pending()]


def span(state: RunState, name: str) -> Span:
    (found,) = [one for one in state.timeline.spans if one.name == name]
    return found


# --- tool calls ------------------------------------------------------------------------


def test_a_step_has_its_arguments_its_value_and_the_step_that_it_is_in() -> None:
    """There is no message, so the events alone say everything."""
    paid = call(folded(*order()), "settle#1/pay:17")
    assert (paid.name, paid.status, paid.attempts) == ("pay", "completed", 1)
    assert (paid.arguments, paid.value) == ('{"euros": 120}', {"receipt": 4711})
    assert (paid.parent, paid.on_interrupt, paid.is_step) == ("settle#1", "ask", True)
    assert (paid.started_at, paid.ended_at) == (moment(8), moment(9))
    assert pending(*order()) == []


def test_a_step_that_raised_says_what() -> None:
    """Class, text and traceback."""
    mail = call(folded(*order()), "mail#1")
    assert (mail.status, mail.error_type) == ("failed", "SMTPError")
    assert "no such mailbox" in mail.traceback


def test_a_result_that_cant_be_recorded_is_an_outcome() -> None:
    """The step is completed, not in doubt, and says why it has no value."""
    report = call(folded(*order()), "report#1")
    assert (report.status, report.value) == ("completed", None)
    assert report.unrecordable == "a socket is not JSON"


def test_a_model_call_is_a_step_of_its_own_kind() -> None:
    """An attempt that failed is not its end; the answer or the final failure is."""
    chat = f"{CHAT}:1"
    begun = (block(), asks_model(chat, {"q": 1}))
    assert pending(*begun) == [(chat, "started")]
    assert pending(*begun, refuses(chat, final=False)) == [(chat, "started")]
    done = call(folded(*begun, answers(chat, {"text": "Yes."})), chat)
    assert (done.kind, done.name, done.status, done.value) == (
        "model",
        CHAT,
        "completed",
        {"text": "Yes."},
    )
    failed = call(folded(*begun, refuses(chat, final=False), refuses(chat, final=True)), chat)
    assert (failed.status, failed.error_type, failed.value) == (
        "failed",
        "RateLimitError",
        {"status": 429},
    )


@pytest.mark.parametrize(
    ("begin", "end"),
    [
        (begins("pay#1"), ends("pay#1", 5)),
        (asks_model("pay#1"), answers("pay#1", 5)),
    ],
    ids=["tool", "model"],
)
def test_a_step_in_doubt_is_decided_and_ends_once(begin: Any, end: Event) -> None:
    """The same for a function and for a model call, which has no `tool_call.started`."""
    lost = (block(), begin, doubts("pay#1"), RunWaiting(reason="ask", call_ids=("pay#1",)))
    assert pending(*lost) == [("pay#1", "in_doubt")]
    decided = ToolCallDecided(call_id="pay#1", decision="completed", value=5, attempt=1)
    known = call(folded(*lost, decided), "pay#1")
    assert (known.decision, known.decision_value, known.doubt) == ("completed", 5, "killed")
    assert pending(*lost, decided, end) == []
    retry = ToolCallDecided(call_id="pay#1", decision="retry", attempt=1)
    again = type(begin)(**{n: getattr(begin, n) for n in begin.__struct_fields__} | {"attempt": 2})
    tried = folded(*lost, retry, RunResumed(attempt=2, from_version=5), again)
    assert (call(tried, "pay#1").status, call(tried, "pay#1").attempts) == ("started", 2)
    assert call(tried, "pay#1").decision is None
    assert len(tried.tools.calls) == 1


def test_inner_steps_of_a_call_that_ended_are_not_pending() -> None:
    """Nobody asks for them any more: the outer one is not performed again."""
    outer = (block(), begins("a#1"), begins("a#1/b#1", parent="a#1"))
    inner = begins("a#1/b#1/c#1", parent="a#1/b#1")
    assert pending(*outer, inner) == [
        ("a#1", "started"),
        ("a#1/b#1", "started"),
        ("a#1/b#1/c#1", "started"),
    ]
    assert pending(*outer, inner, raises("a#1")) == []
    assert pending(*outer, inner, ends("a#1/b#1")) == [("a#1", "started")]


def test_an_inner_step_in_doubt_that_asks_is_pending_until_it_is_decided() -> None:
    """Also if the outer one has ended: the run waits for it."""
    asks_about = begins("a#1/b#1", parent="a#1", on_interrupt="ask")
    events = (block(), begins("a#1"), asks_about, raises("a#1"), doubts("a#1/b#1"))
    assert pending(*events) == [("a#1/b#1", "in_doubt")]
    decided = ToolCallDecided(call_id="a#1/b#1", decision="failed", attempt=1)
    assert pending(*events, decided) == []


def test_a_step_inside_of_an_agents_tool_is_pending_with_it() -> None:
    """It belongs to that call, and to no evaluation: another one does not take it over."""
    events = (evaluation(), asks(1, "c1"), starts("c1"), begins("c1/pay#1", parent="c1"))
    assert pending(*events) == [("c1", "started"), ("c1/pay#1", "started")]
    accepted = EvaluationStarted(
        evaluation_id="e2",
        prompt_ns="ns",
        prompt_key="key",
        prompt_digest="d",
        after="",
        accepted=True,
    )
    assert call(folded(*events, accepted), "c1/pay#1").evaluation_id == ""


def test_a_fork_doubts_the_steps_that_were_under_way() -> None:
    """Of both kinds."""
    chat = f"{CHAT}:1"
    assert pending(block(), begins("pay#1"), asks_model(chat), forks(3)) == [
        ("pay#1", "in_doubt"),
        (chat, "in_doubt"),
    ]


# --- timeline and usage ----------------------------------------------------------------


def test_the_timeline_has_steps_with_the_ones_that_they_are_in() -> None:
    """Each with its own time, also model calls side by side."""
    state = folded(*order())
    pay, settle = span(state, "pay"), span(state, "settle")
    assert (pay.call_id, pay.parent) == ("settle#1/pay:17", "settle#1")
    assert settle.started_at < pay.started_at
    assert pay.ended_at is not None
    assert settle.ended_at is not None
    assert pay.ended_at < settle.ended_at
    assert span(state, "mail").outcome == "failed"


def test_a_model_call_that_is_tried_again_is_one_span() -> None:
    """From the first attempt to the answer, with the number of failed attempts."""
    chat = span(folded(*order()), "gpt-5-mini")
    assert (chat.kind, chat.outcome, chat.failed_attempts) == ("model", "ok", 1)
    assert (chat.from_version, chat.to_version) == (2, 4)


def test_model_calls_side_by_side_have_spans_of_their_own() -> None:
    """They share evaluation and turn, which steps do not have: the call tells them apart."""
    one, other = f"{CHAT}:1", f"{CHAT}:2"
    state = folded(
        block(),
        asks_model(one, model="a"),
        asks_model(other, model="b"),
        answers(one),
        doubts(other),
    )
    assert [(s.name, s.outcome, s.to_version) for s in state.timeline.spans] == [
        ("a", "ok", 4),
        ("b", "in_doubt", 5),
    ]


def test_there_is_no_gap_while_an_outer_step_is_under_way() -> None:
    """Also if it never ended: an inner one that begins shows that it was still going on."""
    events = (block(), begins("a#1"), begins("a#1/b#1", parent="a#1"), ends("a#1/b#1"))
    assert folded(*events).timeline.gaps() == ()
    (gap,) = folded(*events, ends("a#1"), begins("c#1")).timeline.gaps()
    assert (gap.started_at, gap.ended_at) == (moment(5), moment(6))


def test_usage_names_the_steps_that_used_tokens() -> None:
    """A reply to a step counts like any other."""
    state = folded(*order())
    assert (state.usage.total.calls, state.usage.total.total_tokens) == (1, 120)
    assert state.usage.failed_calls == 1
    (turn,) = state.to_json()["usage"]["turns"]
    assert (turn["call_id"], turn["evaluation_id"]) == (f"{CHAT}:3f9a", "")


# --- any order -------------------------------------------------------------------------


@given(st.lists(steps | beginnings, max_size=30))
def test_any_interleaving_folds_the_same_at_once_and_step_by_step(events: list[Event]) -> None:
    """State and digests are the same, and no step is listed twice or lost."""
    whole = folded(*events)
    state = RunState.initial()
    for one in records(events):
        state = state.after([one])
    assert state.state_digest == whole.state_digest
    assert state.to_json() == whole.to_json()
    assert [one.number for one in whole.tools.calls] == list(range(1, len(whole.tools.calls) + 1))
    left = {one.number for one in whole.tools.calls if not one.is_over}
    assert {one.number for one in whole.tools.pending()} <= left
