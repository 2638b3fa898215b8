"""Secrets in what frameworks get back from a ledger: refused, or kept redacted with a warning.

One setting of the ledger's redactor, `on_redacted`, says which of both, for every integration.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from agents import Agent, Runner
from agents.items import TResponseInputItem
from google.adk.agents import LlmAgent
from google.adk.events import Event, EventActions
from google.adk.models import BaseLlm, LlmResponse
from google.adk.tools import ToolContext
from google.genai import types
from langchain.agents import create_agent
from langchain_core.tools import tool
from pydantic_ai.messages import ModelResponse

from tests.frameworks.adk.test_plugin import runner_of
from tests.frameworks.langgraph.graphs import PlannedModel, config, counter
from tests.frameworks.openai_agents.test_durable import (
    QUIET,
    ScriptedModel,
    assistant_message,
    in_run,
    whole,
)
from tests.frameworks.pydantic_ai.scripted import Crash, Scripted, calls, says
from tests.frameworks.pydantic_ai.scripted import run as order
from turnledger import run
from turnledger.adk import TurnledgerPlugin, TurnledgerSessionService
from turnledger.claude import TurnledgerSessionStore
from turnledger.langgraph import TurnledgerMiddleware, TurnledgerSaver
from turnledger.ledger import Ledger, RedactedStateError, Redactor
from turnledger.openai_agents import TurnledgerSession, durable
from turnledger.runtime.steps import UnrecordableResultError

# Made here, so that no file has it.
SECRET = "ghp_" + "a1B2" * 9
SAID, MARKED = f"use {SECRET}", "use [redacted: github-token]"
REFUSALS = (RedactedStateError, UnrecordableResultError)
ADK = {"app_name": "shop", "user_id": "ada", "session_id": "s1"}


def _claude(ledger: Ledger, dies: bool) -> Any:
    async def story() -> Any:
        key: Any = {"project_key": "-work", "session_id": "s1"}
        entry: Any = {"type": "user", "uuid": "u1", "message": {"role": "user", "content": SAID}}
        store = TurnledgerSessionStore(ledger)
        await store.append(key, [entry])
        [loaded] = await store.load(key) or ()
        await store.list_session_summaries("-work")
        return loaded["message"]["content"]  # type: ignore[typeddict-item]

    return asyncio.run(story())


def _openai_session(ledger: Ledger, dies: bool) -> Any:
    async def story() -> Any:
        item: TResponseInputItem = {"role": "user", "content": SAID}
        session = TurnledgerSession("chat", ledger)
        await session.add_items([item])
        return (await session.get_items())[0]["content"]  # type: ignore[typeddict-item]

    return asyncio.run(story())


def _openai_agents(ledger: Ledger, dies: bool) -> Any:
    async def work() -> Any:
        reply = assistant_message(SAID, item_id="msg_1")
        made: Any = Agent(name="shop", model=ScriptedModel([[reply]]))
        output, _ = await whole(durable(made))
        if dies:
            raise Crash(output)
        return output

    return in_run(ledger, work)


def _adk_session(ledger: Ledger, dies: bool) -> Any:
    async def story() -> Any:
        service = TurnledgerSessionService(ledger)
        session = await service.get_session(**ADK)
        if session is None:
            session = await service.create_session(**ADK, state={"a": SAID})
            content = types.Content(role="user", parts=[types.Part(text=SAID)])
            delta = {"app:b": SAID, "user:c": SAID, "d": SAID}
            event = Event(author="user", content=content, actions=EventActions(state_delta=delta))
            await service.append_event(session, event)
        await service.list_sessions(app_name="shop")
        found = await service.get_session(**ADK)
        assert found is not None
        texts = {found.events[0].content.parts[0].text, *found.state.values()}
        assert len(found.state) == 4
        return "".join(map(str, texts))

    return asyncio.run(story())


class _Gemini(BaseLlm):
    """Calls a tool, and then says what it got; in pieces, if it is streamed."""

    async def generate_content_async(self, llm_request: Any, stream: bool = False) -> Any:
        parts = [part for one in llm_request.contents for part in one.parts or ()]
        answer = next((part.function_response for part in parts if part.function_response), None)
        call = types.FunctionCall(name="find", args={"for_whom": SAID})
        said = types.Part(function_call=call) if answer is None else types.Part(text=SAID)
        if stream and answer is not None:
            piece = types.Content(role="model", parts=[types.Part(text="use")])
            yield LlmResponse(content=piece, partial=True)
        yield LlmResponse(content=types.Content(role="model", parts=[said]), model_version="m")


def _adk_agent(ledger: Ledger, dies: bool) -> Any:
    async def find(for_whom: str, tool_context: ToolContext) -> dict[str, str]:
        """Find."""
        tool_context.state["found"] = SAID
        return {"given": for_whom, "made": SAID}

    async def story() -> Any:
        shop = LlmAgent(name="shop", model=_Gemini(model="scripted"), tools=[find])
        runner = runner_of(shop, ledger, TurnledgerPlugin())
        content = types.Content(role="user", parts=[types.Part(text="Go.")])
        told: list[str] = []
        async with run("order", ledger=ledger):
            async for event in runner.run_async(
                user_id="ada", session_id="s1", new_message=content
            ):
                for part in event.content.parts if event.content else ():
                    found = part.function_call or part.function_response
                    told.append(part.text or found.model_dump_json(exclude={"id"}))
                told.append(json.dumps(event.actions.state_delta))
            if dies:
                raise Crash(str(told))
        return str(told)

    return asyncio.run(story())


def _pydantic_ai(ledger: Ledger, dies: bool, *replies: ModelResponse, streams: bool = False) -> Any:
    given: list[str] = []
    made = Scripted(*replies).agent()

    @made.tool_plain
    def find(for_whom: str) -> str:
        given.append(for_whom)
        return SAID

    async def story() -> str:
        async with order(ledger):
            messages = (await made.run("Go.")).all_messages()[1:]
            if streams:
                async with made.run_stream("Go.") as result:
                    await result.get_output()
                messages += result.all_messages()[1:]
            assert all(SECRET not in one for one in given)
            parts: list[Any] = [part for message in messages for part in message.parts]
            found = " ".join(str(getattr(part, "content", None) or part.args) for part in parts)
            if dies:
                raise Crash(found)
        return found

    return asyncio.run(story())


def _pydantic_reply(ledger: Ledger, dies: bool) -> Any:
    return _pydantic_ai(ledger, dies, says(SAID))


def _pydantic_stream(ledger: Ledger, dies: bool) -> Any:
    return _pydantic_ai(ledger, dies, says(SAID), streams=True)


def _pydantic_arguments(ledger: Ledger, dies: bool) -> Any:
    return _pydantic_ai(ledger, dies, calls(("find", {"for_whom": SAID}, "c1")), says(SAID))


def _pydantic_result(ledger: Ledger, dies: bool) -> Any:
    return _pydantic_ai(ledger, dies, calls(("find", {"for_whom": "me"}, "c1")), says(SAID))


def _langgraph(ledger: Ledger, dies: bool) -> Any:
    """A list that is long enough to be stored as derived data, too."""

    def say(count: int) -> str:
        if dies and count == 30:
            raise Crash
        return SAID if count == 3 else f"word {count}"

    graph = counter(TurnledgerSaver(ledger), 60, say)
    begun = graph.get_state(config()).values
    graph.invoke(None if begun else {"words": []}, config())
    return graph.get_state(config()).values["words"][2]


class _Planned(PlannedModel):
    """Says a secret with each of its calls."""

    def _generate(self, *args: Any, **more: Any) -> Any:
        made = super()._generate(*args, **more)
        made.generations[0].message.content = SAID
        return made


def _langchain(ledger: Ledger, dies: bool) -> Any:
    @tool
    def look(n: int) -> str:
        """Look something up."""
        if dies and n:
            raise Crash
        return SAID

    saver = TurnledgerSaver(ledger)
    middleware = [TurnledgerMiddleware(saver)]
    graph = create_agent(_Planned(turns=2), [look], checkpointer=saver, middleware=middleware)
    begun = graph.get_state(config()).values
    found = graph.invoke(None if begun else {"messages": [("user", "go")]}, config())
    return "".join(str(message.content) for message in found["messages"][1:])


STORIES: list[Callable[[Ledger, bool], Any]] = [
    _adk_agent,
    _adk_session,
    _claude,
    _langchain,
    _langgraph,
    _openai_agents,
    _openai_session,
    _pydantic_arguments,
    _pydantic_reply,
    _pydantic_result,
    _pydantic_stream,
]


@pytest.mark.parametrize("on_redacted", ["refuse", "warn"])
@pytest.mark.parametrize("story", STORIES, ids=lambda story: story.__name__[1:])
def test_a_secret_is_refused_or_read_back_as_a_mark(
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    story: Callable[[Ledger, bool], Any],
    on_redacted: Any,
) -> None:
    """Killed, resumed and again: each time an error, or the mark with a warning.

    What the killed process had, where it had something, is what the others get.
    """
    caplog.set_level(logging.WARNING, "turnledger.redaction")
    found: list[str] = []
    for dies in (on_redacted == "warn", False, False):
        with Ledger.open(tmp_path / "a.db", redactor=Redactor(on_redacted=on_redacted)) as ledger:
            if on_redacted == "refuse":
                with pytest.raises(REFUSALS, match=r'github-token.*on_redacted="warn"'):
                    story(ledger, dies)
                continue
            try:
                found.append(story(ledger, dies))
            except Crash as crash:
                found += crash.args
    assert len({*found}) == (on_redacted == "warn")
    assert all(MARKED in one and SECRET not in one for one in found)
    warned = [one.getMessage() for one in caplog.records if one.name == "turnledger.redaction"]
    assert bool(warned) == (on_redacted == "warn")
    assert all("(github-token)" in one and SECRET not in one for one in warned)
    assert not any(
        SECRET.encode() in one.read_bytes() for one in tmp_path.glob("a.db*") if one.is_file()
    )


@pytest.mark.parametrize("on_redacted", ["refuse", "warn"])
def test_a_streamed_secret_is_refused_or_recorded_as_a_mark(
    tmp_path: Path, on_redacted: Any
) -> None:
    """The live program has had the events by then; a resume gets the mark, or the error again."""

    async def work() -> Any:
        reply = assistant_message(SAID, item_id="msg_1")
        made: Any = Agent(name="shop", model=ScriptedModel([[reply]]))
        result = Runner.run_streamed(durable(made), "Go.", run_config=QUIET)
        async for _ in result.stream_events():
            pass
        return result.final_output

    with Ledger.open(tmp_path / "a.db", redactor=Redactor(on_redacted=on_redacted)) as ledger:
        for said in (SECRET, MARKED):
            if on_redacted == "warn":
                assert said in in_run(ledger, work)
                continue
            with pytest.raises(UnrecordableResultError, match="github-token"):
                in_run(ledger, work)


@pytest.mark.parametrize(
    ("story", "field"),
    [(_langgraph, "id"), (_adk_session, "timestamp"), (_adk_session, "time")],
)
def test_state_that_can_not_be_read_with_a_mark_is_refused(
    tmp_path: Path, story: Callable[[Ledger, bool], Any], field: str
) -> None:
    """A ledger is append-only: such a thread or session could never be loaded again."""
    redactor = Redactor(formats=[], fields=[field], on_redacted="warn")
    with (
        Ledger.open(tmp_path / "a.db", redactor=redactor) as ledger,
        pytest.raises(RedactedStateError, match=r'on_redacted="warn" does not apply'),
    ):
        story(ledger, False)
