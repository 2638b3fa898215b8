"""How steps end: whatever their code raises, returns or catches, and whoever gives them up."""

from __future__ import annotations

import asyncio
from contextvars import copy_context
from threading import Event, Thread
from typing import Any

import pytest

from tests.agent import Crash
from tests.unit.runtime.steps.book import RUN, Book
from turnledger.ledger import ANY, InvalidInputError, ToolCallDecided, ToolCallFailed
from turnledger.runtime import DecisionRequiredError
from turnledger.runtime.steps import StepFailedError, UnrecordableResultError, step


class OutcomeUnknown(Exception):  # noqa: N818 - a recorded word of ours, too
    """An error of the user's with the name of one of ours."""


class Mute(Exception):  # noqa: N818
    """An error that can't say what it is."""

    def __str__(self) -> str:
        raise RuntimeError("no text")


class Torn(dict[str, Any]):
    """A value that raises when it is read."""

    def __init__(self, error: Exception) -> None:
        super().__init__(a=1)
        self._error = error

    def items(self) -> Any:
        raise self._error


def _twice(book: Book, body: Any) -> list[tuple[str, str]]:
    """The errors of a live run and of a resume."""
    found = []
    for _ in range(2):
        with pytest.raises(Exception) as error, book.run():  # noqa: PT011 - they are compared
            body()
        found.append((type(error.value).__name__, str(error.value)))
    return found


@pytest.mark.parametrize(
    "error",
    [ValueError("\ud800"), ValueError("x" * 20_000_000), Mute("a", 1), OutcomeUnknown("who knows")],
    ids=["no unicode", "too long", "no text", "a name of ours"],
)
def test_every_error_is_an_outcome(book: Book, error: Exception) -> None:
    """One that could not be stored would leave a step that has failed in doubt, and repeat it."""

    @step(raises=(OutcomeUnknown,))
    def pay() -> None:
        book.done.append("paid")
        raise error

    live, resumed = _twice(book, pay)
    assert live == resumed
    assert book.did() == ["paid"]


@pytest.mark.parametrize("error", [ValueError("\ud800"), Mute()], ids=["no unicode", "no text"])
def test_a_value_that_raises_when_it_is_read_is_an_outcome(book: Book, error: Exception) -> None:
    """It has happened, whatever is wrong with the error that says why it can't be recorded."""

    @step
    def pay() -> Any:
        book.done.append("paid")
        return Torn(error)

    live, resumed = _twice(book, pay)
    assert live == resumed
    assert live[0] == UnrecordableResultError.__name__
    assert book.did() == ["paid"]


def test_a_step_that_hands_on_that_an_inner_one_is_unrecordable_has_failed(book: Book) -> None:
    """It is a StepFailedError, live and resumed: that the result of the outer one is not."""

    @step
    def inner() -> Any:
        return object()

    @step
    def outer() -> Any:
        return inner()

    live, resumed = _twice(book, outer)
    assert live == resumed
    assert live[0] == StepFailedError.__name__


# --- code that catches what halts the run -----------------------------------------------


def _paying(book: Book, **settings: Any) -> Any:
    """A step in a step that catches everything; the first payment crashes."""

    @step(on_interrupt="ask")
    def pay() -> str:
        book.done.append("paid")
        if len(book.done) == 1:
            raise Crash
        return "paid"

    @step(**settings)
    def outer() -> str:
        try:
            return pay()
        except Exception:
            return "something went wrong"

    return outer


def test_what_code_makes_of_a_wait_is_no_outcome(book: Book) -> None:
    """Else the step around a payment in doubt would be answered, and the payment never decided."""
    outer = _paying(book)
    book.crashed(lambda _: outer())
    with pytest.raises(DecisionRequiredError), book.run():
        outer()
    assert book.tags()[-1] == "run.waiting"
    decided = ToolCallDecided(call_id="outer#1/pay#1", decision="completed", value="by hand")
    book.ledger.append(RUN, decided, ANY)
    with book.run():
        assert outer() == "by hand"
    assert book.did() == ["paid"]


def test_a_step_beside_one_that_waits_records_what_it_did(book: Book) -> None:
    """Its own code knows nothing of the wait: its value is an outcome."""
    outer, begun, waits = _paying(book), Event(), Event()

    @step
    def slow() -> str:
        begun.set()
        waits.wait()
        return "done"

    book.crashed(lambda _: outer())
    with pytest.raises(DecisionRequiredError), book.run():
        thread = Thread(target=copy_context().run, args=(slow,))
        thread.start()
        begun.wait()
        try:
            outer()
        finally:
            waits.set()
            thread.join()
    assert book.tags()[-2:] == ["run.waiting", "tool_call.completed"]


def test_no_step_begins_after_its_block(book: Book) -> None:
    """A task that outlives the block would add to a run that has ended."""

    @step
    def pay() -> None:
        book.done.append("paid")

    with book.run():
        late = copy_context()
    with pytest.raises(InvalidInputError, match="has ended"):
        late.run(pay)
    assert book.did() == []
    assert book.tags()[-1] == "run.completed"


# --- steps that are given up ------------------------------------------------------------


def _hanging(book: Book, **settings: Any) -> Any:
    """A step that pays and never ends, the first time."""

    @step
    async def pay() -> str:
        book.done.append("paid")
        return "paid"

    @step(**settings)
    async def hang() -> str:
        await pay()
        book.done.append("hang")
        if book.done.count("hang") == 1:
            await asyncio.Event().wait()
        return "done"

    return hang


async def _given_up(book: Book, call: Any) -> str:
    """Cancel a call once it hangs; when a record answers it, at once."""
    task = asyncio.ensure_future(call())
    while "hang" not in book.done and not task.done():
        await asyncio.sleep(0)
        if len(book.done) == 0 and book.status == "completed":
            break
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    return "late"


def test_a_run_that_goes_on_without_a_step_is_resumed_and_replayed(book: Book) -> None:
    """That its caller gave it up is its outcome, and a replay lets the caller do that again."""
    hang = _hanging(book)

    async def main(replay: bool | None = None) -> str:
        async with book.run(replay=replay):
            return await _given_up(book, hang)

    assert asyncio.run(main()) == "late"
    failed = book.events("tool_call.failed")[0]
    assert isinstance(failed, ToolCallFailed)
    assert (failed.call_id, failed.error_type) == ("hang#1", "CancelledError")
    assert book.did() == ["paid", "hang"]
    assert asyncio.run(main()) == "late"
    assert asyncio.run(main(replay=True)) == "late"
    assert book.did() == []


def test_a_run_does_not_go_on_without_a_step_that_asks(book: Book) -> None:
    """Nobody knows whether it happened: the next step, or the end of the block, waits."""
    hang = _hanging(book, on_interrupt="ask")

    async def main() -> str:
        async with book.run():
            return await _given_up(book, hang)

    with pytest.raises(DecisionRequiredError):
        asyncio.run(main())
    assert book.status == "waiting"


def test_a_step_that_is_asked_for_again_takes_its_inner_ones(book: Book) -> None:
    """In the same process, too: what was paid before it was given up is not paid again."""
    hang = _hanging(book, key="k")

    async def main() -> str:
        async with book.run():
            await _given_up(book, hang)
            done: str = await hang()
            return done

    assert asyncio.run(main()) == "done"
    assert book.did() == ["paid", "hang", "hang"]


def test_a_payment_in_doubt_is_asked_about_though_its_step_has_ended(book: Book) -> None:
    """`gather` hands on the first error, and leaves the others to themselves."""

    @step(on_interrupt="ask")
    async def pay() -> None:
        book.done.append("paid")
        await asyncio.Event().wait()

    @step
    async def outer() -> None:
        task = asyncio.ensure_future(pay())
        while not book.done:
            await asyncio.sleep(0)
        left.append(task)
        raise ValueError("beside it")

    left: list[Any] = []

    async def main() -> None:
        async with book.run():
            with pytest.raises(ValueError, match="beside it"):
                await outer()
            for task in left:
                task.cancel()
                await asyncio.wait([task])

    with pytest.raises(DecisionRequiredError) as waits:
        asyncio.run(main())
    assert waits.value.call_ids == ("outer#1/pay#1",)
    left.clear()
    with pytest.raises(DecisionRequiredError):
        asyncio.run(main())
    decided = ToolCallDecided(call_id="outer#1/pay#1", decision="failed", text="no")
    book.ledger.append(RUN, decided, ANY)
    asyncio.run(main())
    assert (book.did(), book.status) == (["paid"], "completed")


def test_a_long_key_is_not_written_like_another_one(book: Book) -> None:
    """The digest that stands for a long key is no key itself."""

    @step(key=lambda key: key)
    def pay(key: str) -> str:
        book.done.append(key)
        return key[:10]

    with book.run():
        pay("k" * 300)
        recorded = book.events("tool_call.started")[0].call_id.partition(":")[2]  # type: ignore[union-attr]
        pay(recorded)
    assert len(book.did()) == 2
