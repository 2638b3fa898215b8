"""What a store gives to those who read it below the ledger: rows of runs, rows by position."""

from __future__ import annotations

from tests.conformance.samples import message, note, notes
from turnledger.ledger import ANY, NEW, Ledger, new_run_id


def test_rows_of_a_run_are_what_read_gives(ledger: Ledger) -> None:
    """In ranges, backwards and limited."""
    run = new_run_id()
    ledger.append(run, [note(1), message("ü 🦜"), *notes(4)], NEW)
    ledger.append(new_run_id(), note(), NEW)
    rows = [record.row for record in ledger.read(run)]
    asked = [
        ((0, None, False, 100), rows),
        ((2, None, False, 100), rows[2:]),
        ((0, 3, False, 100), rows[:3]),
        ((1, 4, False, 100), rows[1:4]),
        ((0, None, True, 2), rows[::-1][:2]),
        ((0, None, False, 2), rows[:2]),
    ]
    for (after, until, backwards, limit), expected in asked:
        found = ledger.store.rows(str(run), after, until, backwards=backwards, limit=limit)
        assert found == expected
    assert ledger.store.rows(str(new_run_id()), 0, None, backwards=False, limit=1) == []


def test_rows_by_position_are_what_tail_gives(ledger: Ledger) -> None:
    """After a position, up to another, limited; the last position is the end of them."""
    store = ledger.store
    assert store.last_position() is None
    assert store.rows_after(0, 10) == []
    runs = [new_run_id(), new_run_id()]
    for turn in range(6):
        ledger.append(runs[turn % 2], [note(turn), message(str(turn))], ANY)
    rows = [record.row for record in ledger.tail()]
    places = [row.position for row in rows]
    assert store.last_position() == places[-1]
    for rows_after in (store.rows_after, store.confirmed_rows_after):
        assert rows_after(0, 100) == rows
        assert rows_after(places[3], 100) == rows[4:]
        assert rows_after(places[3], 2) == rows[4:6]
        assert rows_after(places[3], 100, places[6]) == rows[4:7]
        assert rows_after(places[3], 2, places[6]) == rows[4:6]
        assert rows_after(places[3], 100, places[3]) == []
        assert rows_after(places[-1], 100) == []
    assert store.rows_before(2**63 - 1, 100) == rows[::-1]
    assert store.rows_before(places[4], 100) == rows[:4][::-1]
    assert store.rows_before(places[4], 3) == rows[1:4][::-1]
    assert store.rows_before(places[0], 100) == []
