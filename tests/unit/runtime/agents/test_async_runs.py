"""Runs for asyncio: a thread each, on the caller's event loop where they wait, few at work."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextvars import ContextVar
from threading import Barrier, Lock, current_thread
from typing import Any

import pytest

from tests.agent import calls, says, task
from tests.unit.runtime.agents.async_agent import (
    LONG,
    AsyncGatedModel,
    Gate,
    GatedLoop,
    GatedModel,
    Noted,
    Order,
)
from turnledger.ledger import (
    InvalidInputError,
    Ledger,
    ToolCallFailed,
    ToolCallStarted,
    new_run_id,
)
from turnledger.runtime import InProcessEventBus, MainLoop, Prompt, PromptEvaluationError, Session
from turnledger.runtime.agent.run_control import AT_WORK, RunControl, in_thread, new_thread
from turnledger.runtime.agent.tools.async_calls import LoopCall, refuse_in_running_loop
from turnledger.runtime.agent.tools.function_tool import tool
from turnledger.runtime.agents.async_runs import run_async, stream_async
from turnledger.runtime.loop.events import (
    RunEnded,
    TextDelta,
    TextReceived,
    ToolEnded,
    ToolStarted,
    listening,
)
from turnledger.runtime.replaying.replay import replay

MODELS = [GatedModel, AsyncGatedModel]
WHO: ContextVar[str] = ContextVar("who", default="nobody")


@pytest.fixture
def ledger() -> Iterator[Ledger]:
    with Ledger.open("memory://") as opened:
        yield opened


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("parallel", [1, 3])
def test_a_run_is_what_it_is_without_asyncio(
    model: type[GatedModel], parallel: int, ledger: Ledger
) -> None:
    """Sync and async tools mixed: the answer, the session, and a record that replays."""
    run = new_run_id()
    loop = GatedLoop(Gate(), ledger, model, parallel_tools=parallel)
    response, session = asyncio.run(_awaited(lambda: loop.execute(Order(), run_id=run)))
    assert response.text == "All is done."
    assert session[Noted].all() == (Noted("c"), Noted("d"))
    replay(ledger, run, loop=loop).check()
    here = current_thread().name
    adapter: Any = loop._adapter
    assert loop.look_threads == {here}
    assert (adapter.threads == {here}) == (model is AsyncGatedModel)


async def _awaited(work: Any) -> Any:
    return await run_async(work)


def test_errors_and_context_variables_pass(ledger: Ledger) -> None:
    """What the run raises is raised here; its code sees the caller's variables."""
    seen: list[str] = []

    def fails() -> None:
        seen.append(WHO.get())
        raise ValueError("no luck")

    async def main() -> None:
        WHO.set("the caller")
        with pytest.raises(ValueError, match="no luck"):
            await run_async(fails)

    asyncio.run(main())
    assert seen == ["the caller"]


@pytest.mark.parametrize("model", MODELS)
def test_a_stream_tells_what_happens_in_order(model: type[GatedModel], ledger: Ledger) -> None:
    """Text although the adapter was not made to stream, starts before ends, the result last."""
    loop = GatedLoop(Gate(), ledger, model)

    def work(tell: Any) -> None:
        with listening(loop.bus, tell):
            response, _ = loop.execute(Order())
        tell(RunEnded(response.text))

    async def main() -> list[Any]:
        return [event async for event in stream_async(work)]

    assert asyncio.run(main()) == [
        ToolStarted("a", "look", '{"what": "shelf"}'),
        ToolEnded("a", "look", "The shelf is empty.", True),
        ToolStarted("b", "pay", '{"euros": 5}'),
        ToolEnded("b", "pay", "Paid 5.", True),
        ToolStarted("c", "note", "{}"),
        ToolEnded("c", "note", "Noted.", True),
        TextDelta("One"),
        TextDelta(" more."),
        ToolStarted("d", "note", "{}"),
        ToolEnded("d", "note", "Noted.", True),
        TextDelta("All"),
        TextDelta(" is"),
        TextDelta(" done."),
        RunEnded("All is done."),
    ]


def test_a_stream_ends_with_the_error_of_its_run() -> None:
    """After the events that came before it."""
    told: list[str] = []

    def work(tell: Any) -> None:
        tell("first")
        raise ValueError("no luck")

    async def main() -> None:
        async for event in stream_async(work):
            told.append(event)

    with pytest.raises(ValueError, match="no luck"):
        asyncio.run(main())
    assert told == ["first"]


class _Mixed(MainLoop[Order, Any]):
    """One reply calls a tool that fails, one that does not exist, and one with bad arguments."""

    def __init__(self, ledger: Ledger) -> None:
        asked = calls(("a", "pay", '{"euros": 1}'), ("b", "steal"), ("c", "pay", '{"euros": "x"}'))
        self.bus = InProcessEventBus()
        adapter = GatedModel(Gate(), [asked, says("Done.")], parallel_tools=3)
        super().__init__(adapter=adapter, bus=self.bus, ledger=ledger)

    def create_session(self) -> Session:
        return Session(bus=self._bus)

    def create_prompt(self, request: Order) -> Prompt[Any]:
        @tool
        def pay(euros: int) -> str:
            """Pay."""
            raise RuntimeError("no money")

        return task(request, "Do it.", [pay])


def test_events_are_told_when_they_are_on_disk(ledger: Ledger) -> None:
    """Failed and refused calls end too; a refused one is never started."""
    loop, run = _Mixed(ledger), new_run_id()
    told: list[tuple[str, str, bool]] = []

    def hear(event: Any) -> None:
        kind = ToolCallStarted if isinstance(event, ToolStarted) else ToolCallFailed
        events = [record.event for record in ledger.read(run)]
        on_disk = [one.call_id for one in events if isinstance(one, kind)]
        told.append((type(event).__name__, event.call_id, event.call_id in on_disk))
        assert isinstance(event, ToolStarted) or not event.success

    loop.bus.subscribe(ToolStarted, hear)
    loop.bus.subscribe(ToolEnded, hear)
    loop.execute(Order(), run_id=run)
    assert sorted(told) == [
        ("ToolEnded", "a", True),
        ("ToolEnded", "b", True),
        ("ToolEnded", "c", True),
        ("ToolStarted", "a", True),
    ]
    assert told.index(("ToolStarted", "a", True)) < told.index(("ToolEnded", "a", True))


def test_nothing_is_told_after_listening(ledger: Ledger) -> None:
    """The bus is as it was, and text is asked for no more."""
    loop, told = GatedLoop(Gate(), ledger), list[Any]()
    with listening(loop.bus, told.append):
        loop.execute(Order())
    before = len(told)
    loop.bus.subscribe(TextReceived, told.append)
    loop.execute(Order())
    assert len(told) == before


def test_listeners_are_called_in_the_runs_own_thread(ledger: Ledger) -> None:
    """Text comes from the event loop's thread, and is told by the run's."""
    loop, names = GatedLoop(Gate(), ledger, AsyncGatedModel), set[str]()
    loop.bus.subscribe(TextReceived, lambda event: names.add(current_thread().name))

    def work() -> None:
        with listening(loop.bus, lambda event: names.add(current_thread().name)):
            loop.execute(Order())

    asyncio.run(_awaited(work))
    assert names == {"turnledger-run"}


def test_a_listener_of_text_that_fails_ends_the_call_alone(ledger: Ledger) -> None:
    """`on_delta` raises: the call of the model has failed, and its task is cancelled."""

    def fails(received: TextReceived) -> None:
        raise RuntimeError("the terminal is gone")

    loop = GatedLoop(Gate(), ledger, AsyncGatedModel, on_delta=fails)
    with pytest.raises(PromptEvaluationError, match="the terminal is gone"):
        asyncio.run(_awaited(lambda: loop.execute(Order())))


def test_only_so_many_runs_are_at_work_at_once() -> None:
    """Those that wait let others work; each gets its permit back before it goes on."""
    lock, at_work, most = Lock(), 0, 0
    waiting = Barrier(8)

    def count(change: int) -> None:
        nonlocal at_work, most
        with lock:
            at_work += change
            most = max(most, at_work)

    def work(control: RunControl) -> None:
        count(+1)
        count(-1)
        with control.waiting():
            waiting.wait(LONG)  # all eight are here at once: none holds a permit
        for _ in range(100):
            count(+1)
            count(-1)

    controls = [RunControl() for _ in range(8)]
    done = [in_thread(lambda one=one: one.run(lambda: work(one)), "run") for one in controls]  # type: ignore[misc]
    for future in done:
        future.result(LONG)
    assert 1 <= most <= AT_WORK
    assert not any(one.has_permit for one in controls)


def test_many_runs_at_once_are_all_recorded(ledger: Ledger) -> None:
    """Runs that share an event loop get their own answers."""

    async def main() -> list[Any]:
        loops = [GatedLoop(Gate(), ledger, MODELS[number % 2]) for number in range(20)]
        return await asyncio.gather(
            *(run_async(lambda one=one: one.execute(Order())) for one in loops)  # type: ignore[misc]
        )

    assert [response.text for response, _ in asyncio.run(main())] == ["All is done."] * 20
    assert [run.status for run in ledger.runs()] == ["completed"] * 20


def test_an_agent_as_a_tool_of_another(ledger: Ledger) -> None:
    """A sync tool may run a loop, an async one may await one: no permit is waited for in vain."""
    inner = GatedLoop(Gate(), ledger, AsyncGatedModel)

    @tool
    def ask() -> str:
        """Ask another agent."""
        return inner.execute(Order())[0].text or ""

    @tool
    async def ask_async() -> str:
        """Ask another agent."""
        response, _ = await run_async(lambda: inner.execute(Order()))
        return response.text or ""

    class Outer(GatedLoop):
        def create_prompt(self, request: Order) -> Prompt[Any]:
            return task(request, "Do it.", [ask, ask_async])

    outer = Outer(Gate(), ledger)
    script: Any = outer._adapter
    script.replies = [calls(("a", "ask"), ("b", "ask_async")), says("Both said it.")]

    async def main() -> Any:
        runs = (run_async(lambda: outer.execute(Order())) for _ in range(3))
        return await asyncio.gather(*runs)

    for response, _ in asyncio.run(main()):
        assert [one.rendered_output for one in response.tool_results] == ["All is done."] * 2


def test_a_synchronous_run_under_an_event_loop_names_arun() -> None:
    """It would stop the loop; without async tools, or without a loop, it may."""

    @tool
    async def look() -> str:
        """Look."""
        return ""

    @tool
    def pay() -> str:
        """Pay."""
        return ""

    async def main() -> None:
        refuse_in_running_loop([pay])
        with pytest.raises(InvalidInputError, match=r"\(look\).*Await `arun`"):
            refuse_in_running_loop([pay, look])

    refuse_in_running_loop([look])
    asyncio.run(main())


def test_what_is_cancelled_before_it_began_never_begins() -> None:
    """A thread that starts late, and a coroutine that the event loop has not come to."""
    begun: list[str] = []

    async def coroutine() -> None:
        begun.append("coroutine")

    async def main() -> None:
        call = LoopCall(coroutine, asyncio.get_running_loop())
        call.cancel()
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert call.done.cancelled()

    future, thread = new_thread(lambda: begun.append("thread"), "late")
    assert future.cancel()
    thread.start()
    thread.join(LONG)
    asyncio.run(main())
    assert begun == []
