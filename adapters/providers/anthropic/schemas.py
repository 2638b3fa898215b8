"""JSON schemas as Anthropic's structured outputs take them: closed objects, and few keywords.

What the provider can't enforce is said in the description instead: the model reads it, and the
answer is checked against the whole schema when it is parsed.
"""

from __future__ import annotations

from typing import Any

import msgspec

from turnledger.ledger import InvalidInputError

_AS_THEY_ARE = frozenset({"type", "title", "description", "required"})
_NAMED = frozenset({"properties", "$defs", "definitions"})
# The provider knows one of anyOf and oneOf; for an answer they are the same.
_LISTED = {"anyOf": "anyOf", "oneOf": "anyOf", "allOf": "allOf"}
_FORMATS = frozenset(
    {"date-time", "time", "date", "duration", "email", "hostname", "uri", "ipv4", "ipv6", "uuid"}
)
# Keywords that demand nothing of an answer.
_SAY_NOTHING = frozenset({"default", "examples", "$schema", "$id", "$comment", "discriminator"})
# One of these has to say what a value is.
_WHAT_IT_IS = frozenset({"type", "enum", "const", "anyOf", "allOf"})


class UnfitSchemaError(InvalidInputError):
    """The provider can't be held to a schema: nothing was sent."""

    def __init__(self, path: str, why: str) -> None:
        self.path = path
        super().__init__(
            f"Anthropic can't be held to this output's schema: {path} {why}. Name its fields, or "
            "say use_native_response_format=False to have the schema sent as text."
        )


def fitted(schema: Any, path: str = "the output") -> dict[str, Any]:
    """The schema, as far as the provider can enforce it; UnfitSchemaError where it must not be.

    An object that may have any keys can't be said: closed, as it would have to be, it could
    have none.
    """
    if not isinstance(schema, dict):
        raise UnfitSchemaError(path, "may be anything")
    fit: dict[str, Any] = {}
    told: dict[str, Any] = {}
    for key, value in schema.items():
        if key in _AS_THEY_ARE:
            fit[key] = value
        elif key in _NAMED:
            fit[key] = {name: fitted(part, f"{path}.{name}") for name, part in value.items()}
        elif key in _LISTED:
            fit[_LISTED[key]] = [fitted(part, path) for part in value]
        elif _is_enforced(key, value):
            fit[key] = value
        elif key == "items":
            if "prefixItems" not in schema:
                fit[key] = fitted(value, f"{path}[]")
        elif key != "additionalProperties" and key not in _SAY_NOTHING:
            told[key] = value
    if "$ref" in schema:
        return {key: fit[key] for key in ("$ref", "$defs", "definitions") if key in fit}
    if "prefixItems" in schema:
        fit["items"] = {"anyOf": [fitted(part, f"{path}[]") for part in schema["prefixItems"]]}
    if not fit.keys() & _WHAT_IT_IS:
        raise UnfitSchemaError(path, "may be anything")
    _close(schema, fit, path)
    if told:
        also = f"It has to fit: {msgspec.json.encode(told, order='sorted').decode()}"
        fit["description"] = f"{fit['description']}\n{also}" if fit.get("description") else also
    return fit


def _is_enforced(key: str, value: Any) -> bool:
    match key:
        case "$ref":
            return True
        case "enum":
            return all(_is_plain(one) for one in value)
        case "const":
            return _is_plain(value)
        case "format":
            return value in _FORMATS
        case "minItems":
            return value in (0, 1)
    return False


def _is_plain(value: Any) -> bool:
    return value is None or isinstance(value, str | int | float)


def _close(schema: dict[str, Any], fit: dict[str, Any], path: str) -> None:
    kinds = schema.get("type")
    is_object = kinds == "object" or (isinstance(kinds, list) and "object" in kinds)
    if not is_object and "properties" not in schema:
        return
    others = schema.get("additionalProperties", True)
    if isinstance(others, dict) or (others and not schema.get("properties")):
        raise UnfitSchemaError(path, "may have any keys")
    # Other keys may be allowed, but no output type declares them.
    fit["additionalProperties"] = False
