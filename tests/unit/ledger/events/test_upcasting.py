"""Old payloads: what was written once is read for ever."""

from __future__ import annotations

import sqlite3
from datetime import UTC, datetime
from pathlib import Path
from uuid import UUID

import pytest

from tests.conformance.samples import note
from turnledger.ledger import (
    ANY,
    NEW,
    Codec,
    EventDecodeError,
    InnerMessage,
    Ledger,
    MessageAppended,
    RunStarted,
    ToolCallRecord,
    UnknownEventTypeError,
    new_run_id,
)
from turnledger.ledger.clock import SystemClock
from turnledger.ledger.events.types import CATALOGUE, EVENT_TYPES
from turnledger.ledger.events.upcasters import UPCASTERS, Upcaster
from turnledger.ledger.runs.append import ANY_VERSION, AppendRequest, Entry, append

PAYLOADS = Path(__file__).parent / "payloads"
AS_READ_TODAY = MessageAppended(
    message=InnerMessage(
        "assistant",
        "Looking it up.",
        "eval-7",
        2,
        tool_calls=(
            ToolCallRecord("call-1", "search", '{"query":"tide tables","limit":3}', "completed"),
            ToolCallRecord("call-2", "noop", "{}"),
        ),
        turn=1,
        prompt_ns="demo",
        prompt_key="answer",
        created_at=datetime(2025, 11, 3, 9, 15, 27, 123456, tzinfo=UTC),
        message_id=UUID("2f1b6f0e-6f5c-4b4e-9a53-0a4b1c7a9d10"),
    )
)


def payload(tag: str) -> bytes:
    return (PAYLOADS / f"{tag}.json").read_bytes().rstrip(b"\n")


def test_every_retired_tag_has_a_payload_kept_as_a_file() -> None:
    """Bytes of its time, so that reading it is tested for ever."""
    assert {path.stem for path in PAYLOADS.iterdir()} == set(UPCASTERS)


def test_a_retired_tag_is_never_used_again() -> None:
    """And leads, step by step, to one of today's."""
    assert not set(UPCASTERS) & set(EVENT_TYPES)
    for tag in UPCASTERS:
        assert Codec().decode(tag, payload(tag)).tag in EVENT_TYPES


def test_bytes_of_an_older_version_are_read_as_todays_event() -> None:
    """Flat fields became a message, and arguments became JSON text."""
    assert Codec().decode("message.recorded", payload("message.recorded")) == AS_READ_TODAY
    text = payload("message.recorded").decode()
    assert Codec().decode("message.recorded", text) == AS_READ_TODAY


def write_raw(ledger: Ledger, run: UUID, tag: str, data: bytes) -> None:
    """Record bytes as an older program did, through the same chain."""
    clock = SystemClock()
    entry = Entry(clock.new_id(), tag, data, note())
    request = AppendRequest(str(run), [entry], ANY_VERSION, None, {})
    ledger.store.write(lambda tx: append(tx, request, clock))


@pytest.mark.parametrize("url", ["memory://", "file"])
def test_a_ledger_with_old_rows_is_read_verified_and_continued(url: str, tmp_path: Path) -> None:
    """The bytes stay as they are, the event is today's, and the chain covers the bytes."""
    with Ledger.open(tmp_path / "old.db" if url == "file" else url) as ledger:
        run = new_run_id()
        ledger.append(run, RunStarted(tags={"a": "b"}), NEW)
        write_raw(ledger, run, "message.recorded", payload("message.recorded"))
        ledger.append(run, note(), 2)
        record = ledger.record(run, 2)
        assert record.event == AS_READ_TODAY
        assert (record.tag, record.data) == (
            "message.recorded",
            payload("message.recorded").decode(),
        )
        assert [r.event.tag for r in ledger.tail()] == ["run.started", "message.appended", "custom"]
        assert ledger.verify_all().ok
        before = list(ledger.runs())
        ledger.rebuild_index()
        assert list(ledger.runs()) == before


def test_steps_follow_each_other() -> None:
    """A tag that was retired twice goes through both."""
    steps = {
        "note.first": Upcaster("note.second", lambda old: {"text": old["t"]}),
        "note.second": Upcaster("custom", lambda old: {"kind": "acme.note", "data": old["text"]}),
    }
    codec = Codec(upcasters=steps)
    assert codec.decode("note.first", b'{"t":"hi"}') == codec.decode(
        "note.second", b'{"text":"hi"}'
    )


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"[]",
        b"7",
        b"{}",
        b'{"tool_calls":7}',
        b'{"tool_calls":[7]}',
        b'{"tool_calls":["ab"]}',
        b'{"tool_calls":{"a":1}}',
        b'{"tool_calls":null}',
        b'{"role":"user"}',
        b"\xff",
        b"[" * 5000,
    ],
)
def test_a_damaged_old_payload_is_a_typed_error(data: bytes) -> None:
    """The error names the tag."""
    with pytest.raises(EventDecodeError, match=r"message\.recorded"):
        Codec().decode("message.recorded", data)


def test_an_upcaster_that_leads_nowhere_is_a_typed_error() -> None:
    """Its successor is not in the catalogue."""
    codec = Codec(upcasters={"a.b": Upcaster("not.there", lambda old: old)})
    with pytest.raises(EventDecodeError, match=r"a\.b"):
        codec.decode("a.b", b"{}")


def test_a_ledger_remembers_the_catalogue_that_wrote_it(tmp_path: Path) -> None:
    """An unknown tag in a newer ledger says that the program is too old; in our own, damage."""
    path, run = tmp_path / "new.db", new_run_id()
    with Ledger.open(path) as ledger:
        write_raw(ledger, run, "run.teleported", b"{}")
        with pytest.raises(UnknownEventTypeError, match="not too old"):
            _ = ledger.record(run, 1).event
    db = sqlite3.connect(path)
    db.execute("UPDATE meta SET value=? WHERE key='catalogue'", (str(CATALOGUE + 1),))
    db.commit()
    db.close()
    with Ledger.open(path) as ledger:
        with pytest.raises(UnknownEventTypeError, match="program is too old"):
            _ = ledger.record(run, 1).event
        ledger.append(run, note(), ANY)
    with Ledger.open(path) as ledger:
        assert ledger.store.written_catalogue() == CATALOGUE + 1
