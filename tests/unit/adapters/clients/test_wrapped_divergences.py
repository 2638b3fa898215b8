"""Divergences of wrapped clients: a changed request is found at its call, and nothing is sent."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

import anthropic
import openai
import pytest

from tests.servers.serving import Answer
from tests.unit.adapters.clients.wrapped import WAYS, Way, Wrapped, cells, wrapped
from turnledger.adapters.testing.no_network import no_network
from turnledger.ledger import ModelCalled, ModelCallFailed, RunCompleted, run_id_for
from turnledger.runtime import DecisionRequiredError, ReplayDivergedError
from turnledger.runtime.steps import OutcomeUnknownError, run

SYNC = {way.sdk: way for way in WAYS if way.colour == "sync" and not way.stream}
ASYNC = {way.sdk: way for way in WAYS if way.colour == "async" and not way.stream}
TOOL = {
    "openai-chat": {"type": "function", "function": {"name": "add", "parameters": {}}},
    "anthropic": {"name": "add", "input_schema": {"type": "object", "properties": {}}},
}

Calls = list[dict[str, Any]]


def _calls() -> Calls:
    """Three calls of one conversation."""
    said = [("user", "One?"), ("assistant", "1"), ("user", "Two?"), ("assistant", "2")]
    return [{"said": said[:1]}, {"said": said[:3]}, {"said": [*said, ("user", "Three?")]}]


def _with(number: int, **options: Any) -> Callable[[Calls, str], Calls]:
    def change(calls: Calls, sdk: str) -> Calls:
        changed = {k: [TOOL[sdk]] if v == "tool" else v for k, v in options.items()}
        return [{**call, **changed} if n == number else call for n, call in enumerate(calls, 1)]

    return change


def _saying(number: int, text: str) -> Callable[[Calls, str], Calls]:
    def change(calls: Calls, sdk: str) -> Calls:
        said = [*calls[number - 1]["said"][:-1], ("user", text)]
        return [{**c, "said": said} if n == number else c for n, c in enumerate(calls, 1)]

    return change


# What was changed, the number of the call where it is found (4 is the end), and what the diff has.
CHANGES: dict[str, tuple[Callable[[Calls, str], Calls], int, str]] = {
    "the first question": (_saying(1, "Eins?"), 1, "Eins?"),
    "a later question": (_saying(2, "Zwei?"), 2, "Zwei?"),
    "the last question": (_saying(3, "Drei?"), 3, "Drei?"),
    "the model": (_with(2, model="claude-or-gpt-else"), 2, "claude-or-gpt-else"),
    "an option": (_with(3, extra_body={"mood": "good"}), 3, "mood"),
    "a tool": (_with(1, tools="tool"), 1, "add"),
    "the history": (
        lambda calls, sdk: [*calls[:2], {"said": [("user", "Uno?"), *calls[2]["said"][1:]]}],
        3,
        "Uno?",
    ),
    "the order": (lambda calls, sdk: [calls[0], calls[2], calls[1]], 2, ""),
    "a call less in the middle": (lambda calls, sdk: [calls[0], calls[2]], 2, ""),
    "a call less at the end": (lambda calls, sdk: calls[:2], 3, "Three?"),
    "a call more": (lambda calls, sdk: [*calls, {"said": [("user", "Four?")]}], 4, "Four?"),
    "a call more in the middle": (
        lambda calls, sdk: [calls[0], {"said": [("user", "Half?")]}, *calls[1:]],
        2,
        "Half?",
    ),
}


async def _made(there: Wrapped, client: Any, calls: Calls, **options: Any) -> None:
    async with run("d", ledger=there.ledger, **options):
        for call in calls:
            given = dict(call)
            await there.way.ask(client, given.pop("said"), **given)


@pytest.mark.process
@pytest.mark.parametrize("way", [SYNC["openai-chat"], ASYNC["anthropic"]], ids=str)
def test_each_change_is_found_at_the_call_that_it_changes(way: Way) -> None:
    """With the version of that call's event and a diff of whole requests; nobody is asked."""
    with wrapped(way, lambda asked: Answer("fine")) as there:

        async def story() -> None:
            client = there.client()
            await _made(there, client, _calls())
            records = list(there.ledger.read(run_id_for("d")))
            places = [r.version for r in records if r.tag in (ModelCalled.tag, RunCompleted.tag)]
            for name, (change, at, told) in CHANGES.items():
                with no_network() as attempts, pytest.raises(ReplayDivergedError) as raised:
                    await _made(there, client, change(_calls(), way.sdk), replay=True)
                found = raised.value.divergence
                assert found.version == places[at - 1], name
                assert told in found.diff, name
                if found.cause == "step arguments changed":
                    assert found.recorded["body"] == there.server.bodies[at - 1], name
                assert attempts == [], name

        there.run(story)
        assert len(there.server.asked) == 3


@pytest.mark.process
def test_a_divergence_after_an_upgrade_of_the_sdk_says_so() -> None:
    """A new version may send another body: that is the first thing to look at."""
    way = SYNC["openai-chat"]
    with wrapped(way, lambda asked: Answer("fine")) as there:

        async def story() -> None:
            await _made(there, there.client(), _calls())
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr("turnledger.adapters.clients.wrap.version", lambda sdk: "99.0")
                upgraded = there.client()
            with pytest.raises(ReplayDivergedError) as raised:
                await _made(
                    there,
                    upgraded,
                    _with(2, extra_body={"mood": "good"})(_calls(), ""),
                    replay=True,
                )
            assert f"openai {openai.__version__}" in str(raised.value)
            assert "openai 99.0" in str(raised.value)
            await _made(there, upgraded, _calls(), replay=True)  # nothing differs but the version

        there.run(story)


@pytest.mark.process
@pytest.mark.parametrize("way", cells([*SYNC.values(), *ASYNC.values()]))
def test_the_sdk_takes_no_error_of_ours_for_the_networks(way: Way) -> None:
    """A divergence comes out as itself, and code that catches it can't go on without the record."""
    base = {"anthropic": anthropic.AnthropicError, "gemini": ReplayDivergedError}
    with wrapped(way, lambda asked: Answer("fine")) as there:

        async def fallback(client: Any, text: str) -> None:
            async with run("d", ledger=there.ledger):
                with suppress(base.get(way.sdk, openai.OpenAIError)):
                    await way.ask(client, [("user", text)])
                await way.ask(client, [("user", "And now?")])

        async def story() -> None:
            client = there.client()
            await fallback(client, "One?")
            with pytest.raises(ReplayDivergedError) as raised:
                await fallback(client, "Another?")
            assert type(raised.value).__name__ == "ReplayDivergedError"

        there.run(story)
        assert len(there.server.asked) == 2


@pytest.mark.process
@pytest.mark.parametrize("way", [SYNC["openai-chat"], ASYNC["openai-chat"]], ids=str)
def test_a_call_in_doubt_goes_by_the_policy(way: Way) -> None:
    """By default it is asked again; `fail` and `ask` never repeat it."""
    with wrapped(way, lambda asked: Answer("fine")) as there:

        async def asked(client: Any, name: str) -> str:
            async with run(name, ledger=there.ledger):
                return await way.ask(client, [("user", "Hello?")])

        async def story() -> None:
            for policy, expected in (
                ("retry", None),
                ("fail", OutcomeUnknownError),
                ("ask", DecisionRequiredError),
            ):
                client = there.client(on_interrupt=policy)
                inner = client._client._transport.inner
                name = "handle_request" if way.colour == "sync" else "handle_async_request"
                with pytest.MonkeyPatch.context() as patch:
                    patch.setattr(inner, name, _killed)
                    with pytest.raises(_Killed):
                        await asked(client, policy)
                before = len(there.server.asked)
                if expected is None:
                    assert await asked(client, policy) == "fine"
                    assert len(there.server.asked) == before + 1
                    continue
                with pytest.raises(expected):
                    await asked(client, policy)
                assert len(there.server.asked) == before
            assert there.events("fail", ModelCallFailed)[-1].error_type == "OutcomeUnknown"

        there.run(story)


class _Killed(BaseException):
    """Stands for the end of the process while a request is under way."""


def _killed(request: Any) -> Any:
    raise _Killed
