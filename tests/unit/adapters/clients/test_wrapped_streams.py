"""Streams of wrapped clients: handed on as they come, recorded before their end is."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from typing import Any

import pytest

from tests.servers.serving import Answer, CutBody, Scripted, Stall
from tests.unit.adapters.clients.stories import Stopped
from tests.unit.adapters.clients.wrapped import WAYS, Way, Wrapped, cells, wrapped
from turnledger.adapters.testing.no_network import no_network
from turnledger.ledger import MessageAppended, ModelCalled, ModelCallFailed, ModelReplied
from turnledger.runtime import ReplayDivergedError
from turnledger.runtime.steps import run, step

SAID = [("user", "Hello?")]
LONG = Answer("a long answer, piece by piece, to the very end")
STREAMS = [way for way in WAYS if way.stream]
SOME = [way for way in STREAMS if way.sdk != "openai-responses"]


def _only(sdk: str, colour: str) -> Way:
    return next(way for way in STREAMS if (way.sdk, way.colour) == (sdk, colour))


async def _first(there: Wrapped, client: Any, pieces: int = 1) -> str:
    """The first pieces of text of an answer; then its reader leaves."""
    text: list[str] = []
    async with aclosing(there.way.pieces(client, SAID)) as stream:
        async for piece in stream:
            text.append(piece)
            if len("".join(text)) >= pieces:
                break
    return "".join(text)


@pytest.mark.process
@pytest.mark.parametrize("way", cells(SOME))
def test_pieces_are_handed_on_before_the_rest_has_come(way: Way) -> None:
    """The server does not go on before the client has left: nothing is held back."""
    with wrapped(way, lambda asked: Stall(LONG)) as there:

        async def story() -> None:
            client = there.client()
            async with run("s", ledger=there.ledger):
                text = await _first(there, client)
            assert LONG.text is not None
            assert LONG.text.startswith(text)

        there.run(story)
        assert there.server.left.wait(10)


@pytest.mark.process
@pytest.mark.parametrize("way", cells(SOME))
def test_a_stream_that_its_reader_leaves_is_an_outcome_as_far_as_it_came(way: Way) -> None:
    """A resume and a replay get the same pieces, and ask nobody."""
    with wrapped(way, lambda asked: LONG) as there:

        async def asked(client: Any, **options: Any) -> str:
            async with run("s", ledger=there.ledger, **options):
                return await _first(there, client)

        async def story() -> None:
            client = there.client()
            live = await asked(client)
            with no_network() as attempts:
                assert await asked(client) == live
                assert await asked(client, replay=True) == live
            assert attempts == []

        there.run(story)
        assert len(there.server.asked) == 1
        [replied] = there.events("s", ModelReplied)
        assert replied.value["left"] is True
        said = [one.message.content for one in there.events("s", MessageAppended)]
        assert said[0] == "Hello?"
        assert LONG.text is not None
        assert LONG.text.startswith(said[1])


@pytest.mark.process
def test_a_left_stream_is_on_record_before_the_next_step_begins() -> None:
    """What was read of it may have led to that step."""
    way = _only("openai-chat", "sync")
    seen: list[int] = []
    with wrapped(way, lambda asked: LONG) as there:

        @step
        def note() -> None:
            seen.append(len(there.events("s", ModelReplied)))

        async def story() -> None:
            client = there.client()
            async with run("s", ledger=there.ledger):
                await _first(there, client)
                assert there.events("s", ModelReplied) == []
                note()

        there.run(story)
    assert seen == [1]


@pytest.mark.process
@pytest.mark.parametrize("colour", ["sync", "async"])
def test_a_stream_that_is_never_closed_is_settled_at_the_end_of_the_run(colour: str) -> None:
    """A loop that is left by `break` closes nothing; the run completes all the same."""
    way = _only("anthropic", colour)
    with wrapped(way, lambda asked: LONG) as there:

        async def story() -> None:
            client = there.client()
            async with run("s", ledger=there.ledger):
                stream = way.pieces(client, SAID)
                await anext(stream)
            await stream.aclose()

        there.run(story)
        [replied] = there.events("s", ModelReplied)
        assert replied.value["left"] is True


@pytest.mark.process
@pytest.mark.parametrize("leaving", [Stopped, RuntimeError])
@pytest.mark.parametrize("colour", ["sync", "async"])
def test_a_stream_whose_run_ends_in_the_middle_is_asked_for_again(
    colour: str, leaving: type[BaseException]
) -> None:
    """Ctrl-C, or an error that is fixed by then: its reader did not mean to leave."""
    way = _only("openai-chat", colour)
    with wrapped(way, lambda asked: LONG) as there:

        async def asked(client: Any, stops: bool) -> str:
            text = ""
            async with (
                run("s", ledger=there.ledger),
                aclosing(way.pieces(client, SAID)) as stream,
            ):
                async for piece in stream:
                    text += piece
                    if stops and text:
                        raise leaving
            return text

        async def story() -> None:
            client = there.client()
            with pytest.raises(leaving):
                await asked(client, stops=True)
            assert there.events("s", ModelReplied, ModelCallFailed) == []
            assert await asked(client, stops=False) == LONG.text

        there.run(story)
        assert [one.attempt for one in there.events("s", ModelCalled)] == [1, 2]


@pytest.mark.process
def test_a_cancelled_reader_that_goes_on_has_left() -> None:
    """A time limit on a stream: what came in time is the outcome."""
    way = _only("openai-chat", "async")
    with wrapped(way, lambda asked: Stall(LONG)) as there:

        async def asked(client: Any) -> str:
            text: list[str] = []

            async def read() -> None:
                async with aclosing(way.pieces(client, SAID)) as stream:
                    async for piece in stream:
                        text.append(piece)

            async with run("s", ledger=there.ledger):
                reading = asyncio.create_task(read())
                while not "".join(text):
                    await asyncio.sleep(0.001)
                reading.cancel()
                await asyncio.gather(reading, return_exceptions=True)
            return "".join(text)

        async def story() -> None:
            await asked(there.client())

        there.run(story)
        [replied] = there.events("s", ModelReplied)
        assert replied.value["left"] is True


@pytest.mark.process
@pytest.mark.parametrize("colour", ["sync", "async"])
def test_code_that_reads_on_where_the_run_left_is_a_divergence(colour: str) -> None:
    """The rest of that stream is on no record, and must not pass for its end."""
    way = _only("openai-chat", colour)
    with wrapped(way, lambda asked: LONG) as there:

        async def story() -> None:
            client = there.client()
            async with run("s", ledger=there.ledger):
                await _first(there, client)
            with no_network(), pytest.raises(ReplayDivergedError, match="reads on"):
                async with run("s", ledger=there.ledger, replay=True):
                    await way.ask(client, SAID)

        there.run(story)


@pytest.mark.process
@pytest.mark.parametrize("way", cells(SOME))
def test_a_stream_that_breaks_is_an_outcome_with_what_came(way: Way) -> None:
    """A resume gets the same pieces, and the same error after them."""
    answer: Scripted = CutBody(LONG)
    with wrapped(way, lambda asked: answer) as there:

        async def asked(client: Any) -> tuple[str, str]:
            text = ""
            async with run("s", ledger=there.ledger):
                try:
                    async for piece in way.pieces(client, SAID):
                        text += piece
                except Exception as error:
                    return text, type(error).__name__
            raise AssertionError("the stream did not break")

        async def story() -> None:
            client = there.client(max_retries=0)
            live = await asked(client)
            with no_network():
                assert await asked(client) == live

        there.run(story)
        assert len(there.server.asked) == 1
        [failed] = there.events("s", ModelCallFailed)
        assert failed.final
        assert "data:" in failed.value["text"]


@pytest.mark.process
@pytest.mark.parametrize("way", cells(STREAMS))
def test_the_record_is_on_disk_when_the_end_is_handed_on(way: Way) -> None:
    """A reader may act on the end, or on the last event: neither may be asked for again."""
    with wrapped(way, lambda asked: LONG) as there:
        seen: list[int] = []

        async def story() -> None:
            client = there.client()
            async with run("s", ledger=there.ledger):
                async for _ in way.pieces(client, SAID):
                    seen.append(len(there.events("s", ModelReplied)))
                assert len(there.events("s", ModelReplied)) == 1

        there.run(story)
        assert seen[0] == 0
        if way.sdk in ("openai-responses", "anthropic"):  # their last event says that it is
            assert seen[-1] == 1
