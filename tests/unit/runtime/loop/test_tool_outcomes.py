"""A tool that has ended is recorded as ended, whatever comes after its return."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.unit.runtime.evaluations import Add, Scripted, Sum, calls, events, on, prompt_of, says
from tests.unit.runtime.evaluations import tool as make_tool
from tests.unit.runtime.loops import Goal, Planner, asks, call
from turnledger.ledger import (
    Ledger,
    Limits,
    RunWaiting,
    ToolCallCompleted,
    ToolCallDecided,
    ToolCallFailed,
    ToolCallInDoubt,
    ToolCallStarted,
    new_run_id,
)
from turnledger.runtime import (
    DecisionRequiredError,
    MainLoopConfig,
    Session,
    ToolInvoked,
    ToolResult,
    VisibilityExpansionRequired,
    replay,
)
from turnledger.runtime.loop.events import ToolStillRunning
from turnledger.runtime.loop.perform import run_tool
from turnledger.runtime.loop.perform.slow_calls import SlowCalls

PAY = [calls(("p", "add", '{"n": 5}')), says("paid")]
OUTCOMES = (ToolCallCompleted, ToolCallFailed)


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[Ledger]:
    with Ledger.open(tmp_path / "ledger.db") as ledger:
        yield ledger


class Raising(Mapping[str, Any]):
    """A lazy row, or a dict that another thread fills: it raises when it is read."""

    def __init__(self, error: BaseException) -> None:
        self._error = error

    def __getitem__(self, key: str) -> Any:
        raise self._error

    def __iter__(self) -> Iterator[str]:
        raise self._error

    def __len__(self) -> int:
        raise self._error


class RaisingClass:
    """Even its class can't be asked for."""

    @property
    def __class__(self) -> Any:  # type: ignore[override]
        raise RuntimeError("who knows")


class RaisingResult(ToolResult[Any]):
    """A result whose message is made when it is read."""

    def __getattribute__(self, name: str) -> Any:
        if name == "message":
            raise ConnectionError("the cursor is closed")
        return super().__getattribute__(name)


def holding_itself() -> Any:
    value: list[Any] = []
    value.append(value)
    return value


RETURNED: dict[str, Callable[[], Any]] = {
    "a lazy row": lambda: Raising(RuntimeError("dictionary changed size during iteration")),
    "deep inside": lambda: ToolResult("ok", value=[{"a": Raising(LookupError("gone"))}]),
    "no class": RaisingClass,
    "a message": lambda: RaisingResult("paid"),
    "a success": lambda: ToolResult("ok", success=Raising(TypeError("no truth"))),  # type: ignore[arg-type]
    "itself": holding_itself,
    "bytes": lambda: b"\xff",
    "half a pair": lambda: "\ud800",
}


@pytest.mark.parametrize("name", RETURNED)
def test_a_value_that_raises_when_it_is_read_ends_its_call(ledger: Ledger, name: str) -> None:
    """The handler has paid: a call left "started" would be paid again by each recovery."""
    paid: list[str] = []

    def pay(params: Add, *, context: Any) -> Any:
        paid.append(context.call_id)
        return RETURNED[name]()

    session = on(ledger)
    Scripted(PAY).evaluate(prompt_of(make_tool(pay)), session=session)
    (failed,) = events(session, *OUTCOMES)
    assert isinstance(failed, ToolCallFailed)
    assert (failed.call_id, paid) == ("p", ["p"])


@pytest.mark.parametrize("interrupt", [KeyboardInterrupt, SystemExit])
@pytest.mark.parametrize("width", [1, 2])
def test_an_interrupt_after_the_return_leaves_a_recorded_outcome(
    ledger: Ledger, interrupt: type[BaseException], width: int
) -> None:
    """It is raised, after the outcome is on disk."""

    def pay(params: Add, *, context: Any) -> Any:
        return Raising(interrupt())

    session = on(ledger)
    script = [calls(("p", "add", "{}"), ("q", "add", "{}")), says("paid")]
    with pytest.raises(interrupt):
        Scripted(script, parallel_tools=width).evaluate(prompt_of(make_tool(pay)), session=session)
    (failed, *_) = events(session, *OUTCOMES)
    assert (failed.call_id, failed.error_type) == ("p", interrupt.__name__)


@pytest.mark.parametrize("error", [RuntimeError("no"), KeyboardInterrupt()], ids=type)
def test_a_bus_that_raises_does_not_undo_the_outcome(
    ledger: Ledger, error: BaseException, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Publishing comes after the handler: its failure is a veto of the changes, no more."""
    session = on(ledger)
    publish = session.bus.publish

    def fail(event: Any) -> Any:
        if isinstance(event, ToolInvoked):
            raise error
        return publish(event)

    monkeypatch.setattr(session.bus, "publish", fail)
    run = lambda: Scripted(PAY).evaluate(prompt_of(make_tool()), session=session)  # noqa: E731
    if isinstance(error, Exception):
        run()
    else:
        with pytest.raises(type(error)):
            run()
    (completed,) = events(session, *OUTCOMES)
    assert isinstance(completed, ToolCallCompleted)
    assert session[Sum].all() == ()


def test_a_result_beyond_every_limit_is_recorded_in_short(tmp_path: Path) -> None:
    """Neither the result nor the reason why it can't be recorded fits: a short text does."""

    def pay(params: Add, *, context: Any) -> Any:
        raise ValueError("x" * 50_000)

    with Ledger.open(tmp_path / "small.db", limits=Limits(max_event_bytes=4_000)) as ledger:
        session = on(ledger)
        Scripted(PAY).evaluate(prompt_of(make_tool(pay)), session=session)
        (failed,) = events(session, *OUTCOMES)
        assert failed.error_type == "ValueError"
        assert "can't be recorded" in failed.error_message


def test_a_resource_that_fails_does_not_undo_the_outcome(ledger: Ledger) -> None:
    """What can't be snapshotted, with whatever error, is a failed result."""

    class Broken:
        def snapshot(self) -> Any:
            if paid:
                raise LookupError("the volume is gone")
            return {}

        def restore(self, snapshot: Any) -> None:
            raise LookupError("the volume is gone")

    paid: list[str] = []
    run_id = new_run_id()
    loop = Planner(
        [asks(call("c1"))],
        ledger=ledger,
        in_tool=lambda context: paid.append(context.call_id),
        resources={"volume": Broken()},
    )
    with pytest.raises(Exception, match="restored after a failed tool"):
        loop.execute(Goal(), run_id=run_id)
    found = [r.event for r in ledger.read(run_id) if isinstance(r.event, OUTCOMES)]
    assert [(event.call_id, event.error_type) for event in found] == [("c1", "LookupError")]


def test_a_signal_that_makes_no_sense_is_a_failed_result(ledger: Ledger) -> None:
    """A handler that asks for sections in a way that can't be recorded has run all the same."""

    def pay(params: Add, *, context: Any) -> Any:
        raise VisibilityExpansionRequired({"task": "all of it"})  # type: ignore[dict-item]

    session = on(ledger)
    Scripted(PAY).evaluate(prompt_of(make_tool(pay)), session=session)
    (failed,) = events(session, *OUTCOMES)
    assert failed.error_type == "AttributeError"


def test_an_interrupt_between_two_tools_keeps_the_first_ones_outcome(ledger: Ledger) -> None:
    """What is pending when Ctrl-C comes is written, if a tool has ended in it."""
    session = on(ledger)
    session.bus.subscribe(ToolInvoked, lambda event: None)
    ran: list[str] = []

    def pay(params: Add, *, context: Any) -> str:
        ran.append(context.call_id)
        return "ok"

    adapter = Scripted([calls(("p", "add", "{}")), says("paid")])

    def stop(*_: Any) -> Any:
        if ran:
            raise KeyboardInterrupt
        return Scripted.encode(adapter, *_)

    adapter.encode = stop  # type: ignore[method-assign]
    with pytest.raises(KeyboardInterrupt):
        adapter.evaluate(prompt_of(make_tool(pay)), session=session)
    assert [event.call_id for event in events(session, *OUTCOMES)] == ["p"]


# --- the policy of the start holds -----------------------------------------------------


def paid_in_doubt(ledger: Ledger, policy: Any) -> Session:
    def die(params: Add, *, context: Any) -> str:
        raise KeyboardInterrupt

    session = on(ledger)
    with pytest.raises(KeyboardInterrupt):
        Scripted(PAY).evaluate(prompt_of(make_tool(die, on_interrupt=policy)), session=session)
    return session


@pytest.mark.parametrize(
    ("started", "now", "holds"),
    [
        ("ask", "retry", "ask"),
        ("ask", "fail", "ask"),
        ("fail", "retry", "fail"),
        ("retry", "ask", "ask"),
        ("retry", "fail", "fail"),
        ("retry", "retry", "retry"),
    ],
)
def test_the_more_careful_policy_holds(
    ledger: Ledger, started: Any, now: Any, holds: str, caplog: pytest.LogCaptureFixture
) -> None:
    """A payment that was started under "ask" is not repeated by code that says "retry"."""
    session = paid_in_doubt(ledger, started)
    assert events(session, ToolCallStarted)[0].on_interrupt == started
    paid: list[str] = []

    def pay(params: Add, *, context: Any) -> str:
        paid.append(context.call_id)
        return "ok"

    evaluate = Scripted(PAY).evaluate
    prompt = prompt_of(make_tool(pay, on_interrupt=now))
    if holds == "ask":
        with pytest.raises(DecisionRequiredError):
            evaluate(prompt, session=session, resume=True)
    else:
        evaluate(prompt, session=session, resume=True)
    assert paid == (["p"] if holds == "retry" else [])
    assert ("more careful" in caplog.text) == (started != now)


# --- time-outs -------------------------------------------------------------------------


class Slow:
    """A handler that returns when it is let go."""

    def __init__(self) -> None:
        self.go, self.done = threading.Event(), threading.Event()

    def __call__(self, params: Add, *, context: Any) -> Any:
        self.go.wait(30)
        context.session[Sum].append(Sum(params.n))
        return ToolResult("Paid 5.", value={"receipt": 7})


def test_an_ask_call_that_runs_out_of_time_is_in_doubt_and_waits(ledger: Ledger) -> None:
    """Recorded as failed, the model would ask for it again, and pay twice."""
    session, slow = on(ledger), Slow()
    prompt = prompt_of(make_tool(slow, on_interrupt="ask", timeout=0.01))
    with pytest.raises(DecisionRequiredError):
        Scripted(PAY).evaluate(prompt, session=session)
    slow.go.set()
    (doubt, waiting) = events(session, ToolCallInDoubt, *OUTCOMES, RunWaiting)
    assert "did not answer within 0.01 seconds" in doubt.reason
    assert waiting.call_ids == ("p",)


def test_what_a_late_handler_returns_is_recorded_if_the_run_waits(
    ledger: Ledger, caplog: pytest.LogCaptureFixture
) -> None:
    """The run goes on with it, changes of the session included, and nothing is paid again."""
    caplog.set_level(logging.WARNING)
    session, slow, heard = on(ledger), Slow(), threading.Event()
    handler = logging.Handler()
    handler.emit = lambda record: heard.set()  # type: ignore[method-assign]
    logger = logging.getLogger("turnledger.tools")
    prompt = prompt_of(make_tool(slow, on_interrupt="ask", timeout=0.01))
    with pytest.raises(DecisionRequiredError):
        Scripted(PAY).evaluate(prompt, session=session)
    logger.addHandler(handler)
    try:
        slow.go.set()
        assert heard.wait(30)
    finally:
        logger.removeHandler(handler)
    (decided,) = events(session, ToolCallDecided)
    assert (decided.decision, decided.attempt, decided.value) == ("completed", 1, {"receipt": 7})
    assert [change.payload for change in decided.changes] == [{"total": 5}]
    assert Scripted(PAY).evaluate(prompt, session=session, resume=True).text == "paid"
    (completed,) = events(session, *OUTCOMES)
    assert completed.value == {"receipt": 7}
    assert session[Sum].all() == (Sum(5),)


def test_a_run_does_not_wait_for_what_a_late_handler_returned_just_now(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Recorded before the wait, the result would not end it, and no replay would wait there."""
    release, recorded, append = threading.Event(), threading.Event(), ledger.append

    def overtaken(run: Any, given: Any, *args: Any, **options: Any) -> Any:
        if isinstance(given, ToolCallDecided):
            done = append(run, given, *args, **options)
            recorded.set()
            return done
        if any(isinstance(one.event, RunWaiting) for one in given) and not release.is_set():
            release.set()
            assert recorded.wait(30)
        return append(run, given, *args, **options)

    def in_tool(context: Any) -> None:
        if context.call_id == "c2":
            release.wait(30)

    monkeypatch.setattr(ledger, "append", overtaken)
    config = MainLoopConfig(tool_timeout=0.05)
    loop = Planner(ledger=ledger, in_tool=in_tool, on_interrupt="ask", config=config)
    run_id = new_run_id()
    loop.execute(Goal(), run_id=run_id)
    assert recorded.is_set()
    tags = [record.tag for record in ledger.read(run_id)]
    assert (tags.count(RunWaiting.tag), tags.count(ToolCallInDoubt.tag)) == (0, 1)
    assert replay(ledger, run_id, loop=Planner(on_interrupt="ask", config=config)).ok


def test_a_fail_call_that_runs_out_of_time_is_told_as_unknown(ledger: Ledger) -> None:
    """The model hears that it may have happened, and not that it failed."""
    session, slow = on(ledger), Slow()
    prompt = prompt_of(make_tool(slow, on_interrupt="fail", timeout=0.01))
    assert Scripted(PAY).evaluate(prompt, session=session).text == "paid"
    slow.go.set()
    (doubt, failed) = events(session, ToolCallInDoubt, *OUTCOMES)
    assert (doubt.call_id, failed.error_type) == ("p", "OutcomeUnknown")
    assert "did not answer within" in failed.error_message


def test_the_loops_time_out_is_for_tools_without_their_own(ledger: Ledger) -> None:
    """`MainLoopConfig.tool_timeout`; without one a handler runs in the caller's thread."""
    threads: list[Any] = []
    release = threading.Event()

    def in_tool(context: Any) -> None:
        threads.append(threading.current_thread())
        if context.call_id == "c2":
            release.wait(30)

    config = MainLoopConfig(tool_timeout=0.05)
    loop = Planner(ledger=ledger, in_tool=in_tool, on_interrupt="ask", config=config)
    run_id = new_run_id()
    with pytest.raises(DecisionRequiredError):
        loop.execute(Goal(), run_id=run_id)
    status = ledger.run(run_id).status
    release.set()  # then the late answer is recorded
    assert status == "waiting"
    assert threading.main_thread() not in threads
    own: set[Any] = set()
    Planner(in_tool=lambda c: own.add(threading.current_thread())).execute(Goal())
    assert own == {threading.current_thread()}


@pytest.mark.parametrize("seconds", [0, -1, float("nan"), float("inf"), "5"])
def test_a_time_out_that_is_not_a_time_is_refused(seconds: Any) -> None:
    """Before anything runs."""
    with pytest.raises(ValueError, match="expected seconds above 0"):
        MainLoopConfig(tool_timeout=seconds)


def test_a_call_that_runs_long_is_told(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """On the log and the bus, again and again while it runs."""
    monkeypatch.setattr(run_tool, "SLOW_CALLS", SlowCalls(every=0.01, look=0.005))
    session, told = on(ledger), threading.Semaphore(0)
    heard: list[ToolStillRunning] = []

    def hear(event: ToolStillRunning) -> None:
        heard.append(event)
        told.release()

    session.bus.subscribe(ToolStillRunning, hear)

    def pay(params: Add, *, context: Any) -> str:
        assert told.acquire(timeout=30)
        assert told.acquire(timeout=30)
        return "ok"

    Scripted(PAY).evaluate(prompt_of(make_tool(pay)), session=session)
    assert {(one.name, one.call_id) for one in heard} == {("add", "p")}
    assert heard[1].seconds > heard[0].seconds
    assert "has been running for" in caplog.text


# --- leases ----------------------------------------------------------------------------


def test_a_worker_that_lost_its_lease_performs_no_further_effect(ledger: Ledger) -> None:
    """It notices before the next effect, also one that would not have written first."""
    from turnledger.ledger import StaleEpochError

    loop = Planner(ledger=ledger)
    journals: list[Any] = []

    def lose(context: Any) -> None:
        journals.append(context.session.journal)
        journals[-1].is_lost = lambda: True

    loop.in_tool = lose
    with pytest.raises(StaleEpochError):
        loop.execute(Goal())
    assert loop.ran == ["c1"]
