"""Every provider and wire format, each with its strict server: one line here is one more.

A provider can't opt out of a test. What its format can't say it declares in its capabilities,
and the test then checks the clear error.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from tests.quiet_litellm import litellm_as_it_is
from tests.servers.anthropic_messages import AnthropicMessages
from tests.servers.gemini_contents import GeminiContents
from tests.servers.openai_chat import OpenAIChat
from tests.servers.openai_responses import OpenAIResponses
from tests.servers.serving import Script, StrictServer, Wire
from turnledger.adapters.providers.anthropic.adapter import AnthropicAdapter
from turnledger.adapters.providers.gemini.adapter import GeminiAdapter
from turnledger.adapters.providers.litellm import LiteLLMAdapter
from turnledger.adapters.providers.openai.adapter import OpenAIAdapter
from turnledger.adapters.providers.sdk import SdkAdapter
from turnledger.adapters.providers.wire import Capabilities
from turnledger.runtime import ThrottlePolicy

# Attempts are made at once: what is tested is whether, not how long after.
AT_ONCE = ThrottlePolicy(max_attempts=3, base_delay=timedelta(0), max_delay=timedelta(0))


@dataclass(frozen=True)
class Provider:
    """A wire format with its server, and the adapter that speaks it."""

    name: str
    wire: Callable[[], Wire]
    connect: Callable[..., SdkAdapter[Any]]
    # Whether its model shows its thoughts without being asked, to be sent back.
    thinks: bool = False

    def adapter(self, url: str, **options: Any) -> SdkAdapter[Any]:
        """An adapter whose provider is at this address; its client is the SDK's own."""
        return self.connect(url, **{"throttle": AT_ONCE, **options})

    @property
    def capabilities(self) -> Capabilities:
        return self.adapter("http://127.0.0.1:9").capabilities


def _openai(url: str, **options: Any) -> SdkAdapter[Any]:
    kwargs = {"api_key": "test", "base_url": f"{url}/v1"}
    return OpenAIAdapter(**{"model": "gpt-test", "client_kwargs": kwargs} | options)


def _responses(url: str, **options: Any) -> SdkAdapter[Any]:
    return _openai(url, wire_format="responses", **options)


def _litellm(url: str, **options: Any) -> SdkAdapter[Any]:
    kwargs = {"api_key": "test", "api_base": f"{url}/v1"}
    return LiteLLMAdapter(**{"model": "openai/gpt-test", "completion_kwargs": kwargs} | options)


def _anthropic(url: str, **options: Any) -> SdkAdapter[Any]:
    kwargs = {"api_key": "test", "base_url": url}
    return AnthropicAdapter(**{"model": "claude-test", "client_kwargs": kwargs} | options)


def _gemini(url: str, **options: Any) -> SdkAdapter[Any]:
    kwargs = {"api_key": "test", "http_options": {"base_url": url}}
    return GeminiAdapter(**{"model": "gemini-3-test", "client_kwargs": kwargs} | options)


PROVIDERS = {
    provider.name: provider
    for provider in (
        Provider("openai-chat", OpenAIChat, _openai),
        Provider("openai-responses", OpenAIResponses, _responses),
        Provider("litellm", OpenAIChat, _litellm),
        Provider("anthropic", AnthropicMessages, _anthropic, thinks=True),
        Provider("gemini", GeminiContents, _gemini, thinks=True),
    )
}


@dataclass
class UnderTest:
    """A provider whose server is up, with the adapter that is connected to it."""

    provider: Provider
    server: StrictServer
    stream: bool
    adapters: list[SdkAdapter[Any]]

    def adapter(self, **options: Any) -> SdkAdapter[Any]:
        made = self.provider.adapter(self.server.url, **{"stream": self.stream, **options})
        self.adapters.append(made)
        return made

    @property
    def capabilities(self) -> Capabilities:
        return self.provider.capabilities

    def tells(self, script: Script) -> None:
        """What the server answers from here on."""
        self.server.script = script


@contextmanager
def under_test(name: str, *, stream: bool = False) -> Iterator[UnderTest]:
    provider = PROVIDERS[name]
    quiet = litellm_as_it_is() if name == "litellm" else nullcontext()
    with quiet, StrictServer(provider.wire(), _unasked) as server:
        one = UnderTest(provider, server, stream, [])
        try:
            yield one
        finally:
            for adapter in one.adapters:
                adapter.close()


def _unasked(asked: Any) -> Any:
    raise AssertionError("the test gave the server no script")
