"""`wrap`: a new client of the same type and settings; the given one stays as it is."""

from __future__ import annotations

import asyncio
import gc
from typing import Any

import httpx
import httpx2
import pytest
from anthropic import Anthropic, AsyncAnthropic
from google import genai
from openai import AsyncOpenAI, OpenAI

import turnledger
from tests.servers.serving import Answer, StrictServer, replies
from tests.unit.adapters.clients.wrapped import Way
from turnledger.adapters import UnsupportedClientError
from turnledger.ledger import InvalidInputError, Ledger
from turnledger.runtime.steps import run


@pytest.mark.parametrize("kind", [OpenAI, AsyncOpenAI, Anthropic, AsyncAnthropic])
def test_a_wrapped_client_has_the_settings_of_the_given_one(kind: Any) -> None:
    """Keys, address, time limits and headers; but its retries are the transport's."""
    given = kind(
        api_key="k", base_url="http://127.0.0.1:9/x", timeout=7.0, default_headers={"a": "b"}
    )
    before = given._client._transport
    made = turnledger.wrap(given)
    assert type(made) is kind
    assert made is not given
    assert made._client is not given._client
    assert (made.api_key, made.base_url, made.timeout) == ("k", given.base_url, 7.0)
    assert made.default_headers["a"] == "b"
    assert made._client.timeout == given._client.timeout
    assert made.max_retries == 0
    assert given.max_retries == 2
    assert given._client._transport is before


def test_a_wrapped_google_client_is_a_client_of_its_own() -> None:
    """All of its parts go through the wrapped transport, and none of the given one's do."""
    given = genai.Client(api_key="k", http_options={"base_url": "http://127.0.0.1:9", "timeout": 7})
    made = turnledger.wrap(given)
    assert type(made) is genai.Client
    api = made._api_client
    assert api is not given._api_client
    assert all(part._api_client is api for part in (made.models, made.aio.models, made.files))
    assert given.models._api_client is given._api_client
    assert api._http_options.timeout == 7
    assert given._api_client._http_options.httpx_async_client is None
    assert api._httpx_client._transport.inner is given._api_client._httpx_client._transport


@pytest.mark.parametrize("client", [object(), "OpenAI", httpx.Client, OpenAI])
def test_anything_else_is_refused_with_what_is_supported(client: object) -> None:
    """A class is not a client, and a client of another SDK is none that is known."""
    with pytest.raises(UnsupportedClientError, match=r"AsyncAnthropic, google.genai.Client"):
        turnledger.wrap(client)


def test_a_client_is_wrapped_once_and_with_a_known_policy() -> None:
    """Twice would record each request inside of itself."""
    given = OpenAI(api_key="k")
    with pytest.raises(InvalidInputError, match="wrapped already"):
        turnledger.wrap(turnledger.wrap(given))
    with pytest.raises(InvalidInputError, match="on_interrupt"):
        turnledger.wrap(given, on_interrupt="never")  # type: ignore[arg-type]


@pytest.mark.process
@pytest.mark.parametrize("sdk", ["openai-chat", "gemini"])
def test_the_given_client_may_be_forgotten(sdk: str) -> None:
    """`wrap(OpenAI())`: its connections must not be closed by the garbage collector."""
    way = Way(sdk, "sync", stream=False)
    with StrictServer(way.wire, replies(Answer("Hello."))) as server:
        client = turnledger.wrap(way.client(server.url))
        gc.collect()
        for _ in range(2):
            assert asyncio.run(way.ask(client, [("user", "Hello?")])) == "Hello."
        client.close()
        del client
        gc.collect()


@pytest.mark.parametrize("http", [httpx, httpx2], ids=["httpx", "httpx2"])
def test_an_own_http_client_keeps_its_transport_and_its_settings(http: Any) -> None:
    """The recording lies over it, with classes of the HTTP module that it is of."""
    seen: list[str] = []

    def answer(request: Any) -> Any:
        seen.append(request.headers["x-mine"])
        return http.Response(200, json={"object": "list", "data": [], "model": "m"})

    own = http.Client(transport=http.MockTransport(answer), headers={"x-mine": "yes"})
    client = turnledger.wrap(OpenAI(api_key="k", base_url="http://127.0.0.1:9", http_client=own))
    with Ledger.open("memory://") as ledger:
        for _ in range(2):
            with run("own", ledger=ledger):
                assert client.models.list().data == []
    assert seen == ["yes"]
    assert own._transport is not client._client._transport
