"""The strict server for Gemini's generateContent, talked to by Google's own client."""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import httpx
import httpx2
import pytest
from google import genai
from google.genai import errors, types
from pydantic import BaseModel

from tests.servers.gemini_contents import GeminiContents
from tests.servers.gemini_rules import signature
from tests.servers.serving import (
    Answer,
    Call,
    CutBody,
    HalfStream,
    Hang,
    Scripted,
    Status,
    StrictServer,
    Used,
    replies,
)

OLDER, NEWER = "gemini-2.5-flash", "gemini-3-pro"
PARAMETERS = {"type": "OBJECT", "properties": {"at": {"type": "STRING"}}}
PNG = base64.b64encode(b"\x89PNG").decode()


def user(*parts: Any) -> dict[str, Any]:
    return {"role": "user", "parts": list(parts)}


def model(*parts: Any) -> dict[str, Any]:
    return {"role": "model", "parts": list(parts)}


def text(words: str = "Hello") -> dict[str, Any]:
    return {"text": words}


def call(name: str = "look", signed: bytes | str | None = None, **more: Any) -> dict[str, Any]:
    part: dict[str, Any] = {"functionCall": {"name": name, "args": {}, **more}}
    if signed is not None:
        part["thoughtSignature"] = (
            signed if isinstance(signed, str) else base64.b64encode(signed).decode()
        )
    return part


def response(name: str = "look", **more: Any) -> dict[str, Any]:
    return {"functionResponse": {"name": name, "response": {"output": "seen"}, **more}}


HELLO = user(text())


def said(*contents: Any, **more: Any) -> dict[str, Any]:
    return {"contents": list(contents), **more}


def declared(*functions: dict[str, Any], **more: Any) -> dict[str, Any]:
    given = functions or ({"name": "look", "parameters": PARAMETERS},)
    return {"tools": [{"functionDeclarations": list(given)}], **more}


def taking(**parameters: Any) -> dict[str, Any]:
    return declared({"name": "look", "parameters": {**PARAMETERS, **parameters}})


def chosen(**config: Any) -> dict[str, Any]:
    return declared(toolConfig={"functionCallingConfig": config})


def config(**given: Any) -> dict[str, Any]:
    return {"generationConfig": given}


NUMBER = "Please ensure that the number of function response parts is equal to the number"
MALFORMED: dict[str, tuple[dict[str, Any], str]] = {
    "no contents": (said(), "* GenerateContentRequest.contents: contents is not specified"),
    "unknown name": ({"messages": []}, 'Unknown name "messages": Cannot find field.'),
    "unknown name in a content": (
        said({**HELLO, "x": 1}),
        "Invalid JSON payload received. Unknown name \"x\" at 'contents[0]': Cannot find field.",
    ),
    "unknown name in a part": (
        said(user({"type": "text", "text": "x"})),
        "Unknown name \"type\" at 'contents[0].parts[0]': Cannot find field.",
    ),
    "content as text": (said({"role": "user", "content": "x"}), 'Unknown name "content"'),
    "contents as text": ({"contents": "x"}, "Invalid value at 'contents'"),
    "text as a number": (
        said(user({"text": 3})),
        "Invalid value at 'contents[0].parts[0].text' (TYPE_STRING), 3",
    ),
    "text as a list": (said(user({"text": ["x"]})), "Proto field is not repeating"),
    "another role": (
        said({"role": "assistant", "parts": [text()]}),
        "Please use a valid role: user, model.",
    ),
    "system as a role": (
        said({"role": "system", "parts": [text()]}, HELLO),
        "Please use a valid role: user, model.",
    ),
    "no role among several": (said({"parts": [text()]}, model(text()), HELLO), "a valid role"),
    "no parts": (
        said(HELLO, model(), HELLO),
        "* GenerateContentRequest.contents[1].parts: contents.parts must not be empty.",
    ),
    "part of nothing": (
        said(user({})),
        "contents[0].parts[0].data: required oneof field 'data' must have one initialized field",
    ),
    "empty text": (said(user(text(""))), "required oneof field 'data'"),
    "part of two kinds": (
        said(user({"text": "x", "inlineData": {"mimeType": "image/png", "data": PNG}})),
        "oneof field 'data' is already set. Cannot set 'inlineData'",
    ),
    "model first": (said(model(text()), HELLO), "start with a user role"),
    "user twice": (said(HELLO, HELLO), "alternate between user and model"),
    "model last": (said(HELLO, model(text())), "end with a user role or a function response"),
    "call first": (
        said(model(call()), user(response())),
        "immediately after a user turn or after a function response turn.",
    ),
    "call after the model": (
        said(HELLO, model(text()), model(call()), user(response())),
        "Please ensure that function call turn comes immediately after",
    ),
    "call without response": (said(HELLO, model(call()), HELLO), NUMBER),
    "fewer responses": (said(HELLO, model(call(), call()), user(response())), NUMBER),
    "more responses": (said(HELLO, model(call()), user(response(), response())), NUMBER),
    "response without call": (
        said(user(response())),
        "Please ensure that function response turn comes immediately after a function call turn.",
    ),
    "response too late": (
        said(HELLO, model(call()), user(response()), model(text()), user(response())),
        "Please ensure that function response turn comes immediately after",
    ),
    "response of another name": (
        said(HELLO, model(call()), user(response("hear"))),
        "have the names and ids of the function call parts",
    ),
    "response of another id": (
        said(HELLO, model(call(id="a")), user(response(id="b"))),
        "have the names and ids of the function call parts",
    ),
    "call by the user": (said(user(call())), "must be in a turn with role 'model'"),
    "response by the model": (
        said(HELLO, model(response()), HELLO),
        "must be in a turn with role 'user'",
    ),
    "call without name": (
        said(HELLO, model({"functionCall": {"args": {}}}), user(response())),
        "contents[1].parts[0].function_call.name: Name cannot be empty.",
    ),
    "args as text": (
        said(HELLO, model(call(args="{}")), user(response())),
        'function_call.args\' (type.googleapis.com/google.protobuf.Struct), "{}"',
    ),
    "response as text": (
        said(HELLO, model(call()), user(response(response="seen"))),
        'function_response.response\' (type.googleapis.com/google.protobuf.Struct), "seen"',
    ),
    "response as a list": (
        said(HELLO, model(call()), user(response(response=["seen"]))),
        "Proto field is not repeating",
    ),
    "no response in it": (
        said(HELLO, model(call()), user({"functionResponse": {"name": "look"}})),
        "function_response.response: missing field.",
    ),
    "signature that was changed": (
        said(HELLO, model(call(signed=signature(2, "look"))), user(response())),
        "Corrupted thought signature.",
    ),
    "signature on another call": (
        said(
            HELLO,
            model(call(), call(signed=signature(1, "look"))),
            user(response(), response()),
        ),
        "Corrupted thought signature.",
    ),
    "data that is no base64": (
        said(user({"inlineData": {"mimeType": "image/png", "data": "!"}})),
        "inline_data.data' (TYPE_BYTES), Base64 decoding failed",
    ),
    "data of no type": (said(user({"inlineData": {"data": PNG}})), "must be specified"),
    "data of a strange type": (
        said(user({"inlineData": {"mimeType": "png", "data": PNG}})),
        "Unsupported MIME type: png",
    ),
    "file without its place": (
        said(user({"fileData": {"mimeType": "image/png"}})),
        "mime_type and file_uri must be specified",
    ),
    "system of nothing": ({"systemInstruction": {"parts": []}}, "system_instruction.parts"),
    "system as text": ({"systemInstruction": "Be kind"}, "Invalid value at 'system_instruction'"),
    "system as a picture": (
        {"systemInstruction": user({"inlineData": {"mimeType": "image/png", "data": PNG}})},
        "only text is supported in system_instruction",
    ),
    "name of a function": (
        declared({"name": "1look"}),
        "tools[0].function_declarations[0].name: Invalid function name. Must start with a letter",
    ),
    "long name of a function": (declared({"name": "l" * 65}), "with a maximum length of 64."),
    "two of one name": (
        declared({"name": "look"}, {"name": "look"}),
        "Duplicate function declaration found: look",
    ),
    "parameters in two ways": (
        declared(
            {
                "name": "look",
                "parameters": PARAMETERS,
                "parametersJsonSchema": {"type": "object"},
            }
        ),
        "mutually exclusive",
    ),
    "a closed object": (
        taking(additionalProperties=False),
        "Unknown name \"additionalProperties\" at 'tools[0].function_declarations[0].parameters'",
    ),
    "definitions": (taking(**{"$defs": {}}), 'Unknown name "$defs"'),
    "a reference": (
        taking(properties={"at": {"$ref": "#/$defs/At"}}),
        'Unknown name "$ref" at \'tools[0].function_declarations[0].parameters.properties[0]',
    ),
    "oneOf": (taking(oneOf=[]), 'Unknown name "oneOf"'),
    "const": (taking(properties={"at": {"type": "STRING", "const": "x"}}), 'Unknown name "const"'),
    "types in a list": (
        taking(properties={"at": {"type": ["string", "null"]}}),
        "Proto field is not repeating",
    ),
    "another type": (taking(properties={"at": {"type": "any"}}), 'Type), "any"'),
    "list of what": (
        taking(properties={"at": {"type": "ARRAY"}}),
        "parameters.properties[at].items: missing field.",
    ),
    "object of nothing": (
        declared({"name": "look", "parameters": {"type": "OBJECT", "properties": {}}}),
        "parameters.properties: should be non-empty for OBJECT type",
    ),
    "required but not there": (
        taking(required=["to"]),
        "parameters.required[0]: property is not defined",
    ),
    "enum of numbers": (
        taking(properties={"at": {"type": "INTEGER", "enum": ["1"]}}),
        "only allowed for STRING type",
    ),
    "choice without functions": (
        {"toolConfig": {"functionCallingConfig": {"mode": "ANY"}}},
        "Function calling config is set without function_declarations.",
    ),
    "another mode": (chosen(mode="MAYBE"), 'Mode), "MAYBE"'),
    "names in another mode": (
        chosen(mode="AUTO", allowedFunctionNames=["look"]),
        "Please set allowed_function_names only when function calling mode is ANY.",
    ),
    "name that is not declared": (
        chosen(mode="ANY", allowedFunctionNames=["hear"]),
        "hear is not a declared function",
    ),
    "unknown in the config": (
        config(maxTokens=3),
        "Unknown name \"maxTokens\" at 'generation_config': Cannot find field.",
    ),
    "too warm": (config(temperature=3), "generation_config.temperature"),
    "temperature as text": (config(temperature="warm"), "TYPE_FLOAT"),
    "no tokens": (config(maxOutputTokens=0), "generation_config.max_output_tokens"),
    "another mime type": (
        config(responseMimeType="text/html"),
        "generation_config.response_mime_type: allowed mimetypes are `text/plain`",
    ),
    "schema without mime type": (
        config(responseSchema=PARAMETERS),
        "only allowed with response_mime_type application/json",
    ),
    "two schemas": (
        config(
            responseMimeType="application/json",
            responseSchema=PARAMETERS,
            responseJsonSchema={"type": "object"},
        ),
        "response_schema and response_json_schema are mutually exclusive",
    ),
    "functions and JSON": (
        declared(**config(responseMimeType="application/json")),
        "Function calling with a response mime type: 'application/json' is unsupported",
    ),
}

WELL_FORMED: dict[str, dict[str, Any]] = {
    "the least": {},
    "without a role": said({"parts": [text()]}),
    "in snake_case": said(
        user({"inline_data": {"mime_type": "image/png", "data": "iVBORw"}}),
        system_instruction={"parts": [text("Be kind")]},
        generation_config={"max_output_tokens": 3, "top_k": 4.0},
    ),
    "a file": said(user({"fileData": {"mimeType": "video/mp4", "fileUri": "files/x"}}, text())),
    "a conversation": said(HELLO, model(text()), HELLO),
    "responses in another order": said(
        HELLO, model(text(), call("look"), call("hear")), user(response("hear"), response("look"))
    ),
    "calls with ids": said(
        HELLO,
        model(call(id="a"), call(id="b")),
        user(response(id="b"), response(id="a")),
        **declared(),
    ),
    "an empty text that is signed": said(
        HELLO, model({"text": "", "thoughtSignature": "AAAA"}), HELLO
    ),
    "a closed object where it may be": declared(
        {
            "name": "look_at.it-1",
            "parametersJsonSchema": {
                "type": "object",
                "properties": {"at": {"$ref": "#/$defs/At"}},
                "$defs": {"At": {"const": "x"}},
                "additionalProperties": False,
            },
        }
    ),
    "types in small letters": declared(
        {"name": "look", "parameters": {"type": "object", "properties": {"n": {"type": "integer"}}}}
    ),
    "no parameters": declared({"name": "look"}),
    "a choice": chosen(mode="VALIDATED", allowedFunctionNames=["look"]),
    "a schema": config(responseMimeType="application/json", responseSchema=PARAMETERS),
    "a schema of JSON": config(
        responseMimeType="application/json", responseJsonSchema={"type": "object"}
    ),
}

Serve = Callable[..., tuple[StrictServer, genai.Client]]
Start = Callable[..., StrictServer]


@pytest.fixture
def start() -> Iterator[Start]:
    """Starts a server that gives these answers."""
    with ExitStack() as opened:
        yield lambda *answers: opened.enter_context(
            StrictServer(GeminiContents(), replies(*answers))
        )


@pytest.fixture
def serve(start: Start) -> Iterator[Serve]:
    """Starts a server that gives these answers, with a client that tries once."""
    with ExitStack() as opened:

        def served(*answers: Scripted) -> tuple[StrictServer, genai.Client]:
            server = start(*answers)
            once = types.HttpRetryOptions(attempts=1)
            options = types.HttpOptions(base_url=server.url, retry_options=once)
            client = genai.Client(api_key="test", http_options=options)
            opened.callback(client.close)
            return server, client

        yield served


def post(server: StrictServer, body: Any, name: str = OLDER) -> httpx.Response:
    return httpx.post(
        f"{server.url}/v1beta/models/{name}:generateContent",
        json=body,
        headers={"x-goog-api-key": "test"},
        verify=False,  # there is no TLS here, and its certificates take their time to load
    )


@pytest.mark.parametrize("case", MALFORMED)
def test_what_the_real_one_refuses_is_refused(start: Start, case: str) -> None:
    """A malformed request gets status 400, the provider's shape of an error, and its words."""
    server = start(Answer("no"))
    more, words = MALFORMED[case]
    refused = post(server, {"contents": [HELLO], **more})
    assert refused.status_code == 400
    error = refused.json()["error"]
    assert (error["code"], error["status"]) == (400, "INVALID_ARGUMENT")
    assert words in error["message"]
    assert server.asked == []
    assert len(server.refused) == 1


@pytest.mark.parametrize("case", WELL_FORMED)
def test_what_is_well_formed_is_taken(start: Start, case: str) -> None:
    """A well-formed request is answered."""
    server = start(*[Answer("yes")] * 3)
    taken = post(server, {"contents": [HELLO], **WELL_FORMED[case]})
    assert taken.status_code == 200, taken.text
    assert taken.json()["candidates"][0]["content"] == model(text("yes"))


def test_names_that_are_unknown_are_all_told(start: Start) -> None:
    """Every unknown name is in the message, and in the details with its place."""
    server = start(Answer("no"))
    error = post(server, {"contents": [{**HELLO, "x": 1}], "y": 2}).json()["error"]
    assert error["message"].count("Cannot find field.") == 2
    assert [one["field"] for one in error["details"][0]["fieldViolations"]] == ["contents[0]", ""]


@pytest.mark.parametrize("version", ["v1", "v1beta"])
def test_a_key_in_the_address(start: Start, version: str) -> None:
    """A key may come in the query; without one the caller is not known."""
    server = start(Answer("yes"))
    url = f"{server.url}/{version}/models/{OLDER}:generateContent"
    assert httpx.post(f"{url}?key=k", json=said(HELLO)).status_code == 200
    refused = httpx.post(url, json=said(HELLO))
    assert refused.status_code == 403
    assert refused.json()["error"]["status"] == "PERMISSION_DENIED"


def test_another_path(start: Start) -> None:
    """What is no endpoint here is not found."""
    server = start(Answer("no"))
    url = f"{server.url}/v1beta/models/{OLDER}:countTokens?key=k"
    refused = httpx.post(url, json=said(HELLO))
    assert refused.status_code == 404
    assert refused.json()["error"]["status"] == "NOT_FOUND"


def test_functions_and_json_of_a_newer_model(start: Start) -> None:
    """A newer model takes functions together with an answer in JSON."""
    server = start(Answer("{}"))
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
    start: Start, signed: bytes | str | None, status: int
) -> None:
    """A call since the user last spoke bears its signature, or a word that there is none."""
    server = start(Answer("no"), Answer("yes"))
    answered = post(server, said(HELLO, model(call(signed=signed)), user(response())), NEWER)
    assert answered.status_code == status
    if signed is None:
        assert "Function call is missing a thought_signature" in answered.json()["error"]["message"]
        assert "`default_api:look` , position 2." in answered.json()["error"]["message"]


def test_an_older_turn_needs_no_signature(start: Start) -> None:
    """Calls from before the user last spoke are not looked at."""
    server = start(*[Answer("yes")] * 3)
    older = [HELLO, model(call()), user(response()), model(text()), HELLO]
    assert post(server, said(*older), NEWER).status_code == 200


EVERYTHING = Answer(
    text="I look.",
    thinking="Where is it?",
    calls=(Call("look", '{"at": "sk\\u00fd", "n": [1, 2.5, null]}'), Call("look", "no", "mine")),
    used=Used(input=50, output=20, cached=30, reasoning=5),
)


def test_an_answer_with_everything(serve: Serve) -> None:
    """Thought, text and calls come in this order; ids only where the script has them."""
    _, client = serve(EVERYTHING)
    got = client.models.generate_content(model=OLDER, contents="Hello")
    assert got.candidates is not None
    content = got.candidates[0].content
    assert content is not None
    assert content.parts is not None
    thinking, words, first, second = content.parts
    assert (thinking.text, thinking.thought) == ("Where is it?", True)
    assert words.text == got.text == "I look."
    assert first.thought_signature == signature(1, "look")
    assert second.thought_signature is None
    assert first.function_call == types.FunctionCall(
        name="look", args={"at": "ský", "n": [1, 2.5, None]}
    )
    assert second.function_call == types.FunctionCall(id="mine", name="look", args={})
    assert got.candidates[0].finish_reason == "STOP"
    assert got.model_version == OLDER
    used = got.usage_metadata
    assert used is not None
    assert used.prompt_token_count == 50
    assert used.cached_content_token_count == 30
    assert used.candidates_token_count == 15
    assert used.thoughts_token_count == 5
    assert used.total_token_count == 70


def gathered(chunks: list[Any]) -> dict[str, Any]:
    """What a client takes from chunks, or from one whole answer."""
    parts = [
        part
        for chunk in chunks
        for one in chunk.candidates
        if one.index == 0
        for part in (one.content.parts or [])
    ]
    return {
        "text": "".join(part.text or "" for part in parts if not part.thought),
        "thought": "".join(part.text or "" for part in parts if part.thought),
        "calls": [part.function_call for part in parts if part.function_call],
        "signatures": [part.thought_signature for part in parts if part.thought_signature],
        "finish": chunks[-1].candidates[0].finish_reason,
        "used": chunks[-1].usage_metadata,
        "id": chunks[-1].response_id,
    }


@pytest.mark.parametrize(
    "answer",
    [
        EVERYTHING,
        Answer("Hello, ☃ world"),
        Answer(""),
        Answer(refusal="I will not."),
        Answer("Cut", finish="MAX_TOKENS"),
    ],
)
def test_a_stream_amounts_to_the_whole(serve: Serve, answer: Answer) -> None:
    """The chunks of a stream hold together what the whole answer holds."""
    _, client = serve(answer)
    whole = client.models.generate_content(model=NEWER, contents="Hello")
    chunks = list(client.models.generate_content_stream(model=NEWER, contents="Hello"))
    assert gathered(chunks) == gathered([whole])
    assert all(chunk.candidates[0].finish_reason is None for chunk in chunks[:-1])
    if answer.text and len(answer.text) > 5:
        assert len(chunks) > 3


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (Answer("Yes"), "STOP"),
        (Answer(calls=(Call("look"),)), "STOP"),
        (Answer("Cut", finish="MAX_TOKENS"), "MAX_TOKENS"),
        (Answer(refusal="No."), "SAFETY"),
    ],
)
def test_why_it_finished(serve: Serve, answer: Answer, reason: str) -> None:
    """The reason goes with the answer, unless the script says another; a call has none."""
    _, client = serve(answer)
    got = client.models.generate_content(model=OLDER, contents="Hello")
    assert got.candidates is not None
    assert got.candidates[0].finish_reason == reason
    if answer.refusal:
        assert got.candidates[0].content == types.Content()


def test_several_candidates(serve: Serve) -> None:
    """Other texts are further candidates, whole and streamed."""
    _, client = serve(Answer("One", others=("Two", "Three")))
    asked: Any = {"model": OLDER, "contents": "Hello", "config": {"candidate_count": 3}}
    whole = client.models.generate_content(**asked)
    assert [one.content.parts[0].text for one in whole.candidates] == ["One", "Two", "Three"]
    texts = ["", "", ""]
    for chunk in client.models.generate_content_stream(**asked):
        for one in chunk.candidates:
            texts[one.index] += one.content.parts[0].text
    assert texts == ["One", "Two", "Three"]


@pytest.mark.parametrize("name", [OLDER, NEWER])
def test_a_loop_of_tools_is_taken_back(serve: Serve, name: str) -> None:
    """What the server said is taken back as the client holds it, and counts as a turn."""
    server, client = serve(EVERYTHING, Answer(calls=(Call("look"),)), Answer("Found."))
    contents: list[Any] = [types.Content(role="user", parts=[types.Part(text="Hello")])]
    settings = types.GenerateContentConfig(
        system_instruction="Be kind",
        tools=[
            types.Tool(
                function_declarations=[
                    types.FunctionDeclaration(
                        name="look", parameters_json_schema={"type": "object"}
                    )
                ]
            )
        ],
        thinking_config=types.ThinkingConfig(include_thoughts=True),
    )
    while calls := (
        got := client.models.generate_content(model=name, contents=contents, config=settings)
    ).function_calls:
        assert got.candidates is not None
        contents.append(got.candidates[0].content)
        parts = [
            types.Part(
                function_response=types.FunctionResponse(
                    id=one.id, name=one.name, response={"output": "seen"}
                )
            )
            for one in calls
        ]
        contents.append(types.Content(role="user", parts=parts))
    assert got.text == "Found."
    assert [asked.turn for asked in server.asked] == [1, 2, 3]


def test_an_answer_to_a_schema(serve: Serve) -> None:
    """The client's own schema of a type is taken, and the answer read as one."""

    class Place(BaseModel):
        name: str
        near: list[str] | None = None

    _, client = serve(Answer('{"name": "Here", "near": null}'))
    got = client.models.generate_content(
        model=OLDER,
        contents="Hello",
        config={"response_mime_type": "application/json", "response_schema": Place},
    )
    assert got.parsed == Place(name="Here")


def test_a_refusal_as_the_client_tells_it(serve: Serve) -> None:
    """The client's error has the status, its word, and the message."""
    _, client = serve(Answer("no"))
    with pytest.raises(errors.ClientError) as refused:
        client.models.generate_content(model=OLDER, contents=[types.Content(parts=[])])
    assert refused.value.code == 400
    assert refused.value.status == "INVALID_ARGUMENT"
    assert "contents.parts must not be empty" in str(refused.value.message)


@pytest.mark.parametrize(
    ("status", "error", "word"),
    [
        (429, errors.ClientError, "RESOURCE_EXHAUSTED"),
        (500, errors.ServerError, "INTERNAL"),
        (503, errors.ServerError, "UNAVAILABLE"),
    ],
)
def test_a_status_that_was_asked_for(
    serve: Serve, status: int, error: type[errors.APIError], word: str
) -> None:
    """A scripted status comes as the client's error for it, with its headers, and once."""
    server, client = serve(Status(status, "Slowly", {"retry-after": "7"}))
    with pytest.raises(error) as raised:
        client.models.generate_content(model=OLDER, contents="Hello")
    assert (raised.value.code, raised.value.status) == (status, word)
    assert raised.value.message == "Slowly"
    assert raised.value.response.headers["retry-after"] == "7"
    assert len(server.asked) == 1


def test_no_answer_at_all(serve: Serve) -> None:
    """A client that waits no longer than it wants to has the transport's timeout."""
    _, client = serve(Hang())
    with pytest.raises(httpx2.TimeoutException):
        client.models.generate_content(
            model=OLDER, contents="Hello", config={"http_options": {"timeout": 200}}
        )


def test_a_body_that_is_cut(serve: Serve) -> None:
    """A connection that breaks in the body is the transport's error, and no shorter answer."""
    _, client = serve(CutBody(Answer("x" * 1000)))
    with pytest.raises(httpx2.TransportError):
        client.models.generate_content(model=OLDER, contents="Hello")


def test_a_stream_that_is_cut(serve: Serve) -> None:
    """A connection that breaks in a stream is the transport's error in the middle of it."""
    _, client = serve(CutBody(Answer("x" * 1000)))
    with pytest.raises(httpx2.TransportError):
        list(client.models.generate_content_stream(model=OLDER, contents="Hello"))


def test_a_stream_that_ends_early(serve: Serve) -> None:
    """A stream that ends in good order before its answer raises nothing, but has no reason."""
    _, client = serve(HalfStream(Answer("Hello, world"), events=2))
    chunks = list(client.models.generate_content_stream(model=OLDER, contents="Hello"))
    assert "".join(chunk.text or "" for chunk in chunks) == "Hello, wor"
    assert all(chunk.candidates[0].finish_reason is None for chunk in chunks)
