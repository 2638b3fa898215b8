"""Requests checked against the types of the providers' own SDKs: strictly, and with no other keys.

A body that these types refuse is one that a type checker refuses, and so do other servers that
were made from the same specification. What a type can't say (a range, an order, what goes with
what) is checked by the modules of each provider.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from functools import cache
from typing import Any, Literal, NamedTuple, TypeAlias

from pydantic import ConfigDict, TypeAdapter, create_model
from pydantic.alias_generators import to_camel
from pydantic_core import ErrorDetails, SchemaValidator, ValidationError

Api: TypeAlias = Literal["chat", "responses", "anthropic", "gemini"]
Step: TypeAlias = str | int
Kind: TypeAlias = Literal["unknown", "missing", "value", "type"]

KINDS: dict[str, Kind] = {
    "extra_forbidden": "unknown",
    "missing": "missing",
    "literal_error": "value",
}
# What tells the members of a union from each other.
TAGS = ("type", "role")


class Violation(NamedTuple):
    """The first thing in a body that the types refuse: where it is, and what is there."""

    kind: Kind
    path: tuple[Step, ...]
    given: Any
    # For "value" the values that would do, for the others pydantic's message.
    expected: str

    def at(self) -> str:
        """The path as text: `messages[0].content`."""
        text = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in self.path)
        return text.removeprefix(".")


def violation_of(api: Api, body: dict[str, Any]) -> Violation | None:
    """What is wrong with a body by the SDK's types; None if they take it."""
    try:
        # As JSON: in strict mode bytes are base64 there, as they are on the wire.
        validator_of(api, streams=body.get("stream") is True).validate_json(
            json.dumps(body), strict=True, extra="forbid"
        )
    except ValidationError as no:
        return _first(no.errors(include_url=False), body)
    return None


@cache
def validator_of(api: Api, *, streams: bool = False) -> SchemaValidator:
    """The validator of an API's requests."""
    schema = _strict(TypeAdapter(_type(api, streams=streams)).core_schema)
    # Prebuilt validators of models would be those of their own, lenient schemas.
    return SchemaValidator(schema, _use_prebuilt=False)


def _type(api: Api, *, streams: bool) -> Any:
    """The SDK's type of a request. Imported on demand: a replay has to do without the SDKs."""
    match api:
        case "chat":
            from openai.types.chat import completion_create_params as chat

            return (
                chat.CompletionCreateParamsStreaming
                if streams
                else chat.CompletionCreateParamsNonStreaming
            )
        case "responses":
            from openai.types.responses import response_create_params as responses

            return (
                responses.ResponseCreateParamsStreaming
                if streams
                else responses.ResponseCreateParamsNonStreaming
            )
        case "anthropic":
            from anthropic.types import message_create_params as messages

            return (
                messages.MessageCreateParamsStreaming
                if streams
                else messages.MessageCreateParamsNonStreaming
            )
        case "gemini":
            return _generate_content_request()


def _generate_content_request() -> Any:
    """The body of Gemini's generateContent: the SDK has types for its fields, none for itself."""
    from google.genai import types

    fields: dict[str, Any] = {
        "contents": list[types.Content],
        "system_instruction": types.Content,
        "tools": list[types.Tool],
        "tool_config": types.ToolConfig,
        "safety_settings": list[types.SafetySetting],
        "generation_config": types.GenerationConfig,
        "cached_content": str,
        "labels": dict[str, str],
        "service_tier": str,
        "store": bool,
    }
    return create_model(
        "GenerateContentRequest",
        __config__=ConfigDict(extra="forbid", alias_generator=to_camel, populate_by_name=True),
        **{name: (kind | None, None) for name, kind in fields.items()},
    )


def _strict(schema: Any) -> Any:
    """A schema with lists for iterables and literals for enums.

    Pydantic checks an iterable only when it is read, and Google's enums take any text.
    """
    if isinstance(schema, list):
        return [_strict(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    match schema.get("type"):
        case "enum":
            kept = {key: schema[key] for key in ("ref",) if key in schema}
            return {"type": "literal", "expected": [one.value for one in schema["members"]], **kept}
        case "generator":
            schema = schema | {"type": "list"}
    return {key: _strict(value) for key, value in schema.items()}


# --- which of the errors is told ------------------------------------------------------


def _first(errors: Sequence[ErrorDetails], body: dict[str, Any]) -> Violation:
    """Of all errors in all members of all unions, the deepest in a member that was meant.

    A member was not meant if its tag is another, or if the value is of another JSON type.
    """
    tags = [error for error in errors if _is_of_tag(error)]
    tags = _outside(tags, {error["loc"][:-1] for error in tags}, least=2)
    tagged = _outside(errors, {error["loc"][:-1] for error in tags})
    meant = _outside(tagged, {error["loc"] for error in tagged if _is_of_member(error, body)})

    def rank(error: ErrorDetails) -> tuple[int, bool, bool]:
        return len(_path(error, body)), error in tagged, error["type"] == "literal_error"

    found = max(meant or [*tagged, *tags], key=rank)
    path = _path(found, body)
    alike = [
        one
        for one in (meant or [*tagged, *tags])
        if one["type"] == found["type"] and _path(one, body) == path
    ]
    expected = [str(one.get("ctx", {}).get("expected", one["msg"])) for one in alike]
    return Violation(
        KINDS.get(found["type"], "type"), path, found["input"], ", ".join(dict.fromkeys(expected))
    )


def _is_of_tag(error: ErrorDetails) -> bool:
    return error["loc"][-1] in TAGS and error["type"] in KINDS


def _is_of_member(error: ErrorDetails, body: Any) -> bool:
    """Whether an error is of a union's member as a whole: the last step is only its name."""
    before: Any = {**error, "loc": error["loc"][:-1]}
    return error["type"] != "missing" and _path(error, body) == _path(before, body)


def _outside(
    errors: Sequence[ErrorDetails], places: Collection[tuple[Step, ...]], *, least: int = 0
) -> list[ErrorDetails]:
    """The errors that are in none of the places: there means at `least` so many steps below."""
    return [
        error
        for error in errors
        if not any(
            error["loc"][: len(place)] == place and len(error["loc"]) >= len(place) + least
            for place in places
        )
    ]


def _path(error: ErrorDetails, body: Any) -> tuple[Step, ...]:
    """Where an error is in the body: without the names of members that pydantic puts between."""
    path: list[Step] = []
    for step in error["loc"]:
        if isinstance(step, int) if isinstance(body, list) else _has(body, step):
            body = body[step]
            path.append(step)
    return (*path, error["loc"][-1]) if error["type"] == "missing" else tuple(path)


def _has(body: Any, step: Step) -> bool:
    return isinstance(body, dict) and step in body
