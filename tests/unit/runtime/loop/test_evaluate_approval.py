"""Calls that need a person's approval: asked about once, waited for, and run as it was decided."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from tests.agent import Crash, calls, says
from tests.unit.runtime.approving import DONE, REFUND, Refund, Refunds, Ticket, told, waiting
from tests.unit.runtime.loops import tags
from turnledger.ledger import (
    ANY,
    ApprovalDecided,
    ApprovalRequested,
    Ledger,
    MessageAppended,
    RunWaiting,
    ToolCallDecided,
    ToolCallFailed,
    ToolCallStarted,
    new_run_id,
)
from turnledger.projections import state_at
from turnledger.runtime import (
    AdapterResumeState,
    DecisionRequiredError,
    Request,
    Session,
    ToolInvoked,
)
from turnledger.runtime.recovery.approvals import approve, deny, edit

STORES = ["memory", "sqlite"]
TWO = calls(("c1", "refund", '{"euros": 20}'), ("c2", "refund", '{"euros": 30}'))


def events(ledger: Ledger, run_id: Any, kind: type[Any]) -> list[Any]:
    return [record.event for record in ledger.read(run_id) if isinstance(record.event, kind)]


def test_a_call_that_needs_approval_waits_for_it(ledger: Ledger) -> None:
    """Nothing has run, the claim is released, and the error says what to do."""
    loop, run_id = Refunds(ledger=ledger), new_run_id()
    with pytest.raises(DecisionRequiredError) as refused:
        loop.execute(Ticket(), run_id=run_id)
    assert (refused.value.run_id, refused.value.call_ids) == (str(run_id), ("c1",))
    assert refused.value.approvals == ("c1",)
    assert f"turnledger resolve {run_id} c1 --approve" in str(refused.value)
    assert "--completed" not in str(refused.value)
    assert loop.ran == []
    assert (ledger.run(run_id).status, ledger.worker_of(run_id)) == ("waiting", None)
    (asked,) = events(ledger, run_id, ApprovalRequested)
    assert (asked.call_id, asked.name, asked.needed) == ("c1", "refund", True)
    (wait,) = events(ledger, run_id, RunWaiting)
    assert wait.reason == "these calls need a person's approval"


def test_an_approved_call_runs_and_the_function_is_not_asked_again(ledger: Ledger) -> None:
    """Not by the recovery, which goes by the record."""
    loop = Refunds(ledger=ledger)
    run_id = waiting(ledger, loop)
    approve(ledger, run_id, "c1", by="ann")
    assert loop.recover(run_id)[0].text == "Done."
    assert (loop.ran, loop.asked) == ([("refund", "c1", 20)], [20])
    assert loop.resumed == [False]  # nothing was interrupted: this is its first attempt
    (decided,) = events(ledger, run_id, ApprovalDecided)
    assert (decided.decision, decided.decided_by, decided.attempt) == ("approved", "ann", 0)
    (started,) = events(ledger, run_id, ToolCallStarted)
    assert started.on_interrupt == "ask"
    assert told(ledger, run_id) == ["refund 20"]


def test_a_denied_call_fails_with_the_text_and_never_runs(ledger: Ledger) -> None:
    """The model is told why; it is never started, so it is never in doubt."""
    loop = Refunds(ledger=ledger)
    run_id = waiting(ledger, loop)
    deny(ledger, run_id, "c1", "Ask the customer first.", by="ann")
    assert loop.recover(run_id)[0].text == "Done."
    assert loop.ran == []
    (failed,) = events(ledger, run_id, ToolCallFailed)
    assert (failed.error_type, failed.error_message) == (
        "ApprovalDenied",
        "Ask the customer first.",
    )
    assert told(ledger, run_id) == ["Ask the customer first."]
    other = waiting(ledger)
    deny(ledger, other, "c1", "No.")
    ledger.append(other, ToolCallDecided(call_id="c1", decision="completed", text="Yes."), ANY)
    loop.recover(other)
    assert (loop.ran, told(ledger, other)) == ([], ["No."])
    assert ToolCallStarted.tag not in tags(ledger, run_id)


def test_a_denial_without_a_text_has_one(ledger: Ledger) -> None:
    """A model can't read an empty result."""
    run_id = waiting(ledger)
    deny(ledger, run_id, "c1", "")
    Refunds(ledger=ledger).recover(run_id)
    assert told(ledger, run_id) == ["A person denied this call: it was not run."]


def test_an_edited_call_runs_with_the_persons_arguments(ledger: Ledger) -> None:
    """The model's message stays, and the tool's message says what was run instead."""
    heard: list[ToolInvoked] = []
    requests: list[Request] = []

    def model(request: Request) -> Any:
        requests.append(request)
        return REFUND if request.turn == 1 else DONE

    loop = Refunds(model, ledger=ledger)
    loop._bus.subscribe(ToolInvoked, heard.append)
    run_id = waiting(ledger, loop)
    edit(ledger, run_id, "c1", {"euros": 5}, by="ann")
    assert loop.recover(run_id)[0].text == "Done."
    assert loop.ran == [("refund", "c1", 5)]
    text = (
        'A person changed the arguments of this call. It was called with {"euros":5} instead of '
        "yours.\n\nrefund 5"
    )
    assert told(ledger, run_id) == [text]
    assert [(one.params, one.rendered_output) for one in heard] == [(Refund(5), text)]
    call = state_at(ledger, run_id).tools.calls[0]
    assert (call.arguments, call.edited_arguments) == ('{"euros": 20}', '{"euros":5}')
    sent = state_at(ledger, run_id).history.to_list()
    assert '"euros": 20' in repr(sent)


def test_the_model_is_not_told_that_an_edited_call_was_called_that_was_not(ledger: Ledger) -> None:
    """One denied after the edit, and one whose tool refuses the arguments that it got."""
    run_id = waiting(ledger, Refunds([TWO, DONE], ledger=ledger))
    edit(ledger, run_id, "c1", {"euros": 5})
    deny(ledger, run_id, "c1", "No.")
    arguments = '{"pounds": 5}'  # as of a schema that has changed since
    edited = ApprovalDecided(call_id="c2", decision="edited", arguments=arguments)
    ledger.append(run_id, edited, ANY)
    loop = Refunds([TWO, DONE], ledger=ledger)
    loop.recover(run_id)
    denied, refused = told(ledger, run_id)
    assert (denied, loop.ran) == ("No.", [])
    assert refused.startswith(f"A person changed the arguments of this call to {arguments}.")
    assert "called with" not in refused


def test_calls_of_the_same_reply_that_need_none_run_first(ledger: Ledger) -> None:
    """Also one that the function lets pass; its answer is recorded too."""
    asked = calls(
        ("c1", "refund", '{"euros": 20}'),
        ("c2", "look", '{"euros": 1}'),
        ("c3", "refund", '{"euros": 3}'),
    )
    loop = Refunds([asked, DONE], ledger=ledger)
    run_id = waiting(ledger, loop)
    assert loop.ran == [("look", "c2", 1), ("refund", "c3", 3)]
    found = events(ledger, run_id, ApprovalRequested)
    assert [(one.call_id, one.needed) for one in found] == [("c1", True), ("c3", False)]
    approve(ledger, run_id, "c1")
    loop.recover(run_id)
    assert loop.ran[2:] == [("refund", "c1", 20)]
    assert loop.asked == [20, 3]


@pytest.mark.parametrize("width", [1, 4])
def test_one_decision_of_two_lets_one_call_run(ledger: Ledger, width: int) -> None:
    """The run goes on with what is decided, and waits for the rest: alone or in parallel."""
    options: dict[str, Any] = {"ledger": ledger, "adapter_options": {"parallel_tools": width}}
    loop = Refunds([TWO, DONE], **options)
    run_id = waiting(ledger, loop)
    edit(ledger, run_id, "c2", '{"euros": 7}')
    with pytest.raises(DecisionRequiredError) as refused:
        loop.recover(run_id)
    assert refused.value.call_ids == ("c1",)
    assert loop.ran == [("refund", "c2", 7)]
    deny(ledger, run_id, "c1", "No.")
    assert loop.recover(run_id)[0].text == "Done."
    assert loop.ran == [("refund", "c2", 7)]
    assert told(ledger, run_id)[0].endswith("refund 7")
    assert told(ledger, run_id)[1] == "No."


def test_invalid_arguments_are_refused_and_not_asked_about(ledger: Ledger) -> None:
    """The model gets the error as ever; a person sees only calls that can run."""
    wrong = calls(("c1", "refund", '{"euros": "many"}'))
    loop = Refunds([wrong, DONE], needs_approval=True, ledger=ledger)
    run_id = new_run_id()
    assert loop.execute(Ticket(), run_id=run_id)[0].text == "Done."
    assert ApprovalRequested.tag not in tags(ledger, run_id)
    (failed,) = events(ledger, run_id, ToolCallFailed)
    assert failed.error_type == "InvalidToolCall"


def test_a_function_that_raises_means_yes(ledger: Ledger, caplog: pytest.LogCaptureFixture) -> None:
    """And the log says so."""

    def broken(params: Refund) -> bool:
        raise RuntimeError("no rules today")

    loop = Refunds(needs_approval=broken, ledger=ledger)
    with caplog.at_level(logging.WARNING, "turnledger.tools"):
        waiting(ledger, loop)
    assert "means that it needs approval" in caplog.text
    assert "no rules today" in caplog.text


def test_an_interrupt_in_the_function_is_no_answer(ledger: Ledger) -> None:
    """Ctrl-C ends the process, and the recovery asks."""

    def interrupted(params: Refund) -> bool:
        raise Crash

    run_id = new_run_id()
    with pytest.raises(Crash):
        Refunds(needs_approval=interrupted, ledger=ledger).execute(Ticket(), run_id=run_id)
    assert ApprovalRequested.tag not in tags(ledger, run_id)
    with pytest.raises(DecisionRequiredError):
        Refunds(ledger=ledger).recover(run_id)


def test_a_run_without_a_ledger_waits_in_its_session() -> None:
    """In memory too the error comes before anything runs."""
    loop = Refunds()
    with pytest.raises(DecisionRequiredError):
        loop.execute(Ticket())
    assert loop.ran == []


# --- a second attempt ------------------------------------------------------------------


def died(ledger: Ledger, **options: Any) -> Any:
    """A run whose approved call died in its handler."""
    run_id = waiting(ledger)
    edit(ledger, run_id, "c1", {"euros": 5})
    with pytest.raises(Crash):
        Refunds(ledger=ledger, dies_in="c1", **options).recover(run_id)
    return run_id


def test_an_approved_call_that_died_waits_for_a_decision(ledger: Ledger) -> None:
    """Its tool's policy is "ask"; a retry runs what was approved, and not what the model wrote."""
    run_id, loop = died(ledger), Refunds(ledger=ledger)
    with pytest.raises(DecisionRequiredError) as refused:
        loop.recover(run_id)
    assert (refused.value.call_ids, refused.value.approvals) == (("c1",), ())
    assert "--retry" in str(refused.value)
    assert loop.recover(run_id, retry_in_doubt=True)[0].text == "Done."
    assert loop.ran == [("refund", "c1", 5)]


def test_policy_retry_needs_another_approval(ledger: Ledger) -> None:
    """An approval is for one attempt; `retry_in_doubt` is consent to the next one."""
    run_id = died(ledger, on_interrupt="retry")
    loop = Refunds(ledger=ledger, on_interrupt="retry")
    for _ in range(2):
        with pytest.raises(DecisionRequiredError) as refused:
            loop.recover(run_id)
        assert refused.value.approvals == ("c1",)
    assert loop.ran == []
    approve(ledger, run_id, "c1")
    assert loop.recover(run_id)[0].text == "Done."
    assert (loop.ran, loop.asked) == ([("refund", "c1", 5)], [])
    assert loop.resumed == [True]
    other = died(ledger, on_interrupt="retry")
    with pytest.raises(DecisionRequiredError):
        loop.recover(other)
    assert loop.recover(other, retry_in_doubt=True)[0].text == "Done."


def test_a_denied_second_attempt_says_that_the_first_may_have_happened(ledger: Ledger) -> None:
    """TEXT alone would tell the model that nothing did."""
    run_id = died(ledger, on_interrupt="retry")
    loop = Refunds(ledger=ledger, on_interrupt="retry")
    with pytest.raises(DecisionRequiredError):
        loop.recover(run_id)
    deny(ledger, run_id, "c1", "Not again.")
    loop.recover(run_id)
    (text,) = told(ledger, run_id)
    assert '{"euros":5}' in text
    assert "Not again." in text
    assert "may or may not have happened" in text
    assert loop.ran == []


@pytest.mark.parametrize("first", ["denial", "retry"])
def test_a_denied_second_attempt_does_not_run_by_consent_to_retry(
    ledger: Ledger, first: str
) -> None:
    """`retry_in_doubt` says nothing about a call that was denied; a denial goes before a retry."""
    run_id = died(ledger, on_interrupt="retry")
    loop = Refunds(ledger=ledger, on_interrupt="retry")
    with pytest.raises(DecisionRequiredError):
        loop.recover(run_id)
    if first == "retry":
        ledger.append(run_id, ToolCallDecided(call_id="c1", decision="retry", attempt=1), ANY)
    deny(ledger, run_id, "c1", "Not again.")
    loop.recover(run_id, retry_in_doubt=first == "denial")
    assert (loop.ran, "Not again." in told(ledger, run_id)[0]) == ([], True)
    assert len(events(ledger, run_id, ToolCallDecided)) == (first == "retry")


def test_a_reply_may_wait_for_approvals_and_decisions_at_once(ledger: Ledger) -> None:
    """The reason and the error tell which is which."""
    run_id = waiting(ledger, Refunds([TWO, DONE], ledger=ledger))
    approve(ledger, run_id, "c1")
    with pytest.raises(Crash):
        Refunds([TWO, DONE], ledger=ledger, dies_in="c1").recover(run_id)
    with pytest.raises(DecisionRequiredError) as refused:
        Refunds([TWO, DONE], ledger=ledger).recover(run_id)
    assert (refused.value.call_ids, refused.value.approvals) == (("c1", "c2"), ("c2",))
    assert f"{run_id} c1` with --completed" in str(refused.value)
    assert f"{run_id} c2 --approve" in str(refused.value)
    assert "the others ended" in events(ledger, run_id, RunWaiting)[-1].reason
    # Consent to run calls in doubt again approves nothing.
    with pytest.raises(DecisionRequiredError) as refused:
        Refunds([TWO, DONE], ledger=ledger).recover(run_id, retry_in_doubt=True)
    assert refused.value.call_ids == ("c2",)


# --- forks -----------------------------------------------------------------------------


@pytest.mark.parametrize("decide", ["approve", "deny"])
def test_a_fork_needs_a_decision_of_its_own(ledger: Ledger, decide: str) -> None:
    """What its parent's call has not used is not inherited; a fork that waits is not parked."""
    run_id = waiting(ledger)
    approve(ledger, run_id, "c1") if decide == "approve" else deny(ledger, run_id, "c1", "No.")
    fork, loop = ledger.fork(run_id, ledger.head(run_id)), Refunds(ledger=ledger)
    for _ in range(5):
        with pytest.raises(DecisionRequiredError) as refused:
            loop.recover(fork)
        assert refused.value.approvals == ("c1",)
    assert (loop.ran, loop.list_recoverable()[0].run_id) == ([], run_id)
    edit(ledger, fork, "c1", {"euros": 1})
    assert loop.recover(fork)[0].text == "Done."
    assert loop.recover(run_id)[0].text == "Done."
    assert [euros for _, _, euros in loop.ran] == ([1, 20] if decide == "approve" else [1])


def test_a_conversation_that_is_brought_is_asked_about(ledger: Ledger) -> None:
    """Its calls have no record of approval: they are asked about where they would run."""
    run_id = waiting(ledger, Refunds(ledger=ledger, needs_approval=True))
    prefix = tuple(one.message for one in events(ledger, run_id, MessageAppended))
    other = Refunds(needs_approval=True)
    with pytest.raises(DecisionRequiredError):
        other._adapter.evaluate(
            other.create_prompt(Ticket()),
            session=Session(),
            resume_from=AdapterResumeState(conversation_prefix=prefix),
        )
    assert other.ran == []


def test_a_run_without_approvals_records_nothing_of_them(ledger: Ledger) -> None:
    """A loop whose tools need none records nothing of it."""
    loop, run_id = Refunds([REFUND, says("ok")], needs_approval=False, ledger=ledger), new_run_id()
    loop.execute(Ticket(), run_id=run_id)
    assert not {tag for tag in tags(ledger, run_id) if tag.startswith("approval")}
    (started,) = events(ledger, run_id, ToolCallStarted)
    assert started.on_interrupt == "retry"
