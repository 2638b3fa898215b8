"""Every SDK that `wrap` knows, with its strict server: sync and async, whole and streamed.

The SDKs are those of the environment that the tests run in, so that the same stories run with
others in `tests/frameworks/clients`.
"""

from __future__ import annotations

import asyncio
import warnings
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pytest

from tests.servers.anthropic_messages import AnthropicMessages
from tests.servers.gemini_contents import GeminiContents
from tests.servers.openai_chat import OpenAIChat
from tests.servers.openai_responses import OpenAIResponses
from tests.servers.serving import Script, StrictServer, Wire
from turnledger.adapters.clients.wrap import wrap
from turnledger.ledger import Event, Ledger, run_id_for

# A conversation in no SDK's words: who says what, in turn.
Said = list[tuple[str, str]]
SECRET_KEY = "sk-proj-abcdefghijklmnopqrstuvwxyz0123456789ABCD"


@dataclass(frozen=True)
class Way:
    """A client of an SDK, and how it is asked."""

    sdk: str
    colour: str
    stream: bool

    @property
    def wire(self) -> Wire:
        return _WIRES[self.sdk]()

    def __str__(self) -> str:
        return f"{self.sdk}-{self.colour}{'-stream' * self.stream}"

    def client(self, url: str, **options: Any) -> Any:
        """The SDK's own client."""
        return _CLIENTS[self.sdk](self.colour, url, options)

    async def ask(self, client: Any, said: Said, **options: Any) -> str:
        """The reply's text; the whole of a stream is read."""
        pieces = [piece async for piece in self.pieces(client, said, **options)]
        return "".join(pieces)

    async def pieces(self, client: Any, said: Said, **options: Any) -> Any:
        """The reply's text as it comes, and the stream closed when the reader leaves."""
        came = _ASKS[self.sdk](client, said, self.stream, options)
        came = await came if isinstance(came, Awaitable) else came
        if not self.stream:
            yield _TEXTS[self.sdk](came)
            return
        try:
            if hasattr(came, "__aiter__"):
                async for event in came:
                    yield _PIECES[self.sdk](event)
            else:
                for event in came:
                    yield _PIECES[self.sdk](event)
        finally:
            close = getattr(came, "close", None) or getattr(came, "aclose", None)
            closing = close() if close is not None else None
            if isinstance(closing, Awaitable):
                await closing


WAYS = [
    Way(sdk, colour, stream)
    for sdk in ("openai-chat", "openai-responses", "anthropic", "gemini")
    for colour in ("sync", "async")
    for stream in (False, True)
]
# `make test` runs these, of each SDK both colours or both forms; `make full` all.
_MAIN = {
    "openai-chat-sync",
    "openai-chat-async-stream",
    "openai-responses-sync-stream",
    "anthropic-sync-stream",
    "anthropic-async",
    "gemini-sync",
    "gemini-async-stream",
}


def cells(ways: Iterable[Way], always: Collection[str] = _MAIN) -> list[Any]:
    """Ways as parameters of a test; those that are not to run always are marked `full`."""
    return [
        pytest.param(way, id=str(way), marks=[] if str(way) in always else [pytest.mark.full])
        for way in ways
    ]


_WIRES: dict[str, Callable[[], Wire]] = {
    "openai-chat": OpenAIChat,
    "openai-responses": OpenAIResponses,
    "anthropic": AnthropicMessages,
    "gemini": GeminiContents,
}


# --- the SDKs -------------------------------------------------------------------------------


def _openai(colour: str, url: str, options: dict[str, Any]) -> Any:
    import openai

    kind = openai.OpenAI if colour == "sync" else openai.AsyncOpenAI
    return kind(**{"api_key": SECRET_KEY, "base_url": f"{url}/v1", **options})


def _anthropic(colour: str, url: str, options: dict[str, Any]) -> Any:
    import anthropic

    kind = anthropic.Anthropic if colour == "sync" else anthropic.AsyncAnthropic
    return kind(**{"api_key": SECRET_KEY, "base_url": url, **options})


def _gemini(colour: str, url: str, options: dict[str, Any]) -> Any:
    from google import genai

    retries = options.pop("max_retries", 0)
    more = {"retry_options": {"attempts": retries + 1, "initial_delay": 0.001, "jitter": 0.0}}
    timeout = options.pop("timeout", None)
    if timeout is not None:
        more["timeout"] = int(timeout * 1000)
    given = {"base_url": url, **(more if retries or timeout else {})}
    return genai.Client(**{"api_key": SECRET_KEY, "http_options": given, **options})


_CLIENTS: dict[str, Callable[[str, str, dict[str, Any]], Any]] = {
    "openai-chat": _openai,
    "openai-responses": _openai,
    "anthropic": _anthropic,
    "gemini": _gemini,
}


def _messages(said: Said) -> list[dict[str, str]]:
    return [{"role": role, "content": text} for role, text in said]


def _ask_chat(client: Any, said: Said, stream: bool, options: dict[str, Any]) -> Any:
    given = {"model": "gpt-test", "messages": _messages(said), **options}
    return client.chat.completions.create(**given, stream=stream)


def _ask_responses(client: Any, said: Said, stream: bool, options: dict[str, Any]) -> Any:
    given = {"model": "gpt-test", "input": _messages(said), **options}
    return client.responses.create(**given, stream=stream)


def _ask_anthropic(client: Any, said: Said, stream: bool, options: dict[str, Any]) -> Any:
    given = {"model": "claude-test", "max_tokens": 100, "messages": _messages(said), **options}
    return client.messages.create(**given, stream=stream)


def _ask_gemini(client: Any, said: Said, stream: bool, options: dict[str, Any]) -> Any:
    contents = [
        {"role": "model" if role == "assistant" else role, "parts": [{"text": text}]}
        for role, text in said
    ]
    model = options.pop("model", "gemini-3-test")
    models = client.models if isinstance(client, _sync_gemini()) else client
    asked = models.generate_content_stream if stream else models.generate_content
    return asked(model=model, contents=contents, **options)


def _sync_gemini() -> type:
    from google import genai

    return genai.Client


_ASKS: dict[str, Callable[[Any, Said, bool, dict[str, Any]], Any]] = {
    "openai-chat": _ask_chat,
    "openai-responses": _ask_responses,
    "anthropic": _ask_anthropic,
    "gemini": _ask_gemini,
}
_TEXTS: dict[str, Callable[[Any], str]] = {
    "openai-chat": lambda came: came.choices[0].message.content,
    "openai-responses": lambda came: came.output_text,
    "anthropic": lambda came: came.content[0].text,
    "gemini": lambda came: came.text,
}


def _anthropic_piece(event: Any) -> str:
    delta = event.delta if event.type == "content_block_delta" else None
    return getattr(delta, "text", "")


_PIECES: dict[str, Callable[[Any], str]] = {
    "openai-chat": lambda chunk: (chunk.choices[0].delta.content or "") if chunk.choices else "",
    "openai-responses": lambda event: (
        event.delta if event.type == "response.output_text.delta" else ""
    ),
    "anthropic": _anthropic_piece,
    "gemini": lambda chunk: chunk.text or "",
}


# --- under test ----------------------------------------------------------------------------


class Wrapped:
    """A wrapped client with its server and a ledger; `given` is the client that was wrapped."""

    def __init__(self, way: Way, server: StrictServer, ledger: Ledger) -> None:
        self.way, self.server, self.ledger = way, server, ledger
        self._given: list[Any] = []

    def client(self, *, on_interrupt: Any = "retry", **options: Any) -> Any:
        """A wrapped client, as `Way.ask` takes it."""
        given = self.way.client(self.server.url, **options)
        self._given.append(given)
        made = wrap(given, on_interrupt=on_interrupt)
        is_async_gemini = self.way.sdk == "gemini" and self.way.colour == "async"
        return made.aio.models if is_async_gemini else made

    @property
    def given(self) -> Any:
        return self._given[-1]

    def run(self, story: Callable[[], Awaitable[Any]]) -> Any:
        """Run a story in an event loop of its own, and close what it has opened."""

        async def main() -> Any:
            try:
                return await story()
            finally:
                for given in self._given:
                    await _closed(given)

        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "Inheritance class Aiohttp", DeprecationWarning)
            return asyncio.run(main())

    def events(self, name: str, *kinds: type[Event]) -> list[Any]:
        """The events of a run; only those of some kinds if they are given."""
        found = [record.event for record in self.ledger.read(run_id_for(name))]
        return [event for event in found if not kinds or isinstance(event, kinds)]

    def text(self, name: str) -> str:
        """All that is stored of a run."""
        return "\n".join(str(record.data) for record in self.ledger.read(run_id_for(name)))


async def _closed(given: Any) -> None:
    for owner in (given, getattr(given, "aio", None)):
        close = getattr(owner, "close", None) or getattr(owner, "aclose", None)
        closing = close() if close is not None else None
        if isinstance(closing, Awaitable):
            await closing


@contextmanager
def wrapped(way: Way, script: Script) -> Iterator[Wrapped]:
    """A wrapped client's surroundings: its server with a script, and a ledger in memory."""
    with StrictServer(way.wire, script) as server, Ledger.open("memory://") as ledger:
        yield Wrapped(way, server, ledger)
