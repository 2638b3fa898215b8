"""The providers that pages talk to: strict servers on loopback, and the environment that says so.

A page is written as a reader would write it: the SDKs find address and key in the environment.
What a server answers depends on the question that a request holds, and on the turn.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from threading import Lock
from types import TracebackType
from typing import Any, Self

from tests.servers.anthropic_messages import AnthropicMessages
from tests.servers.gemini_contents import GeminiContents
from tests.servers.openai_chat import OpenAIChat
from tests.servers.openai_responses import OpenAIResponses
from tests.servers.serving import (
    Answer,
    Asked,
    Call,
    HalfStream,
    Hang,
    Script,
    Scripted,
    Status,
    StrictServer,
    Used,
    Wire,
)

# The server that speaks OpenAI's format, where a reader writes the address of their own.
LOCAL = "http://localhost:8000/v1"
ADAPTERS = ("OpenAIAdapter", "LiteLLMAdapter", "AnthropicAdapter", "GeminiAdapter")
# What would lead a page somewhere else, or have it behave otherwise, on a reader's machine.
OTHERS = ("OPENAI_", "ANTHROPIC_", "GEMINI_", "GOOGLE_", "LITELLM_")
# What an agent's `model` names instead of an adapter: "openai:gpt-5".
MODEL = re.compile(r"""["'](?:openai|litellm|anthropic|gemini):[\w.-]""")
# A provider's SDK, or a framework that asks OpenAI unless it is told otherwise.
SDK = re.compile(r"^from (?:agents|anthropic|google\.adk\.agents|openai) import", re.MULTILINE)
STORY = Answer("A gull stole a hat. The hat did not mind.")
# For each question what comes for each turn, attempt by attempt; the last of them comes again.
ANSWERS: Mapping[str, Sequence[Sequence[Scripted]]] = {
    "How warm is it in Lisbon?": (
        [
            Answer(
                calls=(Call("temperature", '{"city": "Lisbon"}'),),
                thinking="I have to measure.",
                used=Used(input=1200, output=80, cached=1000, reasoning=40),
            )
        ],
        [Answer("It is 21 degrees.", used=Used(input=1300, output=20, cached=1200, reasoning=0))],
    ),
    "Where does the Tagus end?": ([Answer('{"city": "Lisbon"}')],),
    "Name a river.": ([Answer("The Tagus.")],),
    "Name all rivers.": ([Answer("The Tagus, the", finish="max_tokens")],),
    "Is anybody there?": ([Status(503, headers={"retry-after": "0"}), Answer("Yes.")],),
    "Count to infinity.": ([Hang()],),
    "My invoice is wrong.": (
        [Answer(calls=(Call("credit", '{"euros": 20, "reason": "invoice"}', "call_1"),))],
        [Answer('{"priority": "high", "reply": "You get 20 EUR back."}')],
    ),
    "What do these show?": ([Answer("A hat and a dress.")],),
    "Take the dress from the second image": ([Answer("Done.")],),
    "Tell me a story.": ([STORY],),
    "Tell me a story twice.": ([HalfStream(STORY, 3), STORY],),
}


class OpenAI(Wire):
    """Both of OpenAI's formats at one address, as OpenAI has them."""

    def __init__(self) -> None:
        self._chat, self._responses = OpenAIChat(), OpenAIResponses()

    def _of(self, path: str) -> Wire:
        return self._responses if path.partition("?")[0].endswith("/responses") else self._chat

    def check(self, method: str, path: str, headers: dict[str, str], body: Any) -> None:
        self._of(path).check(method, path, headers, body)

    def streams(self, path: str, body: dict[str, Any]) -> bool:
        return self._of(path).streams(path, body)

    def turn(self, body: dict[str, Any]) -> int:
        return (self._responses if "input" in body else self._chat).turn(body)

    def whole(self, asked: Asked, answer: Answer) -> dict[str, Any]:
        return self._of(asked.path).whole(asked, answer)

    def stream(self, asked: Asked, answer: Answer) -> Sequence[bytes]:
        return self._of(asked.path).stream(asked, answer)

    def error(
        self, status: int, message: str, kind: str | None = None, **more: Any
    ) -> dict[str, Any]:
        return self._chat.error(status, message, kind, **more)


def answering() -> Script:
    """Answers by the question and the turn, and counts the attempts at each."""
    attempts: Counter[tuple[str, int]] = Counter()
    lock = Lock()

    def script(asked: Asked) -> Scripted:
        said = json.dumps(asked.body)
        question = next((one for one in ANSWERS if one in said), None)
        if question is None:
            return Status(400, "no script answers what the page asks")
        turns = ANSWERS[question]
        turn = min(asked.turn, len(turns))
        with lock:
            attempt = attempts[question, turn]
            attempts[question, turn] += 1
        return turns[turn - 1][min(attempt, len(turns[turn - 1]) - 1)]

    return script


class Providers:
    """All of them, up and running; use it in a `with`."""

    def __init__(self) -> None:
        self._ending = ExitStack()
        self._servers: list[StrictServer] = []
        self.environment: dict[str, str] = {}
        self.addresses: dict[str, str] = {}

    def __enter__(self) -> Self:
        openai, anthropic, gemini = map(self._start, (OpenAI, AnthropicMessages, GeminiContents))
        self.environment = {
            "OPENAI_BASE_URL": f"{openai}/v1",
            "OPENAI_API_KEY": "a key",
            "ANTHROPIC_BASE_URL": anthropic,
            "ANTHROPIC_API_KEY": "a key",
            "GOOGLE_GEMINI_BASE_URL": gemini,
            "GEMINI_API_KEY": "a key",
            # The Agents SDK would send traces to OpenAI.
            "OPENAI_AGENTS_DISABLE_TRACING": "1",
            # LiteLLM would look on the network for which headers Anthropic takes.
            "LITELLM_LOCAL_ANTHROPIC_BETA_HEADERS": "True",
            "NO_PROXY": "127.0.0.1",
        }
        self.addresses = {LOCAL: f"{openai}/v1"}
        return self

    def _start(self, wire: Callable[[], Wire]) -> str:
        server = self._ending.enter_context(StrictServer(wire(), answering()))
        self._servers.append(server)
        return server.url

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._ending.close()

    @property
    def asked(self) -> int:
        """How many requests they took."""
        return sum(len(server.asked) for server in self._servers)

    @property
    def refused(self) -> list[str]:
        """What they would not take, in their own words."""
        return [str(refused) for server in self._servers for refused in server.refused]


def are_needed(texts: Sequence[str]) -> bool:
    """Whether one of these snippets uses a provider."""
    return any(adapter in text for text in texts for adapter in ADAPTERS) or any(
        MODEL.search(text) or SDK.search(text) for text in texts
    )
