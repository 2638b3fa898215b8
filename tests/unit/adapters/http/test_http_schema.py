"""The API's document and its decoder agree: what one refuses, the other refuses."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any
from uuid import UUID

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator, FormatChecker
from schemathesis.specs.openapi.definitions import OPENAPI_31

from docs.http_pages import served_document
from tests.unit.ledger.strategies import json_values, of_struct
from turnledger.adapters.http.protocol import problems
from turnledger.adapters.http.protocol.bodies import JSON, NDJSON, decoded
from turnledger.adapters.http.protocol.envelopes import TAGS, read_batch
from turnledger.adapters.http.protocol.problems import Kind, ProblemError
from turnledger.adapters.http.routes.run.claims import ClaimRequest
from turnledger.ledger.events.types import EVENT_TYPES

DOCUMENT = served_document()
APPEND = DOCUMENT["paths"]["/v1/runs/{run}/events"]["post"]
# A blob alone is nothing to append, by a rule that no schema has.
NOTE = {"type": "custom", "data": {"kind": "shop.note"}}

formats = FormatChecker(formats=())


def as_decoded(kind: type) -> Callable[[object], bool]:
    """A format as the decoder has it; it applies to text only."""

    def check(value: object) -> bool:
        if isinstance(value, str):
            msgspec.convert(value, kind)
        return True

    return check


formats.checks("uuid", msgspec.ValidationError)(as_decoded(UUID))
formats.checks("date-time", msgspec.ValidationError)(as_decoded(datetime))


def validator(schema: dict[str, Any]) -> Draft202012Validator:
    return Draft202012Validator(
        {**schema, "components": DOCUMENT["components"]}, format_checker=formats
    )


SCHEMA = APPEND["requestBody"]["content"][JSON]["schema"]
BATCH = validator(SCHEMA)
ITEMS = {
    name: validator({"$ref": f"#/components/schemas/{name}"})
    for name in DOCUMENT["components"]["schemas"]
    if name.endswith("Envelope")
}


def schema_takes(tag: str, item: Any) -> bool:
    name = "Blob" if tag == "blob" else EVENT_TYPES[tag].__name__
    return ITEMS[f"{name}Envelope"].is_valid(item)


def decoder_takes(item: Any, *more: Any) -> bool:
    """Whether the decoder takes it; what only a rule of the ledger refuses, it takes."""
    try:
        read_batch(msgspec.json.encode([item, *more]), JSON)
    except ProblemError as error:
        return error.kind is problems.REFUSED
    return True


def envelope(tag: str, event: Any) -> dict[str, Any]:
    made: dict[str, Any] = msgspec.json.decode(msgspec.json.encode({"type": tag, "data": event}))
    return made


@pytest.mark.parametrize("tag", TAGS)
@settings(max_examples=25)
@given(data=st.data())
def test_a_valid_and_a_misspelt_body_of_each_event(tag: str, data: st.DataObject) -> None:
    """Both take the event, and neither takes it with a field, or its type, misspelt."""
    item = envelope(tag, data.draw(of_struct(EVENT_TYPES[tag])))
    assert schema_takes(tag, item), list(BATCH.iter_errors([item]))
    assert decoder_takes(item)
    name = data.draw(st.sampled_from(EVENT_TYPES[tag].__struct_fields__))
    misspelt = {**item, "data": {**item["data"], f"{name}s": item["data"].get(name)}}
    for wrong in (misspelt, {**item, "type": f"{tag}s"}, {**item, "eventid": None}):
        assert not schema_takes(tag, wrong)
        assert not decoder_takes(wrong)


@pytest.mark.parametrize("tag", TAGS)
@settings(max_examples=25)
@given(data=st.data())
def test_what_one_refuses_the_other_refuses(tag: str, data: st.DataObject) -> None:
    """Also where any value of an event is another one, or is missing."""
    item = envelope(tag, data.draw(of_struct(EVENT_TYPES[tag])))
    changed(item, data)
    assert schema_takes(tag, item) == decoder_takes(item), item


def changed(item: Any, data: st.DataObject) -> None:
    """Replace or remove one value, at any depth."""
    places = list(places_in(item))
    owner, key = data.draw(st.sampled_from(places))
    if isinstance(owner, dict) and data.draw(st.booleans()):
        del owner[key]
    else:
        owner[key] = data.draw(json_values | st.integers(0, 9).map(float))


def places_in(value: Any) -> Any:
    keys = range(len(value)) if isinstance(value, list) else value
    for key in list(keys):
        if not (key == "type" and value.get("type") in TAGS):
            yield value, key
        if isinstance(value[key], list | dict):
            yield from places_in(value[key])


@given(st.text("AZaz09+/=_- \n", max_size=9))
def test_a_blob_is_base64(text: str) -> None:
    """As the document's pattern says, which other languages check it by."""
    item = {"type": "blob", "data": {"content": text}}
    if not text.endswith("\n"):  # before which Python's $ matches too
        assert schema_takes("blob", item) == decoder_takes(item, NOTE)


@pytest.mark.parametrize("body", [{}, None, [[]], [NOTE], [{**NOTE, "type": "customs"}], NOTE])
def test_a_batch(body: Any) -> None:
    """A list of items."""
    assert BATCH.is_valid(body) == decoder_takes_body(msgspec.json.encode(body), JSON)


@pytest.mark.parametrize("count", [0, 1, 1000, 1001])
def test_the_length_of_a_batch(count: int) -> None:
    """1 to 1,000 items, as a list of JSON or as lines."""
    body = [NOTE] * count
    # Its items are the same: to check each of them would take seconds.
    length = validator({**SCHEMA, "items": {}})
    assert length.is_valid(body) == decoder_takes_body(msgspec.json.encode(body), JSON)
    lines = b"".join(msgspec.json.encode(one) + b"\n" for one in body)
    assert length.is_valid(body) == decoder_takes_body(lines, NDJSON)


def decoder_takes_body(body: bytes, media_type: str) -> bool:
    try:
        read_batch(body, media_type)
    except ProblemError:
        return False
    return True


def test_a_whole_number_may_have_a_fraction_of_zero() -> None:
    """JSON Schema has no other integers; what an event says with it stays as it was said."""
    item = {
        "type": "custom",
        "data": {"kind": "shop.note", "data": {"price": 5.0}},
    }
    turn = {"type": "model.replied", "data": {"evaluation_id": "e", "turn": 3.0}}
    batch = read_batch(msgspec.json.encode([item, turn]), JSON)
    first, second = batch.events
    assert repr(first.data["price"]) == "5.0"  # type: ignore[union-attr]
    assert repr(second.turn) == "3"  # type: ignore[union-attr]


def test_the_first_event_of_a_claim_has_its_type() -> None:
    """Although no other would be possible: the document requires it."""
    schema = validator({"$ref": "#/components/schemas/ClaimRequest"})
    for started, taken in (({"type": "run.started", "data": {}}, True), ({"data": {}}, False)):
        body = {"worker": "w", "started": started}
        assert schema.is_valid(body) is taken
        refused = None if taken else problems.INVALID
        assert _refusal_of(body) is refused


def test_the_document_is_openapi() -> None:
    """By the schema of OpenAPI 3.1."""
    assert DOCUMENT["openapi"].startswith("3.1.")
    assert list(Draft202012Validator(OPENAPI_31).iter_errors(DOCUMENT)) == []
    assert list(Draft202012Validator(OPENAPI_31).iter_errors({**DOCUMENT, "paths": []})) != []


def test_every_reference_of_the_document_is_there() -> None:
    """Components and links that are named exist, and its schemas are JSON Schema."""

    def references(value: Any) -> Any:
        if isinstance(value, dict):
            if isinstance(value.get("$ref"), str):
                yield value["$ref"]
            for one in value.values():
                yield from references(one)
        elif isinstance(value, list):
            for one in value:
                yield from references(one)

    for reference in set(references(DOCUMENT)):
        found: Any = DOCUMENT
        for part in reference.removeprefix("#/").split("/"):
            found = found[part]
    for schema in DOCUMENT["components"]["schemas"].values():
        Draft202012Validator.check_schema(schema)


def _refusal_of(body: Any) -> Kind | None:
    try:
        decoded(msgspec.json.Decoder(ClaimRequest), msgspec.json.encode(body))
    except ProblemError as error:
        return error.kind
    return None
