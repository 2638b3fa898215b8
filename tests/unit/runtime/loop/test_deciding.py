"""Given events, when the loop decides, then the next effect: fresh or resumed, it is the same."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.projections.given import (
    answers,
    approval,
    asks,
    asks_approval,
    completes,
    fails,
    forks,
    records,
    replies,
    said,
    starts,
    supersedes,
    system,
)
from turnledger.ledger import (
    EvaluationFinished,
    EvaluationStarted,
    Event,
    ModelCalled,
    ModelCallFailed,
    RunStarted,
    ToolCallDecided,
    ToolCallInDoubt,
    ToolCallStarted,
)
from turnledger.runtime.journal.known import Known
from turnledger.runtime.loop.decide import (
    Begin,
    CallModel,
    Doubt,
    Effect,
    Finish,
    RunTools,
    Settle,
    Wait,
    decide,
)

STARTED = EvaluationStarted(evaluation_id="e1", prompt_ns="ns", prompt_key="key", prompt_digest="d")
ASKED: list[Event] = [RunStarted(), STARTED, system()]
RETRY: dict[str, Any] = {"search": "retry"}


def decided(*events: Event, policies: dict[str, Any] = RETRY, evaluation: Any = "e1") -> Effect:
    nothing = Known.initial()
    known = nothing.after(records(events))
    return decide(known, evaluation, policies)


def in_doubt(call: str = "c1") -> ToolCallInDoubt:
    return ToolCallInDoubt(evaluation_id="e1", call_id=call, name="search")


def decision(what: Any, call: str = "c1") -> ToolCallDecided:
    return ToolCallDecided(call_id=call, decision=what)


def called(attempt: int = 1, turn: int = 1) -> ModelCalled:
    return ModelCalled(evaluation_id="e1", turn=turn, request_digest="r", attempt=attempt)


def shown(effect: Effect) -> tuple[str, ...]:
    calls = getattr(effect, "calls", ())
    return (type(effect).__name__, *(call.call_id for call in calls))


def test_an_evaluation_that_has_not_begun_begins() -> None:
    """Also beside one that was left."""
    assert decided(RunStarted(), evaluation=None) == Begin()
    assert decided(*ASKED, evaluation=None) == Begin()
    assert decided(evaluation="e9") == Begin()


def test_after_the_prompt_the_model_is_asked() -> None:
    """For the first turn, in the first attempt."""
    assert decided(*ASKED) == CallModel(1, 1)


def test_a_request_without_a_reply_is_made_again() -> None:
    """As another attempt, whether it failed or the process died."""
    assert decided(*ASKED, called()) == CallModel(1, 2)
    failed = ModelCallFailed(evaluation_id="e1", turn=1, error_type="E", error_message="m")
    assert decided(*ASKED, called(), failed, called(2)) == CallModel(1, 3)


def test_a_reply_without_calls_is_the_answer() -> None:
    """And stays it when the evaluation is finished."""
    answer = said("assistant", "42", 1, turn=1)
    assert decided(*ASKED, called(), answer, replies()) == Finish()
    finished = EvaluationFinished(evaluation_id="e1")
    assert decided(*ASKED, called(), answer, replies(), finished) == Finish()


def test_calls_are_run_in_their_order() -> None:
    """Those that have no result."""
    assert shown(decided(*ASKED, asks(1, "c1", "c2"))) == ("RunTools", "c1", "c2")
    more = (starts("c1"), completes("c1", message=2), answers(2, "c1"))
    assert shown(decided(*ASKED, asks(1, "c1", "c2"), *more)) == ("RunTools", "c2")


def test_when_all_calls_have_results_the_model_is_asked_again() -> None:
    """Failed ones count."""
    done = (starts("c1"), completes("c1", message=2), answers(2, "c1"))
    assert decided(*ASKED, asks(1, "c1"), *done) == CallModel(2, 1)
    failed = (starts("c1"), fails("c1", message=2), answers(2, "c1", is_error=True))
    assert decided(*ASKED, asks(1, "c1"), *failed) == CallModel(2, 1)


def test_a_call_that_was_started_and_not_heard_of_is_in_doubt_first() -> None:
    """Whatever the policy, before anything else is done."""
    for policy in ("retry", "fail", "ask"):
        effect = decided(*ASKED, asks(1, "c1", "c2"), starts("c1"), policies={"search": policy})
        assert shown(effect) == ("Doubt", "c1")
        assert isinstance(effect, Doubt)


@pytest.mark.parametrize(
    ("policy", "effect"),
    [("retry", ("RunTools", "c1")), ("fail", ("Settle", "c1")), ("ask", ("Wait", "c1"))],
)
def test_a_call_in_doubt_follows_its_tools_policy(policy: str, effect: tuple[str, ...]) -> None:
    """Run again, told to be unknown, or waited for."""
    events = (*ASKED, asks(1, "c1"), starts("c1"), in_doubt())
    assert shown(decided(*events, policies={"search": policy})) == effect


@pytest.mark.parametrize(
    ("what", "effect"),
    [("completed", Settle), ("failed", Settle), ("retry", RunTools)],
)
def test_a_decision_goes_before_the_policy(what: str, effect: type) -> None:
    """Whatever it is."""
    events = (*ASKED, asks(1, "c1"), starts("c1"), in_doubt(), decision(what))
    for policy in ("retry", "fail", "ask"):
        assert isinstance(decided(*events, policies={"search": policy}), effect)


@pytest.mark.parametrize("what", ["completed", "failed"])
def test_a_decision_about_a_call_that_was_just_started_is_enough(what: str) -> None:
    """There is no doubt to record: a person knows."""
    for policy in ("retry", "fail", "ask"):
        events = (*ASKED, asks(1, "c1"), starts("c1"), decision(what))
        assert isinstance(decided(*events, policies={"search": policy}), Settle)


def test_a_decision_of_an_earlier_doubt_does_not_count() -> None:
    """It was run again and was interrupted again."""
    again = (starts("c1", attempt=2), in_doubt())
    events = (*ASKED, asks(1, "c1"), starts("c1"), in_doubt(), decision("retry"), *again)
    assert isinstance(decided(*events, policies={"search": "ask"}), Wait)


def test_a_call_of_a_tool_that_is_gone_is_not_run() -> None:
    """Its outcome is unknown."""
    events = (*ASKED, asks(1, "c1"), starts("c1"), in_doubt())
    assert isinstance(decided(*events, policies={}), Settle)


def test_others_are_run_before_the_loop_waits() -> None:
    """What is settled comes first, then what can be run."""
    events = (*ASKED, asks(1, "c1", "c2"), starts("c1"), in_doubt())
    assert shown(decided(*events, policies={"search": "ask"})) == ("RunTools", "c2")
    assert shown(decided(*events, policies={"search": "fail"})) == ("Settle", "c1")


def test_a_superseded_evaluation_is_not_gone_on_with() -> None:
    """Another one begins; the calls that it left wait for nobody."""
    events = (*ASKED, asks(1, "c1"), starts("c1"), supersedes("e1"))
    assert decided(*events, evaluation=None) == Begin()


def test_a_call_that_was_open_where_a_run_was_forked_is_in_doubt_in_the_child() -> None:
    """It goes on elsewhere, or not at all."""
    events = (*ASKED, asks(1, "c1"), starts("c1"), forks(5))
    assert shown(decided(*events, policies={"search": "ask"})) == ("Wait", "c1")


def test_a_decision_made_before_the_doubt_was_recorded_counts() -> None:
    """Somebody said "retry" right after the crash: it is doubted, and then run."""
    events = (*ASKED, asks(1, "c1"), starts("c1"), decision("retry"))
    assert shown(decided(*events, policies={"search": "ask"})) == ("Doubt", "c1")
    effect = decided(*events, in_doubt(), policies={"search": "ask"})
    assert shown(effect) == ("RunTools", "c1")


# --- approval --------------------------------------------------------------------------

APPROVING = frozenset({"search"})
NEEDED = [*ASKED, asks(1, "c1"), asks_approval()]


def plan(*events: Event, policy: str = "ask", needing: Any = APPROVING) -> tuple[str, ...]:
    """The next effect, where calls of `search` may need approval."""
    known = Known.initial().after(records(events))
    return shown(decide(known, "e1", {"search": policy}, needing))  # type: ignore[dict-item]


def test_it_is_asked_once_whether_calls_need_approval() -> None:
    """Of all calls of the reply, before one runs; and only of tools that may need it."""
    both = (*ASKED, asks(1, "c1", "c2"))
    assert plan(*both) == ("AskApproval", "c1", "c2")
    assert plan(*both, asks_approval("c1")) == ("AskApproval", "c2")
    assert plan(*both, needing=()) == ("RunTools", "c1", "c2")


def test_calls_that_need_no_approval_run_before_the_run_waits() -> None:
    """Whatever their order in the reply."""
    asked = (*ASKED, asks(1, "c1", "c2"), asks_approval("c1"), asks_approval("c2", needed=False))
    assert plan(*asked) == ("RunTools", "c2")
    done = (starts("c2"), completes("c2"), answers(2, "c2"))
    assert plan(*asked, *done) == ("Wait", "c1")


def test_a_decided_approval_goes_before_the_status() -> None:
    """A denied call is pending, and never runs; the others run."""
    assert plan(*NEEDED) == ("Wait", "c1")
    assert plan(*NEEDED, approval("approved")) == ("RunTools", "c1")
    assert plan(*NEEDED, approval("edited", arguments="{}")) == ("RunTools", "c1")
    assert plan(*NEEDED, approval("denied")) == ("Settle", "c1")


def test_a_decision_about_an_outcome_is_none_about_an_approval() -> None:
    """A call that never began has no outcome to decide about: it waits, or runs, as without."""
    for what in ("completed", "failed", "retry"):
        assert plan(*NEEDED, decision(what)) == ("Wait", "c1")
        assert plan(*NEEDED, approval("denied"), decision(what)) == ("Settle", "c1")
        assert plan(*ASKED, asks(1, "c1"), decision(what), needing=()) == ("RunTools", "c1")


def test_what_is_recorded_of_an_approval_holds_whatever_the_tool_says_now() -> None:
    """Needed stays needed, and not needed stays that."""
    assert plan(*NEEDED, needing=()) == ("Wait", "c1")
    free = (*ASKED, asks(1, "c1"), asks_approval(needed=False))
    assert plan(*free) == ("RunTools", "c1")


def test_a_second_attempt_needs_another_approval_or_a_persons_consent() -> None:
    """By policy "retry" it is asked for again; "ask" and "fail" are as ever."""
    doubted = (*NEEDED, approval("approved"), starts(), in_doubt())
    assert plan(*doubted, policy="ask") == ("Wait", "c1")
    assert plan(*doubted, policy="fail") == ("Settle", "c1")
    assert plan(*doubted, policy="retry") == ("Wait", "c1")
    assert plan(*doubted, decision("retry"), policy="ask") == ("RunTools", "c1")
    retry = ToolCallStarted(evaluation_id="e1", call_id="c1", name="search", on_interrupt="retry")
    again = (*NEEDED, approval("approved"), retry, in_doubt())
    assert plan(*again, approval("approved"), policy="retry") == ("Wait", "c1")
    assert plan(*again, approval("approved", attempt=1), policy="retry") == ("RunTools", "c1")
    assert plan(*again, approval("denied", attempt=1), policy="retry") == ("Settle", "c1")


def test_a_call_that_began_before_its_tool_needed_approval_is_asked_about() -> None:
    """Before policy "retry" runs it again; a person's consent is enough without."""
    doubted = (*ASKED, asks(1, "c1"), starts(), in_doubt())
    assert plan(*doubted, policy="retry") == ("AskApproval", "c1")
    assert plan(*doubted, decision("retry"), policy="retry") == ("RunTools", "c1")


def test_a_call_of_a_tool_that_is_gone_waits_for_nobody() -> None:
    """The model is told that there is no such tool; a denial is told as it is."""
    known = Known.initial().after(records(NEEDED))
    assert shown(decide(known, "e1", {}, ())) == ("RunTools", "c1")
    denied = Known.initial().after(records([*NEEDED, approval("denied")]))
    assert shown(decide(denied, "e1", {}, ())) == ("Settle", "c1")


def test_an_approval_of_the_parent_is_not_the_forks() -> None:
    """Nor is a denial."""
    for what in ("approved", "denied", "edited"):
        assert plan(*NEEDED, approval(what), forks(6)) == ("Wait", "c1")
