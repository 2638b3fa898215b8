"""Codec.are_stored_so: a quick yes for events of which encode_checked would change nothing."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.secret_samples import Sample, samples
from tests.unit.ledger.strategies import events
from turnledger.ledger import Codec, CustomEvent, Event, Limits, Redactor
from turnledger.ledger.errors import TurnledgerError

CODEC = Codec(redactor=Redactor())
PLAIN = [CustomEvent(kind="shop.note", data={"text": "The invoice was paid twice."})] * 3


def texts(given: list[Event]) -> list[bytes]:
    return [msgspec.json.encode(one) for one in given]


@given(st.lists(events(), max_size=4))
def test_a_yes_is_what_encode_checked_says(given: list[Event]) -> None:
    """Of any events: each is encoded to its text and read as it is, or the answer is no."""
    found = texts(given)
    if not CODEC.are_stored_so(given, found):
        return
    for event, text in zip(given, found, strict=True):
        assert CODEC.encode_checked(event) == (event.tag, text, event, ())


@pytest.mark.parametrize("sample", samples(7, 2), ids=lambda one: one[0])
def test_a_secret_among_other_events_is_never_passed(sample: Sample) -> None:
    """Wherever in the batch it is, and wherever in the event."""
    for data in (sample.text, {"deep": ["", sample.text]}, f'say "{sample.text}"\n'):
        event = CustomEvent(kind="shop.note", data=data)
        if CODEC.encode(event)[1] == msgspec.json.encode(event):
            continue  # not a secret to this redactor
        for place in range(len(PLAIN) + 1):
            batch = [*PLAIN[:place], event, *PLAIN[place:]]
            assert not CODEC.are_stored_so(batch, texts(batch))


def test_plain_events_are_passed() -> None:
    """Else nothing is quick."""
    assert CODEC.are_stored_so(PLAIN, texts(PLAIN))


@pytest.mark.parametrize(
    "data", [10**18, 2**64, [[[["deep"]]]], "long" * 100], ids=["digits", "beyond", "deep", "long"]
)
def test_what_a_limit_may_refuse_is_left_to_encode_checked(data: object) -> None:
    """Long numbers, nesting and size are never passed unseen."""
    codec = Codec(Limits(max_json_depth=3, max_event_bytes=200))
    event = CustomEvent(kind="shop.note", data=data)
    text = b'{"kind":"shop.note","data":%b}' % str(data).replace("'", '"').encode()
    assert not codec.are_stored_so([event], [text])


def test_another_spelling_is_not_the_stored_one() -> None:
    """White space in the text that an event was decoded of changes its digest."""
    event = PLAIN[0]
    assert not CODEC.are_stored_so([event], [msgspec.json.format(texts([event])[0])])


@given(events())
def test_it_raises_nothing(event: Event) -> None:
    """Also without a redactor, for text that has nothing to do with the event."""
    try:
        assert not Codec().are_stored_so([event], [b"{}"]) or msgspec.json.encode(event) == b"{}"
    except TurnledgerError:
        pytest.fail("are_stored_so raised")
