"""AsyncLedger: the interface of Ledger for asyncio, and what cancelling leaves behind."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Iterator
from contextlib import aclosing, contextmanager
from pathlib import Path
from threading import Event as Flag
from threading import Thread

import pytest

from turnledger.ledger import (
    ANY,
    NEW,
    Appended,
    AsyncLedger,
    CustomEvent,
    Draft,
    InvalidInputError,
    Ledger,
    LedgerClosedError,
    RunNotFoundError,
    RunStarted,
    new_run_id,
)
from turnledger.projections import state_at

# What needs no store, or is for those who have a Ledger: found at `AsyncLedger.ledger`.
NOT_AWAITED = {"checked", "derived_data", "prepare", "read_known", "redact", "redact_text"}


def note(number: int = 0) -> CustomEvent:
    return CustomEvent(kind="test.note", data=number)


def in_loop(path: Path, work: Callable[[AsyncLedger], Awaitable[None]], threads: int = 4) -> None:
    async def run() -> None:
        async with AsyncLedger.open(path / "runs.db", threads=threads) as ledger:
            await asyncio.wait_for(work(ledger), 60)

    asyncio.run(run())


@contextmanager
def writers_waiting(ledger: Ledger) -> Iterator[None]:
    """While another thread writes and does not end."""
    began, end = Flag(), Flag()

    def hold() -> None:
        ledger.store.write(lambda tx: (began.set(), end.wait(60)))

    thread = Thread(target=hold)
    thread.start()
    try:
        assert began.wait(60)
        yield
    finally:
        end.set()
        thread.join()


def test_every_method_of_a_ledger_is_there() -> None:
    """One that Ledger gains must be added, or named above."""
    for name, method in inspect.getmembers(Ledger, inspect.isfunction):
        if name.startswith("_") or name in NOT_AWAITED:
            continue
        ours = getattr(AsyncLedger, name)
        assert inspect.iscoroutinefunction(ours) or inspect.isasyncgenfunction(ours), name
        # A follower is ended by closing its generator.
        theirs = [one for one in inspect.signature(method).parameters if one != "stop"]
        assert list(inspect.signature(ours).parameters) == theirs, name


def test_events_are_appended_and_read_in_pages(tmp_path: Path) -> None:
    """What is read is what was appended, whatever the size of a page."""

    async def work(ledger: AsyncLedger) -> None:
        run = new_run_id()
        await ledger.append(run, RunStarted(tags={"a": "b"}), NEW)
        await ledger.append(run, [note(number) for number in range(5)], 1)
        for size in (1, 2, 500):
            found = [record.version async for record in ledger.read(run, page_size=size)]
            assert found == [1, 2, 3, 4, 5, 6]
        assert [one.run_id async for one in ledger.runs(tags={"a": "b"})] == [run]
        assert [one.version async for one in ledger.tail(page_size=2)] == [1, 2, 3, 4, 5, 6]
        assert await ledger.head(run) == 6
        state = await ledger.call(lambda: state_at(ledger.ledger, run))
        assert state.version == 6
        with pytest.raises(RunNotFoundError):
            await ledger.run(new_run_id())

    in_loop(tmp_path, work)


def test_tasks_that_append_at_once_are_all_recorded(tmp_path: Path) -> None:
    """Each in a run of its own, more than there are threads."""

    async def work(ledger: AsyncLedger) -> None:
        runs = [new_run_id() for _ in range(40)]
        await asyncio.gather(*(ledger.append(run, note(), NEW) for run in runs))
        assert {one.run_id async for one in ledger.runs()} == set(runs)

    in_loop(tmp_path, work)


def test_a_follower_gets_what_is_appended_later_and_holds_no_thread(tmp_path: Path) -> None:
    """With one thread in the pool, others append while it waits."""

    async def work(ledger: AsyncLedger) -> None:
        run, seen = new_run_id(), []

        async def follow() -> None:
            async with aclosing(ledger.tail(follow=True)) as records:
                async for record in records:
                    seen.append(record.version)
                    if len(seen) == 3:
                        return

        follower = asyncio.create_task(follow())
        for number in range(3):
            await ledger.append(run, note(number), ANY)
        await follower
        assert seen == [1, 2, 3]

    in_loop(tmp_path, work, threads=1)


def test_a_cancelled_append_that_has_begun_is_waited_for(tmp_path: Path) -> None:
    """CancelledError comes when it is known what became of it, also if cancelled twice."""

    async def work(ledger: AsyncLedger) -> None:
        run, draft = new_run_id(), Draft(note(), new_run_id())
        began = Flag()

        def append() -> Appended:
            began.set()
            return ledger.ledger.append(run, draft, NEW)

        with writers_waiting(ledger.ledger):
            task = asyncio.create_task(ledger.call(append))
            assert await asyncio.to_thread(began.wait, 60)
            for _ in range(2):
                task.cancel()
                await asyncio.sleep(0)
            assert not task.done()
        with pytest.raises(asyncio.CancelledError) as caught:
            await task
        assert "Appended" in caught.value.__notes__[0]
        assert await ledger.head(run) == 1
        assert (await ledger.append(run, draft, NEW)).duplicate

    in_loop(tmp_path, work)


def test_a_cancelled_append_that_has_not_begun_never_is(tmp_path: Path) -> None:
    """It leaves the queue at once."""

    async def work(ledger: AsyncLedger) -> None:
        first, second = new_run_id(), new_run_id()
        with writers_waiting(ledger.ledger):
            begun = asyncio.create_task(ledger.append(first, note(), NEW))
            queued = asyncio.create_task(ledger.append(second, note(), NEW))
            await asyncio.sleep(0)  # both are handed to the one thread, which waits
            queued.cancel()
            with pytest.raises(asyncio.CancelledError):
                await queued
            assert not begun.done()
        await begun
        assert await ledger.head(second) == 0

    in_loop(tmp_path, work, threads=1)


def test_a_time_out_is_a_time_out(tmp_path: Path) -> None:
    """asyncio.timeout sees its own cancellation."""

    async def work(ledger: AsyncLedger) -> None:
        release = Flag()
        asyncio.get_running_loop().call_later(0.1, release.set)

        async def wait() -> None:
            async with asyncio.timeout(0.02):
                await ledger.call(lambda: release.wait(60))

        with pytest.raises(TimeoutError):
            await wait()

    in_loop(tmp_path, work)


def test_a_closed_ledger_says_so() -> None:
    """And so does one that could not be made."""

    async def work() -> None:
        ledger = await AsyncLedger.open("memory://")
        await ledger.close()
        with pytest.raises(LedgerClosedError):
            await ledger.head(new_run_id())
        with pytest.raises(InvalidInputError, match="threads"):
            await AsyncLedger.open("memory://", threads=0)

    asyncio.run(work())
