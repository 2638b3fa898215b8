"""Retries: how often and when a request is sent again, by the rules of the SDK that made it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, Protocol


class Retries(Protocol):
    """The rules of one client.

    Attributes:
        most: How often a request is sent again at most.
    """

    most: int

    def wants(self, failed: Any) -> bool:
        """Whether a failed attempt may be repeated: a response, or the exception that came."""
        ...

    def delay(self, taken: int, failed: Any) -> float:
        """Seconds until the next attempt; `taken` counts the retries before it."""
        ...


def wait_before(retries: Retries, taken: int, failed: Any) -> float | None:
    """Seconds until a request is sent again; None if the attempt was the last.

    Args:
        retries: The rules.
        taken: How often it was sent again already.
        failed: A response, or the exception that came instead.
    """
    succeeded = not isinstance(failed, Exception) and not failed.is_error
    if succeeded or taken >= retries.most or not retries.wants(failed):
        return None
    return retries.delay(taken, failed)


class StainlessRetries:
    """The rules of the SDKs of OpenAI and Anthropic, asked of the client itself.

    They are its status codes, its backoff, and the headers that it honours: `x-should-retry`,
    `retry-after` and `retry-after-ms`.

    Args:
        client: The client that was given to `wrap`.
    """

    def __init__(self, client: Any) -> None:
        self._client = client
        self.most: int = client.max_retries

    def wants(self, failed: Any) -> bool:
        return isinstance(failed, Exception) or bool(self._client._should_retry(failed))

    def delay(self, taken: int, failed: Any) -> float:
        # What the client asks of a request's options is how often it may be repeated.
        options = SimpleNamespace(get_max_retries=lambda most: most)
        headers = None if isinstance(failed, Exception) else failed.headers
        left = self.most - taken
        return float(self._client._calculate_retry_timeout(left, options, headers))


class TenacityRetries:
    """The rules of google-genai: those of the `retry_options` of its client; none without them.

    Args:
        retrying: The client's `tenacity.Retrying`.
        status_error: Makes the SDK's error of a response's status.
    """

    def __init__(self, retrying: Any, status_error: Any) -> None:
        self._retrying, self._status_error = retrying, status_error
        self.most: int = retrying.stop.max_attempt_number - 1

    def wants(self, failed: Any) -> bool:
        error = failed if isinstance(failed, Exception) else self._status_error(failed.status_code)
        return bool(self._retrying.retry.predicate(error))

    def delay(self, taken: int, failed: Any) -> float:
        return float(self._retrying.wait(SimpleNamespace(attempt_number=taken + 1)))
