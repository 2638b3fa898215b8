"""Output schemas as Anthropic takes them."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.adapters.anthropic_pieces import (
    encoded,
    user,
)
from turnledger.adapters.providers.anthropic.schemas import UnfitSchemaError, fitted


def test_an_output_is_asked_for_beside_the_other_configuration() -> None:
    """The schema is closed, and what the caller configured stays."""
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    form = {"type": "json_schema", "json_schema": {"name": "sum", "schema": schema}}
    options = {"output_config": {"effort": "low"}}
    payload = encoded(user("Go"), response_format=form, options=options)
    assert payload["output_config"] == {
        "effort": "low",
        "format": {"type": "json_schema", "schema": {**schema, "additionalProperties": False}},
    }
    assert options == {"output_config": {"effort": "low"}}


def test_what_can_not_be_enforced_is_told_in_words() -> None:
    """A keyword that the API refuses moves to the description; defaults demand nothing."""
    one = {"type": "integer", "minimum": 1, "default": 3, "description": "How many."}
    assert fitted(one) == {
        "type": "integer",
        "description": 'How many.\nIt has to fit: {"minimum":1}',
    }
    assert fitted({"oneOf": [{"type": "string", "format": "uuid"}, {"const": 1}]}) == {
        "anyOf": [{"type": "string", "format": "uuid"}, {"const": 1}]
    }
    assert fitted({"type": "string", "format": "regex"})["description"].endswith('"regex"}')


def test_a_tuple_becomes_an_array_of_its_kinds() -> None:
    """The kinds are enforced; the order and the number are told."""
    kinds = [{"type": "integer"}, {"type": "string"}]
    fit = fitted({"type": "array", "prefixItems": kinds, "minItems": 2, "items": False})
    assert fit["items"] == {"anyOf": kinds}
    assert fit["description"].startswith('It has to fit: {"minItems":2,"prefixItems":')


def test_a_type_that_holds_itself_keeps_its_definitions() -> None:
    """A reference stands alone, and what it refers to is closed too."""
    node = {"type": "object", "properties": {"next": {"$ref": "#/$defs/N", "title": "more"}}}
    fit = fitted({**node, "$defs": {"N": node}})
    assert fit["properties"] == {"next": {"$ref": "#/$defs/N"}}
    assert fit["$defs"]["N"]["additionalProperties"] is False


@pytest.mark.parametrize(
    "part",
    [
        {"type": "object", "additionalProperties": {"type": "integer"}},
        {"type": "object"},
        {"type": ["object", "null"]},
        {"type": "array", "items": {}},
        {},
        True,
    ],
)
def test_an_output_with_open_keys_is_an_error_that_says_where(part: Any) -> None:
    """Closed, as the API wants all objects, it could hold nothing."""
    with pytest.raises(UnfitSchemaError, match=r"the output\.part.*use_native_response_format"):
        fitted({"type": "object", "properties": {"part": part}})
