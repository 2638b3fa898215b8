"""Structured output of a prompt: its JSON schema, the instructions for it, and its parser.

An output is an object, or an array of one type (`list[Bug]`). Providers that enforce a schema
need an object at its root, so an array is wrapped in `{"items": [...]}` for them; in plain text
it is asked for, and parsed, as it is. The adapter decides which way is used. The instructions
are part of the prompt's digest, and parse errors are recorded: a changed text makes recorded
runs diverge.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from copy import deepcopy
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Generic, Literal, TypeVar, cast, get_args, get_origin

import msgspec

from turnledger.runtime.agent.schema.mismatch import Mismatch, got, mismatches
from turnledger.runtime.agent.schema.schema import Schema, decode, json_schema
from turnledger.runtime.agent.schema.values import at_key, read_json, to_plain
from turnledger.runtime.errors import OutputParseError, SchemaError, UnsupportedTypeError

T = TypeVar("T")

ARRAY_KEY = "items"
_FENCE = r"(?si)```(?:json)?[ \t]*\r?\n(?P<inside>.*)```"
_BEGINNING = 80
# How many problems of one answer a model is told.
_MOST_PROBLEMS = 5


@dataclass(frozen=True)
class OutputSpec(Generic[T]):
    """The type of a prompt's output, and how its text is parsed.

    Attributes:
        kind: The type of the whole output.
        container: Whether it is an object or an array.
        allow_extra_keys: Accept keys that the type does not have.
    """

    kind: Any
    container: Literal["object", "array"] = "object"
    allow_extra_keys: bool = False

    @classmethod
    def of(cls, kind: Any, *, allow_extra_keys: bool = False) -> OutputSpec[Any] | None:
        """Make the spec of a type; None for text, which is not parsed.

        UnsupportedTypeError for a type that is neither an object nor a list of one type.
        """
        if kind is None or kind is Any or kind in (type(None), str):
            return None
        spec: OutputSpec[Any]
        if _is_array(kind):
            spec = OutputSpec(kind, "array", allow_extra_keys)
        else:
            spec = OutputSpec(kind, "object", allow_extra_keys)
        if spec.container == "object" and not _is_object(spec.schema):
            raise UnsupportedTypeError(
                f"{kind!r} is not a JSON object; expected a dataclass, a msgspec Struct, a "
                "pydantic model, or a list of one of these"
            )
        return spec

    @property
    def output_type(self) -> Any:
        """The type of the object, or of the array's items."""
        return get_args(self.kind)[0] if self.container == "array" else self.kind

    @cached_property
    def schema(self) -> Schema:
        """The schema of the whole output, for instructions in plain text."""
        return json_schema(self.kind, allow_extra_keys=self.allow_extra_keys)

    @cached_property
    def native_schema(self) -> Schema:
        """The schema for providers that enforce one: always an object."""
        if self.container == "object":
            return self.schema
        array = {key: value for key, value in self.schema.items() if key != "$defs"}
        wrapped: Schema = {
            "type": "object",
            "properties": {ARRAY_KEY: array},
            "required": [ARRAY_KEY],
            "additionalProperties": False,
        }
        definitions = self.schema.get("$defs")
        return {**wrapped, "$defs": definitions} if definitions else wrapped

    def response_format(self, name: str) -> dict[str, Any]:
        """Return the `response_format` for providers that enforce schemas."""
        known_as = re.sub(r"[^a-zA-Z0-9_-]+", "_", name).strip("_")[:64] or "output"
        return {
            "type": "json_schema",
            "json_schema": {"name": known_as, "schema": deepcopy(self.native_schema)},
        }

    @cached_property
    def instructions(self) -> str:
        """The text that a prompt ends with if the provider enforces no schema."""
        schema = msgspec.json.format(msgspec.json.encode(self.schema), indent=2).decode()
        return (
            f"Answer with one JSON {self.container} and nothing before or after it. "
            f"It has to fit this JSON schema:\n\n```json\n{schema}\n```"
        )

    def parse(self, text: str) -> T:
        """Parse the output from text: JSON, alone or in one ```json fence.

        OutputParseError says what is wrong, and where.
        """
        try:
            data = read_json(_json_in(text))
        except SchemaError as error:
            raise OutputParseError(
                f"{error.reason}; the answer begins with {text[:_BEGINNING]!r}", path=error.path
            ) from error
        return self._decoded(data)

    def parse_native(self, payload: Any) -> T:
        """Convert what a provider has parsed already: JSON data, or the value itself."""
        if isinstance(self.kind, type) and isinstance(payload, self.kind):
            return cast(T, payload)
        if isinstance(payload, str):
            raise OutputParseError("a parsed output is JSON data, and this is text; parse() it")
        try:
            return self._decoded(to_plain(payload))
        except OutputParseError:
            raise
        except SchemaError as error:
            raise OutputParseError(error.reason, path=error.path) from error

    def problem(self, reply: Any, error: SchemaError) -> str:
        """What is wrong with an answer that was refused, for the model: path, expected and got.

        In words of this package: those of a validator name its version, and are not recorded.

        Args:
            reply: The answer: text, or the JSON data that a provider has parsed.
            error: What `parse` or `parse_native` raised.
        """
        try:
            data = read_json(_json_in(reply)) if isinstance(reply, str) else to_plain(reply)
        except SchemaError as unread:
            if unread.path:  # JSON with a value that can't be kept
                return f"{unread.path}: {unread.reason}"
            return f"expected one JSON {self.container}, got {got(reply)}"
        data, at = self._unwrapped(data)
        found = list(mismatches(self.schema, data)) or [_by_validator(data, error, at)]
        shown = [str(one._replace(path=at + one.path)) for one in found[:_MOST_PROBLEMS]]
        if len(found) > len(shown):
            shown.append(f"and {len(found) - len(shown)} more")
        return "; ".join(shown)

    def _unwrapped(self, data: Any) -> tuple[Any, str]:
        """The data without the object around an array, and the path of that array."""
        if self.container == "array" and isinstance(data, Mapping) and set(data) == {ARRAY_KEY}:
            return data[ARRAY_KEY], ARRAY_KEY
        return data, ""

    def _decoded(self, data: Any) -> T:
        data, at = self._unwrapped(data)
        try:
            value: T = decode(self.kind, data, allow_extra_keys=self.allow_extra_keys)
        except SchemaError as error:
            raise OutputParseError(error.reason, path=at + error.path) from error
        return value


def _json_in(text: str) -> str:
    """The text of an answer, without a fence around it."""
    inside = text.strip()
    fenced = re.fullmatch(_FENCE, inside)
    return fenced["inside"] if fenced else inside


def _by_validator(data: Any, error: SchemaError, at: str) -> Mismatch:
    """What fits the schema and was refused all the same, at the place that the error names.

    Of the path only what the data has: a validator may put names of its own into it.
    """
    path, value = "", data
    for name, place in re.findall(r"([^.\[\]]+)(?=\.|\[|$)|\[(\d+)\]", error.path.removeprefix(at)):
        if isinstance(value, Mapping) and name in value:
            path, value = at_key(path, name), value[name]
        elif isinstance(value, list) and place and int(place) < len(value):
            path, value = f"{path}[{place}]", value[int(place)]
        else:
            break
    return Mismatch(path, f"rejected by its validator, got {got(value)}")


def _is_array(kind: Any) -> bool:
    arguments = get_args(kind)
    if get_origin(kind) is list:
        return True
    return get_origin(kind) is tuple and len(arguments) == 2 and arguments[1] is Ellipsis


def _is_object(schema: Schema) -> bool:
    choices = schema.get("anyOf") or schema.get("oneOf")
    if choices:
        return all(_is_object(choice) for choice in choices)
    if "$ref" in schema:
        return True  # only recursive types keep a $ref, and these are objects
    return schema.get("type") == "object"
