"""Where JSON data does not fit a JSON schema, in words of this package.

A model is told what is wrong with its answer, and that text is recorded and compared by a replay.
What pydantic, msgspec and the `json` module say differs from version to version, so the words are
made from the schema ("expected") and the data ("got") alone. This is not a validator: it explains
data that was refused already, and finds nothing where the schema does not say what is wrong.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, NamedTuple

import msgspec

from turnledger.projections.digests import canonical
from turnledger.runtime.agent.schema.refs import Schema, target_of
from turnledger.runtime.agent.schema.values import at_key

# Longer text of the data is cut.
_LONGEST = 60
_TYPES: dict[str, tuple[type, ...]] = {
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "null": (type(None),),
    "object": (dict,),
    "array": (list,),
}
_NAMES = {
    "string": "text",
    "integer": "a whole number",
    "number": "a number",
    "boolean": "true or false",
    "null": "null",
    "object": "an object",
    "array": "a list",
}
_FORMATS = {
    "date": "a date like 2026-01-31",
    "date-time": "a date and time like 2026-01-31T12:00:00Z",
    "time": "a time like 12:00:00",
    "duration": "a duration like PT1H30M",
    "uuid": "a UUID",
}
# Limits of values, in words.
_BOUNDS = (
    ("minimum", "at least {}"),
    ("exclusiveMinimum", "above {}"),
    ("maximum", "at most {}"),
    ("exclusiveMaximum", "below {}"),
    ("multipleOf", "a multiple of {}"),
    ("minLength", "at least {} characters"),
    ("maxLength", "at most {} characters"),
    ("pattern", "matching {}"),
    ("minItems", "at least {} items"),
    ("maxItems", "at most {} items"),
)


class Mismatch(NamedTuple):
    """One place where data does not fit: its path ("items[2].name"; empty at the root), and why."""

    path: str
    problem: str

    def __str__(self) -> str:
        return f"{self.path}: {self.problem}" if self.path else self.problem


def mismatches(schema: Schema, data: Any) -> Iterator[Mismatch]:
    """The places where the data does not fit the schema, in the order of the schema."""
    return _Walk(schema.get("$defs", {})).check(schema, data, "")


def got(value: Any) -> str:
    """A JSON value, short: its kind and its text."""
    if isinstance(value, str):
        return f"text {_quoted(value)}"
    if isinstance(value, dict):
        return "an object" if value else "an empty object"
    if isinstance(value, list):
        return "a list" if value else "an empty list"
    return _json(value)


def _json(value: Any) -> str:
    return _quoted(value) if isinstance(value, str) else msgspec.json.encode(value).decode()


def _quoted(text: str) -> str:
    cut = text if len(text) <= _LONGEST else text[: _LONGEST - 1] + "…"
    return msgspec.json.encode(cut).decode()


class _Walk:
    """Compares data with a schema and its definitions."""

    def __init__(self, definitions: dict[str, Schema]) -> None:
        self._definitions = definitions

    def check(self, schema: Schema, data: Any, path: str) -> Iterator[Mismatch]:
        schema = self._resolved(schema)
        choices = schema.get("anyOf") or schema.get("oneOf")
        if choices:
            yield from self._check_choices(choices, data, path)
            return
        for part in schema.get("allOf", ()):
            yield from self.check(part, data, path)
        values = _values(schema)
        if values is not None:
            if canonical(data) not in map(canonical, values):
                yield _expected(path, schema, _bare(data))
        elif not _is_of_type(schema, data):
            yield _expected(path, schema, got(data))
        elif isinstance(data, dict):
            yield from self._check_object(schema, data, path)
        elif isinstance(data, list):
            yield from self._check_list(schema, data, path)
        elif not _is_within(schema, data):
            yield _expected(path, schema, _bare(data))

    def _resolved(self, schema: Schema) -> Schema:
        target = target_of(schema)
        return schema if target is None else self._definitions.get(target, {})

    def _check_choices(self, choices: list[Schema], data: Any, path: str) -> Iterator[Mismatch]:
        """Nothing if one of them fits; else what is wrong with the one that is meant."""
        resolved = [self._resolved(choice) for choice in choices]
        if any(next(self.check(one, data, path), None) is None for one in resolved):
            return
        meant = [one for one in resolved if _is_meant(one, data)]
        if len(meant) == 1:
            yield from self.check(meant[0], data, path)
        else:
            words = dict.fromkeys(_words(one) for one in meant or resolved)
            yield Mismatch(path, f"expected {' or '.join(words)}, got {got(data)}")

    def _check_object(self, schema: Schema, data: dict[str, Any], path: str) -> Iterator[Mismatch]:
        properties: dict[str, Schema] = schema.get("properties", {})
        others = schema.get("additionalProperties")
        for name in schema.get("required", ()):
            if name not in data:
                yield Mismatch(at_key(path, name), "missing")
        for name, value in data.items():
            if name in properties:
                yield from self.check(properties[name], value, at_key(path, name))
            elif others is False:
                yield Mismatch(at_key(path, name), "not a known key")
            elif isinstance(others, dict):
                yield from self.check(others, value, at_key(path, name))

    def _check_list(self, schema: Schema, data: list[Any], path: str) -> Iterator[Mismatch]:
        first: list[Schema] = schema.get("prefixItems", [])
        items = schema.get("items")
        for place, value in enumerate(data):
            wanted = first[place] if place < len(first) else items
            if isinstance(wanted, dict):
                yield from self.check(wanted, value, f"{path}[{place}]")
        if not schema.get("minItems", 0) <= len(data) <= schema.get("maxItems", len(data)):
            yield _expected(path, schema, f"{len(data)} items")


def _expected(path: str, schema: Schema, found: str) -> Mismatch:
    return Mismatch(path, f"expected {_words(schema)}, got {found}")


def _bare(value: Any) -> str:
    """A value whose kind goes without saying."""
    return got(value) if isinstance(value, dict | list) else _json(value)


def _values(schema: Schema) -> list[Any] | None:
    """The only values that a schema takes; None if it does not list them."""
    return [schema["const"]] if "const" in schema else schema.get("enum")


def _types(schema: Schema) -> list[str]:
    kinds = schema.get("type", [])
    return [kinds] if isinstance(kinds, str) else kinds


def _is_of_type(schema: Schema, data: Any) -> bool:
    kinds = _types(schema)
    if isinstance(data, bool):
        return not kinds or "boolean" in kinds
    return not kinds or any(isinstance(data, _TYPES.get(kind, ())) for kind in kinds)


def _is_meant(schema: Schema, data: Any) -> bool:
    """Whether this alternative is of the data's type, and has the tag that the data has."""
    if _values(schema) is not None or not _is_of_type(schema, data):
        return False
    if not isinstance(data, dict):
        return True
    fields: dict[str, Schema] = schema.get("properties", {})
    tags = {name: values for name, one in fields.items() if (values := _values(one)) is not None}
    return all(data.get(name) in values for name, values in tags.items() if name in data)


def _is_within(schema: Schema, data: Any) -> bool:
    """Whether text or a number keeps the limits that the schema has for it."""
    if isinstance(data, str):
        pattern = schema.get("pattern")
        is_long_enough = schema.get("minLength", 0) <= len(data)
        is_short_enough = len(data) <= schema.get("maxLength", len(data))
        return is_long_enough and is_short_enough and (pattern is None or _matches(pattern, data))
    if isinstance(data, bool) or not isinstance(data, int | float):
        return True
    return (
        schema.get("minimum", data) <= data <= schema.get("maximum", data)
        and schema.get("exclusiveMinimum", data - 1) < data
        and data < schema.get("exclusiveMaximum", data + 1)
        and not (schema.get("multipleOf") and data % schema["multipleOf"])
    )


def _matches(pattern: str, text: str) -> bool:
    try:
        return re.search(pattern, text) is not None
    except re.error:
        return True  # in another dialect: it is not known


def _words(schema: Schema) -> str:
    """What a schema takes, in words."""
    values = _values(schema)
    if values is not None:
        named = ", ".join(_json(value) for value in values)
        return named if len(values) == 1 else f"one of {named}"
    kinds = [_NAMES.get(kind, kind) for kind in _types(schema)]
    words = _FORMATS.get(schema.get("format", "")) or " or ".join(kinds) or "another value"
    bounds = [text.format(_json(schema[name])) for name, text in _BOUNDS if name in schema]
    return f"{words} ({', '.join(bounds)})" if bounds else words
