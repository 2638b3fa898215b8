"""`MainLoop`: requests come by call or by bus, and each is seen through to its end."""

from __future__ import annotations

from datetime import datetime
from typing import Any
from uuid import UUID, uuid4

import pytest

from tests.agent import Crash, says, task
from tests.unit.runtime.loops import ANSWER, Answer, Goal, Plan, Planner, asks, call, crash_in
from turnledger.ledger import (
    ConcurrentAppendError,
    InnerMessage,
    InvalidInputError,
    Ledger,
    new_run_id,
)
from turnledger.projections import state_at
from turnledger.runtime import (
    InProcessEventBus,
    MainLoop,
    MainLoopCompleted,
    MainLoopConfig,
    MainLoopFailed,
    MainLoopRequest,
    Prompt,
    PromptEvaluationError,
    PromptMismatch,
    PromptResponse,
    RecoveryConfig,
    ScriptedAdapter,
    Session,
)


def test_a_loop_is_made_by_its_keywords() -> None:
    """S2-1: adapter and bus are enough, and subclasses find both; config and recovery are None."""
    bus, adapter = InProcessEventBus(), ScriptedAdapter[str]([])

    class Least(MainLoop[Goal, str]):
        def create_prompt(self, request: Goal) -> Prompt[str]:
            raise NotImplementedError

        def create_session(self) -> Session:
            return Session(bus=self._bus)

    loop = Least(adapter=adapter, bus=bus, config=None, recovery=None)
    assert (loop._bus, loop._adapter) == (bus, adapter)
    assert (loop.request_type, loop.backend) == (Goal, None)
    with pytest.raises(TypeError):
        Least(adapter, bus)  # type: ignore[misc]


def test_prompt_and_session_are_the_subclasss_to_say() -> None:
    """S2-2: without create_prompt there is no loop, and its session is the run's."""
    arguments: dict[str, Any] = {"adapter": ScriptedAdapter([]), "bus": InProcessEventBus()}
    with pytest.raises(TypeError, match="create_prompt"):
        MainLoop(**arguments)  # type: ignore[abstract]
    assert dict(Planner().execute(Goal())[1].tags) == {"loop": "planner"}


def test_a_loop_needs_no_bus_and_no_session_of_its_own() -> None:
    """By default it has a bus of its own, and a new session on it for each run."""

    class Plain(MainLoop[str, Any]):
        def create_prompt(self, request: str) -> Prompt[Any]:
            return task(Goal(request), "Say ${text}.", [])

    loop = Plain(adapter=ScriptedAdapter([says("hello")]))
    (first, one), (second, other) = loop.execute("hello"), loop.execute("hello")
    assert (first.text, first.run_id == second.run_id) == ("hello", False)
    assert one is not other
    assert one.bus is other.bus is loop._bus


def test_execute_gives_the_response_and_the_session(ledger: Ledger) -> None:
    """S2-3, X14: a pair; the run is recorded under the id that was given."""
    run_id = new_run_id()
    response, session = Planner(ledger=ledger).execute(Goal(), run_id=run_id)
    assert isinstance(response, PromptResponse)
    assert response.output == Answer(3)
    assert [plan.step for plan in session[Plan].all()] == ["c1", "c2", "c3"]
    state = state_at(ledger, run_id)
    assert (state.summary.status, state.summary.session_id) == (
        "completed",
        str(session.session_id),
    )
    assert ledger.worker_of(run_id) is None
    assert ledger.verify(run_id).ok


def test_a_run_id_is_used_once(ledger: Ledger) -> None:
    """S2-3: a second execute with the same id is refused, and the run stays as it is."""
    loop, run_id = Planner(ledger=ledger), new_run_id()
    loop.execute(Goal(), run_id=run_id)
    head = ledger.head(run_id)
    with pytest.raises(ConcurrentAppendError) as refused:
        loop.execute(Goal(), run_id=run_id)
    assert "recover it" in refused.value.__notes__[0]
    assert ledger.head(run_id) == head


def test_a_request_that_can_not_be_recorded_is_refused(ledger: Ledger) -> None:
    """A request is JSON, or it is refused before anything begins."""
    with pytest.raises(InvalidInputError, match="request can't be recorded"):
        Planner(ledger=ledger).execute(object())  # type: ignore[arg-type]
    assert list(ledger.runs()) == []


def test_the_messages_are_a_slice(ledger: Ledger) -> None:
    """S0-18: a loop's sessions record their messages as a slice."""
    _, session = Planner(ledger=ledger).execute(Goal())
    assert [m.role for m in session.select_all(InnerMessage)][:3] == ["system", "assistant", "tool"]


# --- by the bus ------------------------------------------------------------------------


def test_a_request_on_the_bus_is_answered_there() -> None:
    """S2-1, S2-4, S2-5, X15: the handler publishes Completed with the request's id."""
    loop = Planner().hears(MainLoopCompleted, MainLoopFailed)
    asked = MainLoopRequest(request=Goal())
    assert (asked.budget, asked.deadline, asked.created_at.tzinfo) == (
        None,
        None,
        asked.created_at.tzinfo,
    )
    told = loop._bus.publish(asked)
    assert told.errors == ()
    (completed,) = loop.heard
    assert (type(completed), completed.request_id) == (MainLoopCompleted, asked.request_id)
    assert completed.response.output == Answer(3)
    assert isinstance(completed.session_id, UUID)
    assert isinstance(completed.completed_at, datetime)


def test_a_failure_on_the_bus_is_told_and_raised(ledger: Ledger) -> None:
    """S2-6, S2-9, S2-10: Failed has the error and the session; publish gives the error back."""
    loop = Planner([ConnectionError("away")], ledger=ledger).hears(
        MainLoopCompleted, MainLoopFailed
    )
    asked = MainLoopRequest(request=Goal())
    told = loop._bus.publish(asked)
    (failed,) = loop.heard
    assert (type(failed), failed.request_id) == (MainLoopFailed, asked.request_id)
    assert isinstance(failed.error, PromptEvaluationError)
    assert [one.error for one in told.errors] == [failed.error]
    (info,) = ledger.runs()
    assert str(failed.session_id) == state_at(ledger, info.run_id).summary.session_id
    assert (info.status, isinstance(failed.failed_at, datetime)) == ("failed", True)


def test_without_a_session_a_failure_has_none() -> None:
    """S2-6: session_id is None if there was no session yet."""

    class Broken(Planner):
        def create_session(self) -> Session:
            raise RuntimeError("no room")

    loop = Broken().hears(MainLoopFailed)
    loop._bus.publish(MainLoopRequest(request=Goal()))
    assert (loop.heard[0].session_id, str(loop.heard[0].error)) == (None, "no room")


def test_a_direct_execute_tells_nobody() -> None:
    """X15: it returns or raises, and publishes neither Completed nor Failed."""
    loop = Planner().hears(MainLoopCompleted, MainLoopFailed)
    loop.execute(Goal())
    failing = Planner([ConnectionError("away")]).hears(MainLoopCompleted, MainLoopFailed)
    with pytest.raises(PromptEvaluationError):
        failing.execute(Goal())
    assert (loop.heard, failing.heard) == ([], [])


def test_every_request_of_the_bus_is_a_run_of_its_own(ledger: Ledger) -> None:
    """S2-4: request id and time are recorded with the run."""
    loop = Planner(ledger=ledger)
    asked = [MainLoopRequest(request=Goal(text)) for text in ("sweep", "mop")]
    for one in asked:
        loop._bus.publish(one)
    found = [state_at(ledger, info.run_id).summary.request_id for info in ledger.runs()]
    assert sorted(map(str, found)) == sorted(str(one.request_id) for one in asked)


def test_loops_of_several_types_share_a_bus(ledger: Ledger) -> None:
    """S2-10: a request goes to the loop that takes its type, and the others leave it alone."""
    bus = InProcessEventBus()

    class Other(Planner):
        def create_prompt(self, request: Any) -> Prompt[Answer]:
            return super().create_prompt(Goal(request))

    mine = Planner(bus=bus, ledger=ledger).hears(MainLoopCompleted, MainLoopFailed)
    Other(bus=bus, ledger=ledger, request_type=str)
    for request in (Goal(), "sweep"):
        assert bus.publish(MainLoopRequest(request=request)).errors == ()
    assert [type(one) for one in mine.heard] == [MainLoopCompleted, MainLoopCompleted]
    kinds = [state_at(ledger, info.run_id).summary.request_type for info in ledger.runs()]
    assert sorted(kinds) == ["Goal", "str"]


# --- how it may end --------------------------------------------------------------------


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit, Crash])
def test_ctrl_c_leaves_a_resumable_run(ledger: Ledger, error: type[BaseException]) -> None:
    """Whatever is no Exception ends the process: the run has not failed, its lease is free."""
    run_id = new_run_id()
    loop = Planner(ledger=ledger, in_tool=crash_in("c2", error=error)).hears(MainLoopFailed)
    with pytest.raises(error):
        loop.execute(Goal(), run_id=run_id)
    assert (ledger.run(run_id).status, ledger.worker_of(run_id)) == ("running", None)
    tools = state_at(ledger, run_id).tools
    assert [(one.call_id, one.status) for one in tools.pending()] == [("c2", "started")]
    again = Planner(ledger=ledger)
    assert again.recover(run_id)[0].output == Answer(3)
    assert (again.ran, loop.heard) == (["c2", "c3"], [])


def test_ctrl_c_by_the_bus_is_no_failure() -> None:
    """X15: an interruption passes the bus and is not told as a failure."""
    loop = Planner(in_tool=crash_in("c1", error=KeyboardInterrupt)).hears(MainLoopFailed)
    with pytest.raises(KeyboardInterrupt):
        loop._bus.publish(MainLoopRequest(request=Goal()))
    assert loop.heard == []


def test_a_prompt_that_can_not_be_made_fails_the_run(ledger: Ledger) -> None:
    """S2-9: what create_prompt raises is raised, and the run has failed with it."""

    class Broken(Planner):
        def create_prompt(self, request: Goal) -> Prompt[Answer]:
            raise LookupError("no template")

    with pytest.raises(LookupError):
        Broken(ledger=ledger).execute(Goal())
    (info,) = ledger.runs()
    summary = state_at(ledger, info.run_id).summary
    assert (summary.status, summary.error_type) == ("failed", "LookupError")
    assert Planner(ledger=ledger).recover(info.run_id)[0].output == Answer(3)


def test_a_failed_tool_leaves_no_trace_and_no_checkpoint(ledger: Ledger) -> None:
    """S2-17: its changes are rolled back, the evaluation goes on, no checkpoint is taken."""
    run_id = new_run_id()
    loop = Planner([asks(call("c1", "refuse")), ANSWER], ledger=ledger)
    response, session = loop.execute(Goal(), run_id=run_id)
    assert (response.output, session[Plan].all()) == (Answer(3), ())
    phases = [entry.phase for entry in state_at(ledger, run_id).checkpoints.entries]
    assert phases == ["initialized", "completed"]


def test_configs_are_values() -> None:
    """S2-7, S2-15: the defaults are the seed's, and what makes no sense is refused."""
    assert MainLoopConfig() == MainLoopConfig(deadline=None, budget=None)
    config = RecoveryConfig()
    assert (config.checkpoint_interval, config.cleanup_on_success) == (1, True)
    assert (config.max_resume_age.total_seconds(), config.max_attempts) == (86400, 3)
    for wrong in ({"checkpoint_interval": 0}, {"max_attempts": 0}, {"max_attempts": True}):
        with pytest.raises(InvalidInputError):
            RecoveryConfig(**wrong)
    with pytest.raises(InvalidInputError):
        RecoveryConfig(max_resume_age=-RecoveryConfig().max_resume_age)


def test_errors_that_are_no_failure_do_not_fail_the_run(ledger: Ledger) -> None:
    """A mismatch is told by the bus like any error, and the run is as it was."""
    run_id = uuid4()
    with pytest.raises(Crash):
        Planner(ledger=ledger, in_tool=crash_in("c1")).execute(Goal(), run_id=run_id)
    with pytest.raises(PromptMismatch):
        Planner(ledger=ledger, title="Other").recover(run_id)
    assert ledger.run(run_id).status == "running"
