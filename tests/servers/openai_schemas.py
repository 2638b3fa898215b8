"""The JSON schemas that OpenAI takes: for a tool's parameters, and for an answer's format.

Without `strict` only the root and what cannot be read are refused. With it, a schema has to keep
to the subset that the model's output can be held to.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NoReturn

from tests.servers.openai_shared import refuse

TYPES = ("string", "number", "integer", "boolean", "object", "array", "null")
FORMATS = (
    "date-time",
    "time",
    "date",
    "duration",
    "email",
    "hostname",
    "ipv4",
    "ipv6",
    "uuid",
)
NOT_AT_THE_ROOT = ("oneOf", "anyOf", "allOf", "enum", "not")
STRICT_KEYWORDS = frozenset(
    {
        "$defs",
        "$ref",
        "$schema",
        "additionalProperties",
        "anyOf",
        "const",
        "definitions",
        "description",
        "enum",
        "exclusiveMaximum",
        "exclusiveMinimum",
        "format",
        "items",
        "maxItems",
        "maxLength",
        "maximum",
        "minItems",
        "minLength",
        "minimum",
        "multipleOf",
        "pattern",
        "properties",
        "required",
        "title",
        "type",
    }
)
DEEPEST = 10

Context = tuple[str, ...]


def check_parameters(schema: Any, name: str, param: str, *, strict: bool) -> None:
    """The parameters of a function."""
    rules = _Rules(f"function '{name}'", param, "invalid_function_parameters", strict)
    rules.root(schema)
    if "properties" not in schema:
        rules.no_at((), "object schema missing properties.")


def check_format(schema: Any, name: str, param: str, code: str | None, *, strict: bool) -> None:
    """The format of an answer."""
    _Rules(f"response_format '{name}'", param, code, strict).root(schema)


@dataclass(frozen=True)
class _Rules:
    """The rules for one schema; `label` is how OpenAI calls it in an error."""

    label: str
    param: str
    code: str | None
    strict: bool

    def root(self, schema: Any) -> None:
        found = schema.get("type") if isinstance(schema, dict) else None
        if found != "object":
            self._no(
                f"schema must be a JSON Schema of 'type: \"object\"', got 'type: \"{found}\"'."
            )
        if any(word in schema for word in NOT_AT_THE_ROOT):
            self._no(
                "schema must have type 'object' and not have 'oneOf'/'anyOf'/'allOf'/'enum'/'not' "
                "at the top level."
            )
        self._node(schema, (), schema, depth=1)

    def _no(self, reason: str) -> NoReturn:
        refuse(f"Invalid schema for {self.label}: {reason}", self.param, self.code)

    def no_at(self, context: Context, reason: str) -> NoReturn:
        self._no(f"In context={context!r}, {reason}")

    def _node(self, node: Any, context: Context, root: dict[str, Any], depth: int) -> None:
        if isinstance(node, bool) and not self.strict:
            return
        if not isinstance(node, dict):
            self._no(f"{node!r} is not of type 'object', 'boolean'.")
        self._types(node)
        if "array" in _types_of(node) and "items" not in node:
            self.no_at(context, "array schema missing items.")
        if self.strict:
            self._strict(node, context, root, depth)
        deeper = depth + 1 if "object" in _types_of(node) else depth
        for inner, step in _inner(node):
            self._node(inner, context + step, root, deeper)

    def _types(self, node: dict[str, Any]) -> None:
        for found in _types_of(node):
            if found not in TYPES:
                self._no(f"{node['type']!r} is not valid under any of the given schemas.")
        if not isinstance(node.get("properties", {}), dict):
            self._no(f"{node['properties']!r} is not of type 'object'.")
        required = node.get("required", [])
        if not isinstance(required, list) or not all(isinstance(name, str) for name in required):
            self._no(f"{required!r} is not of type 'array'.")

    def _strict(
        self, node: dict[str, Any], context: Context, root: dict[str, Any], depth: int
    ) -> None:
        if "$ref" in node:
            self._reference(node, context, root)
            return
        for word in node:
            if word not in STRICT_KEYWORDS:
                self.no_at(context, f"'{word}' is not permitted.")
        if not any(word in node for word in ("type", "anyOf", "enum", "const")):
            self.no_at(context, "schema must have a 'type' key.")
        if "format" in node and node["format"] not in FORMATS:
            self.no_at(context, f"'{node['format']}' is not a valid format.")
        if "object" in _types_of(node):
            self._object(node, context)
            if depth > DEEPEST:
                self._no(f"{depth} levels of nesting exceeds limit of {DEEPEST}.")

    def _object(self, node: dict[str, Any], context: Context) -> None:
        if node.get("additionalProperties") is not False:
            self.no_at(
                context, "'additionalProperties' is required to be supplied and to be false."
            )
        names = list(node.get("properties", {}))
        required = node.get("required", [])
        for name in names:
            if name not in required:
                self.no_at(
                    context,
                    "'required' is required to be supplied and to be an array including every key "
                    f"in properties. Missing '{name}'.",
                )
        for name in required:
            if name not in names:
                self.no_at(
                    context,
                    "'required' is required to be supplied and to be an array including every key "
                    f"in properties. Extra required key '{name}' supplied.",
                )

    def _reference(self, node: dict[str, Any], context: Context, root: dict[str, Any]) -> None:
        beside = {word for word in node if word != "$ref"}
        if beside:
            self.no_at(context, f"$ref cannot have keywords {beside!r}.")
        pointer = node["$ref"]
        target: Any = root
        for step in str(pointer).removeprefix("#").strip("/").split("/"):
            if step:
                target = target.get(step) if isinstance(target, dict) else None
        if not str(pointer).startswith("#") or target is None:
            self.no_at(
                context, f"reference to component '{pointer}' which was not found in the schema."
            )


def _types_of(node: dict[str, Any]) -> list[Any]:
    found = node.get("type", [])
    return found if isinstance(found, list) else [found]


def _inner(node: dict[str, Any]) -> Iterator[tuple[Any, Context]]:
    """The schemas within a schema, and the way to them."""
    for word in ("properties", "$defs", "definitions"):
        named = node.get(word)
        for name, inner in named.items() if isinstance(named, dict) else ():
            yield inner, (word, name)
    if isinstance(node.get("items"), dict):
        yield node["items"], ("items",)
    for word in ("anyOf", "oneOf", "allOf"):
        listed = node.get(word)
        for index, inner in enumerate(listed if isinstance(listed, list) else ()):
            yield inner, (word, str(index))
