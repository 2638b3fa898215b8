"""Derived data: rows beside the events, changed together with their watermark or not at all."""

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
    ConcurrentAppendError,
    DerivedData,
    InvalidInputError,
    Ledger,
    LedgerClosedError,
    StoreBusyError,
    Watermark,
    new_run_id,
)
from turnledger.ledger.runs.transaction import Transaction

FIRST, SECOND = Watermark("f", 10, "one"), Watermark("f", 20, "two")
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
def data(ledger: Ledger) -> DerivedData:
    """Empty derived data of the store under test."""
    return ledger.derived_data("totals")


def full(data: DerivedData) -> dict[str, str]:
    """Write twenty rows and the first watermark."""
    rows = {f"k{number}": f"value {number}" for number in range(20)}
    assert data.advance(None, FIRST, rows)
    return rows


def bumped(watermark: Watermark) -> Watermark:
    return watermark._replace(position=watermark.position + 1)


# --- rows and watermarks --------------------------------------------------------------


def test_a_name_that_was_never_written_is_empty(ledger: Ledger, data: DerivedData) -> None:
    """Asking for it makes nothing."""
    assert data.watermark() is None
    assert data.snapshot() == (None, {})
    assert data.get(["a", "b"]) == {}
    assert list(data.items()) == []
    assert ledger.store.derived.watermarks() == {}


def test_what_was_written_is_there(store: StoreUnderTest) -> None:
    """For every handle, once `advance` has returned."""
    one, other = store.open().derived_data("totals"), store.open().derived_data("totals")
    rows = full(one)
    for data in (one, other):
        assert data.watermark() == FIRST
        assert data.snapshot() == (FIRST, rows)
        assert data.get(["k3", "nothing", "k4"]) == {"k3": "value 3", "k4": "value 4"}
        assert data.get([]) == {}


def test_rows_come_in_the_order_of_their_code_points(data: DerivedData) -> None:
    """Over several pages, whatever language the keys are in."""
    rows = {f"{AWKWARD[n % len(AWKWARD)]}{n}": f"{n} ü🦜" for n in range(1200)}
    rows |= dict.fromkeys(AWKWARD, "")
    data.put(rows)
    assert list(data.items()) == sorted(rows.items())
    assert data.get(list(rows)) == rows


def test_the_last_rows_of_a_range(data: DerivedData) -> None:
    """Without the key that it follows, with the one that it ends at, and only those."""
    rows = {f"a/{n:03}": f"{n} ü🦜" for n in range(100)}
    data.put({**rows, "a": "", "a/": "", "b/050": ""})
    for after, until, limit in (("a/", "a/050", 7), ("a/", "a/003", 32), ("a/049", "a/05", 32)):
        wanted = [key for key in sorted(rows) if after < key <= until][-limit:]
        assert data.last(after, until, limit) == {key: rows[key] for key in wanted}
    assert data.last("a/050", "a/050", 5) == data.last("c", "d", 5) == {}
    assert data.last("nul\0", "z", 5) == {}


def test_rows_are_replaced_and_removed(data: DerivedData) -> None:
    """None removes a row, also one that was never there; the others stay."""
    rows = full(data)
    data.put({"k1": None, "k2": "new", "never": None, "more": ""})
    del rows["k1"]
    assert dict(data.items()) == rows | {"k2": "new", "more": ""}
    data.put(dict.fromkeys([*rows, "more"]))
    assert list(data.items()) == []
    assert data.watermark() == FIRST


@pytest.mark.parametrize("character", ["a", "é", "€", "🦜"])
def test_long_texts_are_kept_as_they_are(data: DerivedData, character: str) -> None:
    """A megabyte, of characters of every length."""
    rows = {"long": character * (1_000_000 // len(character.encode())), "short": "x"}
    assert data.advance(None, FIRST, rows)
    assert data.snapshot() == (FIRST, rows)


def test_a_key_may_be_long(data: DerivedData) -> None:
    """As long as every store can hold in an index, however little it can be compressed."""
    keys = ["".join(chr(0x100 + (n * 7919 + m * m) % 0x600) for m in range(1000)) for n in (1, 2)]
    data.put(dict.fromkeys(keys, "x"))
    assert list(data.items()) == [(key, "x") for key in sorted(keys)]


@pytest.mark.parametrize("bad", ["nul\0", "lone \ud800", "\udcff"])
def test_text_that_some_store_can_not_hold_is_refused_by_all(
    ledger: Ledger, data: DerivedData, bad: str
) -> None:
    """As key, as value, in a watermark or as name; nothing of the call is written."""
    full(data)
    before = data.snapshot()
    for act in (
        lambda: data.put({"good": "1", bad: "2"}),
        lambda: data.put({"good": "1", "k1": bad}),
        lambda: data.put({bad: None}),
        lambda: data.advance(FIRST, FIRST._replace(state=bad), {"good": "1"}),
        lambda: data.advance(FIRST, FIRST._replace(fingerprint=bad), {"good": "1"}),
        lambda: ledger.derived_data(bad),
    ):
        with pytest.raises(InvalidInputError):
            act()
    assert data.snapshot() == before
    assert data.get([bad, "k1"]) == {"k1": "value 1"}


@pytest.mark.parametrize("bad", ["", "x" * 2001, "é" * 1001])
def test_a_key_has_a_length_that_every_store_can_hold(data: DerivedData, bad: str) -> None:
    """Not empty, and not more than fits an index; a name likewise."""
    with pytest.raises(InvalidInputError, match="bytes"):
        data.put({"good": "1", bad: "2"})
    assert list(data.items()) == []


@pytest.mark.parametrize("bad", [-1, 2**63, 1.5, None])
def test_a_position_is_a_number_that_every_store_can_hold(data: DerivedData, bad: Any) -> None:
    """63 bits; anything else is refused, and nothing is written."""
    with pytest.raises(InvalidInputError, match="position"):
        data.advance(None, FIRST._replace(position=bad), {"k": "v"})
    assert data.snapshot() == (None, {})
    largest = Watermark("", 2**63 - 2, "")
    assert data.advance(None, largest, {})
    assert data.watermark() == largest


def test_a_write_that_expected_another_watermark_changes_nothing(data: DerivedData) -> None:
    """It returns False, and neither rows nor watermark are touched."""
    rows = full(data)
    for expected in (None, SECOND, FIRST._replace(state="other"), bumped(FIRST)):
        assert not data.advance(expected, SECOND, {"k1": "x", "k2": None})
        assert not data.advance(expected, SECOND, {"k1": "x"}, replace=True)
    assert data.snapshot() == (FIRST, rows)
    assert data.advance(FIRST, SECOND, {"k1": "x"})
    assert data.snapshot() == (SECOND, rows | {"k1": "x"})


def test_replacing_removes_all_other_rows(ledger: Ledger, data: DerivedData) -> None:
    """In the same transaction; rows of other names stay."""
    rows, other = full(data), ledger.derived_data("totals2")
    full(other)
    assert data.advance(FIRST, SECOND, {"k1": "new", "never": None, "more": "x"}, replace=True)
    assert data.snapshot() == (SECOND, {"k1": "new", "more": "x"})
    assert other.snapshot() == (FIRST, rows)


def test_dropping_removes_all_of_a_name_and_of_no_other(ledger: Ledger, data: DerivedData) -> None:
    """Watermark and rows; names that resemble it are other names."""
    others = [ledger.derived_data(name) for name in ("total", "totals2", "TOTALS", "ü")]
    for each in (data, *others):
        rows = full(each)
    for _ in range(2):
        data.drop()
        assert data.snapshot() == (None, {})
    for each in others:
        assert each.snapshot() == (FIRST, rows)
    assert data.advance(None, FIRST, {"k": "again"})
    assert data.snapshot() == (FIRST, {"k": "again"})


def test_watermarks_are_listed_by_name(ledger: Ledger) -> None:
    """Sorted; rows without a watermark are not listed, and neither is what was dropped."""
    ledger.derived_data("rows").put({"k": "v"})
    ledger.derived_data("one").advance(None, FIRST, {})
    ledger.derived_data("both Ü").advance(None, SECOND, {"k": "v"})
    assert list(ledger.store.derived.watermarks().items()) == [("both Ü", SECOND), ("one", FIRST)]
    ledger.derived_data("one").drop()
    assert ledger.store.derived.watermarks() == {"both Ü": SECOND}


def test_derived_data_is_there_after_reopening(store: StoreUnderTest) -> None:
    """Rows and watermark."""
    with store.open() as ledger:
        rows = full(ledger.derived_data("totals"))
    assert store.open(create=False).derived_data("totals").snapshot() == (FIRST, rows)


# --- all or nothing -------------------------------------------------------------------


def spoiling(data: DerivedData) -> Callable[[Transaction], None]:
    """A write that changes everything under a name, and fails then."""

    def spoil(tx: Transaction) -> None:
        tx.derived.watermark(data.name)
        tx.derived.put(data.name, {"k1": "spoilt", "k2": None, "extra": "x"})
        tx.derived.set_watermark(data.name, SECOND)
        tx.derived.clear(data.name)
        tx.derived.put(data.name, {"n": "new"})
        tx.derived.set_watermark(data.name, None)
        raise InvalidInputError("on purpose")

    return spoil


def test_a_write_that_fails_leaves_nothing(ledger: Ledger, data: DerivedData) -> None:
    """Whatever it had done to rows and watermark."""
    with pytest.raises(InvalidInputError, match="on purpose"):
        ledger.store.write(spoiling(data))
    assert data.snapshot() == (None, {})
    rows = full(data)
    with pytest.raises(InvalidInputError, match="on purpose"):
        ledger.store.write(spoiling(data))
    assert data.snapshot() == (FIRST, rows)


def test_in_a_group_each_write_stands_for_itself(store: StoreUnderTest) -> None:
    """Appends and writes commit together; the refused and the failed hurt no other."""
    ledger = store.open()
    data, other = ledger.derived_data("totals"), ledger.derived_data("other")
    run, rows = new_run_id(), full(data)
    ledger.append(run, note(), NEW)
    outcomes = grouped(
        ledger,
        lambda: ledger.append(run, notes(2), 1),
        lambda: data.advance(FIRST, bumped(FIRST), {"k1": "1"}),
        lambda: ledger.append(run, note(), 1),
        lambda: data.advance(FIRST, SECOND, {"k1": "2"}),
        lambda: ledger.store.write(spoiling(data)),
        lambda: data.advance(bumped(FIRST), bumped(bumped(FIRST)), {"k2": "3"}),
        lambda: other.put({"a": "b"}),
        lambda: ledger.append(run, note(), 3),
    )
    assert (outcomes[0].version, outcomes[7].version) == (3, 4)
    assert isinstance(outcomes[2], ConcurrentAppendError)
    assert isinstance(outcomes[4], InvalidInputError)
    assert [outcomes[place] for place in (1, 3, 5, 6)] == [True, False, True, None]
    assert data.snapshot() == (bumped(bumped(FIRST)), rows | {"k1": "1", "k2": "3"})
    assert list(other.items()) == [("a", "b")]
    assert (ledger.head(run), ledger.verify_all().ok) == (4, True)


# --- many at once ---------------------------------------------------------------------


def test_of_those_who_expect_the_same_watermark_one_wins(store: StoreUnderTest) -> None:
    """Two handles, three threads each: every step is taken once, and its row is the winner's."""
    handles = [store.open(), store.open()]
    watermark = None
    for step in range(15):
        wanted = Watermark("f", step + 1, "")

        def take_step(
            thread: int, expected: Watermark | None = watermark, wanted: Watermark = wanted
        ) -> bool:
            data = handles[thread % 2].derived_data("counter")
            return data.advance(expected, wanted, {"by": str(thread)})

        outcomes = together(6, take_step)
        assert sorted(outcomes) == [False] * 5 + [True]
        winner = str(outcomes.index(True))
        assert handles[step % 2].derived_data("counter").snapshot() == (wanted, {"by": winner})
        watermark = wanted


def test_a_locked_watermark_stays_until_the_transaction_ends(store: StoreUnderTest) -> None:
    """Counting in a watermark loses no step, not even the first, with no row to lock."""
    handles = [store.open() for _ in range(3)]

    def count(tx: Transaction) -> None:
        found = tx.derived.watermark("counter") or Watermark("", 0, "")
        tx.derived.set_watermark("counter", bumped(found))
        tx.derived.put("counter", {str(found.position): "taken"})

    def work(thread: int) -> None:
        for _ in range(20):
            handles[thread % 3].store.write(count)

    assert together(6, work) == [None] * 6
    watermark, rows = handles[0].derived_data("counter").snapshot()
    assert watermark == Watermark("", 120, "")
    assert rows == {str(number): "taken" for number in range(120)}


def test_appends_and_puts_go_on_side_by_side(store: StoreUnderTest) -> None:
    """Threads of two handles, each doing both: every event and every row is there."""
    handles = [store.open(), store.open()]
    runs = [new_run_id() for _ in range(8)]

    def work(thread: int) -> None:
        ledger = handles[thread % 2]
        data = ledger.derived_data(f"s{thread % 3}")
        for turn in range(15):
            version = ledger.append(runs[thread], note(turn), turn).version
            data.put({str(runs[thread]): str(version), f"{thread}-{turn}": "x"})

    assert together(8, work) == [None] * 8
    for thread, run in enumerate(runs):
        data = handles[0].derived_data(f"s{thread % 3}")
        assert data.get([str(run)]) == {str(run): "15"}
        assert len(data.get([f"{thread}-{turn}" for turn in range(15)])) == 15
        assert handles[0].head(run) == 15
    assert handles[0].verify_all().ok


def test_a_snapshot_is_of_one_moment(store: StoreUnderTest) -> None:
    """A reader of several pages sees all rows of one replacement, while others follow it."""
    writer, reader = store.open().derived_data("totals"), store.open().derived_data("totals")
    keys = [f"k{number}" for number in range(1200)]
    done = Event()

    def swap() -> None:
        try:
            watermark = None
            # Fewer than a reader's attempts, so that it can't be unlucky for ever.
            for number in range(1, 41):
                wanted = Watermark("f", number, str(number))
                rows = dict.fromkeys(keys, str(number))
                assert writer.advance(watermark, wanted, rows, replace=True)
                watermark = wanted
        finally:
            done.set()

    thread = Thread(target=swap)
    thread.start()
    while not done.is_set():
        found, rows = reader.snapshot()
        assert rows == (dict.fromkeys(keys, found.state) if found else {})
    thread.join()
    assert reader.snapshot() == (Watermark("f", 40, "40"), dict.fromkeys(keys, "40"))


def test_a_snapshot_of_what_never_stands_still_is_given_up(
    ledger: Ledger, data: DerivedData, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With an error that says so, and not with rows of several moments."""
    full(data)
    read = ledger.store.derived.page

    def disturbed(*where: Any) -> list[tuple[str, str]]:
        now = data.watermark()
        assert now is not None
        assert data.advance(now, bumped(now), {})
        return read(*where)

    monkeypatch.setattr(ledger.store.derived, "page", disturbed)
    with pytest.raises(StoreBusyError, match="totals"):
        data.snapshot()


# --- apart from the events ------------------------------------------------------------


def test_a_closed_ledger_has_no_derived_data(store: StoreUnderTest) -> None:
    """Every method raises LedgerClosedError, and none writes."""
    ledger = store.open()
    data = ledger.derived_data("totals")
    rows = full(data)
    ledger.close()
    for call in (
        data.watermark,
        data.snapshot,
        data.drop,
        lambda: data.get(["k1"]),
        lambda: next(data.items()),
        lambda: data.put({"k1": "x"}),
        lambda: data.advance(FIRST, SECOND, {}),
        ledger.store.derived.watermarks,
    ):
        with pytest.raises(LedgerClosedError):
            call()
    assert store.open().derived_data("totals").snapshot() == (FIRST, rows)


def test_events_are_independent_of_derived_data(store: StoreUnderTest) -> None:
    """Records, listing, verification and the index are the same with and without it."""
    ledger = store.open()
    run = new_run_id()
    ledger.append(run, notes(3), NEW)

    def content() -> Any:
        return list(ledger.tail()), list(ledger.runs()), ledger.verify_all(), store.vandal.rows()

    before = content()
    data = ledger.derived_data("totals")
    rows = full(data)
    assert content() == before
    ledger.rebuild_index()
    assert content() == before
    assert data.snapshot() == (FIRST, rows)
    assert ledger.append(run, note(), 3).version == 4


def test_an_export_holds_no_derived_data(store: StoreUnderTest) -> None:
    """It is the same with and without, and importing leaves the derived data that is there."""
    ledger = store.open()
    for _ in range(3):
        ledger.append(new_run_id(), notes(3), NEW)
    before = export(ledger)
    rows = full(ledger.derived_data("totals"))
    assert export(ledger) == before
    with Ledger.open("memory://") as there:
        full(there.derived_data("totals"))
        take(there, before)
        assert there.store.derived.watermarks() == {"totals": FIRST}
        assert there.derived_data("totals").snapshot() == (FIRST, rows)
        assert export(there) == before
    take(ledger, before)
    assert ledger.derived_data("totals").snapshot() == (FIRST, rows)


def test_emptying_the_tables_by_hand_harms_nothing(store: StoreUnderTest) -> None:
    """The ledger is whole, and the derived data can be written again."""
    ledger = store.open()
    run, data = new_run_id(), ledger.derived_data("totals")
    ledger.append(run, notes(3), NEW)
    rows = full(data)
    store.vandal.empty_derived_data()
    assert data.snapshot() == (None, {})
    assert ledger.store.derived.watermarks() == {}
    assert ledger.verify_all().ok
    assert ledger.append(run, note(), ANY).version == 4
    assert full(data) == rows
    assert data.snapshot() == (FIRST, rows)
