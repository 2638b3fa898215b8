"""Requests of Gemini's generateContent: those that it refuses, with its words, and those it takes.

A request is told by what is in it beside `LEAST`.
"""

from __future__ import annotations

import base64
from typing import Any

from tests.servers.gemini_rules import signature

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
LEAST = {"contents": [HELLO]}


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
REFUSED: dict[str, tuple[dict[str, Any], str]] = {
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

ACCEPTED: dict[str, dict[str, Any]] = {
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
