"""What errors of providers say about trying again: those of SDKs, of connections and of streams."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import Any

import httpx
import openai
import pytest

from tests.servers.openai_chat import OpenAIChat
from tests.servers.serving import Answer, CutBody, HalfStream, Hang, Raw, Scripted, StrictServer
from tests.servers.serving import Status as Refusal
from tests.unit.adapters.conversations import begun
from tests.unit.adapters.conversations import request as asked
from turnledger.adapters.providers.openai.adapter import OpenAIAdapter
from turnledger.adapters.providers.openai.responses import FailedResponseError
from turnledger.adapters.providers.retry import InterruptedStreamError, advice_for
from turnledger.runtime.agent.models import RetryAdvice, Sending
from turnledger.runtime.loop.perform.failures import BadReplyError

REQUEST = httpx.Request("POST", "http://127.0.0.1/")
NO, YES = RetryAdvice(False), RetryAdvice(True)


def status_error(
    status: int, body: Any = None, message: str = "sorry", **headers: str
) -> openai.APIStatusError:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    answer = httpx.Response(status, headers=named, request=REQUEST)
    return openai.APIStatusError(message, response=answer, body=body)


# --- by status ---


@pytest.mark.parametrize("status", [408, 409, 425, 429, 500, 502, 503, 504, 529])
def test_what_passes_is_tried_again(status: int) -> None:
    """Timeouts, conflicts, too many requests and everything that the server did wrong."""
    assert advice_for(status_error(status)) == YES


@pytest.mark.parametrize("status", [400, 401, 402, 403, 404, 413, 422])
def test_what_would_fail_the_same_way_is_not(status: int) -> None:
    """The request is wrong, or the one who sends it."""
    assert advice_for(status_error(status)) == NO


@pytest.mark.parametrize(
    "error",
    [
        status_error(429, {"code": "insufficient_quota", "type": "insufficient_quota"}),
        status_error(429, {"error": {"code": "billing_hard_limit_reached"}}),
        status_error(429, message="Error code: 429 - {'code': 'insufficient_quota'}"),
    ],
)
def test_a_quota_that_is_used_up_is_not_waited_for(error: Exception) -> None:
    """Wherever the error says so."""
    assert advice_for(error) == NO


@pytest.mark.parametrize(("status", "wish", "advice"), [(400, "true", YES), (500, "false", NO)])
def test_what_the_server_wishes_comes_first(status: int, wish: str, advice: RetryAdvice) -> None:
    """It knows better than its status."""
    assert advice_for(status_error(status, x_should_retry=wish)) == advice


@pytest.mark.parametrize(
    ("headers", "wait"),
    [
        ({"retry_after": "2"}, timedelta(seconds=2)),
        ({"retry_after": "0.5"}, timedelta(seconds=0.5)),
        ({"retry_after_ms": "1500", "retry_after": "9"}, timedelta(seconds=1.5)),
        ({"retry_after": "soon"}, None),
        ({"retry_after": "nan"}, None),
        ({"retry_after": "1e300"}, None),
    ],
)
def test_the_wait_that_is_asked_for_is_kept(
    headers: dict[str, str], wait: timedelta | None
) -> None:
    """In seconds or milliseconds; nonsense is none."""
    assert advice_for(status_error(429, **headers)) == RetryAdvice(True, wait)


def test_a_wait_until_a_moment_is_one_too() -> None:
    """A moment that is over is no wait."""
    past = format_datetime(datetime(2020, 1, 1, tzinfo=UTC), usegmt=True)
    assert advice_for(status_error(503, retry_after=past)).retry_after == timedelta(0)


# --- without a status ---


@pytest.mark.parametrize(
    "error",
    [
        httpx.RemoteProtocolError("peer closed connection"),
        httpx.ReadTimeout("timed out"),
        httpx.ConnectError("refused"),
        httpx.ReadError("reset"),
        ConnectionResetError(),
        TimeoutError(),
        openai.APIConnectionError(request=REQUEST),
        openai.APITimeoutError(request=REQUEST),
        InterruptedStreamError("the stream ended before the answer did"),
        openai.APIError("overloaded", REQUEST, body={"type": "server_error"}),
        status_error(200, {"type": "error", "error": {"type": "overloaded_error"}}),
        FailedResponseError("sorry", "server_error"),
    ],
)
def test_a_connection_or_a_stream_that_broke_is_tried_again(error: Exception) -> None:
    """Also in the middle of an answer, where the status was a good one."""
    assert advice_for(error).retryable


@pytest.mark.parametrize(
    "error",
    [
        ValueError("?"),
        openai.OpenAIError("Missing credentials"),
        openai.APIError("bad", REQUEST, body={"type": "invalid_request_error"}),
        httpx.UnsupportedProtocol("ftp"),
        FailedResponseError("sorry", "invalid_prompt"),
        status_error(200, {"type": "error", "error": {"type": "invalid_request_error"}}),
    ],
)
def test_other_errors_are_not_tried_again(error: Exception) -> None:
    """Nothing in them passes by itself."""
    assert advice_for(error) == NO


def test_an_address_that_is_none_is_not_tried_again_whoever_wraps_it() -> None:
    """An SDK calls it an error of the connection."""
    error = openai.APIConnectionError(request=REQUEST)
    error.__cause__ = httpx.UnsupportedProtocol("ftp")
    assert advice_for(error) == NO


@pytest.mark.parametrize(("code", "advice"), [("server_error", True), ("invalid_prompt", False)])
def test_a_reply_that_says_that_it_failed_is_asked_for_again(code: str, advice: bool) -> None:
    """If it says that this helps; one that can't be read otherwise is not."""
    error = BadReplyError("can't be read")
    error.__cause__ = FailedResponseError("sorry", code)
    assert advice_for(error).retryable is advice
    assert advice_for(BadReplyError("can't be read")) == NO


# --- through the SDKs, from a server ---


@contextmanager
def server(fault: Scripted) -> Iterator[StrictServer]:
    with StrictServer(OpenAIChat(), lambda _: fault) as strict:
        yield strict


def raised(strict: StrictServer, sdk: str, *, stream: bool = False) -> Exception:
    """What an adapter raises against this server."""
    adapter: Any
    if sdk == "openai":
        said = {"base_url": f"{strict.url}/v1", "api_key": "k"}
        adapter = OpenAIAdapter(model="gpt-4o", client_kwargs=said)
    else:
        from turnledger.adapters.providers.litellm import LiteLLMAdapter

        said = {"api_base": f"{strict.url}/v1", "api_key": "k"}
        adapter = LiteLLMAdapter(model="openai/gpt-4o", completion_kwargs=said)
    payload = adapter.encode(asked(begun(), model=adapter.model))
    sending = Sending(timeout=0.5, on_text=(lambda _: None) if stream else None)
    with adapter, pytest.raises(Exception) as caught:
        adapter.decode(adapter.send(payload, sending))
    return caught.value


FAULTS = {
    "slow": (Refusal(429, headers={"retry-after": "2"}), RetryAdvice(True, timedelta(seconds=2))),
    "quota": (Refusal(429, kind="insufficient_quota"), NO),
    "broken": (Refusal(500), YES),
    "overloaded": (Refusal(503), YES),
    "wrong": (Refusal(400), NO),
    "unknown": (Refusal(404), NO),
    "a stranger": (Refusal(401), NO),
    "silent": (Hang(), YES),
    "cut": (CutBody(Answer("hello there")), YES),
}


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("sdk", ["openai", "litellm"])
@pytest.mark.parametrize("fault", FAULTS)
def test_every_sdk_is_understood(fault: str, sdk: str, stream: bool, real_litellm: None) -> None:
    """The same fault is the same advice, whole and streamed."""
    given, advice = FAULTS[fault]
    with server(given) as strict:
        assert advice_for(raised(strict, sdk, stream=stream)) == advice
        assert len(strict.asked) == 1


@pytest.mark.parametrize("sdk", ["openai", "litellm"])
@pytest.mark.parametrize(
    "fault",
    [
        HalfStream(Answer("hello there")),
        Raw(
            b'data: {"error": {"message": "sorry", "type": "server_error"}}\n\n',
            content_type="text/event-stream",
        ),
    ],
    ids=["half", "an error"],
)
def test_a_stream_that_does_not_end_well_is_asked_for_again(
    fault: Scripted, sdk: str, real_litellm: None
) -> None:
    """Half an answer is none, and an error within a stream is one."""
    with server(fault) as strict:
        assert advice_for(raised(strict, sdk, stream=True)).retryable


def test_a_missing_key_is_not_tried_again(
    monkeypatch: pytest.MonkeyPatch, real_litellm: None
) -> None:
    """LiteLLM makes a 500 of it, though nothing was sent."""
    from turnledger.adapters.providers.litellm import LiteLLMAdapter

    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    adapter: LiteLLMAdapter[Any] = LiteLLMAdapter(model="openai/gpt-4o")
    payload = adapter.encode(asked(begun(), model=adapter.model))
    with pytest.raises(Exception, match="credentials") as caught:
        adapter.send(payload, Sending())
    assert advice_for(caught.value) == NO
    try:
        raise OSError("of the caller, who asks while handling it")
    except OSError:
        with pytest.raises(Exception, match="credentials") as caught:
            adapter.send(payload, Sending())
    assert advice_for(caught.value) == NO
