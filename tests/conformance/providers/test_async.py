"""Every provider through its SDK's async client: the same answers, and a cancel that is heard."""

from __future__ import annotations

import asyncio
import warnings
from collections.abc import Iterator
from contextlib import nullcontext
from threading import Event
from typing import Any

import pytest

from tests.conformance.providers.harness import UnderTest
from tests.quiet_litellm import litellm_as_it_is
from tests.servers.serving import Answer, Call, CutBody, Hang, Stall, Status, replies
from tests.unit.runtime.evaluations import events, prompt_of, tool
from turnledger.ledger import ModelCalled, ModelCallFailed, ModelReplied
from turnledger.runtime import Session
from turnledger.runtime.agents.async_runs import run_async, stream_async
from turnledger.runtime.loop.events import TextReceived

LONG = 30.0
WHOLE = Answer("The whole answer, all of it, to the end.")
ADD = Answer("Adding.", (Call("add", '{"n": 2}'),))


@pytest.fixture(autouse=True)
def quiet(provider: UnderTest) -> Iterator[None]:
    """LiteLLM leaves connections to the garbage collector; Gemini's SDK subclasses aiohttp's."""
    with litellm_as_it_is() if provider.provider.name == "litellm" else nullcontext():
        warnings.filterwarnings("ignore", "Inheritance class Aiohttp", DeprecationWarning)
        yield


def _evaluated(provider: UnderTest, session: Session, **options: Any) -> Any:
    """Ask the provider in a run of an event loop."""
    adapter = provider.adapter(**options)
    assert adapter.sends_async
    added = prompt_of(tool(lambda params, *, context: f"{params.n + 1}"))

    async def main() -> Any:
        return await run_async(lambda: adapter.evaluate(added, session=session))

    return asyncio.run(main())


def test_an_answer_is_the_same_through_the_async_client(provider: UnderTest) -> None:
    """Calls, text and usage: whichever client was used, the record can't tell."""
    provider.tells(replies(ADD, WHOLE))
    sync, other = Session(), Session()
    added = prompt_of(tool(lambda params, *, context: f"{params.n + 1}"))
    first = provider.adapter().evaluate(added, session=sync)
    second = _evaluated(provider, other)
    assert second.text == first.text == WHOLE.text
    assert [one.usage for one in events(other, ModelReplied)] == [
        one.usage for one in events(sync, ModelReplied)
    ]
    sent = provider.server.bodies
    assert len(sent) == 4
    assert sent[0] == sent[2]
    digests = [[one.request_digest for one in events(s, ModelCalled)] for s in (sync, other)]
    assert digests[0][0] == digests[1][0]


def test_text_comes_as_it_is_streamed(provider: UnderTest) -> None:
    """In pieces, in the run's own thread; without streaming there is none."""
    provider.tells(replies(WHOLE))
    heard: list[str] = []
    session = Session()
    session.bus.subscribe(TextReceived, lambda one: heard.append(one.text))
    assert _evaluated(provider, session).text == WHOLE.text
    assert "".join(heard) == (WHOLE.text if provider.stream else "")
    assert len(heard) > 1 or not provider.stream


@pytest.mark.parametrize("fault", [Status(503), CutBody(WHOLE)])
def test_what_may_pass_is_tried_again(provider: UnderTest, fault: Any) -> None:
    """Errors of the async client are understood as those of the other."""
    provider.tells(lambda asked: fault if asked.attempt == 1 else WHOLE)
    session = Session()
    assert _evaluated(provider, session).text == WHOLE.text
    assert [one.retryable for one in events(session, ModelCallFailed)] == [True]


def test_a_cancel_closes_the_connection(provider: UnderTest) -> None:
    """In the middle of a stream, or while the answer is waited for: the provider sees it."""
    provider.tells(lambda asked: Stall(WHOLE) if provider.stream else Hang())
    adapter, session = provider.adapter(), Session()

    async def main() -> None:
        work = run_async(lambda: adapter.evaluate(prompt_of(), session=session))
        task = asyncio.create_task(work)
        assert await asyncio.to_thread(provider.server.waits.wait, LONG)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert await asyncio.to_thread(provider.server.left.wait, LONG)
        assert not provider.server.closing.is_set()

    asyncio.run(main())
    assert len(provider.server.asked) == 1
    assert not events(session, ModelReplied)


def test_leaving_a_stream_closes_the_connection(provider: UnderTest) -> None:
    """After the first piece of text."""
    if not provider.stream:
        provider = _streaming(provider)
    provider.tells(lambda asked: Stall(WHOLE))
    adapter, session = provider.adapter(), Session()

    def work(tell: Any) -> None:
        session.bus.subscribe(TextReceived, lambda one: tell(one.text))
        adapter.evaluate(prompt_of(), session=session)

    async def main() -> None:
        texts = stream_async(work)
        assert WHOLE.text is not None
        assert WHOLE.text.startswith(await anext(texts))
        await texts.aclose()
        assert await asyncio.to_thread(provider.server.left.wait, LONG)

    asyncio.run(main())


def _streaming(provider: UnderTest) -> UnderTest:
    return UnderTest(provider.provider, provider.server, True, provider.adapters)


def test_a_client_that_is_given_is_called_in_a_thread(provider: UnderTest) -> None:
    """It is a synchronous one: nothing else would understand it."""
    provider.tells(replies(WHOLE))
    made = provider.adapter()
    client = made.client
    name = "completion" if provider.provider.name == "litellm" else "client"
    other = {"client_kwargs": None, "completion_kwargs": None}
    options = {key: value for key, value in other.items() if key.startswith(name)}
    given = provider.adapter(**{name: client}, **options)
    assert (made.sends_async, given.sends_async) == (True, False)

    async def main() -> Any:
        return await run_async(lambda: given.evaluate(prompt_of(), session=Session()))

    assert asyncio.run(main()).text == WHOLE.text


def test_clients_are_shared_by_the_runs_of_an_event_loop(provider: UnderTest) -> None:
    """One for each event loop, closed when the loop ends; the next loop gets another."""
    provider.tells(replies(WHOLE))
    adapter, made = provider.adapter(), list[Any]()
    make = adapter.make_async_client

    def counted(**kwargs: Any) -> Any:
        made.append(make(**kwargs))
        return made[-1]

    adapter.make_async_client = counted  # type: ignore[method-assign]

    async def main() -> None:
        def work() -> Any:
            return adapter.evaluate(prompt_of(), session=Session())

        await run_async(work)
        await asyncio.gather(*(run_async(work) for _ in range(3)))
        assert len(adapter._async_clients._held) == 1

    for number in (1, 2):
        asyncio.run(main())
        assert len(made) == number
        assert not adapter._async_clients._held


def test_close_closes_the_client_of_a_running_loop(provider: UnderTest) -> None:
    """From the loop's own thread, and from another; the adapter may be used again."""
    provider.tells(replies(WHOLE))
    adapter, closed = provider.adapter(), Event()

    async def main() -> None:
        def work() -> Any:
            return adapter.evaluate(prompt_of(), session=Session())

        await run_async(work)
        await asyncio.to_thread(adapter.close)
        assert not adapter._async_clients._held
        await run_async(work)
        adapter.close()
        (held,) = adapter._async_clients._held.values()
        assert held.closing is not None
        await held.closing
        assert not adapter._async_clients._held
        closed.set()

    asyncio.run(main())
    assert closed.is_set()
