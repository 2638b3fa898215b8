"""AsyncLedger: the interface of Ledger for asyncio, and what cancelling leaves behind."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Iterator
from contextlib import aclosing, contextmanager
from pathlib import Path
from threading import Event as Flag
from threading import Thread, active_count

import pytest

from turnledger.ledger import (
    ANY,
    NEW,
    Appended,
    AsyncLedger,
    ConcurrentAppendError,
    CustomEvent,
    Draft,
    InvalidEventError,
    InvalidInputError,
    InvalidRunIdError,
    Ledger,
    LedgerClosedError,
    RunNotFoundError,
    RunStarted,
    StoreUnavailableError,
    new_run_id,
)
from turnledger.ledger.runs.transaction import Transaction
from turnledger.ledger.stores.group_commit import Job
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


def test_appends_of_many_tasks_share_a_thread_and_a_commit(tmp_path: Path) -> None:
    """A hundred that wait for another writer take two threads, and a group or two after theirs."""

    async def work(ledger: AsyncLedger) -> None:
        groups, commit = [], ledger.ledger.store._commit_group

        def counted(jobs: list[Job[Transaction]]) -> None:
            groups.append(len(jobs))
            commit(jobs)

        ledger.ledger.store._group._commit_group = counted
        runs = [new_run_id() for _ in range(100)]
        before = active_count()
        with writers_waiting(ledger.ledger):
            tasks = [asyncio.create_task(ledger.append(run, note(), NEW)) for run in runs]
            while len(ledger.ledger.store._group._waiting) < 2:
                await asyncio.sleep(0)
            assert active_count() - before <= 3  # two that append, and the other writer
        made = await asyncio.gather(*tasks)
        assert [record.run_id for one in made for record in one.records] == runs
        assert sum(groups) == 100
        assert len(groups) <= 4

    in_loop(tmp_path, work, threads=64)


def test_each_append_of_a_group_has_an_outcome_of_its_own(tmp_path: Path) -> None:
    """Refused before it is encoded, by its run, or never: others of the group are recorded."""

    async def work(ledger: AsyncLedger) -> None:
        run, fresh = new_run_id(), new_run_id()
        await ledger.append(run, note(), NEW)
        with writers_waiting(ledger.ledger):
            tasks = [
                asyncio.create_task(one)
                for one in (
                    ledger.append(run, note(1), NEW),
                    ledger.append("no uuid", note(2), ANY),
                    ledger.append(fresh, [], NEW),
                    ledger.append(fresh, note(3), NEW),
                )
            ]
            await asyncio.sleep(0)
        outcomes = await asyncio.gather(*tasks, return_exceptions=True)
        kinds = [ConcurrentAppendError, InvalidRunIdError, InvalidEventError, Appended]
        assert [type(one) for one in outcomes] == kinds
        assert [record.event async for record in ledger.read(fresh)] == [note(3)]

    in_loop(tmp_path, work)


def test_an_append_whose_outcome_is_unknown_gives_its_drafts(tmp_path: Path) -> None:
    """Each task gets its own, and appending them again settles it."""

    async def work(ledger: AsyncLedger) -> None:
        def fails(jobs: list[Job[Transaction]]) -> None:
            for job in jobs:
                job.error = StoreUnavailableError("The disk is gone.")

        group = ledger.ledger.store._group
        commit, group._commit_group = group._commit_group, fails
        runs = [new_run_id(), new_run_id()]
        appends = (ledger.append(run, note(place), NEW) for place, run in enumerate(runs))
        errors = await asyncio.gather(*appends, return_exceptions=True)
        group._commit_group = commit
        for place, (run, error) in enumerate(zip(runs, errors, strict=True)):
            assert isinstance(error, StoreUnavailableError)
            made = await ledger.append(run, error.drafts, NEW)
            assert [record.event for record in made.records] == [note(place)]

    in_loop(tmp_path, work)


def test_a_queued_append_can_be_cancelled_until_its_group_begins(tmp_path: Path) -> None:
    """Also one that a thread has taken and encoded: it never begins, and the others do."""

    async def work(ledger: AsyncLedger) -> None:
        kept, gone = new_run_id(), new_run_id()
        with writers_waiting(ledger.ledger):
            tasks = [asyncio.create_task(ledger.append(run, note(), NEW)) for run in (kept, gone)]
            while not ledger.ledger.store._group._waiting or ledger._appends._waiting:
                await asyncio.sleep(0)
            tasks[1].cancel()
            with pytest.raises(asyncio.CancelledError):
                await tasks[1]
        await tasks[0]
        assert (await ledger.head(kept), await ledger.head(gone)) == (1, 0)

    in_loop(tmp_path, work)


def test_an_append_that_was_cancelled_while_it_was_committed_is_waited_for(
    tmp_path: Path,
) -> None:
    """However often it is cancelled; the error says what became of it."""

    async def work(ledger: AsyncLedger) -> None:
        run, began, go_on = new_run_id(), Flag(), Flag()
        group = ledger.ledger.store._group
        commit = group._commit_group

        def slowly(jobs: list[Job[Transaction]]) -> None:
            began.set()
            assert go_on.wait(60)
            commit(jobs)

        group._commit_group = slowly
        task = asyncio.create_task(ledger.append(run, note(), NEW))
        assert await asyncio.to_thread(began.wait, 60)
        for _ in range(2):
            task.cancel()
            await asyncio.sleep(0)
        assert not task.done()
        go_on.set()
        with pytest.raises(asyncio.CancelledError) as caught:
            await task
        assert "Appended" in caught.value.__notes__[0]
        assert await ledger.head(run) == 1

    in_loop(tmp_path, work)


def test_appends_leave_room_for_other_calls(tmp_path: Path) -> None:
    """With one thread, a read is not kept waiting by tasks that go on appending."""

    async def work(ledger: AsyncLedger) -> None:
        run, read = new_run_id(), False
        await ledger.append(run, note(), NEW)

        async def go_on() -> None:
            while not read:
                await ledger.append(run, note(), ANY)

        tasks = [asyncio.create_task(go_on()) for _ in range(3)]
        await asyncio.sleep(0)
        assert await ledger.head(run) >= 1
        read = True
        await asyncio.gather(*tasks)

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
        with pytest.raises(LedgerClosedError):
            await ledger.append(new_run_id(), note(), NEW)
        with pytest.raises(InvalidInputError, match="threads"):
            await AsyncLedger.open("memory://", threads=0)

    asyncio.run(work())
