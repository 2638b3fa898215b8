"""What an append does, counted: calls, statements, looks for secrets. Not timed."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from unittest.mock import patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.appending import calls_of
from benchmarks.workload import events, one_turn
from tests.conformance.samples import note
from tests.unit.ledger.strategies import events as any_events
from turnledger.ledger import (
    ANY,
    NEW,
    Codec,
    CustomEvent,
    Event,
    InvalidEventError,
    Ledger,
    Redactor,
    new_run_id,
)
from turnledger.ledger.redaction.redactor import STANDARD
from turnledger.ledger.stores.sqlite.transaction import SQLiteTransaction

# Python and C functions that a lone append of one event to SQLite calls, beside the look for
# secrets, whose calls depend on the text.
MOST_CALLS = 87
MOST_IN_BATCH = 27
SECRET = "ghp_" + "a1B2c3D4e5F6g7H8i9J0" * 2


def test_an_append_of_one_event_makes_few_calls(tmp_path: Path) -> None:
    """Of every type that a turn has, whatever was appended before."""
    run = new_run_id()
    with Ledger.open(tmp_path / "runs.db") as ledger:
        for event in one_turn() * 2:
            ledger.append(run, event, ANY)
        found = {
            event.tag: calls_of(lambda event=event: ledger.append(run, event, ANY))  # type: ignore[misc]
            for event in one_turn()
        }
    assert max(found.values()) <= MOST_CALLS, found


def test_an_event_of_a_batch_makes_few_calls(tmp_path: Path) -> None:
    """What an append does once is not done for each of its events."""
    run, batch = new_run_id(), list(events(100))
    with Ledger.open(tmp_path / "runs.db") as ledger:
        for _ in range(2):
            ledger.append(run, batch, ANY)
        found = calls_of(lambda: ledger.append(run, batch, ANY))
    assert found <= MOST_IN_BATCH * len(batch)


def test_a_batch_is_looked_at_once_for_secrets() -> None:
    """However many events it has, as long as they are small."""
    batch = [note(number) for number in range(500)]
    with (
        Ledger.open("memory://") as ledger,
        patch.object(Redactor, "may_be_in", autospec=True, return_value=False) as look,
    ):
        ledger.append(new_run_id(), batch, NEW)
    assert look.call_count == 1


def test_one_transaction_object_serves_all_commits(tmp_path: Path) -> None:
    """It is made with the connection, and not for each append."""
    made = []
    init = SQLiteTransaction.__init__

    def counted(self: SQLiteTransaction, db: sqlite3.Connection, *rest: object) -> None:
        made.append(self)
        init(self, db, *rest)  # type: ignore[arg-type]

    with (
        patch.object(SQLiteTransaction, "__init__", counted),
        Ledger.open(tmp_path / "runs.db") as ledger,
    ):
        run = new_run_id()
        for number in range(5):
            ledger.append(run, note(number), ANY)
        assert ledger.head(run) == 5
    assert len(made) == 1


@settings(max_examples=100, deadline=None)
@given(st.lists(any_events() | st.just(CustomEvent(kind="a.b", data={"key": SECRET})), max_size=8))
def test_a_batch_is_encoded_as_each_of_its_events(batch: list[Event]) -> None:
    """Text, decoded event and redacted parts, with secrets among them and without."""
    for redactor in (STANDARD, None):
        codec = Codec(redactor=redactor)
        assert codec.encode_all(batch) == [codec.encode_checked(event) for event in batch]


def test_a_large_batch_is_looked_at_in_parts() -> None:
    """A secret in one part is found wherever it is, and marked in the event that has it."""
    padding = [note("x " * 20_000) for _ in range(6)]
    codec = Codec(redactor=STANDARD)
    for place in range(7):
        batch = [*padding[:place], CustomEvent(kind="a.b", data=SECRET), *padding[place:]]
        made = codec.encode_all(batch)
        assert [bool(parts) for *_, parts in made] == [at == place for at in range(7)]
        assert SECRET.encode() not in b"".join(data for _, data, _, _ in made)


def test_an_error_in_a_batch_does_not_show_a_secret() -> None:
    """What is refused is named without it, and without a cause that would show it."""
    telling = type(SECRET, (), {})
    bad = CustomEvent(kind="a.b", data=telling())
    with pytest.raises(InvalidEventError) as caught:
        Codec(redactor=STANDARD).encode_all([note(), bad])
    assert "[redacted: " in str(caught.value)
    assert SECRET not in str(caught.value)
    assert caught.value.__cause__ is None


@pytest.mark.parametrize("count", [1, 2, 3, 63, 64, 65, 127, 130])
def test_batches_of_any_length_are_whole_and_in_order(tmp_path: Path, count: int) -> None:
    """SQLite gets them in statements of a few lengths: none is left out, none moves."""
    run = new_run_id()
    with Ledger.open(tmp_path / "runs.db") as ledger:
        appended = ledger.append(run, [note(number) for number in range(count)], NEW)
        records = list(ledger.read(run))
        assert [record.event for record in records] == [note(number) for number in range(count)]
        assert [one.position for one in records] == [one.position for one in appended.records]
        assert ledger.verify(run).ok
