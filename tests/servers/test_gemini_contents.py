"""What only the strict server for Gemini does: signatures, candidates, and details of errors."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from google.genai import errors, types
from pydantic import BaseModel

from tests.servers.gemini_cases import (
    HELLO,
    call,
    config,
    declared,
    model,
    response,
    said,
    text,
    user,
)
from tests.servers.gemini_rules import signature
from tests.servers.sdks import ANSWERS, Gemini, connected
from tests.servers.serving import Answer, StrictServer

OLDER, NEWER = "gemini-2.5-flash", "gemini-3-pro"


@pytest.fixture
def server() -> Iterator[StrictServer]:
    """A server that always answers the same."""
    with connected(Gemini) as sdk:
        yield sdk.server


def post(server: StrictServer, body: Any, name: str = OLDER) -> httpx.Response:
    url = f"{server.url}/v1beta/models/{name}:generateContent"
    return httpx.post(url, json=body, headers=Gemini.key, verify=False)


@pytest.mark.parametrize(
    ("body", "field"),
    [({"contents": [{**HELLO, "x": 1}]}, "contents[0]"), ({"contents": [HELLO], "y": 2}, "")],
)
def test_a_name_that_is_unknown_is_told(server: StrictServer, body: Any, field: str) -> None:
    """An unknown name is in the message, and in the details with its place."""
    error = post(server, body).json()["error"]
    assert "Cannot find field." in error["message"]
    assert [one["field"] for one in error["details"][0]["fieldViolations"]] == [field]


def test_functions_and_json_of_a_newer_model(server: StrictServer) -> None:
    """A newer model takes functions together with an answer in JSON."""
    body = {**said(HELLO), **declared(**config(responseMimeType="application/json"))}
    assert post(server, body, NEWER).status_code == 200


@pytest.mark.parametrize(
    ("signed", "status"),
    [
        (None, 400),
        (signature(1, "look"), 200),
        (signature(1, "hear"), 400),
        ("skip_thought_signature_validator", 200),
        (b"skip_thought_signature_validator", 200),
        ("context_engineering_is_the_way_to_go", 200),
    ],
)
def test_a_newer_model_wants_its_signature(
    server: StrictServer, signed: bytes | str | None, status: int
) -> None:
    """A call since the user last spoke bears its signature, or a word that there is none."""
    answered = post(server, said(HELLO, model(call(signed=signed)), user(response())), NEWER)
    assert answered.status_code == status
    if signed is None:
        assert "Function call is missing a thought_signature" in answered.json()["error"]["message"]
        assert "`default_api:look` , position 2." in answered.json()["error"]["message"]


def test_an_older_turn_needs_no_signature(server: StrictServer) -> None:
    """Calls from before the user last spoke are not looked at."""
    older = [HELLO, model(call()), user(response()), model(text()), HELLO]
    assert post(server, said(*older), NEWER).status_code == 200


def test_an_answer_with_everything() -> None:
    """Thought, text and calls come in this order; only the first call is signed."""
    with connected(Gemini, ANSWERS["everything"]) as sdk:
        got = sdk.reply()
    thinking, words, first, second = got.candidates[0].content.parts
    assert (thinking.text, thinking.thought) == ("Where is it?", True)
    assert words.text == got.text == "I look."
    assert first.thought_signature == signature(1, "look")
    assert second.thought_signature is None
    args = {"at": "ský", "deep": {"n": [1, 2.5, None]}}
    assert first.function_call == types.FunctionCall(name="look", args=args)
    assert got.model_version == OLDER


def test_ids_of_calls_are_the_scripts() -> None:
    """A call has an id only where the script gives one, and no arguments where they are no JSON."""
    with connected(Gemini, ANSWERS["no JSON"]) as sdk:
        (only,) = sdk.reply().function_calls
    assert only == types.FunctionCall(id="my-id", name="look", args={})


def test_a_refusal_has_no_content() -> None:
    """What is blocked for safety has an empty content."""
    with connected(Gemini, Answer(refusal="No.")) as sdk:
        assert sdk.reply().candidates[0].content == types.Content()


def test_several_candidates() -> None:
    """Other texts are further candidates, whole and streamed."""
    several = {"config": {"candidate_count": 3}}
    texts = ["", "", ""]
    with connected(Gemini, Answer("One", others=("Two", "Three"))) as sdk:
        whole = sdk.reply(**several)
        for chunk in sdk.events(**several):
            for one in chunk.candidates:
                texts[one.index] += one.content.parts[0].text
    assert [one.content.parts[0].text for one in whole.candidates] == ["One", "Two", "Three"]
    assert texts == ["One", "Two", "Three"]


def test_an_answer_to_a_schema() -> None:
    """The client's own schema of a type is taken, and the answer read as one."""

    class Place(BaseModel):
        name: str
        near: list[str] | None = None

    wanted = {"response_mime_type": "application/json", "response_schema": Place}
    with connected(Gemini, Answer('{"name": "Here", "near": null}')) as sdk:
        assert sdk.reply(config=wanted).parsed == Place(name="Here")


def test_a_refusal_as_the_client_tells_it() -> None:
    """The client's error has the status, its word, and the message."""
    with connected(Gemini) as sdk, pytest.raises(errors.ClientError) as refused:
        sdk.reply(types.Content(parts=[]))
    assert (refused.value.code, refused.value.status) == (400, "INVALID_ARGUMENT")
    assert "contents.parts must not be empty" in str(refused.value.message)
