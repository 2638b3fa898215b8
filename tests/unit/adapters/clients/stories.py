"""Stories of a wrapped client that every SDK and version of it has to tell."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from tests.servers.serving import Answer, Asked
from tests.unit.adapters.clients.wrapped import SECRET_KEY, Said, Way, Wrapped, wrapped
from turnledger.adapters.testing.no_network import no_network
from turnledger.ledger import (
    EvaluationStarted,
    MessageAppended,
    ModelCalled,
    ModelReplied,
    RunCompleted,
)
from turnledger.runtime.steps import run

QUESTIONS = ("One?", "Two?", "Three?")


class Stopped(BaseException):
    """The process stops here: nothing is recorded of it."""


def counting(asked: Asked) -> Answer:
    return Answer(f"answer {asked.turn}")


async def conversation(
    surroundings: Wrapped, client: Any, name: str = "talk", *, stop_at: int = 0, **options: Any
) -> list[str]:
    """Ask three questions, each with all that was said before it."""
    said: Said = []
    replies: list[str] = []
    async with run(name, ledger=surroundings.ledger, **options):
        for number, question in enumerate(QUESTIONS, 1):
            if number == stop_at:
                raise Stopped
            said.append(("user", question))
            replies.append(await surroundings.way.ask(client, said))
            said.append(("assistant", replies[-1]))
    return replies


def a_run_is_recorded_resumed_and_replayed(way: Way) -> None:
    """Each call is made once; an interrupted run asks for the rest, a replay for nothing."""
    with wrapped(way, counting) as there:

        async def story() -> None:
            client = there.client()
            with suppress(Stopped):
                await conversation(there, client, stop_at=3)
            assert len(there.server.asked) == 2
            replies = await conversation(there, client)
            assert replies == ["answer 1", "answer 2", "answer 3"]
            assert len(there.server.asked) == 3
            with no_network() as attempts:
                assert await conversation(there, client, replay=True) == replies
                assert await conversation(there, client) == replies
            assert attempts == []

        there.run(story)
        assert len(there.server.asked) == 3
        _check_record(there)


def _check_record(there: Wrapped) -> None:
    """Every message stands once, with the usage; no header and no key is stored."""
    appended = there.events("talk", MessageAppended)
    said = [(one.message.role, one.message.content) for one in appended]
    assert said == [
        (role, text)
        for number, question in enumerate(QUESTIONS, 1)
        for role, text in (("user", question), ("assistant", f"answer {number}"))
    ]
    assert len(there.events("talk", EvaluationStarted)) == 1
    called, replied = there.events("talk", ModelCalled), there.events("talk", ModelReplied)
    assert len(called) == len(replied) == 3
    assert [one.message_id for one in replied] == [
        one.message.message_id for one in appended if one.message.role == "assistant"
    ]
    if there.way.sdk != "openai-chat" or not there.way.stream:  # it has to be asked for there
        assert all(one.usage.input_tokens == 11 for one in replied)
    assert all(one.finish_reason and one.model for one in replied)
    assert isinstance(there.events("talk")[-1], RunCompleted)
    stored = there.text("talk").lower()
    assert SECRET_KEY.lower() not in stored
    assert "authorization" not in stored
    assert "x-api-key" not in stored
