"""`TurnledgerSessionService` behaves as ADK's own services do, and keeps what they keep."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from click.testing import CliRunner
from google.adk.agents import LlmAgent
from google.adk.errors.already_exists_error import AlreadyExistsError
from google.adk.errors.session_not_found_error import SessionNotFoundError
from google.adk.events import Event, EventActions
from google.adk.models import BaseLlm, LlmResponse
from google.adk.runners import Runner
from google.adk.sessions import InMemorySessionService
from google.adk.sessions.base_session_service import GetSessionConfig
from google.genai import types
from hypothesis import given, settings
from hypothesis import strategies as st

from turnledger.adapters.cli import turnledger as command_line
from turnledger.adapters.frameworks.sessions import append_together
from turnledger.adk import TurnledgerSessionService
from turnledger.ledger import (
    NEW,
    ConcurrentAppendError,
    CustomEvent,
    Draft,
    Ledger,
    LedgerClosedError,
    RedactedStateError,
    RunCompleted,
    RunStarted,
    run_id_for,
)

apps, users, sessions = (st.sampled_from(names) for names in ("ab", "uv", ("s", "t/x", " s ")))
keys = st.fixed_dictionaries({"app_name": apps, "user_id": users, "session_id": sessions})
names = st.builds(
    str.__add__, st.sampled_from(["", "app:", "user:", "temp:"]), st.sampled_from("xy")
)
states = st.dictionaries(names, st.integers(0, 3) | st.none() | st.lists(st.text(max_size=2)))
texts = st.text(max_size=5)
parts = st.one_of(
    st.builds(lambda text: types.Part(text=text), texts),
    st.builds(lambda data: types.Part.from_bytes(data=data, mime_type="image/png"), st.binary()),
    st.just(types.Part(function_call=types.FunctionCall(id="adk-1", name="pay", args={"n": 1}))),
    st.just(
        types.Part(
            function_response=types.FunctionResponse(id="adk-1", name="pay", response={"ok": True})
        )
    ),
)
contents = st.none() | st.builds(
    types.Content, role=st.sampled_from(["user", "model"]), parts=st.lists(parts, max_size=2)
)
configs = st.none() | st.builds(
    GetSessionConfig,
    num_recent_events=st.none() | st.integers(0, 3),
    after_timestamp=st.none() | st.integers(0, 12).map(float),
)
operations = st.lists(
    st.one_of(
        st.tuples(st.just("create"), keys, states),
        st.tuples(st.just("append"), keys, contents, states, st.booleans()),
        st.tuples(st.just("get"), keys, configs),
        st.tuples(st.just("list"), keys, st.booleans()),
        st.tuples(st.just("delete"), keys),
        st.tuples(st.just("user_state"), keys),
    ),
    max_size=16,
)


def shown(session: Any) -> Any:
    """A session without the time of its creation, which each service takes by itself."""
    if session is None:
        return None
    data = session.model_dump(mode="json")
    if not data["events"]:
        data.pop("last_update_time")
    return data


async def do(service: Any, operation: Any, place: int) -> Any:
    """What one operation gives, an error included."""
    name, key, *more = operation
    try:
        if name == "create":
            return shown(await service.create_session(**key, state=more[0]))
        if name == "append":
            session = await service.get_session(**key)
            if session is None:
                return None
            content, delta, twice = more
            event = Event(
                id=f"event {place}",
                author="user",
                invocation_id="one",
                timestamp=float(place),
                content=content,
                actions=EventActions(state_delta=dict(delta)),
            )
            again = event.model_copy(deep=True)
            await service.append_event(session, event)
            if twice and not any(name.startswith("temp:") for name in delta):
                await service.append_event(session, again)
            return shown(session)
        if name == "get":
            return shown(await service.get_session(**key, config=more[0]))
        if name == "list":
            user = key["user_id"] if more[0] else None
            found = await service.list_sessions(app_name=key["app_name"], user_id=user)
            return sorted((one.user_id, one.id, one.state) for one in found.sessions)
        if name == "delete":
            return await service.delete_session(**key)
        return await service.get_user_state(app_name=key["app_name"], user_id=key["user_id"])
    except AlreadyExistsError as error:
        return str(error)


@settings(max_examples=50)
@given(operations)
def test_behaves_as_the_in_memory_service(done: list[Any]) -> None:
    """Any sequence of operations gives what ADK's own in-memory service gives."""

    async def work() -> None:
        reference = InMemorySessionService()
        for place, operation in enumerate(done):
            expected = await do(reference, operation, place)
            assert await do(service, operation, place) == expected, operation
        other = TurnledgerSessionService(ledger)
        for app, user in (("a", "u"), ("b", "v")):
            for session in ("s", "t/x"):
                key = {"app_name": app, "user_id": user, "session_id": session}
                assert shown(await other.get_session(**key)) == shown(
                    await reference.get_session(**key)
                )

    with Ledger.open("memory://") as ledger:
        service = TurnledgerSessionService(ledger)
        asyncio.run(work())


def message(text: str, **more: Any) -> Event:
    content = types.Content(role="user", parts=[types.Part(text=text)])
    return Event(author="user", invocation_id="one", content=content, **more)


KEY = {"app_name": "shop", "user_id": "ada", "session_id": "s1"}


def test_sessions_are_kept_on_every_store(ledger: Ledger) -> None:
    """Events and the three kinds of state outlive the service, and deleting hides one session."""

    async def work() -> None:
        service = TurnledgerSessionService(ledger)
        session = await service.create_session(**KEY, state={"app:a": 1, "user:u": 2, "s": 3})
        delta = {"app:a": 10, "s": 30, "temp:t": 40}
        await service.append_event(session, message("Hi", actions=EventActions(state_delta=delta)))
        assert session.state == {"app:a": 10, "user:u": 2, "s": 30, "temp:t": 40}
        found = await TurnledgerSessionService(ledger).get_session(**KEY)
        assert found.state == {"app:a": 10, "user:u": 2, "s": 30}
        assert found.events == session.events
        other = await service.create_session(app_name="shop", user_id="bob")
        assert other.state == {"app:a": 10}
        await service.delete_session(**KEY)
        assert await service.get_session(**KEY) is None
        with pytest.raises(SessionNotFoundError):
            await service.append_event(session, message("late"))
        again = await service.create_session(**KEY)
        assert (again.events, again.state) == ([], {"app:a": 10, "user:u": 2})
        listed = await service.list_sessions(app_name="shop")
        assert [one.id for one in listed.sessions] == [other.id, "s1"]

    asyncio.run(work())


def test_config_chooses_events() -> None:
    """The last events, and those from a time on, are the ones that ADK's own service gives."""
    chosen = [
        GetSessionConfig(num_recent_events=most, after_timestamp=after)
        for most in (None, 0, 2, 9)
        for after in (None, 0.0, 2.0, 2.5, 9.0)
    ]

    async def kept(service: Any) -> list[list[str]]:
        session = await service.create_session(**KEY)
        for place in range(4):
            await service.append_event(session, message(str(place), id=str(place), timestamp=place))
        found = [await service.get_session(**KEY, config=config) for config in chosen]
        return [[event.id for event in session.events] for session in found]

    with Ledger.open("memory://") as ledger:
        given = asyncio.run(kept(TurnledgerSessionService(ledger)))
    assert given == asyncio.run(kept(InMemorySessionService()))


def test_event_and_state_are_one_transaction(ledger: Ledger) -> None:
    """If the app's state can't be changed, the event is not recorded either, on every store."""
    one, other = run_id_for("one"), run_id_for("other")
    ledger.append(other, RunStarted(), NEW)
    appends = [
        (one, [Draft(RunStarted(), uuid4()), Draft(CustomEvent(kind="a.b"), uuid4())]),
        (other, [Draft(RunStarted(), uuid4())]),
    ]
    with pytest.raises(ConcurrentAppendError):
        append_together(ledger, appends, {})
    assert (ledger.head(one), ledger.head(other)) == (0, 1)
    append_together(ledger, [appends[0], (other, [Draft(RunCompleted(), uuid4())])], {})
    assert (ledger.head(one), ledger.head(other)) == (2, 2)
    assert ledger.verify_all().ok


def test_concurrent_appends_lose_nothing(ledger: Ledger) -> None:
    """Services that append to sessions of one app at once record every event and every change."""
    services = [TurnledgerSessionService(ledger) for _ in range(4)]

    async def add(number: int) -> None:
        key = {**KEY, "session_id": f"s{number % 2}"}
        service = services[number % 4]
        session = await service.get_session(**key)
        delta = {f"app:{number}": number}
        event = message(str(number), actions=EventActions(state_delta=delta))
        await service.append_event(session, event)

    async def work() -> None:
        for number in (0, 1):
            await services[0].create_session(**{**KEY, "session_id": f"s{number}"})
        await asyncio.gather(*map(add, range(12)))
        found = [await services[0].get_session(**{**KEY, "session_id": s}) for s in ("s0", "s1")]
        assert sum(len(session.events) for session in found) == 12
        assert found[0].state == {f"app:{number}": number for number in range(12)}

    asyncio.run(work())


def test_refused_events_change_nothing(tmp_path: Path) -> None:
    """An event that the redactor would change is refused; neither ledger nor session has it."""
    secret = "ghp_" + "a1B2" * 9

    async def work() -> None:
        service = TurnledgerSessionService(ledger)
        with pytest.raises(RedactedStateError):
            await service.create_session(**KEY, state={"note": f"use {secret}"})
        session = await service.create_session(**KEY)
        with pytest.raises(RedactedStateError, match="redactor=None"):
            await service.append_event(session, message(f"use {secret}"))
        delta = {"app:key": f"use {secret}", "user:x": 1}
        event = message("hi", actions=EventActions(state_delta=delta))
        with pytest.raises(RedactedStateError):
            await service.append_event(session, event)
        assert (session.events, session.state) == ([], {})
        assert await service.get_user_state(app_name="shop", user_id="ada") == {}
        service.close()
        with pytest.raises(LedgerClosedError):
            await service.get_session(**KEY)

    with Ledger.open(tmp_path / "a.db") as ledger:
        asyncio.run(work())


class Scripted(BaseLlm):
    """A model that pays, then says so."""

    async def generate_content_async(self, llm_request: Any, stream: bool = False) -> Any:
        answered = any(
            part.function_response for one in llm_request.contents for part in one.parts or ()
        )
        call = types.FunctionCall(name="pay", args={"amount": 7})
        part = types.Part(text="Done.") if answered else types.Part(function_call=call)
        yield LlmResponse(
            content=types.Content(role="model", parts=[part]),
            model_version="scripted",
            usage_metadata=types.GenerateContentResponseUsageMetadata(
                prompt_token_count=10, candidates_token_count=2, total_token_count=12
            ),
        )


def test_runner_keeps_a_chat(tmp_path: Path) -> None:
    """A run of ADK's runner is recorded, and the views show it."""

    def pay(amount: int) -> dict[str, str]:
        """Pay."""
        return {"result": f"paid {amount}"}

    async def work() -> list[Any]:
        service = TurnledgerSessionService(str(tmp_path / "a.db"))
        agent = LlmAgent(name="shop", model=Scripted(model="scripted"), tools=[pay])
        runner = Runner(app_name="shop", agent=agent, session_service=service)
        await service.create_session(**KEY)
        content = types.Content(role="user", parts=[types.Part(text="Pay 7.")])
        async for _ in runner.run_async(user_id="ada", session_id="s1", new_message=content):
            pass
        found = await service.get_session(**KEY)
        service.close()
        return list(found.events)

    def view(name: str) -> Any:
        run = str(run_id_for("adk/shop/ada/s1"))
        arguments = [name, run, "--db", str(tmp_path / "a.db"), "-o", "json"]
        done = CliRunner().invoke(command_line, arguments)
        assert done.exit_code == 0, done.output
        return json.loads(done.stdout)

    assert [event.author for event in asyncio.run(work())] == ["user", "shop", "shop", "shop"]
    roles = [turn["role"] for turn in view("messages") if not turn.get("synthetic")]
    assert roles == ["user", "assistant", "user", "assistant"]
    (call,) = view("tools")
    assert (call["name"], call["status"], call["result"]) == ("pay", "completed", "paid 7")
    assert view("usage")["total"]["input_tokens"] == 20
    assert [span["name"] for span in view("timeline") if span["kind"] == "tool"] == ["pay"]
