"""Retries of wrapped clients: as often as the SDK's own, each attempt recorded."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any

import openai
import pytest

from tests.servers.serving import Answer, Asked, CutBody, Hang, Scripted, Status
from tests.unit.adapters.clients.wrapped import WAYS, Way, Wrapped, cells, wrapped
from turnledger.adapters.testing.no_network import no_network
from turnledger.ledger import ModelCalled, ModelCallFailed, ModelReplied
from turnledger.runtime.steps import run

SAID = [("user", "Hello?")]
SOON = {"retry-after-ms": "1"}
BUSY = Status(429, "slow down", SOON)
WHOLE = [way for way in WAYS if not way.stream]
ALWAYS = ("openai-chat-sync", "anthropic-async", "gemini-sync")
# One of each SDK and colour: the rest is the same code.
SOME = [way for way in WHOLE if way.sdk != "openai-responses"]


@pytest.fixture(autouse=True)
def _no_backoff(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where no header says when, attempts are made at once."""
    for name in ("openai", "anthropic"):
        monkeypatch.setattr(f"{name}._base_client.INITIAL_RETRY_DELAY", 0.001)


def _errors(way: Way) -> Any:
    module = {"anthropic": "anthropic", "gemini": "google.genai.errors"}.get(way.sdk, "openai")
    return __import__(module, fromlist=["x"])


def _status_error(way: Way) -> type[Exception]:
    found = _errors(way)
    kind: type[Exception] = found.APIError if way.sdk == "gemini" else found.RateLimitError
    return kind


def _outcomes(there: Wrapped) -> list[tuple[str, int | None, bool]]:
    return [
        (type(one).__name__, getattr(one, "status", None), getattr(one, "final", True))
        for one in there.events("r", ModelCallFailed, ModelReplied)
    ]


@pytest.mark.process
@pytest.mark.parametrize("way", cells(WAYS))
def test_a_busy_server_is_asked_again_and_each_attempt_is_recorded(way: Way) -> None:
    """The client does not see the 429 that passed; the record does, with its body."""
    with wrapped(way, lambda asked: Answer("fine") if asked.attempt == 3 else BUSY) as there:

        async def story() -> None:
            client = there.client(max_retries=2)
            for _ in range(2):
                async with run("r", ledger=there.ledger):
                    assert await way.ask(client, SAID) == "fine"

        there.run(story)
        assert len(there.server.asked) == 3
        failed = ("ModelCallFailed", 429, False)
        assert _outcomes(there) == [failed, failed, ("ModelReplied", None, True)]
        assert len(there.events("r", ModelCalled)) == 1
        assert "slow down" in there.events("r", ModelCallFailed)[0].value["text"]


@pytest.mark.process
@pytest.mark.parametrize("way", cells(SOME, ALWAYS))
def test_a_run_with_a_fallback_model_is_resumable(way: Way) -> None:
    """A 429 for ever is the call's outcome: a resume gets it again, and asks nobody."""

    headers: list[str] = []

    def script(asked: Asked) -> Scripted:
        return Answer("from the other") if "other" in f"{asked.path}{asked.body}" else BUSY

    with wrapped(way, script) as there:

        async def asked(client: Any, **options: Any) -> str:
            async with run("r", ledger=there.ledger, **options):
                try:
                    return await way.ask(client, SAID)
                except _status_error(way) as error:
                    headers.append(error.response.headers.get("x-should-retry", ""))
                    return await way.ask(client, SAID, model="claude-other")

        async def story() -> None:
            client = there.client(max_retries=1)
            assert await asked(client) == "from the other"
            assert len(there.server.asked) == 3
            with no_network() as attempts:
                assert await asked(client) == "from the other"
                assert await asked(client, replay=True) == "from the other"
            assert attempts == []

        there.run(story)
        assert len(there.server.asked) == 3
        assert headers == ["", "false", "false"]
        assert _outcomes(there) == [
            ("ModelCallFailed", 429, False),
            ("ModelCallFailed", 429, True),
            ("ModelReplied", None, True),
        ]


@pytest.mark.process
@pytest.mark.parametrize("way", cells(SOME, ALWAYS))
@pytest.mark.parametrize("fault", ["broken", "timeout"])
def test_a_broken_connection_is_raised_again_from_the_record(way: Way, fault: str) -> None:
    """As the class of that name: live and resumed code take the same `except`."""
    answer: Scripted = CutBody(Answer("a long answer")) if fault == "broken" else Hang()
    with wrapped(way, lambda asked: answer) as there:

        async def failure(client: Any) -> Exception | None:
            async with run("r", ledger=there.ledger):
                try:
                    await way.ask(client, SAID)
                except Exception as error:
                    return error
            return None

        async def story() -> None:
            retries = 0 if way.sdk == "gemini" else 1
            client = there.client(max_retries=retries, timeout=0.2 if fault == "timeout" else 30.0)
            live = await failure(client)
            assert live is not None
            assert len(there.events("r", ModelCallFailed)) == retries + 1
            with no_network() as attempts:
                again = await failure(client)
            assert attempts == []
            assert type(again) is type(live)
            if way.sdk != "gemini":  # its SDK hands on what its HTTP module raises
                assert again is not None
                assert type(again.__cause__) is type(live.__cause__)

        there.run(story)
        [*_, last] = there.events("r", ModelCallFailed)
        assert last.final
        assert last.error_type == ("ReadTimeout" if fault == "timeout" else "ReadError")


@pytest.mark.process
@pytest.mark.parametrize("way", cells(SOME, ALWAYS))
def test_what_the_sdk_would_not_repeat_is_not_repeated(way: Way) -> None:
    """A 400 is the outcome at once."""
    with wrapped(way, lambda asked: Status(400, "no")) as there:

        async def story() -> None:
            client = there.client(max_retries=3)
            async with run("r", ledger=there.ledger):
                with pytest.raises(Exception, match="no"):
                    await way.ask(client, SAID)

        there.run(story)
        assert _outcomes(there) == [("ModelCallFailed", 400, True)]


@pytest.mark.process
@pytest.mark.parametrize("way", cells(SOME, ALWAYS))
def test_outside_of_a_run_it_retries_as_the_client_did(way: Way) -> None:
    """A wrapped client is a plain client there, and gives up when that would have."""
    with wrapped(way, lambda asked: BUSY) as there:

        async def story() -> None:
            client = there.client(max_retries=2)
            with pytest.raises(_status_error(way)):
                await way.ask(client, SAID)

        there.run(story)
        assert len(there.server.asked) == 3
        assert list(there.ledger.runs()) == []


@pytest.mark.process
@pytest.mark.parametrize("way", cells((way for way in SOME if way.sdk != "gemini"), ALWAYS))
def test_a_retry_of_the_sdks_own_is_one_more_attempt_of_the_same_call(way: Way) -> None:
    """A copy of a wrapped client may have retries: the record has one call, its last outcome."""
    with wrapped(way, lambda asked: Answer("fine") if asked.attempt == 3 else BUSY) as there:

        async def story() -> None:
            client = there.client(max_retries=0).with_options(max_retries=5)
            for _ in range(2):
                async with run("r", ledger=there.ledger):
                    assert await way.ask(client, SAID) == "fine"

        there.run(story)
        assert len(there.server.asked) == 3
        called = there.events("r", ModelCalled)
        assert len({one.call_id for one in called}) == 1
        assert [one.attempt for one in called] == [1, 2, 3]
        assert _outcomes(there)[-1] == ("ModelReplied", None, True)


@pytest.mark.process
def test_a_wait_for_the_next_attempt_leaves_the_event_loop_to_others() -> None:
    """And ends when its task is cancelled: the call is in doubt then, and asked for again."""
    way = next(way for way in SOME if str(way) == "openai-chat-async")
    long = Status(429, "later", {"retry-after": "60"})
    with wrapped(way, lambda asked: long if asked.attempt == 1 else Answer("fine")) as there:

        async def asked(client: Any) -> str:
            async with run("r", ledger=there.ledger):
                return await way.ask(client, SAID)

        async def story() -> None:
            client = there.client(max_retries=2)
            task = asyncio.create_task(asked(client))
            while not there.server.asked or not there.events("r", ModelCallFailed):
                await asyncio.sleep(0.001)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert await asked(client) == "fine"

        there.run(story)
        assert [one.attempt for one in there.events("r", ModelCalled)] == [1, 2]


@pytest.mark.process
def test_a_call_that_its_caller_cancels_is_an_outcome_once_the_run_goes_on() -> None:
    """A time limit of the program's own: a resume runs into it again, and sends nothing."""
    way = next(way for way in SOME if str(way) == "openai-chat-async")

    def script(asked: Asked) -> Scripted:
        return Answer("fine") if asked.body["model"] == "gpt-other" else Hang()

    with wrapped(way, script) as there:

        async def once_asked(limit: asyncio.Timeout) -> None:
            while not there.server.asked:
                await asyncio.sleep(0.001)
            limit.reschedule(asyncio.get_running_loop().time() + 0.5)

        async def asked(client: Any, **options: Any) -> str:
            async with run("r", ledger=there.ledger, **options):
                try:
                    async with asyncio.timeout(None) as limit, asyncio.TaskGroup() as tasks:
                        tasks.create_task(once_asked(limit))
                        return await way.ask(client, SAID)
                except TimeoutError:
                    return await way.ask(client, SAID, model="gpt-other")

        async def story() -> None:
            client = there.client()
            assert await asked(client) == "fine"
            with no_network() as attempts:
                assert await asked(client) == "fine"
                assert await asked(client, replay=True) == "fine"
            assert attempts == []

        there.run(story)
        assert [one.error_type for one in there.events("r", ModelCallFailed)] == ["CancelledError"]


@pytest.mark.process
def test_code_that_does_not_cancel_a_cancelled_call_again_gets_a_time_out() -> None:
    """It must not wait for ever."""
    way = next(way for way in SOME if str(way) == "openai-chat-async")
    with wrapped(way, lambda asked: Hang()) as there:

        async def story() -> None:
            async with run("r", ledger=there.ledger):
                task = asyncio.create_task(way.ask(there.client(), SAID))
                while not there.server.asked:
                    await asyncio.sleep(0.001)
                task.cancel()
                with suppress(asyncio.CancelledError):
                    await task
            client = there.client(timeout=0.4)
            with no_network():
                async with run("r", ledger=there.ledger):
                    with pytest.raises(openai.APITimeoutError):
                        await way.ask(client, SAID)

        there.run(story)
