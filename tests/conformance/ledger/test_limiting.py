"""Limits, and text that stores like to trip over."""

from __future__ import annotations

from typing import Any

import pytest

from tests.conformance.ledger_like import LedgerLike
from tests.conformance.samples import message, note, notes
from tests.conformance.surfaces import Surface
from turnledger.ledger import (
    ANY,
    NEW,
    CustomEvent,
    InvalidEventError,
    InvalidInputError,
    LimitExceededError,
    Limits,
    ResourceSnapshotted,
    RunCompleted,
    RunStarted,
    blob_name,
    new_run_id,
)
from turnledger.ledger.events.limits import INDEXED_BYTES
from turnledger.ledger.events.types import EvaluationStarted


def exceeds(ledger: LedgerLike, setting: str, events: Any, **options: Any) -> LimitExceededError:
    run = new_run_id()
    with pytest.raises(LimitExceededError, match=f"Limits\\({setting}=") as caught:
        ledger.append(run, events, NEW, **options)
    assert caught.value.setting == setting
    assert caught.value.found > caught.value.limit
    assert str(caught.value.limit) in str(caught.value)
    assert str(caught.value.found) in str(caught.value)
    assert ledger.head(run) == 0
    return caught.value


def test_an_event_has_a_largest_size(surface: Surface) -> None:
    """In bytes of its JSON, exactly; the error names the event and the setting."""
    ledger = surface.open(limits=Limits(max_event_bytes=100))
    frame = len('{"kind":"a.b","data":""}')
    fits = CustomEvent(kind="a.b", data="x" * (100 - frame))
    ledger.append(new_run_id(), fits, NEW)
    error = exceeds(ledger, "max_event_bytes", CustomEvent(kind="a.b", data="x" * (101 - frame)))
    assert (error.limit, error.found) == (100, 101)
    assert "CustomEvent" in str(error)
    exceeds(ledger, "max_event_bytes", CustomEvent(kind="a.b", data="🦜" * 25))


def test_what_runs_are_found_by_fits_every_index(ledger: LedgerLike) -> None:
    """Tags and prompts are counted in bytes, and what is just short enough goes through."""
    many = "".join(map(chr, range(0x4E00, 0x4E00 + 512)))  # three bytes each, no two the same
    for event in (
        RunStarted(tags={many: many}),
        evaluation(prompt_ns=many, prompt_key=many),
    ):
        run = new_run_id()
        with pytest.raises(InvalidEventError, match="2500"):
            ledger.append(run, event, NEW)
        assert ledger.head(run) == 0
    fits = many[: (INDEXED_BYTES - len(many.encode())) // 3]
    run = new_run_id()
    ledger.append(run, [RunStarted(tags={many: fits}), evaluation(many, fits)], NEW)
    assert [found.run_id for found in ledger.runs(tags={many: fits})] == [run]


def evaluation(prompt_ns: str, prompt_key: str) -> EvaluationStarted:
    return EvaluationStarted(
        evaluation_id="e", prompt_ns=prompt_ns, prompt_key=prompt_key, prompt_digest="d"
    )


def test_a_batch_has_a_largest_count(surface: Surface) -> None:
    """Exactly."""
    ledger = surface.open(limits=Limits(max_batch_events=5))
    ledger.append(new_run_id(), notes(5), NEW)
    error = exceeds(ledger, "max_batch_events", notes(6))
    assert (error.limit, error.found) == (5, 6)


def test_a_batch_has_a_largest_size(surface: Surface) -> None:
    """The sum of its events' bytes."""
    ledger = surface.open(limits=Limits(max_batch_bytes=1000))
    event = CustomEvent(kind="a.b", data="x" * 400)
    ledger.append(new_run_id(), [event, event], NEW)
    exceeds(ledger, "max_batch_bytes", [event, event, event])


def nested(depth: int) -> Any:
    value: Any = "end"
    for level in range(depth):
        value = [value] if level % 2 else {"in": value}
    return value


def test_json_has_a_largest_depth(surface: Surface) -> None:
    """In every field that takes free JSON; the error names the field."""
    ledger = surface.open(limits=Limits(max_json_depth=10))
    for build in (
        lambda value: CustomEvent(kind="a.b", data=value),
        lambda value: RunStarted(request=value),
        lambda value: RunCompleted(output=value),
        lambda value: message(value=value),
    ):
        ledger.append(new_run_id(), build(nested(10)), NEW)
        exceeds(ledger, "max_json_depth", build(nested(11)))
        exceeds(ledger, "max_json_depth", build(nested(5000)))


def test_a_blob_has_a_largest_size(surface: Surface) -> None:
    """Exactly."""
    ledger = surface.open(limits=Limits(max_blob_bytes=10))
    files = ResourceSnapshotted(resource="fs", files={"a": blob_name(b"x" * 10)})
    ledger.append(new_run_id(), files, NEW, blobs=[b"x" * 10])
    exceeds(ledger, "max_blob_bytes", note(), blobs=[b"x" * 11])


def test_the_largest_batch_that_a_ledger_can_be_set_to_works(surface: Surface) -> None:
    """4,096 events in one commit, in order; over HTTP 1,000, whatever the limits allow."""
    ledger = surface.open(limits=Limits(max_batch_events=4096))
    run, most = new_run_id(), surface.most_events
    ledger.append(run, notes(most), NEW)
    ledger.append(run, notes(2), ANY)
    positions = [record.position for record in ledger.tail()]
    assert positions == sorted(set(positions))
    assert [record.version for record in ledger.tail()] == list(range(1, most + 3))
    with pytest.raises(InvalidInputError, match=str(most)):
        ledger.append(run, notes(most + 1), ANY)
    assert ledger.head(run) == most + 2


def test_a_large_event_comes_back(ledger: LedgerLike) -> None:
    """A few megabytes, under the default limits."""
    run = new_run_id()
    event = CustomEvent(kind="a.b", data="🦜x" * 500_000)
    ledger.append(run, event, NEW)
    assert ledger.record(run, 1).event == event
    assert ledger.verify(run).ok


TEXTS = [
    "",
    "\x00",
    "a\x00b\x00",
    "\x01\x1f\x7f\x80",
    "🦜👨‍👩‍👧‍👦",
    "\U0010ffff",
    "\ufeff\ufffe\uffff",
    "é e\u0301",
    "\u202eright to left",
    "\u2028\u2029",
    "'; DROP TABLE events; --",
    "%s %d {} ? $1 \\ \" '",
    "\r\n\t",
    "x" * 100_000,
]


@pytest.mark.parametrize("text", TEXTS, ids=[ascii(text[:12]) for text in TEXTS])
def test_any_text_comes_back_as_it_was(surface: Surface, text: str) -> None:
    """In messages, in free JSON as value and as key, through any handle; and it verifies."""
    ledger = surface.open()
    run = new_run_id()
    events = [message(text), CustomEvent(kind="a.b", data={text: [text]})]
    ledger.append(run, events, NEW)
    assert [record.event for record in surface.open().read(run)] == events
    assert surface.verify_all().ok


@pytest.mark.parametrize("text", ["\ud800", "a\udfff", "\udc80\udc81"])
def test_half_a_character_is_refused(ledger: LedgerLike, text: str) -> None:
    """A lone surrogate is no text that can be stored: typed error, nothing written."""
    run = new_run_id()
    for event in (
        message(text),
        CustomEvent(kind="a.b", data=text),
        CustomEvent(kind="a.b", data={text: 1}),
        RunStarted(tags={"a": text}),
    ):
        with pytest.raises(InvalidEventError):
            ledger.append(run, event, ANY)
    assert ledger.head(run) == 0


def test_a_key_of_the_index_is_short_and_has_no_nul(ledger: LedgerLike) -> None:
    """What is indexed must fit an index, on every store."""
    for tags in ({"a\x00": "b"}, {"a": "\x00"}, {"k" * 513: "v"}, {"k": "v" * 513}):
        with pytest.raises(InvalidEventError, match="RunStarted"):
            ledger.append(new_run_id(), RunStarted(tags=tags), NEW)
    assert list(ledger.runs()) == []


def test_numbers_come_back_as_they_were(ledger: LedgerLike) -> None:
    """Whole numbers of 64 bits, floats to the last digit, true and null."""
    run = new_run_id()
    data = [0, -1, 2**63 - 1, -(2**63), 2**64 - 1, 0.1, 1e308, 5e-324, -0.0, True, False, None]
    ledger.append(run, CustomEvent(kind="a.b", data=data), NEW)
    found = ledger.record(run, 1).event.data  # type: ignore[union-attr]
    assert found == data
    assert list(map(repr, found)) == list(map(repr, data))
