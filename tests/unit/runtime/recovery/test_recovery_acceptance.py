"""The seed's acceptance tests and start-up patterns, typed as they stand, on every backend."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pytest

from tests.agent import Crash
from tests.unit.runtime.loops import Answer, Goal, Plan, Planner
from turnledger.ledger import Ledger
from turnledger.runtime import (
    Checkpoint,
    CheckpointBackend,
    CheckpointExpiredError,
    CheckpointPhase,
    CompositeSnapshot,
    FilesystemCheckpointBackend,
    InProcessEventBus,
    LedgerCheckpointBackend,
    MainLoop,
    MainLoopCompleted,
    RecoveryConfig,
    RecoveryError,
    Session,
)

log = logging.getLogger(__name__)
request_with_tool_calls = request = Goal()
expected_output = Answer(3)


@pytest.fixture(params=["files", "ledger", "ledger given as backend", "ledger and files"])
def made(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[Any, Any]]:
    """A backend, and how a loop with it is made."""
    files = FilesystemCheckpointBackend(root=tmp_path / "checkpoints")
    with Ledger.open("memory://") as ledger:
        own = LedgerCheckpointBackend(ledger)
        backend: Any = files if "files" in request.param else own

        def new(**config: Any) -> Planner:
            given = backend if request.param != "ledger" else None
            recovery = RecoveryConfig(backend=given, **config)
            book = ledger if request.param in ("ledger", "ledger and files") else None
            return Planner(recovery=recovery, ledger=book)

        yield backend, new


@pytest.fixture
def backend(made: tuple[Any, Any]) -> CheckpointBackend:
    found: CheckpointBackend = made[0]
    return found


@pytest.fixture
def new_loop(made: tuple[Any, Any]) -> Callable[..., Planner]:
    """Another loop with the same backend: another process, as it were."""
    found: Callable[..., Planner] = made[1]
    return found


@pytest.fixture
def loop(new_loop: Callable[..., Planner]) -> Planner:
    return new_loop()


@pytest.fixture
def simulate_crash_after_n_tools(loop: Planner) -> Any:
    """Dies in the tool after the n-th."""

    @contextmanager
    def crashing(n: int) -> Iterator[None]:
        def die(context: Any) -> None:
            if len(loop.ran) == n:
                raise Crash

        loop.in_tool = die
        try:
            yield
        except Crash:
            loop.in_tool = lambda context: None
        else:
            raise AssertionError("nothing crashed")

    return crashing


def old(run_id: UUID, created_at: datetime) -> Checkpoint:
    return Checkpoint(
        run_id=run_id,
        created_at=created_at,
        request_id=uuid4(),
        composite_snapshot=CompositeSnapshot(session=Session().snapshot(), resources={}),
        request_payload=b'{"text": "tidy up"}',
        request_type="Goal",
        tool_calls_completed=0,
        phase=CheckpointPhase.INITIALIZED,
        adapter_state=None,
    )


# --- the seed's words ------------------------------------------------------------------


def test_checkpoint_created_after_tool_call(
    new_loop: Callable[..., Planner], backend: CheckpointBackend
) -> None:
    """S2-24, X5: a checkpoint of a run is there after it, if it is not cleaned up."""
    loop: MainLoop[Goal, Answer] = new_loop(cleanup_on_success=False)
    run_id = uuid4()
    loop.execute(request_with_tool_calls, run_id=run_id)

    # Checkpoint was created during execution
    assert backend.load(run_id) is not None


def test_recovery_restores_state(
    loop: MainLoop[Goal, Answer], simulate_crash_after_n_tools: Any
) -> None:
    """S2-24: after a crash the state and the answer are those of a run that did not crash."""
    run_id = uuid4()

    # Execute partway, then simulate crash
    with simulate_crash_after_n_tools(n=2):
        loop.execute(request, run_id=run_id)

    # Recover and verify state
    response, session = loop.recover(run_id)
    assert session[Plan].latest() is not None
    assert response.output == expected_output
    assert session[Plan].all() == (Plan("c1"), Plan("c2"), Plan("c3"))


def test_stale_checkpoint_rejected(
    loop: MainLoop[Goal, Answer], backend: CheckpointBackend
) -> None:
    """S2-24, X9: a foreign checkpoint that is two days old is saved, and not recovered."""
    run_id = uuid4()
    old_checkpoint = old(run_id, datetime.now(UTC) - timedelta(days=2))
    backend.save(run_id, old_checkpoint)

    with pytest.raises(CheckpointExpiredError):
        loop.recover(run_id)


def test_checkpoint_deleted_on_success(
    loop: MainLoop[Goal, Answer], backend: CheckpointBackend
) -> None:
    """S2-24, X5: by default a run that succeeded has no checkpoint any more."""
    run_id = uuid4()
    loop.execute(request, run_id=run_id)

    # Checkpoint cleaned up after successful completion
    assert backend.load(run_id) is None


def test_startup_recovery(
    new_loop: Callable[..., Planner],
    loop: Planner,
    backend: CheckpointBackend,
    simulate_crash_after_n_tools: Any,
) -> None:
    """S2-24: at start-up what is recovered is told, and what can't be is abandoned."""
    crashed, stale = uuid4(), uuid4()
    with simulate_crash_after_n_tools(n=1):
        loop.execute(request, run_id=crashed)
    backend.save(stale, old(stale, datetime.now(UTC) - timedelta(days=2)))
    bus, told = InProcessEventBus(), []
    bus.subscribe(MainLoopCompleted, told.append)
    loop = new_loop()

    # On process startup, recover any incomplete runs
    for run_id in loop.list_recoverable():
        try:
            response, session = loop.recover(run_id)
            bus.publish(
                MainLoopCompleted(
                    request_id=run_id.request_id, response=response, session_id=session.session_id
                )
            )
        except RecoveryError as e:
            log.warning(f"Failed to recover run {run_id}: {e}")
            loop.abandon(run_id)

    assert [one.response.output for one in told] == [Answer(3)]
    assert loop.list_recoverable() == []
    assert backend.load(stale) is None


def test_worker_entry_point(
    new_loop: Callable[..., Planner], loop: Planner, simulate_crash_after_n_tools: Any
) -> None:
    """S2-24: a worker first recovers what was interrupted, then takes new work."""
    with simulate_crash_after_n_tools(n=2):
        loop.execute(request)
    results: list[Answer | None] = []
    requests = [Goal("sweep"), None]

    def create_main_loop() -> Planner:
        return new_loop()

    def publish_result(response: Any, session: Session) -> None:
        results.append(response.output)

    def receive_request() -> Goal | None:
        return requests.pop(0)

    def worker_main() -> None:
        """Entry point with automatic recovery."""
        loop = create_main_loop()

        # Phase 1: Recover interrupted work
        for run_id in loop.list_recoverable():
            try:
                response, session = loop.recover(run_id)
                publish_result(response, session)
            except RecoveryError:
                loop.abandon(run_id)

        # Phase 2: Process new work
        while True:
            request = receive_request()
            if request is None:
                return
            new_run_id = uuid4()
            response, session = loop.execute(request, run_id=new_run_id)
            publish_result(response, session)

    worker_main()
    assert results == [Answer(3), Answer(3)]


def test_a_fresh_foreign_checkpoint_is_recovered(
    loop: Planner, backend: CheckpointBackend, simulate_crash_after_n_tools: Any
) -> None:
    """X9: a checkpoint from elsewhere is gone on from, and what it holds is not done again."""
    elsewhere = Planner()
    run_id = uuid4()
    session = elsewhere.create_session()
    session[Plan].append(Plan("before"))
    fresh = Checkpoint(
        run_id=run_id,
        created_at=datetime.now(UTC) - timedelta(minutes=5),
        request_id=uuid4(),
        composite_snapshot=CompositeSnapshot(session=session.snapshot(), resources={}),
        request_payload=b'{"text": "tidy up"}',
        request_type="Goal",
        tool_calls_completed=4,
        phase=CheckpointPhase.POST_TOOL,
        adapter_state=b"whatever",
    )
    backend.save(run_id, fresh)
    (found,) = loop.list_recoverable()
    assert (found.run_id, found.phase, found.tool_calls_completed) == (
        run_id,
        CheckpointPhase.POST_TOOL,
        4,
    )

    with simulate_crash_after_n_tools(n=1):
        loop.recover(found)
    (again,) = loop.list_recoverable()
    assert again.tool_calls_completed == 5

    response, session = loop.recover(run_id)
    assert response.output == Answer(3)
    assert [plan.step for plan in session[Plan].all()] == ["before", "c1", "c2", "c3"]
    assert loop.ran == ["c1", "c2", "c3"]
