"""What all strict servers do alike: each refuses what its provider refuses, and its SDK reads it.

One suite over all servers, each driven by its provider's own SDK (`sdks`). What only one of them
does is in the tests of that one.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from tests.servers.sdks import ANSWERS, SDKS, NewerGemini, Sdk, Sent, connected
from tests.servers.serving import (
    Answer,
    Asked,
    Call,
    CutBody,
    HalfStream,
    Hang,
    Raw,
    Status,
)

each_server = pytest.mark.parametrize("sdk", [*SDKS, NewerGemini], indirect=True)


def rows(table: str) -> Any:
    """A test for each row of a table that every SDK has."""
    given = [(sdk, row) for sdk in SDKS for row in getattr(sdk, table)]
    return pytest.mark.parametrize(("sdk", "row"), given, indirect=["sdk"])


@pytest.fixture
def sdk(request: pytest.FixtureRequest) -> Iterator[Any]:
    """An SDK, connected to its server, which says "fine" until it is told otherwise."""
    with connected(request.param) as made:
        yield made


# --- requests ---------------------------------------------------------------------------


@rows("refused")
def test_what_the_provider_refuses_is_refused(sdk: Sdk, row: str) -> None:
    """A malformed request gets 400, the provider's shape of an error, and its words."""
    error, kind = sdk.refusal
    messages = []
    for more in sdk.refused[row]:
        with pytest.raises(error) as caught:
            sdk.send({**sdk.least, **more})
        status, found, _, message = sdk.told(caught.value)
        assert (status, found) == (400, kind)
        assert row in message
        messages.append(message)
    assert [refused.message for refused in sdk.server.refused] == messages
    assert sdk.server.asked == []


@rows("params")
def test_an_error_says_which_parameter_it_was(sdk: Sdk, row: str) -> None:
    """An error names the parameter and has a code, where the provider's does."""
    with pytest.raises(sdk.refusal[0]) as caught:
        sdk.send({**sdk.least, **sdk.refused[row][0]})
    error: Any = caught.value
    assert (error.param, error.code) == sdk.params[row]


@rows("accepted")
def test_what_the_provider_takes_is_taken(sdk: Sdk, row: str) -> None:
    """A well-formed request is answered."""
    assert sdk.said(sdk.send({**sdk.least, **sdk.accepted[row]})) == "fine"


@rows("requests")
def test_a_request_needs_its_path_and_headers(sdk: Sdk, row: Sent) -> None:
    """Without a key, on another path or in another version it is refused with its own status."""
    _answered(sdk, row)


@pytest.mark.parametrize("body", [b"[1]", b"", b"{"])
@each_server
def test_a_body_is_a_json_object(sdk: Sdk, body: bytes) -> None:
    """Any other body gets 400."""
    _answered(sdk, Sent(400, sdk.refusal[1], body=body))


def _answered(sdk: Sdk, row: Sent) -> None:
    given = row.body
    if given is None:
        given = {**sdk.least, **next(iter(sdk.accepted.values()))}
    content = given if isinstance(given, bytes) else json.dumps(given).encode()
    headers = {
        "content-type": "application/json",
        **(sdk.key if row.headers is None else row.headers),
    }
    url = sdk.server.url + (row.path or sdk.path)
    answered = httpx.request(row.method, url, content=content, headers=headers, verify=False)
    error = answered.json().get("error") or {}
    kind = error.get("status", error.get("type"))
    assert (answered.status_code, kind) == (row.status, row.kind)
    assert row.words in error.get("message", "")


# --- replies ----------------------------------------------------------------------------


@pytest.mark.parametrize("name", [*ANSWERS, "cut"])
@each_server
def test_a_stream_amounts_to_the_whole(sdk: Sdk, name: str) -> None:
    """The SDK puts a stream together to the message, calls and usage of the whole reply."""
    sdk.tells(ANSWERS.get(name) or Answer("It is", finish=sdk.cut))
    assert sdk.streamed() == sdk.seen(sdk.reply())


@each_server
def test_a_stream_comes_in_pieces(sdk: Sdk) -> None:
    """A text comes in several events, and the end comes after it."""
    sdk.tells(Answer("Hello, world"))
    events = sdk.events()
    assert sdk.heard(events) == ("Hello, world", True)
    assert len(events) > 3


@each_server
def test_why_a_reply_ended(sdk: Sdk) -> None:
    """The reason goes with the answer, unless the script says another."""
    called, cut = Answer(calls=(Call("look"),)), Answer("It is", finish=sdk.cut)
    found = []
    for answer in (Answer("Yes"), called, cut, Answer(refusal="No.")):
        sdk.tells(answer)
        found.append(sdk.finish(sdk.reply()))
    assert tuple(found) == sdk.finishes


@each_server
def test_tokens_are_counted(sdk: Sdk) -> None:
    """Usage is told as the provider counts: with what was cached and what was thought."""
    sdk.tells(ANSWERS["everything"])
    assert sdk.used(sdk.reply()) == sdk.counts


@each_server
def test_a_conversation_goes_on(sdk: Sdk) -> None:
    """What the server said, sent back by the SDK as it came, is the next turn."""
    sdk.tells(ANSWERS["everything"], Answer(calls=(Call("look"),)), Answer("Found."))
    history = [sdk.hello]
    for _ in range(3):
        reply = sdk.reply(*history)
        history += sdk.following(reply)
    assert [asked.turn for asked in sdk.server.asked] == [1, 2, 3]
    assert sdk.text(reply) == "Found."


# --- faults -----------------------------------------------------------------------------


@rows("statuses")
def test_an_error_has_the_providers_shape(sdk: Sdk, row: Any) -> None:
    """A scripted status comes as the SDK's error for it, with its type, code and message."""
    status, error, kind, code = row
    sdk.tells(status)
    with pytest.raises(error) as caught:
        sdk.reply()
    assert sdk.told(caught.value) == (status.code, kind, code, status.message)
    assert len(sdk.server.asked) == 1


@each_server
def test_a_limit_says_when_to_come_back(sdk: Sdk) -> None:
    """429 has the headers that it was given, and the next attempt is counted."""

    def script(asked: Asked) -> Any:
        return Status(429, headers={"retry-after": "7"}) if asked.attempt == 1 else Answer("fine")

    sdk.server.script = script
    with pytest.raises(Exception) as caught:
        sdk.reply()
    assert caught.value.response.headers["retry-after"] == "7"  # type: ignore[attr-defined]
    assert sdk.text(sdk.reply()) == "fine"
    assert [asked.attempt for asked in sdk.server.asked] == [1, 2]


@each_server
def test_a_server_that_hangs(sdk: Sdk) -> None:
    """A client that waits in vain gives up by its own time limit."""
    sdk.tells(Hang())
    hasty = type(sdk)(sdk.server, timeout=0.2)  # type: ignore[call-arg]
    with pytest.raises(sdk.timeout):
        hasty.reply()
    hasty.client.close()


@each_server
def test_a_connection_that_breaks(sdk: Sdk) -> None:
    """Within the body or within a stream it is an error, and no shorter answer."""
    sdk.tells(CutBody(Answer("x" * 1000)))
    with pytest.raises(sdk.cut_body):
        sdk.reply()
    with pytest.raises(sdk.cut_stream):
        sdk.events()


@each_server
def test_a_stream_that_ends_too_soon(sdk: Sdk) -> None:
    """A stream that ends in good order, but too soon, raises nothing and has no end."""
    sent, told, text = sdk.half
    sdk.tells(HalfStream(Answer("Hello, world"), events=sent))
    events = sdk.events()
    assert len(events) == told
    assert sdk.heard(events) == (text, False)


@each_server
def test_any_body_can_be_given(sdk: Sdk) -> None:
    """A script may answer with what no provider should give."""
    sdk.tells(Raw(b"<html>", 502, "text/html"))
    with pytest.raises(Exception) as caught:
        sdk.reply()
    status = getattr(caught.value, "status_code", None) or getattr(caught.value, "code", None)
    assert status == 502
