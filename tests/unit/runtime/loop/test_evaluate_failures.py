"""What a model or a provider may do wrong: each is a typed error, and the session goes on."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from threading import Event
from typing import Any

import pytest

from tests.agent import calls, says
from tests.unit.runtime.clocks import BEGIN, StandingClock
from tests.unit.runtime.evaluations import Scripted, again, events, messages, on, prompt_of, tool
from turnledger.ledger import (
    InnerMessage,
    Ledger,
    ModelCalled,
    ModelCallFailed,
    ModelReplied,
    StaleEpochError,
    StoreUnavailableError,
    ToolCallFailed,
)
from turnledger.projections import ReducerContext
from turnledger.runtime import (
    Deadline,
    PromptEvaluationError,
    Reply,
    ScriptError,
    Session,
    ThrottledError,
    ThrottlePolicy,
    ToolCall,
)
from turnledger.runtime.agent.models import RetryCancelledError
from turnledger.runtime.journal.journal import ATTEMPTS, Journal

AT_ONCE = ThrottlePolicy(
    max_attempts=3, base_delay=timedelta(0), max_delay=timedelta(0), jitter=False
)


class Flaky(Scripted):
    """Fails with these errors first, whatever the turn; then it is as scripted."""

    def __init__(self, errors: list[Exception], *replies: Reply, **options: Any) -> None:
        super().__init__(replies, throttle=AT_ONCE, **options)
        self.errors = errors
        self.waited: list[float] = []
        wait = self.cancelled.wait

        class Flag(Event):
            def wait(flag, timeout: float | None = None) -> bool:  # noqa: N805
                self.waited.append(timeout or 0.0)
                return wait(0)

        self.cancelled = Flag()

    def send(self, payload: Any, sending: Any) -> Any:
        if self.errors:
            raise self.errors.pop(0)
        return super().send(payload, sending)


class OverloadedError(Exception):
    """A provider's own error."""

    status_code = 429
    retryable = True
    retry_after = 7


# --- replies that are none -----------------------------------------------------------------


@pytest.mark.parametrize(
    ("reply", "why"),
    [
        (Reply(), "neither text nor tool calls"),
        (Reply(text=""), "neither text nor tool calls"),
        (calls(("c1", "")), "without a name"),
        (calls(("c1", "add"), ("c1", "add")), "'c1' twice"),
        (says("\ud800"), "can't be recorded"),
        (says("ok", provider_data={"x": object()}), "can't be recorded"),
        (Reply(tool_calls=(ToolCall("c1", "add", 7),)), "can't be recorded"),  # type: ignore[arg-type]
        ("text", "can't be read: ScriptError: Invalid scripted reply str: expected a Reply"),
    ],
    ids=[
        "nothing",
        "empty text",
        "no name",
        "an id twice",
        "no text",
        "no JSON",
        "no arguments",
        "no reply",
    ],
)
def test_a_reply_that_is_none_fails_in_the_response(reply: Any, why: str) -> None:
    """It is recorded that the call failed and why; asked again, the session goes on."""
    session = Session()
    with pytest.raises(PromptEvaluationError, match="tests/sum") as caught:
        Scripted([reply]).evaluate(prompt_of(tool()), session=session)
    assert why in caught.value.message
    assert caught.value.phase == "response"
    (failed,) = events(session, ModelCallFailed)
    assert (failed.turn, failed.retryable) == (1, False)
    assert why in failed.error_message
    assert [said.role for said in messages(session)] == ["system"]
    for other in (again(session), session):
        adapter = Scripted([says("better")])
        assert adapter.evaluate(prompt_of(tool()), session=other, resume=True).text == "better"
        session.journal.refresh()


def test_a_request_that_cannot_be_made_is_not_sent() -> None:
    """The provider's objection is the error's cause; the session goes on where that is mended."""

    class Picky(Scripted):
        def encode(self, request: Any) -> Any:
            raise ScriptError("no such model")

    session = Session()
    with pytest.raises(PromptEvaluationError, match="no such model") as caught:
        Picky([]).evaluate(prompt_of(), session=session)
    assert caught.value.phase == "request"
    assert events(session, ModelCalled) == []
    other = Scripted([says("ok")])
    assert other.evaluate(prompt_of(), session=again(session), resume=True).text == "ok"


def test_a_script_that_is_too_short_says_so() -> None:
    """With the turn that was asked for."""
    with pytest.raises(PromptEvaluationError, match="1 replies: none for turn 2"):
        Scripted([calls(("c1", "add"))]).evaluate(prompt_of(tool()), session=Session())


@pytest.mark.parametrize(("role", "phase"), [("system", "request"), ("assistant", "response")])
def test_a_slice_that_refuses_a_message_fails_the_evaluation(role: str, phase: str) -> None:
    """A reducer of the user's own: typed, and nothing half recorded."""

    def refuse(
        values: tuple[InnerMessage, ...], event: InnerMessage, *, context: ReducerContext
    ) -> tuple[InnerMessage, ...]:
        if event.role == role:
            raise ZeroDivisionError("not that")
        return (*values, event)

    session = Session()
    session.mutate(InnerMessage).register(InnerMessage, refuse)
    with pytest.raises(PromptEvaluationError, match="recorded") as caught:
        Scripted([says("ok")]).evaluate(prompt_of(), session=session)
    assert caught.value.phase == phase
    assert role not in [said.role for said in messages(session)]


def test_a_prompt_that_is_too_large_for_the_ledger_fails_in_the_request() -> None:
    """And the session can be used for another."""
    session = Session()
    with pytest.raises(PromptEvaluationError, match="max_event_bytes") as caught:
        Scripted([says("ok")]).evaluate(prompt_of(text="x" * 9_000_000), session=session)
    assert caught.value.phase == "request"
    assert Scripted([says("ok")]).evaluate(prompt_of(), session=session).text == "ok"


# --- trying again ----------------------------------------------------------------------------


def test_a_call_that_may_be_tried_again_is_tried_again() -> None:
    """Not before the provider's retry-after; each failure is on record with its status."""
    session = Session()
    adapter = Flaky(
        [OverloadedError("slow down"), ThrottledError("wait", retry_after=2.5)], says("ok")
    )
    assert adapter.evaluate(prompt_of(), session=session).text == "ok"
    assert adapter.waited == [7.0, 2.5]
    failed = events(session, ModelCallFailed)
    assert [(one.attempt, one.error_type, one.status, one.retryable) for one in failed] == [
        (1, "OverloadedError", 429, True),
        (2, "ThrottledError", None, True),
    ]
    assert [one.attempt for one in events(session, ModelCalled)] == [1, 2, 3]
    assert len({one.request_digest for one in events(session, ModelCalled)}) == 1


def test_the_policys_attempts_are_the_most_that_are_made() -> None:
    """S4-3: then the provider's error is the cause; a resume goes on counting."""
    session = Session()
    adapter = Flaky([OverloadedError() for _ in range(4)], says("ok"))
    with pytest.raises(PromptEvaluationError, match="OverloadedError") as caught:
        adapter.evaluate(prompt_of(), session=session)
    assert caught.value.phase == "request"
    assert isinstance(caught.value.__cause__, OverloadedError)
    assert adapter.evaluate(prompt_of(), session=again(session), resume=True).text == "ok"
    assert [one.attempt for one in events(session, ModelCalled)] == [1, 2, 3, 4, 5]


def test_what_may_not_be_tried_again_fails_at_once() -> None:
    """After one attempt, which is on record."""
    session, adapter = Session(), Flaky([KeyError("bad key")], says("ok"))
    with pytest.raises(PromptEvaluationError, match="bad key"):
        adapter.evaluate(prompt_of(), session=session)
    (failed,) = events(session, ModelCallFailed)
    assert (failed.retryable, adapter.waited) == (False, [])


def test_an_error_that_says_too_much_is_cut() -> None:
    """A whole page would not fit in the ledger."""
    session = Session()
    with pytest.raises(PromptEvaluationError):
        Scripted([OSError("z" * 9_000_000)]).evaluate(prompt_of(), session=session)
    assert len(events(session, ModelCallFailed)[0].error_message) < 30_000


def test_a_wait_that_is_cancelled_leaves_a_session_that_can_be_resumed() -> None:
    """Nothing failed for good."""
    session = Session()
    adapter = Flaky([OverloadedError()], says("ok"))

    class Cancelled(Event):
        def wait(self, timeout: float | None = None) -> bool:
            return True

    adapter.cancelled = Cancelled()
    with pytest.raises(RetryCancelledError):
        adapter.evaluate(prompt_of(), session=session)
    assert len(events(session, ModelCallFailed)) == 1
    assert adapter.evaluate(prompt_of(), session=again(session), resume=True).text == "ok"


def test_a_wait_beyond_the_deadline_is_not_begun() -> None:
    """S4-12: it is the deadline's error, with its time."""
    clock, session = StandingClock(), Session()
    deadline = Deadline(BEGIN + timedelta(seconds=5), clock=clock)
    adapter = Flaky([OverloadedError()], says("ok"))
    with pytest.raises(PromptEvaluationError, match="beyond the deadline") as caught:
        adapter.evaluate(prompt_of(), session=session, deadline=deadline)
    assert caught.value.phase == "request"
    assert caught.value.provider_payload == {"deadline_expires_at": "2025-03-01T12:00:05+00:00"}
    assert adapter.waited == []


@pytest.mark.parametrize("interrupt", [KeyboardInterrupt, SystemExit])
def test_an_interrupted_model_call_is_made_again(interrupt: type[BaseException]) -> None:
    """As another attempt of the same request."""

    def stop(sending: Any) -> None:
        raise interrupt

    session = Session()
    with pytest.raises(interrupt):
        Scripted([], on_send=stop).evaluate(prompt_of(), session=session)
    assert events(session, ModelCallFailed) == []
    Scripted([says("ok")]).evaluate(prompt_of(), session=again(session), resume=True)
    called = events(session, ModelCalled)
    assert [one.attempt for one in called] == [1, 2]
    assert called[0].request_digest == called[1].request_digest


# --- the ledger's own refusals -----------------------------------------------------------------


def test_a_worker_whose_run_another_has_claimed_says_so(tmp_path: Path) -> None:
    """It is no failure of the model: the error passes as it is, and nothing is appended."""
    with Ledger.open(str(tmp_path / "l.db")) as ledger:
        first = on(ledger)
        run_id = first.journal.run_id
        old = ledger.claim(run_id, worker="old")
        session = Session()
        session.attach(Journal(ledger, run_id, declarations=session.declarations, claim=old))

        class Stolen(Scripted):
            def send(self, payload: Any, sending: Any) -> Any:
                old.release()
                ledger.claim(run_id, worker="new")
                head.append(ledger.head(run_id))
                return super().send(payload, sending)

        head: list[int] = []
        script = [calls(("c1", "add")), says("never")]
        with pytest.raises(StaleEpochError):
            Stolen(script).evaluate(prompt_of(tool()), session=session)
        assert ledger.head(run_id) == head[0]
        with pytest.raises(StaleEpochError):
            Scripted(script).evaluate(prompt_of(), session=session)
        assert ledger.head(run_id) == head[0]
        assert events(session, ModelReplied, ToolCallFailed) == []


def test_a_store_that_is_away_is_no_failure_of_the_model(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its error passes as it is; when it is back, the session goes on."""
    session = Session()
    ledger = session.journal.ledger
    append, away = ledger.append, [True] * ATTEMPTS

    def refuse(*args: Any, **more: Any) -> Any:
        if away:
            away.pop()
            raise StoreUnavailableError("away")
        return append(*args, **more)

    monkeypatch.setattr(ledger, "append", refuse)
    adapter = Scripted([says("ok")])
    with pytest.raises(StoreUnavailableError):
        adapter.evaluate(prompt_of(), session=session)
    assert adapter.requests == []
    assert adapter.evaluate(prompt_of(), session=session, resume=True).text == "ok"
    assert events(session, ModelCallFailed) == []
    assert [said.role for said in messages(session)] == ["system", "assistant"]
