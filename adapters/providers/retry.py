"""Retry advice: whether a provider's error passes by waiting, whichever SDK raised it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime

from turnledger.ledger import TurnledgerError
from turnledger.runtime.agent.models import RetryAdvice, retry_advice
from turnledger.runtime.loop.perform.failures import BadReplyError

# Timeouts, conflicts and too many requests; what the server did wrong is all from 500 on.
_RETRYABLE = frozenset({408, 409, 425, 429})
# A quota that is used up does not fill by waiting.
_NOT_BY_WAITING = ("insufficient_quota", "billing_hard_limit_reached")
# The providers' words for what passes, where an error has no status: in the middle of a stream.
PASSING = frozenset(
    {
        "api_error",
        "internal_server_error",
        "overloaded_error",
        "rate_limit_error",
        "rate_limit_exceeded",
        "server_error",
        "service_unavailable",
        "timeout_error",
        "vector_store_timeout",
    }
)
# Errors of a connection, by the names of their classes: those of httpx and aiohttp, and what SDKs
# make of them.
_CONNECTION = frozenset(
    {
        "TransportError",
        "ClientConnectionError",
        "ClientPayloadError",
        "APIConnectionError",
        "APITimeoutError",
        "Timeout",
        "ServiceUnavailableError",
    }
)
# What fails before anything is sent: an invalid address, a client without a key.
_NEVER_SENT = frozenset({"UnsupportedProtocol", "LocalProtocolError", "OpenAIError"})


class InterruptedStreamError(TurnledgerError):
    """A stream ended before the answer did. Nothing of it counts; the call may be made again."""

    retryable = True


def advice_for(error: Exception) -> RetryAdvice:
    """Again after 408, 409, 425, 429 and from 500 on, and after a connection that broke.

    Not again after a quota that is used up, nor after what would fail the same way. A reply
    that can't be read is asked for again only if it says itself that this will help.
    """
    if isinstance(error, BadReplyError) and isinstance(error.__cause__, Exception):
        return retry_advice(error.__cause__)
    own = retry_advice(error)
    if own.retryable:
        return own
    words = _words(error)
    if words.intersection(_NOT_BY_WAITING) or _was_never_sent(error):
        return RetryAdvice(False)
    status = _status(error)
    if status is None or status < 400:
        return RetryAdvice(bool(words & PASSING) or _is_of_a_connection(error))
    headers = _headers(error)
    wish = headers.get("x-should-retry")
    if wish in ("true", "false"):
        retryable = wish == "true"
    else:
        retryable = status in _RETRYABLE or status >= 500
    if status == 429 and any(word in str(error) for word in _NOT_BY_WAITING):
        retryable = False
    return RetryAdvice(retryable, _retry_after(headers) if retryable else None)


def _status(error: Exception) -> int | None:
    for name in ("status_code", "code"):
        found = getattr(error, name, None)
        if type(found) is int:
            return found
    return None


def _words(error: Exception) -> set[str]:
    """What a provider calls an error, wherever the SDK keeps that."""
    body = getattr(error, "body", None)
    inner = body.get("error") if isinstance(body, Mapping) else None
    said = [getattr(error, "code", None), getattr(error, "type", None)]
    for one in (body, inner):
        if isinstance(one, Mapping):
            said += [one.get("code"), one.get("type")]
    return {word for word in said if isinstance(word, str)}


def _was_never_sent(error: Exception) -> bool:
    """Whether the request didn't get out, and won't: whatever was made of that afterwards."""
    # Any of them: the first may be one that the caller was handling, and not of this request.
    return any(
        type(one).__name__ in _NEVER_SENT and _status(one) is None for one in _back_from(error)
    )


def _back_from(error: Exception) -> Iterator[Exception]:
    """An error, and those that it was made of, back to the first."""
    seen: BaseException | None = error
    while isinstance(seen, Exception):
        yield seen
        seen = seen.__cause__ or seen.__context__


def _is_of_a_connection(error: Exception) -> bool:
    if isinstance(error, ConnectionError | TimeoutError):
        return True
    return any(kind.__name__ in _CONNECTION for kind in type(error).__mro__)


def _headers(error: Exception) -> Mapping[str, str]:
    """The answer's headers; LiteLLM keeps them beside an answer that it makes up."""
    for found in (
        getattr(getattr(error, "response", None), "headers", None),
        getattr(error, "litellm_response_headers", None),
    ):
        if found and hasattr(found, "items"):
            return {str(name).lower(): str(value) for name, value in found.items()}
    return {}


def _retry_after(headers: Mapping[str, str]) -> timedelta | None:
    """The wait that a provider asks for, in milliseconds, in seconds or until a moment."""
    try:
        if "retry-after-ms" in headers:
            return timedelta(milliseconds=float(headers["retry-after-ms"]))
        said = headers.get("retry-after", "")
        if not said:
            return None
        try:
            return timedelta(seconds=float(said))
        except ValueError:
            wait = parsedate_to_datetime(said) - datetime.now(UTC)
            return max(wait, timedelta(0))
    except (ValueError, OverflowError, TypeError):
        return None
