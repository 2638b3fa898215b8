"""An agent with sync and async tools that stops at one place until it is told to go on."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence
from dataclasses import dataclass
from threading import Event, current_thread
from typing import Any

from tests.agent import calls, says, task
from turnledger.ledger import Ledger
from turnledger.runtime import (
    InProcessEventBus,
    MainLoop,
    Prompt,
    ProviderAdapter,
    Reply,
    Request,
    Session,
    ThrottledError,
    ThrottlePolicy,
    ToolContext,
)
from turnledger.runtime.agent.models.request import Sending
from turnledger.runtime.agent.tools.function_tool import tool
from turnledger.runtime.agent.tools.tool import OnInterrupt
from turnledger.runtime.errors import ScopeClosedError

LONG = 30.0
SCRIPT = (
    calls(("a", "look", '{"what": "shelf"}'), ("b", "pay", '{"euros": 5}'), ("c", "note")),
    calls(("d", "note"), text="One more."),
    says("All is done."),
)


@dataclass(frozen=True)
class Order:
    number: int = 1


@dataclass(frozen=True)
class Noted:
    call_id: str


class Gate:
    """Stops the first that passes a place, until `go`. Everything that passes is listed."""

    def __init__(self, place: str | None = None) -> None:
        self.place = place
        self.reached, self.go, self.left = Event(), Event(), Event()
        self.cancelled = False
        self.passed: list[str] = []

    def _stops(self, place: str) -> bool:
        self.passed.append(place)
        return place == self.place and not self.reached.is_set()

    def block(self, place: str) -> None:
        """Stop this thread."""
        if self._stops(place):
            self.reached.set()
            try:
                assert self.go.wait(LONG)
            finally:
                self.left.set()

    async def wait(self, place: str) -> None:
        """Stop this task."""
        if self._stops(place):
            self.reached.set()
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                self.cancelled = True
                raise
            finally:
                self.left.set()


class GatedModel(ProviderAdapter[Any]):
    """A model with a script; its places are "model", and "stream" between two pieces of text."""

    name = "gated"

    def __init__(self, gate: Gate, replies: Sequence[Reply], **options: Any) -> None:
        super().__init__(
            model="m", throttle=ThrottlePolicy(jitter=False, max_attempts=2), **options
        )
        self.gate = gate
        self.replies = replies
        self.threads: set[str] = set()

    def encode(self, request: Request) -> int:
        return request.turn

    def send(self, payload: int, sending: Sending) -> Any:
        self.threads.add(current_thread().name)
        self.gate.block("model")
        self._throttle()
        for piece in self._pieces(payload, sending):
            assert sending.on_text is not None
            sending.on_text(piece)
            self.gate.block("stream")
        return payload

    def _throttle(self) -> None:
        if self.gate.place == "retry" and not self.gate.reached.is_set():
            self.gate.reached.set()
            raise ThrottledError("Slow down.", retry_after=60)

    def _pieces(self, payload: int, sending: Sending) -> list[str]:
        text = self.replies[payload - 1].text or ""
        return re.findall(r"\s*\S+", text) if sending.on_text is not None else []

    def decode(self, raw: int) -> Reply:
        return self.replies[raw - 1]


class AsyncGatedModel(GatedModel):
    """The same, awaited."""

    async def send_async(self, payload: int, sending: Sending) -> Any:
        self.threads.add(current_thread().name)
        await self.gate.wait("model")
        self._throttle()
        for piece in self._pieces(payload, sending):
            assert sending.on_text is not None
            sending.on_text(piece)
            await self.gate.wait("stream")
        return payload


class GatedLoop(MainLoop[Order, Any]):
    """Three tools: `look` is async, `pay` is sync, `note` changes the session."""

    def __init__(
        self,
        gate: Gate,
        ledger: Ledger,
        model: type[GatedModel] = GatedModel,
        *,
        on_interrupt: OnInterrupt = "retry",
        **options: Any,
    ) -> None:
        self.on_interrupt = on_interrupt
        self.gate = gate
        self.bus = InProcessEventBus()
        self.refused: list[str] = []
        self.look_threads: set[str] = set()
        super().__init__(adapter=model(gate, SCRIPT, **options), bus=self.bus, ledger=ledger)

    def create_session(self) -> Session:
        return Session(bus=self._bus)

    def create_prompt(self, request: Order) -> Prompt[Any]:
        self.gate.block("prompt")

        @tool(on_interrupt=self.on_interrupt)
        async def look(what: str) -> str:
            """Look at something."""
            self.look_threads.add(current_thread().name)
            await self.gate.wait("async tool")
            return f"The {what} is empty."

        @tool(on_interrupt=self.on_interrupt)
        def pay(euros: int) -> str:
            """Pay an amount."""
            self.gate.block("sync tool")
            return f"Paid {euros}."

        @tool(on_interrupt=self.on_interrupt)
        def note(context: ToolContext) -> str:
            """Note the call."""
            self.gate.block("note")
            try:
                context.session[Noted].append(Noted(context.call_id))
            except ScopeClosedError as error:
                self.refused.append(str(error))
                raise
            return "Noted."

        return task(request, "Do it.", [look, pay, note])
