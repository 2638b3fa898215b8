"""Google ADK: `DatabaseSessionService` on SQLite, an event a message; its runner for the payment.

SQLite: the defaults, a rollback journal with synchronous=FULL.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from functools import cached_property
from typing import Any

from google.adk.agents import LlmAgent
from google.adk.apps import App, ResumabilityConfig
from google.adk.events import Event
from google.adk.models import BaseLlm, LlmResponse
from google.adk.runners import Runner
from google.adk.sessions import DatabaseSessionService
from google.genai import types

from benchmarks.peers.peer import ASKED, NextText, Peer

NAMES = {"app_name": "peers", "user_id": "user", "session_id": "conversation"}


class Adk(Peer):
    """A session of ADK."""

    def _service(self) -> Any:
        return DatabaseSessionService(db_url=f"sqlite+aiosqlite:///{self.where}")

    @cached_property
    def _reader(self) -> Any:
        """A service for the thread that loads: its connections belong to that thread's loop."""
        return self._service()

    @cached_property
    def _loop(self) -> asyncio.Runner:
        return asyncio.Runner()

    def begin(self, many: Sequence[str]) -> None:
        asyncio.run(self._begin(many))

    async def _begin(self, many: Sequence[str]) -> None:
        service = self._service()
        session = await service.create_session(**NAMES)
        for text in many:
            await service.append_event(session, _event(len(session.events), text))

    def go_on(self, next_text: NextText) -> None:
        asyncio.run(self._go_on(next_text))

    async def _go_on(self, next_text: NextText) -> None:
        service = self._service()
        session = await service.get_session(**NAMES)
        while True:
            await service.append_event(session, _event(len(session.events), next_text()))

    def load(self) -> Sequence[object]:
        found: Sequence[object] = self._loop.run(self._reader.get_session(**NAMES)).events
        return found

    def pay(self, tool: Callable[[], str]) -> None:
        asyncio.run(self._pay(tool))

    async def _pay(self, tool: Callable[[], str]) -> None:
        service = self._service()
        await service.create_session(**NAMES)
        await _outcome(_runner(service, tool), new_message=types.UserContent(ASKED))

    def recover(self, tool: Callable[[], str]) -> str:
        """`run_async` with the id of the interrupted invocation resumes it."""
        return asyncio.run(self._recover(tool))

    async def _recover(self, tool: Callable[[], str]) -> str:
        service = self._service()
        session = await service.get_session(**NAMES)
        runner = _runner(service, tool)
        return await _outcome(runner, invocation_id=session.events[-1].invocation_id)


def _event(number: int, text: str) -> Event:
    role = "model" if number % 2 else "user"
    content = types.Content(role=role, parts=[types.Part(text=text)])
    return Event(author="clerk" if number % 2 else "user", invocation_id="i", content=content)


async def _outcome(runner: Any, **asked: Any) -> str:
    said = ""
    async for event in runner.run_async(user_id="user", session_id="conversation", **asked):
        if event.is_final_response() and event.content:
            said = event.content.parts[0].text or said
    return said


def _runner(service: Any, tool: Callable[[], str]) -> Any:
    def pay() -> str:
        """Pay the invoice."""
        return tool()

    clerk = LlmAgent(name="clerk", model=_Scripted(model="scripted"), tools=[pay])
    config = ResumabilityConfig(is_resumable=True)
    app = App(name="peers", root_agent=clerk, resumability_config=config)
    return Runner(app=app, session_service=service)


class _Scripted(BaseLlm):
    """Calls the tool, then answers with its result."""

    async def generate_content_async(
        self, llm_request: Any, stream: bool = False
    ) -> AsyncGenerator[LlmResponse, None]:
        answered = llm_request.contents[-1].parts[-1].function_response
        if answered is not None:
            part = types.Part(text=str(answered.response["result"]))
        else:
            part = types.Part(function_call=types.FunctionCall(name="pay", args={}))
        yield LlmResponse(content=types.Content(role="model", parts=[part]))
