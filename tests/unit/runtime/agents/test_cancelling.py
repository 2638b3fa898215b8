"""Cancelling a run at every place where it may be: nothing is lost, doubled or begun later."""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import Iterator
from typing import Any
from uuid import UUID

import pytest

from tests.unit.runtime.agents.async_agent import (
    LONG,
    AsyncGatedModel,
    Gate,
    GatedLoop,
    GatedModel,
    Noted,
    Order,
)
from turnledger.ledger import Ledger, ToolCallCompleted, ToolCallInDoubt, new_run_id
from turnledger.projections import state_at
from turnledger.runtime.agent.run_control import PERMITS, RunControl
from turnledger.runtime.agents.async_runs import run_async, stream_async
from turnledger.runtime.checkpoints.checkpoint import CheckpointPhase
from turnledger.runtime.loop.events import CheckpointSaved, ToolEnded, ToolStarted, listening
from turnledger.runtime.replaying.replay import replay


@pytest.fixture
def ledger() -> Iterator[Ledger]:
    with Ledger.open("memory://") as opened:
        yield opened


@pytest.fixture(scope="module")
def undisturbed() -> str:
    """The outcome of a run that nobody cancelled, as a digest."""
    with Ledger.open("memory://") as ledger:
        run = new_run_id()
        GatedLoop(Gate(), ledger).execute(Order(), run_id=run)
        return outcome(ledger, run)


def outcome(ledger: Ledger, run: UUID) -> str:
    return state_at(ledger, run).outcome_digest


async def reached(gate: Gate) -> None:
    assert await asyncio.to_thread(gate.reached.wait, LONG)


async def cancelled(loop: GatedLoop, run: UUID, *, blocks_the_run: bool) -> float:
    """Cancel a run when it is at its gate; the seconds until the caller was told."""
    gate = loop.gate
    task = asyncio.create_task(run_async(lambda: loop.execute(Order(), run_id=run)))
    await reached(gate)
    began = time.monotonic()
    task.cancel()
    await asyncio.sleep(0)
    if blocks_the_run:
        gate.go.set()
    with pytest.raises(asyncio.CancelledError):
        await task
    return time.monotonic() - began


# Where the run is, with which model and options, and whether that is code in the run's own
# thread, which is waited for. Calls that then have an outcome.
PLACES: list[tuple[str, type[GatedModel], dict[str, Any], bool, list[str]]] = [
    ("prompt", GatedModel, {}, True, []),
    ("model", GatedModel, {}, False, []),
    ("model", AsyncGatedModel, {}, False, []),
    ("stream", GatedModel, {"stream": True}, False, ["a", "b", "c"]),
    ("stream", AsyncGatedModel, {"stream": True}, False, ["a", "b", "c"]),
    ("retry", GatedModel, {}, False, []),
    ("retry", AsyncGatedModel, {}, False, []),
    ("async tool", AsyncGatedModel, {}, False, []),
    ("async tool", AsyncGatedModel, {"parallel_tools": 3}, False, ["b", "c"]),
    ("sync tool", AsyncGatedModel, {}, False, ["a"]),
    ("sync tool", GatedModel, {"parallel_tools": 3}, False, ["a", "c"]),
    ("note", AsyncGatedModel, {}, False, ["a", "b"]),
    ("note", AsyncGatedModel, {"parallel_tools": 2}, False, ["a", "b"]),
]


@pytest.mark.parametrize(("place", "model", "options", "blocks", "ended"), PLACES)
def test_a_cancelled_run_is_recovered_at_once(
    place: str,
    model: type[GatedModel],
    options: dict[str, Any],
    blocks: bool,
    ended: list[str],
    ledger: Ledger,
    undisturbed: str,
) -> None:
    """The caller is told when the claim is released; what ended is recorded, the rest goes on."""
    run, gate = new_run_id(), Gate(place)
    loop = GatedLoop(gate, ledger, model, **options)

    async def main() -> None:
        seconds = await cancelled(loop, run, blocks_the_run=blocks)
        assert seconds < LONG / 3, "it waited for what it should have left behind"
        assert (ledger.run(run).status, ledger.worker_of(run)) == ("running", None)
        begun = list(gate.passed)
        assert begun[-1] == place or place == "retry" or options.get("parallel_tools"), begun
        outcomes = state_at(ledger, run).tools
        assert sorted(one.call_id for one in outcomes.ended.values()) == ended
        head = ledger.head(run)
        gate.go.set()
        if place != "retry":
            assert await asyncio.to_thread(gate.left.wait, LONG)
        assert (gate.passed, ledger.head(run)) == (begun, head), "something went on"
        response, session = await run_async(lambda: loop.recover(run))
        assert response.text == "All is done."
        assert session[Noted].all() == (Noted("c"), Noted("d"))

    asyncio.run(main())
    assert outcome(ledger, run) == undisturbed
    ledger.verify(run)
    replay(ledger, run, loop=loop).check()
    awaits = place == "async tool" or (model is AsyncGatedModel and place in ("model", "stream"))
    assert gate.cancelled == awaits


def test_a_late_handler_changes_nothing(ledger: Ledger) -> None:
    """A handler that was left behind finds the session closed, and its result is not recorded."""
    run, gate = new_run_id(), Gate("note")
    loop = GatedLoop(gate, ledger)
    asyncio.run(cancelled(loop, run, blocks_the_run=False))
    gate.go.set()
    assert gate.left.wait(LONG)
    response, session = loop.recover(run)
    assert response.text == "All is done."
    assert session[Noted].all() == (Noted("c"), Noted("d"))
    events = [record.event for record in ledger.read(run)]
    assert [one.call_id for one in events if isinstance(one, ToolCallInDoubt)] == ["c"]
    ends = [one.call_id for one in events if isinstance(one, ToolCallCompleted)]
    assert ends == ["a", "b", "c", "d"]
    assert len(loop.refused) == 1


def test_a_run_that_waits_for_its_turn_never_begins(ledger: Ledger) -> None:
    """Nothing of it is recorded, and the permits are those that there were."""
    gate, holders = Gate(), [RunControl(), RunControl()]
    loop = GatedLoop(gate, ledger)

    async def main() -> None:
        for one in holders:
            PERMITS.acquire(one)
        task = asyncio.create_task(run_async(lambda: loop.execute(Order())))
        for _ in range(3):
            await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert (gate.passed, list(ledger.runs())) == ([], [])
        for one in holders:
            PERMITS.release(one)
        response, _ = await run_async(lambda: loop.execute(Order()))
        assert response.text == "All is done."

    asyncio.run(main())


def test_between_two_effects_nothing_further_begins(ledger: Ledger, undisturbed: str) -> None:
    """Cancelled while a listener is told of a result: the next call does not start."""
    run, gate = new_run_id(), Gate("listener")
    loop = GatedLoop(gate, ledger)
    loop.bus.subscribe(ToolEnded, lambda event: gate.block("listener"))
    asyncio.run(cancelled(loop, run, blocks_the_run=True))
    assert ledger.run(run).status == "running"
    tools = state_at(ledger, run).tools
    assert [call.call_id for call in tools.ended.values()] == ["a"]
    assert "sync tool" not in gate.passed
    loop.recover(run)
    assert gate.passed.count("async tool") == 1
    assert outcome(ledger, run) == undisturbed


@pytest.mark.parametrize("parallel", [1, 3])
def test_a_call_that_never_began_asks_nobody(parallel: int, ledger: Ledger) -> None:
    """Cancelled while its start was committed: on record, and run again whatever its policy."""
    run, gate = new_run_id(), Gate("listener")
    loop = GatedLoop(gate, ledger, on_interrupt="ask", parallel_tools=parallel)
    loop.bus.subscribe(ToolStarted, lambda event: gate.block("listener"))
    asyncio.run(cancelled(loop, run, blocks_the_run=True))
    assert not {"async tool", "sync tool", "note"} & set(gate.passed)
    response, _ = loop.recover(run)
    assert response.text == "All is done."
    assert gate.passed.count("sync tool") == gate.passed.count("async tool") == 1
    assert gate.passed.count("note") == 2
    replay(ledger, run, loop=loop).check()


def test_a_final_commit_that_is_under_way_ends_first(ledger: Ledger) -> None:
    """The run is completed, and a note on CancelledError says so."""
    run, gate = new_run_id(), Gate("end")
    loop = GatedLoop(gate, ledger)

    def told(saved: CheckpointSaved) -> None:
        if saved.phase is CheckpointPhase.COMPLETED:
            gate.block("end")

    loop.bus.subscribe(CheckpointSaved, told)

    async def main() -> list[str]:
        task = asyncio.create_task(run_async(lambda: loop.execute(Order(), run_id=run)))
        await reached(gate)
        task.cancel()
        gate.go.set()
        with pytest.raises(asyncio.CancelledError) as error:
            await task
        return error.value.__notes__

    assert "reached its end" in asyncio.run(main())[0]
    assert (ledger.run(run).status, ledger.worker_of(run)) == ("completed", None)


def test_a_failure_after_the_cancel_is_told_in_a_note(ledger: Ledger) -> None:
    """What ended the run is not lost when CancelledError takes its place."""
    gate = Gate("prompt")
    loop = GatedLoop(gate, ledger)

    def fails(request: Order) -> Any:
        gate.block("prompt")
        raise ValueError("no such template")

    loop.create_prompt = fails  # type: ignore[method-assign]

    async def main() -> list[str]:
        task = asyncio.create_task(run_async(lambda: loop.execute(Order())))
        await reached(gate)
        task.cancel()
        gate.go.set()
        with pytest.raises(asyncio.CancelledError) as error:
            await task
        return error.value.__notes__

    assert "no such template" in asyncio.run(main())[0]


@pytest.mark.parametrize("model", [GatedModel, AsyncGatedModel])
def test_a_timeout_is_a_cancel(model: type[GatedModel], ledger: Ledger, undisturbed: str) -> None:
    """`asyncio.timeout` raises when the claim is released; `recover` follows at once."""
    run, gate = new_run_id(), Gate("model")
    loop = GatedLoop(gate, ledger, model)

    async def main() -> None:
        async def expire(limit: asyncio.Timeout) -> None:
            await reached(gate)
            limit.reschedule(asyncio.get_running_loop().time())

        async def limited() -> None:
            async with asyncio.timeout(None) as limit:
                expiring = asyncio.create_task(expire(limit))
                await run_async(lambda: loop.execute(Order(), run_id=run))
                await expiring

        with pytest.raises(TimeoutError):
            await limited()
        gate.go.set()
        await run_async(lambda: loop.recover(run))

    asyncio.run(main())
    assert outcome(ledger, run) == undisturbed


@pytest.mark.parametrize("place", ["model", "async tool", "sync tool"])
def test_ctrl_c_is_a_cancel(place: str, ledger: Ledger, undisturbed: str) -> None:
    """Under `asyncio.run`: KeyboardInterrupt reaches the program when the claim is released."""
    run, gate = new_run_id(), Gate(place)
    loop = GatedLoop(gate, ledger, AsyncGatedModel)

    async def interrupt() -> None:
        await reached(gate)
        signal.raise_signal(signal.SIGINT)

    async def main() -> None:
        interrupting = asyncio.create_task(interrupt())
        await run_async(lambda: loop.execute(Order(), run_id=run))
        await interrupting

    with pytest.raises(KeyboardInterrupt):
        asyncio.run(main())
    assert (ledger.run(run).status, ledger.worker_of(run)) == ("running", None)
    gate.go.set()
    loop.recover(run)
    assert outcome(ledger, run) == undisturbed


def test_cancelled_again_while_it_ends(ledger: Ledger) -> None:
    """An impatient caller is told no sooner: the claim is released then."""
    run, gate = new_run_id(), Gate("sync tool")
    loop = GatedLoop(gate, ledger)

    async def main() -> None:
        task = asyncio.create_task(run_async(lambda: loop.execute(Order(), run_id=run)))
        await reached(gate)
        for _ in range(3):
            task.cancel()
            await asyncio.sleep(0)
        with pytest.raises(asyncio.CancelledError):
            await task
        assert ledger.worker_of(run) is None
        gate.go.set()

    asyncio.run(main())


def test_leaving_a_stream_cancels_its_run(ledger: Ledger, undisturbed: str) -> None:
    """`aclose` returns when the claim is released; `recover` goes on."""
    run, gate = new_run_id(), Gate("async tool")
    loop = GatedLoop(gate, ledger)

    def work(tell: Any) -> None:
        with listening(loop.bus, tell):
            loop.execute(Order(), run_id=run)

    async def main() -> None:
        events = stream_async(work)
        first = await anext(events)
        await reached(gate)
        await events.aclose()
        assert type(first).__name__ == "ToolStarted"
        assert (ledger.run(run).status, ledger.worker_of(run)) == ("running", None)
        assert gate.cancelled

    asyncio.run(main())
    loop.recover(run)
    assert outcome(ledger, run) == undisturbed
