"""`wrap`: an SDK's client whose requests are durable steps inside of a run.

    client = turnledger.wrap(OpenAI())

The requests are recorded at the wire, by a transport in the client's own HTTP client, so that the
SDK's own parsing runs in a replay too.
"""

from __future__ import annotations

import copy
import sys
from collections.abc import Callable
from importlib.metadata import version
from typing import Any, TypeVar, get_args

from turnledger.adapters.clients.retries import Retries, StainlessRetries, TenacityRetries
from turnledger.adapters.clients.transport import (
    AsyncRecording,
    SyncRecording,
    recording_class,
)
from turnledger.adapters.clients.wire_call import Wrapping
from turnledger.ledger import InvalidInputError
from turnledger.ledger.arguments import explain_arguments
from turnledger.ledger.errors import short_repr
from turnledger.runtime.agent.tools.tool import OnInterrupt

ClientT = TypeVar("ClientT")
_HTTP = ("httpx", "httpx2")
_SUPPORTED = "OpenAI, AsyncOpenAI, Anthropic, AsyncAnthropic, google.genai.Client"


class UnsupportedClientError(InvalidInputError, TypeError):
    """`wrap` was given something that is not a client that it knows."""

    def __init__(self, client: object) -> None:
        kind = type(client)
        super().__init__(
            f"Can't wrap {short_repr(client)}: got {kind.__module__}.{kind.__qualname__}, expected "
            f"a client of one of these classes: {_SUPPORTED}. Make the call a step instead: "
            "@turnledger.step."
        )


@explain_arguments
def wrap(client: ClientT, *, on_interrupt: OnInterrupt = "retry") -> ClientT:
    """Wrap an SDK's client, so that its requests are durable steps inside of a run.

    The wrapped client is a new one of the same type with the same settings and connections; the
    one that was given is not changed. Outside of a run it is a plain client. Retries are made as
    often as the given client would have made them, and each failed attempt is recorded.

    Args:
        client: `OpenAI`, `AsyncOpenAI`, `Anthropic`, `AsyncAnthropic` or `google.genai.Client`.
        on_interrupt: What a resume does with a call of which nobody knows how it ended: "retry"
            sends it again, "fail" raises OutcomeUnknownError, "ask" raises DecisionRequiredError
            and lets the run wait.

    Raises:
        UnsupportedClientError: The client is of another class.
    """
    if on_interrupt not in get_args(OnInterrupt):
        raise InvalidInputError(
            f"Invalid on_interrupt {on_interrupt!r}: expected one of "
            f"{', '.join(get_args(OnInterrupt))}."
        )
    for kind in type(client).__mro__:
        make = _WRAPPERS.get((kind.__module__.partition(".")[0], kind.__name__))
        if make is not None:
            wrapped: ClientT = make(client, on_interrupt)
            return wrapped
    raise UnsupportedClientError(client)


# --- OpenAI and Anthropic ------------------------------------------------------------------


def _stainless(client: Any, on_interrupt: OnInterrupt) -> Any:
    sdk = next(
        kind.__module__.partition(".")[0]
        for kind in type(client).__mro__
        if kind.__module__.partition(".")[0] in ("openai", "anthropic")
    )
    base = getattr(sys.modules[sdk], "OpenAIError" if sdk == "openai" else "AnthropicError")
    http_client = _recording_client(
        client._client, sdk, on_interrupt, StainlessRetries(client), client, base
    )
    return client.with_options(http_client=http_client, max_retries=0)


# --- google-genai -----------------------------------------------------------------------------


def _google(client: Any, on_interrupt: OnInterrupt) -> Any:
    """A copy of the client over a copy of its API client, which all of its parts share."""
    given = client._api_client
    if given._use_google_auth_sync() or given._use_google_auth_async():
        raise InvalidInputError(
            "Can't wrap this client: with a client certificate (mTLS) its requests go through "
            "google-auth, which has another HTTP client. Make the calls steps instead: "
            "@turnledger.step."
        )
    errors = sys.modules["google.genai.errors"]
    api = copy.copy(given)
    for name, retrying in (("_httpx_client", "_retry"), ("_async_httpx_client", "_async_retry")):
        rules = getattr(given, retrying)
        retries = TenacityRetries(rules, lambda status: errors.APIError(status, {}))
        http_client = _recording_client(
            getattr(given, name), "google-genai", on_interrupt, retries, client, None
        )
        setattr(api, name, http_client)
        setattr(api, retrying, rules.copy(stop=_once))
    # Named here, so that it is used instead of aiohttp.
    api._http_options = given._http_options.model_copy(
        update={"httpx_async_client": api._async_httpx_client, "retry_options": None}
    )
    return _rebound(client, given, api)


def _once(state: Any) -> bool:
    """A tenacity stop: after the first attempt."""
    return True


def _rebound(part: Any, given: Any, api: Any) -> Any:
    """A copy of a client, and of its parts, over another API client."""
    made = copy.copy(part)
    for name, value in vars(part).items():
        if value is given:
            setattr(made, name, api)
        elif given in getattr(value, "__dict__", {}).values():
            setattr(made, name, _rebound(value, given, api))
    return made


# --- HTTP clients -----------------------------------------------------------------------------


def _recording_client(
    client: Any,
    sdk: str,
    on_interrupt: OnInterrupt,
    retries: Retries,
    given: Any,
    base: type[Exception] | None,
) -> Any:
    """A copy of an HTTP client with all of its settings, whose transports record.

    Args:
        client: The HTTP client of the SDK's client.
        sdk: The SDK.
        on_interrupt: As of `wrap`.
        retries: The rules of the SDK's client.
        given: The SDK's client.
        base: The SDK's base class of errors, which it hands on as they are.
    """
    name = next(
        root
        for kind in type(client).__mro__
        if (root := kind.__module__.partition(".")[0]) in _HTTP
    )
    http = sys.modules[name]
    wrapping = Wrapping(sdk, version(sdk), http, on_interrupt, base)
    kind = SyncRecording if isinstance(client, http.Client) else AsyncRecording
    make = recording_class(kind, http)

    def recording(transport: Any) -> Any:
        if isinstance(transport, SyncRecording | AsyncRecording):
            raise InvalidInputError("This client is wrapped already: wrap a client once.")
        return None if transport is None else make(transport, wrapping, retries, given)

    made = copy.copy(client)
    made._transport = recording(client._transport)
    made._mounts = {pattern: recording(one) for pattern, one in client._mounts.items()}
    return made


_WRAPPERS: dict[tuple[str, str], Callable[[Any, OnInterrupt], Any]] = {
    ("openai", "OpenAI"): _stainless,
    ("openai", "AsyncOpenAI"): _stainless,
    ("anthropic", "Anthropic"): _stainless,
    ("anthropic", "AsyncAnthropic"): _stainless,
    ("google", "Client"): _google,
}
