"""pydantic-ai's own OpenAI model on a strict server: usage, errors, and a wrapped client below."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest
from openai import AsyncOpenAI
from pydantic_ai import Agent
from pydantic_ai.exceptions import ModelHTTPError
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider

import turnledger
from tests.servers.openai_chat import OpenAIChat
from tests.servers.serving import Answer, Asked, Call, CutBody, Scripted, Status, StrictServer
from turnledger.ledger import Ledger, ModelCallFailed, ModelReplied, Record, run_id_for
from turnledger.projections import Usage, fold, state_at
from turnledger.pydantic_ai import TurnledgerDurability


class Script:
    """What the server answers; a test may change it."""

    def __init__(self) -> None:
        self.faults: list[Scripted] = []

    def __call__(self, asked: Asked) -> Scripted:
        if self.faults:
            return self.faults.pop(0)
        calls = (Call("pay", '{"amount": 120}', "call_1"),)
        return Answer(calls=calls) if asked.turn == 1 else Answer("Paid.")


@pytest.fixture
def script() -> Script:
    return Script()


@pytest.fixture
def server(script: Script) -> Iterator[StrictServer]:
    with StrictServer(OpenAIChat(), script) as opened:
        yield opened
        assert opened.refused == []


def agent(client: AsyncOpenAI) -> Agent[None, str]:
    """An agent on a client."""
    made = Agent(
        OpenAIChatModel("gpt-5", provider=OpenAIProvider(openai_client=client)),
        name="shop",
        capabilities=[TurnledgerDurability()],
    )

    @made.tool_plain
    def pay(amount: int) -> str:
        return f"Paid {amount}."

    return made


def ask(
    server: StrictServer, ledger: Ledger, *, streamed: bool, wrapped: bool = False, **more: Any
) -> str:
    """What the agent says in the run, which is begun or gone on with."""

    async def said() -> str:
        url = f"{server.url}/v1"
        async with AsyncOpenAI(base_url=url, api_key="a key", max_retries=2 * wrapped) as client:
            made = agent(turnledger.wrap(client) if wrapped else client)
            async with turnledger.run("order", ledger=ledger, **more):
                if not streamed:
                    return (await made.run("Pay.")).output
                async with made.run_stream("Pay.") as result:
                    return await result.get_output()

    return asyncio.run(said())


def records(ledger: Ledger) -> list[Record]:
    return list(ledger.read(run_id_for("order")))


@pytest.mark.parametrize("streamed", [False, True])
def test_replies_are_recorded_with_usage_and_reason(
    streamed: bool, ledger: Ledger, server: StrictServer
) -> None:
    """Streamed or not, a reply has its tokens, its finish reason and its model."""
    for _ in range(2):
        assert ask(server, ledger, streamed=streamed) == "Paid."
    assert len(server.asked) == 2
    replied = [r.event for r in records(ledger) if isinstance(r.event, ModelReplied)]
    assert [one.finish_reason for one in replied] == ["tool_call", "stop"]
    used = replied[0].usage
    assert (used.input_tokens, used.output_tokens) == (11, 7)
    assert (used.cached_tokens, used.reasoning_tokens) == (3, 2)
    assert {one.model for one in replied} == {server.wire.whole(server.asked[0], Answer())["model"]}


def test_a_run_that_was_streamed_goes_on_without_a_stream(
    ledger: Ledger, server: StrictServer
) -> None:
    """A recorded reply is the same, however it came."""
    ask(server, ledger, streamed=True)
    assert ask(server, ledger, streamed=False) == "Paid."
    assert len(server.asked) == 2


@pytest.mark.parametrize("streamed", [False, True])
def test_the_provider_s_error_is_the_outcome(
    streamed: bool, ledger: Ledger, server: StrictServer, script: Script
) -> None:
    """A 429 is recorded with its status and body, and raised again without a request."""
    script.faults.append(Status(429, "slow down"))
    for _ in range(2):
        with pytest.raises(ModelHTTPError, match="slow down") as raised:
            ask(server, ledger, streamed=streamed)
        assert raised.value.status_code == 429
    assert len(server.asked) == 1
    failed = [r.event for r in records(ledger) if isinstance(r.event, ModelCallFailed)]
    assert [(one.status, one.final) for one in failed] == [(429, True)]


def test_a_stream_that_breaks_is_the_outcome(
    ledger: Ledger, server: StrictServer, script: Script
) -> None:
    """A connection that breaks in the middle of a stream: the same error, and no second request."""
    script.faults.append(CutBody(Answer("A long answer that is cut.")))
    kinds: list[type[Any]] = []
    for _ in range(2):
        with pytest.raises(Exception, match=r"\S") as raised:
            ask(server, ledger, streamed=True)
        kinds.append(raised.type)
    assert kinds[0] is kinds[1]
    assert len(server.asked) == 1


@pytest.mark.parametrize("streamed", [False, True])
def test_a_wrapped_client_below_is_an_inner_step(
    streamed: bool, ledger: Ledger, server: StrictServer, script: Script
) -> None:
    """The call at the wire is a step inside the model's; tokens and messages count once."""
    script.faults.append(Status(500))
    assert ask(server, ledger, streamed=streamed, wrapped=True) == "Paid."
    assert len(server.asked) == 3
    found = records(ledger)
    used = fold(found, Usage()).total
    assert (used.input_tokens, used.output_tokens) == (22, 14)
    replied = [r.event.call_id for r in found if isinstance(r.event, ModelReplied)]
    assert [one.count("/") for one in replied] == [1, 0, 1, 0]
    assert replied[0].startswith("shop.model#1/openai.chat.completions:")
    turns = state_at(ledger, run_id_for("order")).history.to_list()
    assert [turn.role for turn in turns] == ["user", "assistant", "user", "assistant"]
    for replay in (False, True):
        said = ask(server, ledger, streamed=streamed, wrapped=True, replay=replay)
        assert said == "Paid."
    assert len(server.asked) == 3
