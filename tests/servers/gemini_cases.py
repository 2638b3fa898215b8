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
REFUSED: dict[str, list[dict[str, Any]]] = {
    "* GenerateContentRequest.contents: contents is not specified": [said()],
    'Unknown name "messages": Cannot find field.': [{"messages": []}],
    "Invalid JSON payload received. Unknown name \"x\" at 'contents[0]': Cannot find field.": [
        said({**HELLO, "x": 1})
    ],
    "Unknown name \"type\" at 'contents[0].parts[0]': Cannot find field.": [
        said(user({"type": "text", "text": "x"}))
    ],
    'Unknown name "content"': [said({"role": "user", "content": "x"})],
    "Invalid value at 'contents'": [{"contents": "x"}],
    "Invalid value at 'contents[0].parts[0].text' (Input should be a valid string), 3": [
        said(user({"text": 3}))
    ],
    "Invalid value at 'contents[0].parts[0].text'": [said(user({"text": ["x"]}))],
    "function_response.response' (Input should be an object)": [
        said(HELLO, model(call()), user(response(response=["seen"]))),
    ],
    "parameters.properties.at.type'": [
        taking(properties={"at": {"type": ["string", "null"]}}),
        taking(properties={"at": {"type": "any"}}),
    ],
    "Please use a valid role: user, model.": [
        said({"role": "assistant", "parts": [text()]}),
        said({"role": "system", "parts": [text()]}, HELLO),
    ],
    "a valid role": [said({"parts": [text()]}, model(text()), HELLO)],
    "* GenerateContentRequest.contents[1].parts: contents.parts must not be empty.": [
        said(HELLO, model(), HELLO)
    ],
    "contents[0].parts[0].data: required oneof field 'data' must have one initialized field": [
        said(user({}))
    ],
    "required oneof field 'data'": [said(user(text("")))],
    "oneof field 'data' is already set.": [
        said(user({"text": "x", "inlineData": {"mimeType": "image/png", "data": PNG}}))
    ],
    "start with a user role": [said(model(text()), HELLO)],
    "alternate between user and model": [said(HELLO, HELLO)],
    "end with a user role or a function response": [said(HELLO, model(text()))],
    "immediately after a user turn or after a function response turn.": [
        said(model(call()), user(response()))
    ],
    "Please ensure that function call turn comes immediately after": [
        said(HELLO, model(text()), model(call()), user(response()))
    ],
    NUMBER: [
        said(HELLO, model(call()), HELLO),
        said(HELLO, model(call(), call()), user(response())),
        said(HELLO, model(call()), user(response(), response())),
    ],
    "Please ensure that function response turn comes immediately after a function call turn.": [
        said(user(response()))
    ],
    "Please ensure that function response turn comes immediately after": [
        said(HELLO, model(call()), user(response()), model(text()), user(response()))
    ],
    "have the names and ids of the function call parts": [
        said(HELLO, model(call()), user(response("hear"))),
        said(HELLO, model(call(id="a")), user(response(id="b"))),
    ],
    "must be in a turn with role 'model'": [said(user(call()))],
    "must be in a turn with role 'user'": [said(HELLO, model(response()), HELLO)],
    "contents[1].parts[0].function_call.name: Name cannot be empty.": [
        said(HELLO, model({"functionCall": {"args": {}}}), user(response()))
    ],
    'function_call.args\' (Input should be an object), "{}"': [
        said(HELLO, model(call(args="{}")), user(response()))
    ],
    'function_response.response\' (Input should be an object), "seen"': [
        said(HELLO, model(call()), user(response(response="seen")))
    ],
    "function_response.response: missing field.": [
        said(HELLO, model(call()), user({"functionResponse": {"name": "look"}}))
    ],
    "Corrupted thought signature.": [
        said(HELLO, model(call(signed=signature(2, "look"))), user(response())),
        said(HELLO, model(call(), call(signed=signature(1, "look"))), user(response(), response())),
    ],
    "inline_data.data' (Data should be valid base64": [
        said(user({"inlineData": {"mimeType": "image/png", "data": "!"}}))
    ],
    "must be specified": [said(user({"inlineData": {"data": PNG}}))],
    "Unsupported MIME type: png": [said(user({"inlineData": {"mimeType": "png", "data": PNG}}))],
    "mime_type and file_uri must be specified": [
        said(user({"fileData": {"mimeType": "image/png"}}))
    ],
    "system_instruction.parts": [{"systemInstruction": {"parts": []}}],
    "Invalid value at 'system_instruction'": [{"systemInstruction": "Be kind"}],
    "only text is supported in system_instruction": [
        {"systemInstruction": user({"inlineData": {"mimeType": "image/png", "data": PNG}})}
    ],
    "tools[0].function_declarations[0].name: Invalid function name. Must start with a letter": [
        declared({"name": "1look"})
    ],
    "with a maximum length of 64.": [declared({"name": "l" * 65})],
    "Duplicate function declaration found: look": [declared({"name": "look"}, {"name": "look"})],
    "mutually exclusive": [
        declared(
            {"name": "look", "parameters": PARAMETERS, "parametersJsonSchema": {"type": "object"}}
        )
    ],
    "tools[0].function_declarations[0].parameters.additional_properties: not supported": [
        taking(additionalProperties=False)
    ],
    'Unknown name "$defs"': [taking(**{"$defs": {}})],
    'Unknown name "$ref" at \'tools[0].function_declarations[0].parameters.properties.at': [
        taking(properties={"at": {"$ref": "#/$defs/At"}})
    ],
    'Unknown name "oneOf"': [taking(oneOf=[])],
    'Unknown name "const"': [taking(properties={"at": {"type": "STRING", "const": "x"}})],
    "parameters.properties[at].items: missing field.": [
        taking(properties={"at": {"type": "ARRAY"}})
    ],
    "parameters.properties: should be non-empty for OBJECT type": [
        declared({"name": "look", "parameters": {"type": "OBJECT", "properties": {}}})
    ],
    "parameters.required[0]: property is not defined": [taking(required=["to"])],
    "only allowed for STRING type": [taking(properties={"at": {"type": "INTEGER", "enum": ["1"]}})],
    "Function calling config is set without function_declarations.": [
        {"toolConfig": {"functionCallingConfig": {"mode": "ANY"}}}
    ],
    "'NONE' or 'VALIDATED'), \"MAYBE\"": [chosen(mode="MAYBE")],
    "Please set allowed_function_names only when function calling mode is ANY.": [
        chosen(mode="AUTO", allowedFunctionNames=["look"])
    ],
    "hear is not a declared function": [chosen(mode="ANY", allowedFunctionNames=["hear"])],
    "Unknown name \"maxTokens\" at 'generation_config': Cannot find field.": [config(maxTokens=3)],
    "generation_config.temperature": [config(temperature=3)],
    "generation_config.temperature' (Input should be a valid number)": [config(temperature="warm")],
    "generation_config.max_output_tokens": [config(maxOutputTokens=0)],
    "generation_config.response_mime_type: allowed mimetypes are `text/plain`": [
        config(responseMimeType="text/html")
    ],
    "only allowed with response_mime_type application/json": [config(responseSchema=PARAMETERS)],
    "response_schema and response_json_schema are mutually exclusive": [
        config(
            responseMimeType="application/json",
            responseSchema=PARAMETERS,
            responseJsonSchema={"type": "object"},
        )
    ],
    "Function calling with a response mime type: 'application/json' is unsupported": [
        declared(**config(responseMimeType="application/json"))
    ],
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
    "no parameters": declared({"name": "look"}),
    "a choice": chosen(mode="VALIDATED", allowedFunctionNames=["look"]),
    "a schema": config(responseMimeType="application/json", responseSchema=PARAMETERS),
    "a schema of JSON": config(
        responseMimeType="application/json", responseJsonSchema={"type": "object"}
    ),
}
