"""Recovering a run from a ledger: what is recovered, in which order, and what is refused."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

import pytest

from tests.agent import Crash, OutputT, ScriptedLoop
from tests.unit.runtime.clocks import StandingClock
from tests.unit.runtime.loops import (
    Answer,
    Goal,
    Plan,
    Planner,
    crash_in,
    interrupted,
    simulated_crash,
    tags,
)
from turnledger.ledger import (
    ANY,
    CheckpointCleared,
    CheckpointReached,
    CustomEvent,
    InvalidInputError,
    InvalidRunIdError,
    Ledger,
    RunClaimedError,
    RunStarted,
    StaleEpochError,
    new_run_id,
)
from turnledger.projections import state_at
from turnledger.runtime import (
    CheckpointCorruptedError,
    CheckpointExpiredError,
    CheckpointNotFoundError,
    CheckpointPhase,
    PromptMismatch,
    RecoveryConfig,
    RecoveryError,
    RequestTypeMismatchError,
    ToolContext,
)

# --- what is recovered -----------------------------------------------------------------


def test_a_recovered_run_ends_as_the_uninterrupted_one(ledger: Ledger) -> None:
    """S2-23: the same answer, the same state and the same outcome digest."""
    whole = new_run_id()
    response, session = Planner(ledger=ledger).execute(Goal(), run_id=whole)
    for at in ("c1", "c2", "c3"):
        run_id = interrupted(ledger, at)
        loop = Planner(ledger=ledger)
        recovered, restored = loop.recover(run_id)
        assert recovered.output == response.output == Answer(3)
        assert restored[Plan].all() == session[Plan].all()
        assert loop.ran[0] == at
        assert state_at(ledger, run_id).outcome_digest == state_at(ledger, whole).outcome_digest, at


def test_recover_and_abandon_take_an_id_its_text_or_what_was_listed(ledger: Ledger) -> None:
    """S2-16, X7: whichever way a run is named."""
    loop = Planner(ledger=ledger)
    for name in (lambda run: run, str, lambda run: loop.list_recoverable()[0]):
        run_id = interrupted(ledger)
        assert loop.recover(name(run_id))[0].output == Answer(3)
        run_id = interrupted(ledger)
        loop.abandon(name(run_id))
        assert ledger.run(run_id).status == "abandoned"
        assert loop.list_recoverable() == []


def test_what_is_no_run_is_refused(ledger: Ledger) -> None:
    """S2-16: a text that is no UUID is an error that says so."""
    loop = Planner(ledger=ledger)
    for refused in (loop.recover, loop.abandon):
        with pytest.raises(InvalidRunIdError, match="nonsense"):
            refused("nonsense")


def test_what_is_listed(ledger: Ledger) -> None:
    """S2-16: the runs of this loop's kind with phase, tools and time, oldest first."""
    runs = [interrupted(ledger, "c1"), interrupted(ledger, "c3")]
    ledger.append(new_run_id(), RunStarted(request_type="Other", request_id=uuid4()), ANY)
    ledger.append(new_run_id(), CustomEvent(kind="a.b"), ANY)
    found = Planner(ledger=ledger).list_recoverable()
    assert [one.run_id for one in found] == runs
    assert [(one.phase, one.tool_calls_completed) for one in found] == [
        (CheckpointPhase.INITIALIZED, 0),
        (CheckpointPhase.POST_TOOL, 2),
    ]
    assert found[0].request_id == UUID(state_at(ledger, runs[0]).summary.request_id or "")
    assert found[0].created_at <= found[1].created_at


def test_listing_reads_the_end_of_a_run(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    """The last checkpoint is found from the end, and the rest of a long run is not read."""
    run_id, moment = new_run_id(), datetime(2026, 1, 2, tzinfo=UTC)
    started = RunStarted(request_id=uuid4(), request_type="Goal")
    reached = CheckpointReached(
        phase="post_tool", tool_calls_completed=7, state_digest="", created_at=moment
    )
    ledger.append(run_id, [started, *[CustomEvent(kind="a.b")] * 900, reached], ANY)
    read: list[int] = []
    rows = ledger.store.rows

    def counted(*given: Any, **more: Any) -> Any:
        found = rows(*given, **more)
        read.append(len(found))
        return found

    monkeypatch.setattr(ledger.store, "rows", counted)
    loop = Planner(ledger=ledger)
    (found,) = loop.list_recoverable()
    assert (found.phase, found.tool_calls_completed) == (CheckpointPhase.POST_TOOL, 7)
    assert found.created_at == moment
    assert sum(read) <= 60
    ledger.append(run_id, CheckpointCleared(reason="enough"), ANY)
    assert loop.list_recoverable() == []


def test_the_order_of_recovering(ledger: Ledger) -> None:
    """S2-18: age, request, session, prompt, resources; each refusal before what follows.

    The prompt is made of the request and the session alone. It is compared before the run is
    claimed, and resources are not touched before that.
    """
    run_id = interrupted(ledger)
    done: list[str] = []

    class Watched(Planner):
        def create_session(self) -> Any:
            done.append("session")
            return super().create_session()

        def __init__(self, **options: Any) -> None:
            super().__init__(resources=self._made, **options)

        def _made(self) -> Any:
            done.append("resources")
            return {"counter": Counter()}

        def create_prompt(self, request: Goal) -> Any:
            done.append("prompt")
            return super().create_prompt(request)

    class Counter:
        def snapshot(self) -> int:
            return 1

        def restore(self, snapshot: Any, /) -> None:
            done.append("restored")

    Watched(ledger=ledger).recover(run_id)
    assert done == ["session", "prompt", "resources"]  # the counter was never recorded
    done.clear()
    run_id = new_run_id()
    with pytest.raises(Crash):
        Watched(ledger=ledger, in_tool=crash_in("c2")).execute(Goal(), run_id=run_id)
    done.clear()
    with pytest.raises(RequestTypeMismatchError):
        Watched(ledger=ledger, request_type=str).recover(run_id)
    assert done == []
    Watched(ledger=ledger).recover(run_id)
    assert done == ["session", "prompt", "resources", "restored"]


def test_a_loop_without_a_declared_type_recovers_too(ledger: Ledger) -> None:
    """X24: who declares no type of request finds the requests as JSON."""

    class Untyped(Planner):
        def create_prompt(self, request: Any) -> Any:
            return super().create_prompt(request if isinstance(request, Goal) else Goal(**request))

    loop = Untyped(ledger=ledger, request_type=None, in_tool=crash_in("c1"))
    loop.request_type = None
    with pytest.raises(Crash):
        loop.execute(Goal())
    loop.in_tool = crash_in()
    (found,) = loop.list_recoverable()
    assert loop.recover(found)[0].output == Answer(3)


def test_a_loops_type_argument_is_found_through_generic_classes() -> None:
    """X24: a base class of one's own may leave the request type open."""

    class Mine(ScriptedLoop[int, OutputT]):
        def create_prompt(self, request: Any) -> Any:
            raise NotImplementedError

    class Leaf(Mine[str]):
        pass

    assert Leaf([]).request_type is int


def test_a_loop_without_type_arguments_takes_what_create_prompt_is_annotated_with() -> None:
    """X24: the annotation of its request."""

    class Plain(ScriptedLoop):  # type: ignore[type-arg]
        def create_prompt(self, request: int) -> Any:
            raise NotImplementedError

    assert Plain([]).request_type is int


# --- what is refused -------------------------------------------------------------------


def test_what_is_not_there_can_not_be_recovered(ledger: Ledger) -> None:
    """S2-22: an unknown, a completed and an abandoned run have no checkpoint."""
    loop = Planner(ledger=ledger)
    with pytest.raises(CheckpointNotFoundError):
        loop.recover(uuid4())
    done = new_run_id()
    loop.execute(Goal(), run_id=done)
    with pytest.raises(RecoveryError, match="completed"):
        loop.recover(done)
    given_up = interrupted(ledger)
    loop.abandon(given_up, reason="enough")
    with pytest.raises(CheckpointNotFoundError):
        loop.recover(given_up)
    assert issubclass(RecoveryError, RuntimeError)


def test_a_loop_with_neither_ledger_nor_backend_recovers_nothing() -> None:
    """S2-23: recovery is asked for, by a ledger or by a backend."""
    loop = Planner()
    with simulated_crash(loop, "c2"):
        loop.execute(Goal())
    assert loop.list_recoverable() == []
    with pytest.raises(CheckpointNotFoundError):
        loop.recover(uuid4())
    loop.abandon(uuid4())
    with pytest.raises(InvalidInputError, match="backend"):
        Planner(recovery=RecoveryConfig())


def test_an_old_run_is_refused() -> None:
    """S2-15, S2-22: what is older than max_resume_age is left alone, by the loop's clock."""
    clock = StandingClock()
    with Ledger.open("memory://", clock=clock) as ledger:
        run_id = interrupted(ledger, clock=clock)
        clock.advance(timedelta(hours=24, microseconds=1))
        with pytest.raises(CheckpointExpiredError) as refused:
            Planner(ledger=ledger, clock=clock).recover(run_id)
        assert refused.value.limit == timedelta(hours=24)
        patient = RecoveryConfig(max_resume_age=timedelta(days=2))
        loop = Planner(ledger=ledger, clock=clock, recovery=patient)
        assert loop.recover(run_id)[0].output == Answer(3)


def test_a_request_of_another_type_is_refused(ledger: Ledger) -> None:
    """X24, S2-22: the recorded name is compared with the loop's type; it is never imported."""
    run_id = new_run_id()
    ledger.append(
        run_id,
        RunStarted(request_id=uuid4(), request_type="os.system", request={"text": "rm"}),
        ANY,
    )
    with pytest.raises(RequestTypeMismatchError) as refused:
        Planner(ledger=ledger).recover(run_id)
    assert (refused.value.expected, refused.value.found) == ("Goal", "os.system")


def test_a_damaged_request_is_refused(ledger: Ledger) -> None:
    """S2-22: a request that does not fit its type is a corrupted checkpoint."""
    run_id = new_run_id()
    ledger.append(
        run_id, RunStarted(request_id=uuid4(), request_type="Goal", request={"text": [1]}), ANY
    )
    with pytest.raises(CheckpointCorruptedError, match="expected a Goal"):
        Planner(ledger=ledger).recover(run_id)


def test_another_workers_run_is_left_alone(ledger: Ledger) -> None:
    """X7: a run under a live lease is not listed, not recovered, and abandoning changes nothing."""
    run_id = interrupted(ledger)
    loop = Planner(ledger=ledger)
    with ledger.claim(run_id, worker="another"):
        before = tags(ledger, run_id)
        assert loop.list_recoverable() == []
        with pytest.raises(RunClaimedError, match="another"):
            loop.recover(run_id)
        loop.abandon(run_id)
        assert tags(ledger, run_id) == before
        assert ledger.worker_of(run_id) == "another"
    assert loop.recover(run_id)[0].output == Answer(3)


def test_two_loops_with_one_ledger_do_not_share_a_run(ledger: Ledger) -> None:
    """A loop in the same process is another worker: what one is at, the other leaves alone."""
    other = Planner(ledger=ledger)
    run_id, seen = new_run_id(), []

    def look(context: ToolContext) -> None:
        seen.append(other.list_recoverable())
        other.abandon(run_id)
        with pytest.raises(RunClaimedError):
            other.recover(run_id)

    response, _ = Planner(ledger=ledger, in_tool=look).execute(Goal(), run_id=run_id)
    assert response.output == Answer(3)
    assert seen == [[], [], []]
    assert "run.abandoned" not in tags(ledger, run_id)


def test_a_worker_that_was_overtaken_writes_nothing_more(ledger: Ledger) -> None:
    """When another has claimed the run, the first gets StaleEpochError, and appends nothing."""
    run_id, versions = new_run_id(), []

    def overtake(context: ToolContext) -> None:
        ledger._store.write(lambda tx: tx.leases.drop(str(run_id)))  # as if it had run out
        with ledger.claim(run_id, worker="the next one"):
            versions.append(ledger.head(run_id))

    with pytest.raises(StaleEpochError):
        Planner(ledger=ledger, in_tool=overtake).execute(Goal(), run_id=run_id)
    assert [ledger.head(run_id)] == versions
    assert Planner(ledger=ledger).recover(run_id)[0].output == Answer(3)


def test_another_prompt_is_a_mismatch_and_the_run_stays_as_it_was(ledger: Ledger) -> None:
    """A prompt that renders differently is refused, however often; the right one goes on."""
    run_id = interrupted(ledger)
    wrong = Planner(ledger=ledger, title="Another task")
    before = tags(ledger, run_id)
    for _ in range(5):
        with pytest.raises(PromptMismatch):
            wrong.recover(run_id)
    assert tags(ledger, run_id) == before
    assert wrong.ran == []
    loop = Planner(ledger=ledger)
    assert [one.run_id for one in loop.list_recoverable()] == [run_id]
    assert loop.recover(run_id)[0].output == Answer(3)
