"""Requests of Responses: those that OpenAI refuses, with its words, and those it takes."""

from __future__ import annotations

from typing import Any

from tests.servers.openai_responses_items import item_id, sealed

PNG = "data:image/png;base64,aW1nIGJ5dGVzIGhlcmU="
PDF = "data:application/pdf;base64,SGVsbG8sIFdvcmxkIQ=="
SCHEMA = {
    "type": "object",
    "properties": {"city": {"type": "string"}},
    "required": ["city"],
    "additionalProperties": False,
}
TOOL = {"type": "function", "name": "weather", "parameters": SCHEMA, "strict": True}
SAID = {"role": "user", "content": "hello"}


def asks(*items: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"model": "gpt-test", "input": list(items) or "hello", **more}


def heard(*parts: dict[str, Any], role: str = "user") -> dict[str, Any]:
    return asks({"type": "message", "role": role, "content": list(parts)})


def called(given: str, **more: Any) -> dict[str, Any]:
    return {
        "type": "function_call",
        "call_id": given,
        "name": "weather",
        "arguments": "{}",
        **more,
    }


def result(given: str, output: Any = "sunny") -> dict[str, Any]:
    return {"type": "function_call_output", "call_id": given, "output": output}


def thought(given: str = "rs_1", **more: Any) -> dict[str, Any]:
    return {
        "type": "reasoning",
        "id": given,
        "summary": [],
        "encrypted_content": sealed(given),
        **more,
    }


def told(text: str = "fine", **more: Any) -> dict[str, Any]:
    """What the model said: plain, or with an id as what is stored."""
    said = {"type": "message", "role": "assistant", "content": text, **more}
    if "id" in more:
        content = [{"type": "output_text", "text": text, "annotations": []}]
        said |= {"content": content, "status": "completed"}
    return said


def image(url: Any) -> dict[str, Any]:
    return {"type": "input_image", "image_url": url, "detail": "auto"}


def formatted(schema: Any, name: str = "report") -> dict[str, Any]:
    given = {"type": "json_schema", "name": name, "schema": schema, "strict": True}
    return asks(text={"format": given})


def without(item: dict[str, Any], *names: str) -> dict[str, Any]:
    return {name: value for name, value in item.items() if name not in names}


REASONED = item_id("fc", 1, 1, reasoned=True)

REFUSED: dict[str, list[dict[str, Any]]] = {
    "Unknown parameter: 'top_k'.": [asks(top_k=3)],
    "Unsupported parameter: 'messages'. In the Responses API, this parameter has moved to": [
        {"model": "m", "messages": [SAID]}
    ],
    "has moved to 'max_output_tokens'.": [asks(max_tokens=20)],
    "has moved to 'text.format'.": [asks(response_format={})],
    "Missing required parameter: 'model'.": [{"input": "hello"}],
    'One of "input" or "previous_response_id"': [{"model": "m"}, {"model": "m", "input": []}],
    "Invalid type for 'input'": [{"model": "m", "input": 3}],
    "Invalid type for 'input[0]': expected an object, but got a string instead.": [
        {"model": "m", "input": ["hello"]}
    ],
    "Invalid value: 'note'. Supported values are: 'message', ": [
        asks({"type": "note", "text": "a"})
    ],
    "Unknown parameter: 'input[1].parsed_arguments'.": [
        asks(SAID, called("a", parsed_arguments={}), result("a"))
    ],
    "Unknown parameter: 'input[0].tool_calls'.": [asks({**SAID, "tool_calls": []})],
    "Invalid value: 'tool'. Supported values are: 'user', 'assistant', 'system' or 'developer'": [
        asks({"role": "tool", "content": "a"})
    ],
    "Missing required parameter: 'input[0].content'.": [asks({"role": "user"})],
    "Invalid type for 'input[0].content': expected a string, but got null instead.": [
        asks({"role": "assistant", "content": None})
    ],
    "Invalid value: 'text'. Supported values are: 'input_text', 'input_image', 'input_file'": [
        heard({"type": "text", "text": "a"})
    ],
    "Invalid value: 'output_text'. Supported values are: 'input_text', 'input_image'": [
        heard({"type": "output_text", "text": "a"})
    ],
    "Invalid value: 'input_text'. Supported values are: 'output_text' and 'refusal'.": [
        heard({"type": "input_text", "text": "a"}, role="assistant")
    ],
    "Invalid value: 'input_audio'. Supported values are: 'input_text'": [
        heard({"type": "input_audio", "input_audio": {"data": "aGVsbG8=", "format": "wav"}})
    ],
    "Invalid type for 'input[0].content[0].image_url': expected a string, but got an object": [
        heard(image({"url": PNG}))
    ],
    "Missing required parameter: 'input[0].content[0].detail'.": [
        heard({"type": "input_image", "image_url": PNG})
    ],
    "Missing required parameter: 'input[1].content[0].annotations'.": [
        asks(
            SAID,
            {**told(id="msg_1"), "content": [{"type": "output_text", "text": "a"}]},
            SAID,
        )
    ],
    "Missing required parameter: 'input[0].content[0].image_url'.": [heard(image(None))],
    "but got unsupported MIME type 'application/pdf'.": [heard(image(PDF))],
    "Invalid 'input[0].content[0].image_url'. Expected a base64-encoded data URL with an image": [
        heard(image("data:image/png;base64,a"))
    ],
    "Missing required parameter: 'input[0].content[0].filename'.": [
        heard({"type": "input_file", "file_data": PDF})
    ],
    "but got unsupported MIME type 'image/png'.": [
        heard({"type": "input_file", "filename": "a", "file_data": PNG})
    ],
    "Mutually exclusive parameters": [
        heard({"type": "input_file", "file_id": "file-1", "file_url": "https://a.b/c"})
    ],
    "Invalid 'input[0].content[0].file_url'. Expected a valid URL": [
        heard({"type": "input_file", "file_url": "c.pdf"})
    ],
    "Missing required parameter": [heard({"type": "input_file"})],
    "No tool call found for function call output with call_id a.": [
        asks(SAID, result("a")),
        asks(SAID, result("a"), called("a")),
    ],
    "No tool output found for function call b.": [
        asks(SAID, called("a"), called("b"), result("a"))
    ],
    "Duplicate function call output found with call_id a.": [
        asks(SAID, called("a"), result("a"), result("a"))
    ],
    "Duplicate function call found with call_id a.": [
        asks(SAID, called("a"), called("a"), result("a"))
    ],
    "Invalid 'input[1].call_id': string too long. Expected a string with maximum length 64": [
        asks(SAID, called("a" * 65), result("a" * 65))
    ],
    "Invalid 'input[1].id': 'call_a'. Expected an ID that begins with 'fc'.": [
        asks(SAID, called("call_a", id="call_a"), result("call_a"))
    ],
    "Invalid 'input[1].id': 'rs_1'. Expected an ID that begins with 'msg'.": [
        asks(SAID, told(id="rs_1"), SAID)
    ],
    "Invalid type for 'input[1].arguments': expected a string, but got an object instead.": [
        asks(SAID, called("a", arguments={}), result("a"))
    ],
    "Missing required parameter: 'input[1].name'.": [
        asks(SAID, without(called("a"), "name"), result("a"))
    ],
    "Invalid type for 'input[2].output': expected a string, but got an object instead.": [
        asks(SAID, called("a"), result("a", {"sky": "blue"}))
    ],
    "Missing required parameter: 'input[2].output'.": [
        asks(SAID, called("a"), without(result("a"), "output"))
    ],
    "Item 'rs_1' of type 'reasoning' was provided without its required following item.": [
        asks(SAID, thought())
    ],
    "was provided without its required following item.": [
        asks(SAID, thought(), SAID),
        asks(SAID, without(thought(), "encrypted_content"), called("a"), result("a")),
    ],
    "Missing required parameter: 'input[1].summary'.": [
        asks(SAID, without(thought(), "summary"), told())
    ],
    "Invalid 'input[1].id': 'msg_1'. Expected an ID that begins with 'rs'.": [
        asks(SAID, thought("msg_1"), told())
    ],
    "The encrypted content for item rs_1 could not be verified.": [
        asks(SAID, thought(encrypted_content=sealed("rs_2")), told())
    ],
    f"Item '{REASONED}' of type 'function_call' was provided without its required 'reasoning'": [
        asks(SAID, called("a", id=REASONED), result("a"))
    ],
    "Duplicate item found with id msg_1. Remove duplicate items from your input and try again.": [
        asks(SAID, told(id="msg_1"), SAID, told(id="msg_1"), SAID)
    ],
    "Previous response with id 'resp_1' not found.": [asks(previous_response_id="resp_1")],
    "Missing required parameter: 'tools[0].name'.": [
        asks(tools=[{"type": "function", "function": {"name": "weather"}}])
    ],
    "Invalid value: 'magic'.": [asks(tools=[{"type": "magic"}])],
    "duplicate function name 'weather'": [asks(tools=[TOOL, TOOL])],
    "Invalid 'tools[0].name': string does not match pattern.": [
        asks(tools=[{**TOOL, "name": "weather.now"}])
    ],
    "Invalid schema for function 'weather': schema must be a JSON Schema of 'type: \"object\"'": [
        asks(tools=[{**TOOL, "parameters": {"type": "array", "items": {}}}])
    ],
    "Missing required parameter: 'tools[0].strict'.": [asks(tools=[without(TOOL, "strict")])],
    "In context=(), 'additionalProperties' is required to be supplied and to be false.": [
        asks(tools=[{**TOOL, "parameters": without(SCHEMA, "additionalProperties")}])
    ],
    "Missing 'city'.": [
        asks(tools=[{**TOOL, "parameters": without(SCHEMA, "required")}]),
        formatted({**SCHEMA, "required": []}),
    ],
    "Tool choice 'other' not found in 'tools' parameter.": [
        asks(tools=[TOOL], tool_choice={"type": "function", "name": "other"})
    ],
    "Missing required parameter: 'tool_choice.name'.": [
        asks(tools=[TOOL], tool_choice={"type": "function", "function": {"name": "weather"}})
    ],
    "Tool choice 'required' must be specified with 'tools' parameter.": [
        asks(tool_choice="required")
    ],
    "Missing required parameter: 'text.format.name'.": [
        asks(text={"format": {"type": "json_schema", "json_schema": {"name": "a"}}})
    ],
    "Invalid schema for response_format 'report': schema must be a JSON Schema of 'type: ": [
        formatted({"anyOf": [SCHEMA]})
    ],
    "Invalid 'text.format.name': string does not match pattern.": [formatted(SCHEMA, "my report")],
    "must contain the word 'json' in some form to use 'text.format'": [
        asks(text={"format": {"type": "json_object"}})
    ],
    "Invalid value: 'reasoning'. Supported values are: 'file_search_call.results'": [
        asks(include=["reasoning"])
    ],
    "Invalid 'max_output_tokens': integer below minimum value. Expected a value >= 16": [
        asks(max_output_tokens=5)
    ],
    "Unknown parameter: 'stream_options.include_usage'.": [
        asks(stream=True, stream_options={"include_usage": True})
    ],
    "Invalid value: 'huge'.": [asks(reasoning={"effort": "huge"})],
    "Invalid type for 'instructions'": [asks(instructions=[SAID])],
    "decimal above maximum value. Expected a value <= 2": [asks(temperature=3)],
}

ACCEPTED: dict[str, dict[str, Any]] = {
    "a text": asks(),
    "every role": asks(
        {"role": "system", "content": "be brief"},
        {"role": "developer", "content": [{"type": "input_text", "text": "be kind"}]},
        SAID,
        {"role": "assistant", "content": "hm"},
        told(id="msg_1"),
        {**told(id="msg_2"), "content": [{"type": "refusal", "refusal": "no"}]},
        SAID,
    ),
    "every part": heard(
        {"type": "input_text", "text": "look"},
        {"type": "input_image", "image_url": PNG, "detail": "auto"},
        {"type": "input_image", "image_url": "https://example.com/a.png", "detail": "auto"},
        {"type": "input_file", "filename": "a.pdf", "file_data": PDF},
        {"type": "input_file", "filename": "a.md", "file_data": "data:text/markdown;base64,YQ=="},
        {"type": "input_file", "file_url": "https://example.com/a.pdf"},
        {"type": "input_file", "file_id": "file-1"},
    ),
    "calls": asks(
        SAID,
        called("a", id="fc_1"),
        called("b"),
        result("b"),
        result("a", [{"type": "input_text", "text": "sun"}]),
    ),
    "reasoning": asks(SAID, thought("rs_1"), thought("rs_2"), told(), called("a"), result("a")),
    "reasoning that is not stored": asks(SAID, thought(), told(), SAID, store=False),
    "named reasoning": asks(
        SAID, without(thought(), "encrypted_content"), called("a", id="fc_1"), result("a")
    ),
    "a call whose reasoning is not stored": asks(
        SAID, called("a", id=REASONED), result("a"), store=False
    ),
    "tools": asks(
        tools=[TOOL, {"type": "function", "name": "now", "parameters": None, "strict": None}],
        tool_choice={"type": "function", "name": "now"},
        parallel_tool_calls=False,
    ),
    "a tool that is not strict": asks(
        tools=[{**TOOL, "parameters": without(SCHEMA, "required"), "strict": None}]
    ),
    "no tools": asks(tools=[], tool_choice="auto", parallel_tool_calls=True),
    "a tool of OpenAI": asks(tools=[{"type": "web_search"}]),
    "a strict format": formatted(SCHEMA),
    "all the rest": asks(
        instructions="be brief",
        include=["reasoning.encrypted_content"],
        store=False,
        max_output_tokens=16,
        temperature=0.5,
        reasoning={"effort": "low", "summary": "auto"},
        metadata={"run": "1"},
        truncation="auto",
    ),
}
