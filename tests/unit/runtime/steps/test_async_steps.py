"""Durable steps under asyncio: side by side, cancelled, and in tasks of their own."""

from __future__ import annotations

import asyncio
from threading import get_ident
from typing import Any

import pytest

from tests.agent import Crash
from tests.unit.runtime.steps.book import RUN, Book
from turnledger.ledger import ToolCallStarted
from turnledger.runtime import ReplayDivergedError
from turnledger.runtime.steps import AmbiguousStepError, StepsOpenError, step


def looking(book: Book, **settings: Any) -> Any:
    """A step that looks something up; text that begins with "!" crashes."""

    @step("look", **settings)
    async def look(text: str) -> str:
        book.done.append(text)
        await asyncio.sleep(0)
        if text.startswith("!"):
            raise Crash
        return text.upper()

    return look


def by_text(text: str) -> str:
    return text


def test_steps_with_keys_run_side_by_side(book: Book) -> None:
    """Each gets its own recorded answer, in whatever order they end."""
    look = looking(book, key=by_text)

    async def main() -> list[str]:
        async with book.run():
            return await asyncio.gather(*(look(text) for text in "abc"))

    assert asyncio.run(main()) == ["A", "B", "C"]
    assert sorted(book.did()) == ["a", "b", "c"]
    assert asyncio.run(main()) == ["A", "B", "C"]
    assert book.did() == []


def test_steps_side_by_side_without_a_key_are_refused(book: Book) -> None:
    """In the first live run already, and before the second does anything."""
    look = looking(book)

    async def main() -> None:
        async with book.run():
            first, second = await asyncio.gather(look("a"), look("b"), return_exceptions=True)
            assert first == "A"
            assert isinstance(second, AmbiguousStepError)
            raise second

    with pytest.raises(AmbiguousStepError, match="key"):
        asyncio.run(main())
    assert book.did() == ["a"]


def test_one_after_the_other_needs_no_key(book: Book) -> None:
    """Ordinals are enough where the order is the program's."""
    look = looking(book)

    async def main() -> list[str]:
        async with book.run():
            return [await look("a"), await look("b")]

    assert asyncio.run(main()) == ["A", "B"]
    assert asyncio.run(main()) == ["A", "B"]
    assert book.did() == ["a", "b"]


def test_a_crash_beside_another_step_loses_neither(book: Book) -> None:
    """The one that ended is taken, the one that was interrupted is tried again."""
    look = looking(book, key=by_text)

    async def main(*texts: str) -> list[str]:
        async with book.run():
            first = await look(texts[0])
            return [first, *await asyncio.gather(*(look(text) for text in texts[1:]))]

    with pytest.raises(Crash):
        asyncio.run(main("a", "!b"))
    assert book.did() == ["a", "!b"]
    with pytest.raises(Crash):
        asyncio.run(main("a", "!b"))
    assert book.did() == ["!b"]


def test_a_cancelled_step_is_in_doubt(book: Book) -> None:
    """Cancelling is no failure: a resume tries the step again by its policy."""
    begun = asyncio.Event

    @step
    async def slow(ready: bool) -> str:
        book.done.append("slow")
        if ready:
            return "done"
        started.set()
        await asyncio.Event().wait()
        return "never"

    async def cancelled() -> None:
        nonlocal started
        started = begun()

        async def inside() -> None:
            async with book.run():
                await slow(ready=False)

        task = asyncio.create_task(inside())
        await started.wait()
        task.cancel()
        await task

    started = begun()
    with pytest.raises(asyncio.CancelledError):
        asyncio.run(cancelled())
    assert book.status == "running"
    assert book.tags()[-1] == "tool_call.started"


def test_a_block_that_is_cancelled_while_it_is_entered_lets_the_run_go(book: Book) -> None:
    """The claim that was made meanwhile is released."""

    async def main() -> None:
        block = book.run()
        begin, entering = book.ledger.begin, asyncio.Event()
        loop = asyncio.get_running_loop()

        def noting(*args: Any, **more: Any) -> Any:
            loop.call_soon_threadsafe(entering.set)
            return begin(*args, **more)

        book.ledger.begin = noting  # type: ignore[method-assign]
        task = asyncio.create_task(block.__aenter__())
        await entering.wait()
        task.cancel()
        await task

    with pytest.raises(asyncio.CancelledError):
        asyncio.run(main())
    assert book.ledger.worker_of(RUN) is None


def test_disk_work_is_not_done_on_the_event_loop(book: Book) -> None:
    """Appends come from other threads than the loop's."""
    look, threads = looking(book), set[int]()
    append = book.ledger.append

    def noting(*args: Any, **more: Any) -> Any:
        threads.add(get_ident())
        return append(*args, **more)

    book.ledger.append = noting  # type: ignore[method-assign]

    async def main() -> int:
        async with book.run():
            await look("a")
        return get_ident()

    assert asyncio.run(main()) not in threads
    assert threads


def test_a_step_that_outlives_its_block_keeps_it_from_being_completed(book: Book) -> None:
    """Its outcome would come after the end of the run."""
    release = asyncio.Event

    async def main() -> None:
        gate = release()

        @step
        async def slow() -> None:
            await gate.wait()

        async with book.run():
            task = asyncio.create_task(slow())
            while "tool_call.started" not in book.tags():
                await asyncio.sleep(0)
            task.add_done_callback(lambda _: None)
            raise_later.append(task)

    raise_later: list[asyncio.Task[None]] = []
    with pytest.raises(StepsOpenError, match="slow#1"):
        asyncio.run(main())
    assert book.status == "running"


def _aside(book: Book) -> dict[str, bool]:
    started = book.events("tool_call.started")
    return {e.name: e.aside for e in started if isinstance(e, ToolCallStarted)}


def test_the_order_of_a_tasks_own_steps_is_compared(book: Book) -> None:
    """Also where synchronous code started the event loop; that of other tasks is left to chance."""
    look = looking(book, key=by_text)

    async def main(*texts: str) -> None:
        for text in texts:
            await look(text)

    with book.run():
        asyncio.run(main("a", "b"))
    assert _aside(book) == {"look": False}
    with pytest.raises(ReplayDivergedError), book.run(replay=True):
        asyncio.run(main("b", "a"))


def test_steps_of_other_tasks_may_come_in_any_order(book: Book) -> None:
    """A resume whose tasks are quicker or slower is no divergence."""
    look = looking(book, key=by_text)

    async def main(*texts: str) -> list[str]:
        async with book.run():
            return sorted(await asyncio.gather(*(look(text) for text in texts)))

    assert asyncio.run(main("a", "b")) == ["A", "B"]
    assert _aside(book) == {"look": True}
    assert asyncio.run(main("b", "a")) == ["A", "B"]
    assert sorted(book.did()) == ["a", "b"]
