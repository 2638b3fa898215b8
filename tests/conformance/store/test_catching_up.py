"""Tables catch up with the ledger on every store: each event once, however many take part."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from typing import Any
from uuid import UUID

import pytest

from tests.conformance.harness import StoreUnderTest
from tests.tables import TABLES, Notes, NotesV2, Pairs, clean_fold, completes, fill, note, starts
from turnledger.ledger import (
    ANY,
    NEW,
    CustomEvent,
    Ledger,
    Record,
    RunStarted,
    ToolCallStarted,
    new_run_id,
)
from turnledger.projections import (
    Table,
    TableDamagedError,
    TableNotMadeError,
    ToolStatistics,
    UsageByDay,
    catch_up,
    rebuild,
    table_rows,
)


def is_exact(ledger: Ledger, table: Table[Any]) -> bool:
    """Whether a table's rows are those of all records up to its position."""
    position, rows = table_rows(ledger, table)
    return rows == clean_fold(ledger, table, position)


# --- catching up ---------------------------------------------------------------------


@pytest.mark.parametrize("batch", [1, 2, 7, 500])
def test_rows_are_those_of_a_plain_fold(ledger: Ledger, batch: int) -> None:
    """Whatever the size of the batches."""
    fill(ledger, 3)
    for table in TABLES:
        catch_up(ledger, table, batch=batch)
        assert table_rows(ledger, table).rows == clean_fold(ledger, table)
        assert table_rows(ledger, table).rows


def test_it_goes_on_where_it_was(ledger: Ledger) -> None:
    """Another call takes in what came since, and says how much that was."""
    table = Pairs()
    assert catch_up(ledger, table) == 0
    assert table_rows(ledger, table) == (0, {})
    run = new_run_id()
    ledger.append(run, [RunStarted(), note(), note(), note()], NEW)
    assert catch_up(ledger, table, batch=2) == 4
    assert catch_up(ledger, table) == 0
    appended = ledger.append(run, [note()], 4)
    assert catch_up(ledger, table) == 1
    assert table_rows(ledger, table) == (appended.position, {"apart by 1": 2})


def test_progress_is_told(ledger: Ledger) -> None:
    """After each commit, how many events it has been."""
    ledger.append(new_run_id(), [note() for _ in range(5)], NEW)
    told: list[int] = []
    catch_up(ledger, Notes(), batch=2, progress=told.append)
    assert told == [2, 4, 5]


def test_events_that_it_does_not_read_move_it_too(ledger: Ledger) -> None:
    """They are behind it, and are not looked at again."""
    ledger.append(new_run_id(), [note() for _ in range(7)], NEW)
    assert catch_up(ledger, ToolStatistics(), batch=3) == 7
    assert table_rows(ledger, ToolStatistics()) == (_end(ledger), {})
    assert catch_up(ledger, ToolStatistics()) == 0


def test_events_that_mean_nothing_cost_no_commit_each(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While it follows the ledger: they are read, and written off together."""
    table, told = Notes(), []
    catch_up(ledger, table)
    ledger.append(new_run_id(), [RunStarted(), *(starts(str(n)) for n in range(5))], NEW)
    pages = []
    whole = ledger.store.rows_after

    def one_by_one(position: int, limit: int) -> Any:
        pages.append(position)
        return whole(position, 1)

    monkeypatch.setattr(ledger.store, "rows_after", one_by_one)
    assert catch_up(ledger, table, batch=4, progress=told.append) == 6
    assert (told, len(pages)) == ([4, 6], 7)


def _end(ledger: Ledger) -> int:
    return max(record.position for record in ledger.tail())


def test_what_a_fork_shares_counts_once(ledger: Ledger) -> None:
    """In its parent; what a child completes, it counts as started too."""
    run = new_run_id()
    ledger.append(run, [RunStarted()], NEW)
    ledger.append(run, [starts("a"), note()], 1)
    for child in (ledger.fork(run, 3), ledger.continuation(run)):
        ledger.append(child, [completes("a"), note()], 4)
    catch_up(ledger, ToolStatistics())
    tool = table_rows(ledger, ToolStatistics()).rows["search"]
    assert (tool["started"], tool["completed"], tool["timed"]) == (3, 2, 0)
    catch_up(ledger, Notes())
    assert table_rows(ledger, Notes()).rows["all"] == {"count": 3}
    catch_up(ledger, Pairs())
    assert table_rows(ledger, Pairs()).rows == {}


def test_handles_that_race_count_each_event_once(store: StoreUnderTest) -> None:
    """Four that catch up at the same time while two others write: nothing twice, nothing lost."""
    table, batches = ToolStatistics(), (1, 2, 3, 50)
    errors: list[BaseException] = []
    counts: list[int] = []
    written = threading.Event()
    barrier = threading.Barrier(6)

    def write() -> None:
        ledger = store.open()
        barrier.wait()
        fill(ledger, 2)

    def follow(batch: int) -> None:
        ledger = store.open()
        barrier.wait()
        counts.append(catch_up(ledger, table, batch=batch, follow=True, stop=written))
        counts.append(catch_up(ledger, table, batch=batch))

    def guarded(work: Any, *args: Any) -> None:
        try:
            work(*args)
        except BaseException as error:
            errors.append(error)
            barrier.abort()

    writers = [threading.Thread(target=guarded, args=(write,)) for _ in range(2)]
    readers = [threading.Thread(target=guarded, args=(follow, batch)) for batch in batches]
    for thread in (*writers, *readers):
        thread.start()
    for thread in writers:
        thread.join()
    written.set()
    for thread in readers:
        thread.join()
    assert errors == []
    ledger = store.open()
    assert sum(counts) == sum(1 for _ in ledger.tail())
    assert table_rows(ledger, table) == (_end(ledger), clean_fold(ledger, table))
    assert rebuild(ledger, table, verify=True).ok


def test_following_waits_for_more(store: StoreUnderTest) -> None:
    """What another handle appends arrives, and a flag ends it."""
    table, stop = Notes(), threading.Event()
    told: list[int] = []
    changed = threading.Condition()

    def note_progress(count: int) -> None:
        with changed:
            told.append(count)
            changed.notify_all()

    reader = store.open()
    follower = threading.Thread(
        target=catch_up,
        args=(reader, table),
        kwargs={"follow": True, "stop": stop, "progress": note_progress},
    )
    writer, run = store.open(), new_run_id()
    writer.append(run, [note()], NEW)
    follower.start()
    try:
        for count in (1, 2, 3):
            with changed:
                assert changed.wait_for(lambda count=count: told[-1:] == [count], timeout=30)
            assert table_rows(writer, table).rows["all"] == {"count": count}
            writer.append(run, [note()], ANY)
    finally:
        stop.set()
        follower.join()


# --- keys ----------------------------------------------------------------------------


def test_any_name_can_be_a_key(ledger: Ledger) -> None:
    """Odd ones as they are; what no store can index is cut, and ends in a digest."""
    names = ["", " ", "a/b", "run/x", "row/", "x\ny", "ü🦜", '"', "🦜" * 400]
    cut = ["\0", "?", "a" * 5000, "a" * 5001]
    run = new_run_id()
    for place, name in enumerate((*names, *cut)):
        ledger.append(run, [starts(str(place), name), starts("again", name)], ANY)
    catch_up(ledger, ToolStatistics(), batch=3)
    rows = table_rows(ledger, ToolStatistics()).rows
    assert list(rows) == sorted(rows)
    assert len(rows) == len(names) + len(cut)
    assert rows.keys() >= {*names, "?"}
    assert sum("... sha256:" in key for key in rows) == 3
    assert {row["started"] for row in rows.values()} == {2}
    assert rebuild(ledger, ToolStatistics(), verify=True).ok


# --- meaning -------------------------------------------------------------------------


class NotesWider(Notes):
    """The same version, but of other events."""

    reads = (CustomEvent, ToolCallStarted)

    def adds(self, record: Record) -> Iterable[tuple[str, Any]]:
        yield record.tag, 1


def test_a_table_that_was_never_made_is_an_error(ledger: Ledger) -> None:
    """Which says how to make it."""
    with pytest.raises(TableNotMadeError, match=r"turnledger rebuild test\.notes") as error:
        table_rows(ledger, Notes())
    assert error.value.table == "test.notes"
    with pytest.raises(TableNotMadeError):
        rebuild(ledger, Notes(), verify=True)


@pytest.mark.parametrize("changed", [NotesV2(), NotesWider()])
def test_another_meaning_is_rebuilt(ledger: Ledger, changed: Table[Any]) -> None:
    """Nothing of the old rows is taken for the new."""
    fill(ledger, 2)
    catch_up(ledger, Notes())
    with pytest.raises(TableNotMadeError, match="Bring it up to date"):
        table_rows(ledger, changed)
    catch_up(ledger, changed)
    assert table_rows(ledger, changed) == (_end(ledger), clean_fold(ledger, changed))


def test_an_older_program_leaves_a_newer_table_alone(ledger: Ledger) -> None:
    """Two programs at once must not take turns at it; going back is possible, on purpose."""
    fill(ledger, 2)
    catch_up(ledger, NotesV2())
    for look in (catch_up, table_rows):
        with pytest.raises(TableNotMadeError, match="newer program"):
            look(ledger, Notes())
    assert is_exact(ledger, NotesV2())
    rebuild(ledger, Notes())
    assert is_exact(ledger, Notes())


def test_tables_are_apart_from_each_other(ledger: Ledger) -> None:
    """Each has a position and rows of its own."""
    fill(ledger, 1)
    catch_up(ledger, Notes())
    ledger.append(new_run_id(), [note()], NEW)
    catch_up(ledger, Pairs())
    assert table_rows(ledger, Notes()).position < table_rows(ledger, Pairs()).position
    assert is_exact(ledger, Notes())
    with pytest.raises(TableNotMadeError):
        table_rows(ledger, UsageByDay())


# --- damage --------------------------------------------------------------------------


def _edit_row(ledger: Ledger, place: str, text: str | None) -> None:
    """Change a row behind the watermark's back; None removes it."""
    data = ledger.derived_data("table:tool-statistics")
    assert data.get([place]) or text is not None
    data.put({place: text})


def _open_call(ledger: Ledger) -> str:
    """The key of a row that remembers a call that is under way."""
    data = ledger.derived_data("table:tool-statistics")
    return next(key for key, _ in data.items() if key.startswith("run/"))


@pytest.mark.parametrize("and_then", ["at once", "after more was written"])
@pytest.mark.parametrize(
    "damage",
    [
        lambda ledger: _edit_row(ledger, "row/search", '{"started":999}'),
        lambda ledger: _edit_row(ledger, "row/search", "7"),
        lambda ledger: _edit_row(ledger, "row/search", "{}"),
        lambda ledger: _edit_row(ledger, "row/search", "not JSON"),
        lambda ledger: _edit_row(ledger, "row/search", None),
        lambda ledger: _edit_row(ledger, "row/other", '{"started":1}'),
        lambda ledger: _edit_row(ledger, _open_call(ledger), None),
        lambda ledger: _edit_row(ledger, _open_call(ledger), '{"e\\nc":0}'),
        lambda ledger: _edit_row(ledger, _open_call(ledger), "]"),
    ],
)
def test_rows_that_were_changed_are_noticed(ledger: Ledger, damage: Any, and_then: str) -> None:
    """At once, and also if the table has moved on since; a rebuild fixes it."""
    table = ToolStatistics()
    runs = fill(ledger, 3)
    catch_up(ledger, table)
    damage(ledger)
    if and_then == "after more was written":
        for run in runs:
            ledger.append(run, [starts("more"), completes("c")], ANY)
        try:
            catch_up(ledger, table)
        except TableDamagedError:
            return  # noticed already, because it touched that row
    with pytest.raises(TableDamagedError, match="turnledger rebuild tool-statistics"):
        table_rows(ledger, table)
    assert not rebuild(ledger, table, verify=True).ok
    rebuild(ledger, table)
    catch_up(ledger, table)
    assert is_exact(ledger, table)


@pytest.mark.parametrize(
    "change",
    [
        {"position": 1},
        {"position": 2**62},
        {"state": ""},
        {"state": '{"events":1,"sum":"00","check":""}'},
        {"fingerprint": f"tool-statistics/{ToolStatistics.version}"},
    ],
)
def test_a_watermark_that_was_edited_is_noticed(ledger: Ledger, change: dict[str, Any]) -> None:
    """When catching up and when reading; a rebuild fixes it."""
    table = ToolStatistics()
    fill(ledger, 2)
    catch_up(ledger, table)
    data = ledger.derived_data("table:tool-statistics")
    watermark = data.watermark()
    assert watermark is not None
    assert data.advance(watermark, watermark._replace(**change), {})
    with pytest.raises(TableDamagedError, match="watermark"):
        catch_up(ledger, table)
    with pytest.raises((TableDamagedError, TableNotMadeError)):
        table_rows(ledger, table)
    rebuild(ledger, table)
    assert is_exact(ledger, table)
    assert table_rows(ledger, table).position == _end(ledger)


def test_a_watermark_that_was_lost_begins_the_table_again(ledger: Ledger) -> None:
    """The rows that it left behind count for nothing, and are removed."""
    table = Notes()
    fill(ledger, 2)
    catch_up(ledger, table)
    data = ledger.derived_data("table:test.notes")
    ledger.store.write(lambda tx: tx.derived.set_watermark(data.name, None))
    data.put({"row/left over": "1"})
    with pytest.raises(TableNotMadeError):
        table_rows(ledger, table)
    catch_up(ledger, table)
    assert is_exact(ledger, table)


# --- a table that fails --------------------------------------------------------------


class Fails(Notes):
    """Can't take the third note."""

    name = "test.fails"

    def adds(self, record: Record) -> Iterable[tuple[str, Any]]:
        if record.version == 3:
            raise ZeroDivisionError("the third")
        return super().adds(record)


def test_an_error_of_a_table_is_its_own(ledger: Ledger) -> None:
    """What was before it is kept, and nothing of its batch."""
    run: UUID = new_run_id()
    ledger.append(run, [note() for _ in range(4)], NEW)
    for _ in range(2):
        with pytest.raises(ZeroDivisionError, match="the third"):
            catch_up(ledger, Fails(), batch=2)
        assert table_rows(ledger, Fails()).rows["all"] == {"count": 2}
    with pytest.raises(ZeroDivisionError, match="the third"):
        rebuild(ledger, Fails())
    assert table_rows(ledger, Fails()).rows["all"] == {"count": 2}
