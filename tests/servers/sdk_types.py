"""Requests checked against the types of the providers' own SDKs: strictly, and with no other keys.

A body that these types refuse is one that the SDK's type checker, and other servers that were
made from the same specification, refuse too. What a type can't say (a range, an order, what goes
with what) is checked by the modules of each provider.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from functools import cache
from typing import Any, Literal, NamedTuple, TypeAlias

from anthropic.types.message_create_params import (
    MessageCreateParamsNonStreaming,
    MessageCreateParamsStreaming,
)
from google.genai import types as gemini
from openai.types.chat.completion_create_params import (
    CompletionCreateParamsNonStreaming,
    CompletionCreateParamsStreaming,
)
from openai.types.responses.response_create_params import (
    ResponseCreateParamsNonStreaming,
    ResponseCreateParamsStreaming,
)
from pydantic import BaseModel, ConfigDict, TypeAdapter
from pydantic.alias_generators import to_camel
from pydantic_core import ErrorDetails, SchemaValidator, ValidationError

Step: TypeAlias = str | int
Kind: TypeAlias = Literal["unknown", "missing", "value", "type"]
# What tells the members of a union from each other.
TAGS = ("type", "role")
KINDS: dict[str, Kind] = {
    "extra_forbidden": "unknown",
    "missing": "missing",
    "literal_error": "value",
}


class GenerateContentRequest(BaseModel):
    """The body of Gemini's generateContent: the SDK has types for its fields, none for itself."""

    model_config = ConfigDict(extra="forbid", alias_generator=to_camel, populate_by_name=True)

    contents: list[gemini.Content] | None = None
    system_instruction: gemini.Content | None = None
    tools: list[gemini.Tool] | None = None
    tool_config: gemini.ToolConfig | None = None
    safety_settings: list[gemini.SafetySetting] | None = None
    generation_config: gemini.GenerationConfig | None = None
    cached_content: str | None = None
    labels: dict[str, str] | None = None
    service_tier: gemini.ServiceTier | None = None
    store: bool | None = None


class Violation(NamedTuple):
    """The first thing that a type refuses in a body: where it is, and what is there."""

    kind: Kind
    path: tuple[Step, ...]
    given: Any
    # For "value" the values that would do, for "type" what is wrong, in pydantic's words.
    expected: str

    def at(self) -> str:
        """The path as text: `messages[0].content`."""
        text = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in self.path)
        return text.removeprefix(".")


def violation_of(kind: Any, streamed: Any, body: dict[str, Any]) -> Violation | None:
    """What is wrong with a body by the SDK's types; None if they take it.

    Args:
        kind: The type of a request.
        streamed: The type of a request whose answer is streamed.
        body: The request, as it came.
    """
    validator = _validator(streamed if body.get("stream") is True else kind)
    try:
        # As JSON: strict there means that an enum or bytes are text, as they are on the wire.
        validator.validate_json(json.dumps(body), strict=True, extra="forbid")
    except ValidationError as no:
        return _first(no.errors(include_url=False), body)
    return None


@cache
def _validator(kind: Any) -> SchemaValidator:
    return SchemaValidator(_strict(TypeAdapter(kind).core_schema), _use_prebuilt=False)


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


def _first(errors: Sequence[ErrorDetails], body: dict[str, Any]) -> Violation:
    """Of all errors in all members of all unions, the deepest in a member that was meant.

    A member was not meant if its tag is another, or if the value is of another JSON type.
    """
    tags = [error for error in errors if _is_of_tag(error)]
    tagged = _outside(errors, {error["loc"][:-1] for error in tags})
    meant = _outside(tagged, {error["loc"] for error in tagged if _is_of_member(error, body)})

    def rank(error: ErrorDetails) -> tuple[int, bool, bool]:
        return len(_path(error, body)), error in tagged, error["type"] == "literal_error"

    found = max(meant or [*tagged, *tags], key=rank)
    path = _path(found, body)
    alike = [
        one for one in errors if one["type"] == found["type"] and _path(one, body) == path
    ] or [found]
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


def _outside(
    errors: Sequence[ErrorDetails], places: Collection[tuple[Step, ...]]
) -> list[ErrorDetails]:
    return [error for error in errors if not any(error["loc"][: len(one)] == one for one in places)]
