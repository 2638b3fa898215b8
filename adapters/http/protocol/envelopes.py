"""Envelopes: the events of a request's body, one Struct a tag, and one decoder for all of them.

    {"type": "run.started", "data": {...}, "event_id": "..."}
    {"type": "blob", "data": {"content": "...base64..."}}

The JSON Schema of these Structs is the API's document, so what the decoder refuses is what the
document's schema refuses. Rules that only code can check are the ledger's.

`read_entries` is a quicker way to the same events, for bodies without anything to refuse.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Annotated, Any, NamedTuple, Union
from uuid import UUID

import msgspec

from turnledger.adapters.http.protocol import problems
from turnledger.adapters.http.protocol.bodies import NDJSON, check_values, decoded, invalid
from turnledger.adapters.http.protocol.problems import ProblemError
from turnledger.ledger import Codec, Draft, RunClaimed
from turnledger.ledger.events.types import EVENT_TYPES
from turnledger.ledger.runs.append import Entry
from turnledger.ledger.runs.append_request import Appendable

MOST_EVENTS = 1000
# A claim writes RunClaimed and grants its epoch; clients can't append that event.
TAGS = tuple(tag for tag, kind in EVENT_TYPES.items() if kind is not RunClaimed)

# What the decoder takes for base64, for the document.
BASE64 = "^([A-Za-z0-9+/]{4})*([A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?$"


class BlobContent(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A blob's bytes, in base64."""

    content: Annotated[bytes, msgspec.Meta(extra_json_schema={"pattern": BASE64})]


def _envelope(name: str, tag: str, kind: type, *more: Any) -> type[msgspec.Struct]:
    return msgspec.defstruct(
        name,
        [("data", kind), *more],
        tag_field="type",
        tag=tag,
        frozen=True,
        forbid_unknown_fields=True,
        module=__name__,
    )


def _envelopes() -> Iterator[type[msgspec.Struct]]:
    event_id = ("event_id", UUID | None, None)
    for tag in TAGS:
        kind = EVENT_TYPES[tag]
        yield _envelope(f"{kind.__name__}Envelope", tag, kind, event_id)
    yield _envelope("BlobEnvelope", "blob", BlobContent)


ENVELOPES = tuple(_envelopes())
ITEM: Any = Union[ENVELOPES]  # noqa: UP007
BATCH: Any = Annotated[list[ITEM], msgspec.Meta(min_length=1, max_length=MOST_EVENTS)]
_batch: msgspec.json.Decoder[Any] = msgspec.json.Decoder(BATCH)
_item: msgspec.json.Decoder[Any] = msgspec.json.Decoder(ITEM)


class Batch(NamedTuple):
    """The events of a request, those with an id as drafts or entries, and the blobs they name."""

    events: list[Appendable]
    blobs: list[bytes]


def read_batch(body: bytes, media_type: str) -> Batch:
    """The events of a body, a JSON array or NDJSON.

    Raises:
        ProblemError: The body is not JSON, or its schema refuses it; with a JSON Pointer.
    """
    check_values(body)
    made = sorted_batch(_lines(body) if media_type == NDJSON else decoded(_batch, body))
    if not made.events:
        raise ProblemError(problems.REFUSED, "Nothing to append: expected at least one event.")
    return made


def sorted_batch(items: Iterable[Any]) -> Batch:
    """The items of a body, as events and blobs."""
    made = Batch([], [])
    for one in items:
        if isinstance(one.data, BlobContent):
            made.blobs.append(one.data.content)
        else:
            made.events.append(one.data if one.event_id is None else Draft(one.data, one.event_id))
    return made


def _lines(body: bytes) -> list[Any]:
    count = body.count(b"\n") + (not body.endswith(b"\n") and body != b"")
    if not 1 <= count <= MOST_EVENTS:  # before they are split, which takes memory for each
        raise invalid("", f"got {count} lines, expected 1 to {MOST_EVENTS}")
    lines = body.removesuffix(b"\n").split(b"\n")
    return [decoded(_item, line, f"/{place}", of=len(body)) for place, line in enumerate(lines)]


# --- bodies with nothing to refuse -------------------------------------------------------------

_STORED_ID = re.compile("[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}").fullmatch


class _Item(msgspec.Struct, frozen=True, gc=False, forbid_unknown_fields=True):
    """An event of a body with its data as it came."""

    type: str
    data: msgspec.Raw
    event_id: str


_items = msgspec.json.Decoder(
    Annotated[list[_Item], msgspec.Meta(min_length=1, max_length=MOST_EVENTS)]
)
_kinds = {tag: msgspec.json.Decoder(EVENT_TYPES[tag]).decode for tag in TAGS}


def read_entries(body: bytes, codec: Codec) -> Batch | None:
    """The events of a JSON array in the form in which they are stored; None for any other body.

    That is how the Python client sends them. They are decoded and encoded once, and need not be
    encoded again. After None, `read_batch` reads the body, or says what is wrong with it.
    """
    check_values(body)
    try:
        items = _items.decode(body)
        if msgspec.json.encode(items) != body:  # spaces, or a name twice: the last of them counts
            return None
        texts = [bytes(one.data) for one in items]
        events = [_kinds[one.type](text) for one, text in zip(items, texts, strict=True)]
    except (LookupError, ValueError, RecursionError):
        return None
    if not all(map(_STORED_ID, [one.event_id for one in items])):
        return None
    if not codec.are_stored_so(events, texts):
        return None
    entries = (
        Entry(one.event_id, one.type, text, event)
        for one, text, event in zip(items, texts, events, strict=True)
    )
    return Batch(list(entries), [])
