"""Shelves: derived rows beside the events, changed together with their mark or not at all."""

from __future__ import annotations

from collections.abc import Callable
from threading import Event, Thread
from typing import Any

import pytest

from tests.conformance.crowds import grouped, together
from tests.conformance.harness import StoreUnderTest
from tests.conformance.samples import note, notes
from tests.unit.ledger.export_files import export, take
from turnledger.ledger import (
    ANY,
    NEW,
    NO_MARK,
    ConcurrentAppendError,
    InvalidInputError,
    Ledger,
    LedgerClosedError,
    Mark,
    Shelf,
    StoreBusyError,
    new_run_id,
)
from turnledger.ledger.runs.transaction import Transaction

FIRST, SECOND = Mark("f", 1, 10, "one"), Mark("f", 2, 20, "two")
# Where orders by language, by letter case or by UTF-16 would differ from code points.
AWKWARD = (
    "Z",
    "a",
    "B",
    "ä",
    "a\u0308",
    "é",
    "zz",
    "ß",
    "ﬀ",
    "\uffff",
    "🦜",
    "%",
    "_",
    "'",
    "\\",
    " ",
)


@pytest.fixture
def shelf(ledger: Ledger) -> Shelf:
    """An empty shelf of the store under test."""
    return ledger.shelf("totals")


def full(shelf: Shelf) -> dict[str, str]:
    """Fill the shelf's first generation and show it."""
    rows = {f"k{number}": f"value {number}" for number in range(20)}
    assert shelf.put(rows, 1, expected=NO_MARK, mark=FIRST)
    return rows


def bumped(mark: Mark) -> Mark:
    return mark._replace(position=mark.position + 1)


# --- rows and marks -------------------------------------------------------------------


def test_a_shelf_that_nobody_filled_is_empty(ledger: Ledger, shelf: Shelf) -> None:
    """Asking for it makes nothing."""
    assert shelf.mark() == NO_MARK
    assert shelf.shown() == (NO_MARK, {})
    assert shelf.get(["a", "b"], 1) == {}
    assert list(shelf.items(1)) == []
    assert ledger.store.shelf_names() == []


def test_what_was_put_is_there(store: StoreUnderTest) -> None:
    """For every handle, once `put` has returned."""
    one, other = store.open().shelf("totals"), store.open().shelf("totals")
    rows = full(one)
    for shelf in (one, other):
        assert shelf.mark() == FIRST
        assert shelf.shown() == (FIRST, rows)
        assert shelf.get(["k3", "nothing", "k4"], 1) == {"k3": "value 3", "k4": "value 4"}
        assert shelf.get([], 1) == {}
        assert shelf.get(list(rows), 2) == {}


def test_rows_come_in_the_order_of_their_code_points(shelf: Shelf) -> None:
    """Over several pages, whatever language the keys are in."""
    rows = {f"{AWKWARD[n % len(AWKWARD)]}{n}": f"{n} ü🦜" for n in range(1200)}
    rows |= dict.fromkeys(AWKWARD, "")
    assert shelf.put(rows, 1)
    assert list(shelf.items(1)) == sorted(rows.items())
    assert shelf.get(list(rows), 1) == rows


def test_rows_are_replaced_and_removed(shelf: Shelf) -> None:
    """None removes a row, also one that was never there; the others stay."""
    rows = full(shelf)
    assert shelf.put({"k1": None, "k2": "new", "never": None, "more": ""}, 1)
    del rows["k1"]
    assert dict(shelf.items(1)) == rows | {"k2": "new", "more": ""}
    assert shelf.put(dict.fromkeys([*rows, "more"]), 1)
    assert list(shelf.items(1)) == []
    assert shelf.mark() == FIRST


@pytest.mark.parametrize("character", ["a", "é", "€", "🦜"])
def test_long_texts_are_kept_as_they_are(shelf: Shelf, character: str) -> None:
    """A megabyte, of characters of every length."""
    rows = {"long": character * (1_000_000 // len(character.encode())), "short": "x"}
    assert shelf.put(rows, 1, mark=FIRST)
    assert shelf.shown() == (FIRST, rows)


def test_a_key_may_be_long(shelf: Shelf) -> None:
    """As long as every store can hold in an index, however little it can be compressed."""
    keys = ["".join(chr(0x100 + (n * 7919 + m * m) % 0x600) for m in range(1000)) for n in (1, 2)]
    assert shelf.put(dict.fromkeys(keys, "x"), 1)
    assert list(shelf.items(1)) == [(key, "x") for key in sorted(keys)]


@pytest.mark.parametrize("bad", ["nul\0", "lone \ud800", "\udcff"])
def test_text_that_no_store_could_hold_is_refused_by_all(
    ledger: Ledger, shelf: Shelf, bad: str
) -> None:
    """As key, as value, in a mark or as name; nothing of the call is written."""
    full(shelf)
    before = shelf.shown()
    for act in (
        lambda: shelf.put({"good": "1", bad: "2"}, 1),
        lambda: shelf.put({"good": "1", "k1": bad}, 1),
        lambda: shelf.put({bad: None}, 1),
        lambda: shelf.put({"good": "1"}, 1, mark=FIRST._replace(state=bad)),
        lambda: shelf.put({"good": "1"}, 1, mark=FIRST._replace(fingerprint=bad)),
        lambda: ledger.shelf(bad),
    ):
        with pytest.raises(InvalidInputError):
            act()
    assert shelf.shown() == before
    assert shelf.get([bad, "k1"], 1) == {"k1": "value 1"}


@pytest.mark.parametrize("bad", ["", "x" * 2001, "é" * 1001])
def test_a_key_has_a_length_that_every_store_can_hold(shelf: Shelf, bad: str) -> None:
    """Not none, and not more than fits an index; a shelf's name likewise."""
    with pytest.raises(InvalidInputError, match="bytes"):
        shelf.put({"good": "1", bad: "2"}, 1)
    assert list(shelf.items(1)) == []


@pytest.mark.parametrize("bad", [-1, 2**63, 1.5, None])
def test_a_generation_is_a_number_that_every_store_can_hold(shelf: Shelf, bad: Any) -> None:
    """And so is a position."""
    for act in (
        lambda: shelf.put({"k": "v"}, bad),
        lambda: shelf.put({"k": "v"}, 1, mark=FIRST._replace(position=bad)),
        lambda: shelf.put({"k": "v"}, 1, mark=FIRST._replace(generation=bad)),
        lambda: shelf.get(["k"], bad),
        lambda: list(shelf.items(bad)),
        lambda: shelf.clear(bad),
    ):
        with pytest.raises(InvalidInputError):
            act()
    assert list(shelf.items(1)) == []


def test_large_numbers_are_kept(shelf: Shelf) -> None:
    """Positions and generations have 63 bits."""
    mark = Mark("", 2**63 - 2, 2**63 - 2, "")
    assert shelf.put({"k": "v"}, 5)
    assert shelf.put({"k": "w"}, mark.generation, mark=mark)
    assert shelf.shown() == (mark, {"k": "w"})
    assert list(shelf.items(5)) == []


# --- generations ----------------------------------------------------------------------


def test_a_write_that_expected_another_mark_changes_nothing(shelf: Shelf) -> None:
    """It says so, and neither rows nor mark nor generations are touched."""
    rows = full(shelf)
    for expected in (NO_MARK, SECOND, FIRST._replace(state="other"), bumped(FIRST)):
        assert not shelf.put({"k1": "x", "k2": None}, 1, expected=expected)
        assert not shelf.put({"k1": "x"}, 2, expected=expected, mark=SECOND)
    assert shelf.shown() == (FIRST, rows)
    assert list(shelf.items(2)) == []
    assert shelf.put({"k1": "x"}, 1, expected=FIRST)
    assert shelf.shown() == (FIRST, rows | {"k1": "x"})


def test_showing_another_generation_removes_the_old_ones(shelf: Shelf) -> None:
    """The new one is made unseen, in several writes, and shown in the last of them."""
    rows = full(shelf)
    shelf.put({"left": "behind"}, 7)
    for number in range(3):
        assert shelf.put({f"n{number}": "new"}, 2)
        assert shelf.shown() == (FIRST, rows)
    assert shelf.put({"n3": "new"}, 2, expected=FIRST, mark=SECOND)
    assert shelf.shown() == (SECOND, {f"n{number}": "new" for number in range(4)})
    assert list(shelf.items(1)) == list(shelf.items(7)) == []


def test_a_mark_that_moves_on_leaves_the_generations(shelf: Shelf) -> None:
    """Only a change of generation removes rows: another may be in the making."""
    rows = full(shelf)
    shelf.put({"n": "new"}, 2)
    assert shelf.put({"k1": "later"}, 1, expected=FIRST, mark=bumped(FIRST))
    assert shelf.shown() == (bumped(FIRST), rows | {"k1": "later"})
    assert list(shelf.items(2)) == [("n", "new")]


def test_clearing_removes_one_generation(shelf: Shelf) -> None:
    """The one that is named; clearing it again is harmless."""
    rows = full(shelf)
    shelf.put({"a": "1"}, 2)
    shelf.put({"b": "2"}, 3)
    for _ in range(2):
        shelf.clear(2)
    assert list(shelf.items(2)) == []
    assert list(shelf.items(3)) == [("b", "2")]
    assert shelf.shown() == (FIRST, rows)


def test_dropping_a_shelf_removes_all_of_it_and_no_other(ledger: Ledger, shelf: Shelf) -> None:
    """Mark and rows of every generation; names that resemble it are other shelves."""
    others = [ledger.shelf(name) for name in ("total", "totals2", "TOTALS", "ü")]
    for each in (shelf, *others):
        full(each)
        each.put({"n": "new"}, 2)
    for _ in range(2):
        shelf.drop()
        assert shelf.shown() == (NO_MARK, {})
        assert list(shelf.items(1)) == list(shelf.items(2)) == []
    for each in others:
        assert each.mark() == FIRST
        assert len(list(each.items(1))) == 20
        assert list(each.items(2)) == [("n", "new")]
    assert shelf.put({"k": "again"}, 1, expected=NO_MARK, mark=FIRST)
    assert shelf.shown() == (FIRST, {"k": "again"})


def test_shelves_are_named_if_there_is_something_on_them(ledger: Ledger) -> None:
    """Rows or a mark, sorted; one that was emptied is named no more."""
    ledger.shelf("rows").put({f"k{n}": "v" for n in range(50)}, 1)
    ledger.shelf("more rows").put({"k": "v"}, 3)
    ledger.shelf("mark").put({}, 1, mark=FIRST)
    ledger.shelf("both Ü").put({"k": "v"}, 1, mark=FIRST)
    ledger.shelf("nothing").put({}, 1)
    ledger.shelf("emptied").put({"k": "v"}, 1)
    ledger.shelf("emptied").put({"k": None}, 1)
    assert ledger.store.shelf_names() == ["both Ü", "mark", "more rows", "rows"]
    for name in ("rows", "mark", "both Ü"):
        ledger.shelf(name).drop()
    assert ledger.store.shelf_names() == ["more rows"]


def test_shelves_are_there_after_reopening(store: StoreUnderTest) -> None:
    """All generations, and the mark."""
    with store.open() as ledger:
        rows = full(ledger.shelf("totals"))
        ledger.shelf("totals").put({"n": "new"}, 2)
    shelf = store.open(create=False).shelf("totals")
    assert shelf.shown() == (FIRST, rows)
    assert list(shelf.items(2)) == [("n", "new")]


# --- all or nothing -------------------------------------------------------------------


def spoiling(shelf: Shelf) -> Callable[[Transaction], None]:
    """A write that changes everything on the shelf, and fails then."""

    def spoil(tx: Transaction) -> None:
        tx.locked_mark(shelf.name)
        tx.put_rows(shelf.name, 1, {"k1": "spoilt", "k2": None, "extra": "x"})
        tx.put_mark(shelf.name, SECOND)
        tx.drop_rows(shelf.name, all_but=2)
        tx.put_rows(shelf.name, 2, {"n": "new"})
        tx.put_mark(shelf.name, None)
        tx.drop_rows(shelf.name)
        raise InvalidInputError("on purpose")

    return spoil


def test_a_write_that_fails_leaves_nothing(ledger: Ledger, shelf: Shelf) -> None:
    """Whatever it had done to rows, generations and mark."""
    with pytest.raises(InvalidInputError, match="on purpose"):
        ledger.store.write(spoiling(shelf))
    assert ledger.store.shelf_names() == []
    rows = full(shelf)
    shelf.put({"n": "old"}, 3)
    with pytest.raises(InvalidInputError, match="on purpose"):
        ledger.store.write(spoiling(shelf))
    assert shelf.shown() == (FIRST, rows)
    assert list(shelf.items(2)) == []
    assert list(shelf.items(3)) == [("n", "old")]


def test_in_a_group_each_write_stands_for_itself(store: StoreUnderTest) -> None:
    """Appends and puts commit together; the refused and the failed hurt nobody."""
    ledger = store.open()
    shelf, other = ledger.shelf("totals"), ledger.shelf("other")
    run, rows = new_run_id(), full(shelf)
    ledger.append(run, note(), NEW)
    outcomes = grouped(
        ledger,
        lambda: ledger.append(run, notes(2), 1),
        lambda: shelf.put({"k1": "1"}, 1, expected=FIRST, mark=bumped(FIRST)),
        lambda: ledger.append(run, note(), 1),
        lambda: shelf.put({"k1": "2"}, 1, expected=FIRST, mark=SECOND),
        lambda: ledger.store.write(spoiling(shelf)),
        lambda: shelf.put({"k2": "3"}, 1, expected=bumped(FIRST), mark=bumped(bumped(FIRST))),
        lambda: other.put({"a": "b"}, 4),
        lambda: ledger.append(run, note(), 3),
    )
    assert (outcomes[0].version, outcomes[7].version) == (3, 4)
    assert isinstance(outcomes[2], ConcurrentAppendError)
    assert isinstance(outcomes[4], InvalidInputError)
    assert [outcomes[place] for place in (1, 3, 5, 6)] == [True, False, True, True]
    assert shelf.shown() == (bumped(bumped(FIRST)), rows | {"k1": "1", "k2": "3"})
    assert list(other.items(4)) == [("a", "b")]
    assert (ledger.head(run), ledger.verify_all().ok) == (4, True)


# --- many at once ---------------------------------------------------------------------


def test_of_those_who_expect_the_same_mark_one_wins(store: StoreUnderTest) -> None:
    """Two handles, three threads each: every step is taken once, and its row is the winner's."""
    handles = [store.open(), store.open()]
    mark = NO_MARK
    for step in range(15):
        wanted = Mark("f", 1, step + 1, "")

        def take_step(thread: int, mark: Mark = mark, wanted: Mark = wanted) -> bool:
            shelf = handles[thread % 2].shelf("counter")
            return shelf.put({"by": str(thread)}, 1, expected=mark, mark=wanted)

        outcomes = together(6, take_step)
        assert sorted(outcomes) == [False] * 5 + [True]
        winner = str(outcomes.index(True))
        assert handles[step % 2].shelf("counter").shown() == (wanted, {"by": winner})
        mark = wanted


def test_a_locked_mark_stays_until_the_transaction_ends(store: StoreUnderTest) -> None:
    """Counting in a mark loses no step, not even the first, when there is no mark to lock."""
    handles = [store.open() for _ in range(3)]

    def count(tx: Transaction) -> None:
        found = tx.locked_mark("counter") or NO_MARK
        tx.put_mark("counter", bumped(found))
        tx.put_rows("counter", 1, {str(found.position): "taken"})

    def work(thread: int) -> None:
        for _ in range(20):
            handles[thread % 3].store.write(count)

    assert together(6, work) == [None] * 6
    shelf = handles[0].shelf("counter")
    assert shelf.mark().position == 120
    assert dict(shelf.items(1)) == {str(number): "taken" for number in range(120)}


def test_appends_and_puts_go_on_side_by_side(store: StoreUnderTest) -> None:
    """Threads of two handles, each doing both: every event and every row is there."""
    handles = [store.open(), store.open()]
    runs = [new_run_id() for _ in range(8)]

    def work(thread: int) -> None:
        ledger, shelf = handles[thread % 2], handles[thread % 2].shelf(f"s{thread % 3}")
        for turn in range(15):
            version = ledger.append(runs[thread], note(turn), turn).version
            assert shelf.put({str(runs[thread]): str(version), f"{thread}-{turn}": "x"}, 1)

    assert together(8, work) == [None] * 8
    for thread, run in enumerate(runs):
        shelf = handles[0].shelf(f"s{thread % 3}")
        assert shelf.get([str(run)], 1) == {str(run): "15"}
        assert len(shelf.get([f"{thread}-{turn}" for turn in range(15)], 1)) == 15
        assert handles[0].head(run) == 15
    assert handles[0].verify_all().ok


def test_what_is_shown_is_of_one_moment(store: StoreUnderTest) -> None:
    """A reader of several pages sees one generation, whole, while others take its place."""
    writer, reader = store.open().shelf("totals"), store.open().shelf("totals")
    keys = [f"k{number}" for number in range(1200)]
    done = Event()

    def swap() -> None:
        try:
            mark = NO_MARK
            # Fewer than the looks that a reader takes, so that it can't be unlucky for ever.
            for generation in range(1, 41):
                wanted = Mark("f", generation, generation, str(generation))
                rows = dict.fromkeys(keys, str(generation))
                assert writer.put(rows, generation, expected=mark, mark=wanted)
                mark = wanted
        finally:
            done.set()

    thread = Thread(target=swap)
    thread.start()
    while not done.is_set():
        mark, rows = reader.shown()
        assert rows == (dict.fromkeys(keys, mark.state) if mark != NO_MARK else {})
    thread.join()
    assert reader.shown() == (Mark("f", 40, 40, "40"), dict.fromkeys(keys, "40"))


def test_a_shelf_that_never_stands_still_is_given_up(
    ledger: Ledger, shelf: Shelf, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With an error that says so, and not with rows of several moments."""
    full(shelf)
    read = ledger.store.shelf_page

    def disturbed(*where: Any) -> list[tuple[str, str]]:
        assert ledger.shelf("totals").put({}, 1, mark=bumped(shelf.mark()))
        return read(*where)

    monkeypatch.setattr(ledger.store, "shelf_page", disturbed)
    with pytest.raises(StoreBusyError, match="totals"):
        shelf.shown()


# --- shelves are no facts -------------------------------------------------------------


def test_a_closed_ledger_has_no_shelves(store: StoreUnderTest) -> None:
    """Every method raises LedgerClosedError, and none writes."""
    ledger = store.open()
    shelf = ledger.shelf("totals")
    rows = full(shelf)
    ledger.close()
    for call in (
        shelf.mark,
        shelf.shown,
        shelf.drop,
        lambda: shelf.get(["k1"], 1),
        lambda: next(shelf.items(1)),
        lambda: shelf.put({"k1": "x"}, 1),
        lambda: shelf.clear(1),
        ledger.store.shelf_names,
    ):
        with pytest.raises(LedgerClosedError):
            call()
    assert store.open().shelf("totals").shown() == (FIRST, rows)


def test_events_know_nothing_of_shelves(store: StoreUnderTest) -> None:
    """Records, listing, verification and the index are the same with and without them."""
    ledger = store.open()
    run = new_run_id()
    ledger.append(run, notes(3), NEW)

    def facts() -> Any:
        return list(ledger.tail()), list(ledger.runs()), ledger.verify_all(), store.vandal.rows()

    before = facts()
    shelf = ledger.shelf("totals")
    rows = full(shelf)
    shelf.put({"n": "x"}, 9)
    assert facts() == before
    ledger.rebuild_index()
    assert facts() == before
    assert shelf.shown() == (FIRST, rows)
    assert ledger.append(run, note(), 3).version == 4


def test_an_export_holds_no_shelves(store: StoreUnderTest) -> None:
    """It is the same with and without them, and importing leaves the shelves that are there."""
    ledger = store.open()
    for _ in range(3):
        ledger.append(new_run_id(), notes(3), NEW)
    before = export(ledger)
    rows = full(ledger.shelf("totals"))
    assert export(ledger) == before
    with Ledger.open("memory://") as there:
        full(there.shelf("totals"))
        take(there, before)
        assert there.store.shelf_names() == ["totals"]
        assert there.shelf("totals").shown() == (FIRST, rows)
        assert export(there) == before
    take(ledger, before)
    assert ledger.shelf("totals").shown() == (FIRST, rows)


def test_whoever_empties_the_tables_by_hand_harms_nothing(store: StoreUnderTest) -> None:
    """The ledger is whole, and the shelves can be filled again."""
    ledger = store.open()
    run, shelf = new_run_id(), ledger.shelf("totals")
    ledger.append(run, notes(3), NEW)
    rows = full(shelf)
    store.vandal.empty_shelves()
    assert shelf.shown() == (NO_MARK, {})
    assert ledger.store.shelf_names() == []
    assert ledger.verify_all().ok
    assert ledger.append(run, note(), ANY).version == 4
    assert full(shelf) == rows
    assert shelf.shown() == (FIRST, rows)
