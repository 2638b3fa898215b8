"""Events that are taken as sent: recorded byte for byte as if they were encoded again."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.secret_samples import samples
from tests.unit.ledger.strategies import events
from turnledger.adapters.http.protocol.bodies import JSON
from turnledger.adapters.http.protocol.envelopes import Batch, read_batch, read_entries
from turnledger.adapters.http.protocol.problems import ProblemError
from turnledger.ledger import Codec, CustomEvent, Event, Redactor, TurnledgerError
from turnledger.ledger.clock import SystemClock
from turnledger.ledger.runs.append_request import prepare

CODEC = Codec(redactor=Redactor())
CLOCK = SystemClock()
ID = "11111111-1111-4111-8111-{:012d}"
SECRETS = [one.text for one in samples(11, 1)]
# Each is JSON that says the same in another way, says something else, or is no JSON.
CHANGES: tuple[tuple[bytes, bytes], ...] = (
    (b",", b" ,"),
    (b":", b": "),
    (b"e", b"\\u0065"),
    (b"e", b"\xff"),
    (b"e", b"\xed\xa0\x80"),
    (b'"a', b'"\\ud800'),
    (b'":"', b'":"\x00'),
    (b"0", b"0.0"),
    (b"1", b"1e0"),
    (b"1", b"-1"),
    (b"1", b"18446744073709551616"),
    (b"2", b"1e999"),
    (b"null", b"NaN"),
    (b"null", b"{}"),
    (b"{}", b'{"__proto__":1,"__proto__":2}'),
    (b"{}", b"[" * 600 + b"]" * 600),
    (b'{"', b'{"more":1,"'),
    (b'{"', b'{"kind":"x","'),
    (b'"type"', b'"type":"custom","type"'),
    (b'"data"', b'"data":{},"data"'),
    (b'"event_id"', b'"event_id":"x","event_id"'),
    (b"1111-4", b"1111-A"),
    (b"-", b""),
)


def body_of(given: list[Event], first: bytes = b"") -> bytes:
    """The body with these events; `first` is the data of the first of them."""
    texts = [msgspec.json.encode(event) for event in given]
    texts[0] = first or texts[0]
    item = b'{"type":"%b","data":%b,"event_id":"%b"}'
    items = (
        item % (event.tag.encode(), text, ID.format(place).encode())
        for place, (event, text) in enumerate(zip(given, texts, strict=True))
    )
    return b"[" + b",".join(items) + b"]"


def recorded(batch: Batch) -> Any:
    """What is written, or why not."""
    try:
        return [prepare(one, CODEC, CLOCK) for one in batch.events], batch.blobs
    except TurnledgerError as error:
        return str(error)


def check(body: bytes) -> bool:
    """Compare both ways; whether the body is taken as sent."""
    quick = read_entries(body, CODEC)
    if quick is None:
        return False
    try:
        slow = read_batch(body, JSON)
    except ProblemError as problem:
        pytest.fail(f"taken as sent, and refused by the schema: {problem.detail}")
    assert recorded(quick) == recorded(slow)
    return True


NUMBERS = st.integers(0, 10_000)


def changed(text: bytes, change: tuple[bytes, bytes], number: int) -> bytes:
    """A text with one of the places that can be changed so, if there is any."""
    old, new = change
    parts = text.split(old)
    if len(parts) == 1:
        return text
    place = number % (len(parts) - 1) + 1
    return old.join(parts[:place]) + new + old.join(parts[place:])


@st.composite
def bodies(draw: st.DrawFn) -> bytes:
    """Events of all types, encoded, and then changed: the data of one, or the whole."""
    found = draw(st.lists(events(), min_size=1, max_size=3))
    change, number = draw(st.sampled_from(CHANGES)), draw(NUMBERS)
    if draw(st.booleans()):
        return body_of(found, changed(msgspec.json.encode(found[0]), change, number))
    return changed(body_of(found), change, number)


@given(bodies())
def test_what_is_taken_as_sent_is_what_would_be_encoded(body: bytes) -> None:
    """Of any event type: the same ids, types, bytes and events, and never what the schema refuses.

    Spaces, escapes, other numbers, names twice, unknown fields, and bytes that are no text.
    """
    check(body)


@given(st.lists(events(), min_size=1, max_size=3), st.sampled_from(SECRETS), NUMBERS)
def test_a_secret_in_any_field_is_never_taken_as_sent(
    given: list[Event], secret: str, number: int
) -> None:
    """Put in place of any text of any event; what is recorded is what the redactor leaves."""
    parts = msgspec.json.encode(given[0]).split(b'"')
    if len(parts) > 1:
        parts[number % (len(parts) // 2) * 2 + 1] = msgspec.json.encode(secret)[1:-1]
    check(body_of(given, b'"'.join(parts)))


def test_the_clients_body_is_taken_as_sent() -> None:
    """Else the properties above compare nothing."""
    assert check(body_of([CustomEvent(kind="shop.note", data={"n": [1, 2.5, None, "é"]})] * 3))
