"""Tables rebuilt on every store: equal to those that caught up, whatever happens meanwhile."""

from __future__ import annotations

import pickle
import threading
from collections.abc import Callable
from concurrent.futures import BrokenExecutor, Executor, Future, ThreadPoolExecutor
from functools import partial
from typing import Any

import msgspec
import pytest

from tests.conformance.harness import StoreUnderTest
from tests.postgres import eventually
from tests.tables import (
    TABLES,
    Deadly,
    Faulty,
    Notes,
    NotesV2,
    clean_fold,
    completes,
    fill,
    note,
    starts,
)
from turnledger.ledger import (
    ANY,
    NEW,
    DerivedData,
    InvalidInputError,
    Ledger,
    LedgerClosedError,
    new_run_id,
)
from turnledger.ledger.runs.transaction import Transaction
from turnledger.projections import (
    RebuildOvertakenError,
    Table,
    TableNotMadeError,
    ToolStatistics,
    catch_up,
    rebuild,
    table_rows,
)
from turnledger.projections.tables import parallel as over_runs
from turnledger.projections.tables import rebuild as rebuilding


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Many portions and many commits, of few events."""
    monkeypatch.setattr(over_runs, "SMALLEST_PORTION", 5)
    monkeypatch.setattr(over_runs, "LARGEST_PORTION", 5)
    monkeypatch.setattr(rebuilding, "EVENTS_AT_ONCE", 3)


def data_of(ledger: Ledger, table: Table[Any]) -> DerivedData:
    return ledger.derived_data(f"table:{table.name}")


# --- equal to catching up ------------------------------------------------------------


@pytest.mark.usefixtures("small")
def test_a_rebuild_gives_what_catching_up_gave(ledger: Ledger) -> None:
    """Rows, what is remembered of runs, and the watermark with its checksum."""
    fill(ledger)
    for table in TABLES:
        catch_up(ledger, table, batch=7)
        before = data_of(ledger, table).snapshot()
        report = rebuild(ledger, table)
        assert data_of(ledger, table).snapshot() == before
        position, rows = table_rows(ledger, table)
        assert rows == clean_fold(ledger, table)
        assert report.ok
        assert (report.name, report.version) == (table.name, table.version)
        assert (report.position, report.events) == (position, sum(1 for _ in ledger.tail()))
        assert report.rows == len(rows)


def test_it_can_be_made_before_it_was_ever_stored(ledger: Ledger) -> None:
    """Of nothing too; catching up goes on from there."""
    rebuild(ledger, Notes())
    assert table_rows(ledger, Notes()) == (0, {})
    run = new_run_id()
    ledger.append(run, [starts("a"), note()], NEW)
    rebuild(ledger, ToolStatistics())
    ledger.append(run, [completes("a")], 2)
    assert catch_up(ledger, ToolStatistics()) == 1
    assert table_rows(ledger, ToolStatistics()).rows["search"]["timed"] == 1


@pytest.mark.usefixtures("small")
def test_progress_is_told(ledger: Ledger) -> None:
    """How many events were folded, and of how many, to the end."""
    fill(ledger)
    told: list[tuple[int, int]] = []
    rebuild(ledger, Notes(), progress=lambda done, total: told.append((done, total)))
    total = sum(1 for _ in ledger.tail())
    assert len(told) > 3
    assert [done for done, _ in told] == sorted(done for done, _ in told)
    assert told[-1] == (total, total)
    assert {of for _, of in told} == {total}


@pytest.mark.usefixtures("small")
def test_others_write_and_catch_up_meanwhile(store: StoreUnderTest) -> None:
    """Nothing that is appended during a rebuild is lost or counted twice, nor is it hidden."""
    table, stop = ToolStatistics(), threading.Event()
    errors: list[BaseException] = []

    def work(step: Callable[[Ledger], object]) -> None:
        try:
            ledger = store.open()
            while not stop.is_set():
                step(ledger)
        except BaseException as error:
            errors.append(error)

    ledger = store.open()
    fill(ledger)
    catch_up(ledger, table)
    steps = (lambda book: fill(book, 1), partial(catch_up, table=table, batch=3))
    threads = [threading.Thread(target=work, args=(step,)) for step in steps]
    for thread in threads:
        thread.start()
    shown = [table_rows(ledger, table).position]
    for _ in range(5):
        rebuild(ledger, table)
        shown.append(table_rows(ledger, table).position)
    stop.set()
    for thread in threads:
        thread.join()
    assert errors == []
    assert shown == sorted(shown)
    catch_up(ledger, table)
    assert table_rows(ledger, table).rows == clean_fold(ledger, table)
    assert rebuild(ledger, table, verify=True).ok


def test_what_is_shown_never_goes_back(store: StoreUnderTest) -> None:
    """What the old table took in while the new one was made is in the new one too."""
    ledger, other, table = store.open(), store.open(), Notes()
    run = fill(ledger, 2)[0]
    catch_up(ledger, table)

    def meanwhile(done: int, total: int) -> None:
        other.append(run, [note("test.late")], ANY)
        catch_up(other, table)

    rebuild(ledger, table, progress=meanwhile)
    assert table_rows(ledger, table).rows["test.late"] == 1
    assert table_rows(ledger, table).rows == clean_fold(ledger, table)
    assert catch_up(ledger, table) == 0


def at_the_last_look(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch, deed: Callable[[], object]
) -> None:
    """Have something done right after a rebuild has looked at what it will replace."""
    whole, looks = ledger.store.derived.watermark, 0

    def look(name: str) -> Any:
        nonlocal looks
        found = whole(name)
        looks += 1
        if looks == 2:
            looks += 1
            deed()
        return found

    monkeypatch.setattr(ledger.store.derived, "watermark", look)


def test_the_swap_is_of_what_was_looked_at(
    store: StoreUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If it moves on at the last moment, so does the new table."""
    ledger, other, table = store.open(), store.open(), Notes()
    run = fill(ledger, 2)[0]
    catch_up(ledger, table)

    def moves_on() -> None:
        other.append(run, [note("test.late")], ANY)
        assert catch_up(other, table) == 1

    at_the_last_look(ledger, monkeypatch, moves_on)
    rebuild(ledger, table)
    assert table_rows(ledger, table).rows["test.late"] == 1
    assert catch_up(ledger, table) == 0


def test_the_swap_is_not_of_what_was_replaced(
    store: StoreUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If a newer version of the table is complete at the last moment, that one stays."""
    ledger, other = store.open(), store.open()
    fill(ledger, 2)
    catch_up(ledger, Notes())
    at_the_last_look(ledger, monkeypatch, lambda: rebuild(other, NotesV2()))
    with pytest.raises(RebuildOvertakenError):
        rebuild(ledger, Notes())
    assert table_rows(ledger, NotesV2()).rows == clean_fold(ledger, NotesV2())


# --- at once, or interrupted ----------------------------------------------------------


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("was_there", [True, False])
def test_a_newer_version_that_came_meanwhile_is_kept(
    store: StoreUnderTest, was_there: bool
) -> None:
    """The rebuild of the older one says so, and leaves nothing behind; one of the same is fine."""
    ledger, other = store.open(), store.open()
    fill(ledger)
    if was_there:
        catch_up(ledger, Notes())
    rebuild(ledger, Notes(), progress=lambda done, total: rebuild(other, Notes()) and None)
    assert table_rows(ledger, Notes()).rows == clean_fold(ledger, Notes())
    if not was_there:
        data_of(ledger, Notes()).drop()
    with pytest.raises(RebuildOvertakenError, match="thrown away") as error:
        rebuild(ledger, Notes(), progress=lambda done, total: rebuild(other, NotesV2()) and None)
    assert error.value.table == Notes.name
    assert table_rows(ledger, NotesV2()).rows == clean_fold(ledger, NotesV2())
    assert rebuild(ledger, NotesV2(), verify=True).ok


@pytest.mark.usefixtures("small")
def test_many_rebuilds_at_once_spoil_nothing(store: StoreUnderTest) -> None:
    """Afterwards the table is what the events say."""
    table, barrier = ToolStatistics(), threading.Barrier(4)
    fill(store.open())
    outcomes: list[str] = []

    def work(ledger: Ledger) -> None:
        barrier.wait()
        for _ in range(3):
            try:
                outcomes.append(str(rebuild(ledger, table).ok))
            except BaseException as error:
                outcomes.append(repr(error))

    threads = [threading.Thread(target=work, args=(store.open(),)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    ledger = store.open()
    assert outcomes == ["True"] * 12
    assert table_rows(ledger, table).rows == clean_fold(ledger, table)
    assert rebuild(ledger, table, verify=True).ok


@pytest.mark.usefixtures("small")
def test_one_that_is_interrupted_leaves_the_old_one(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Wherever it is: between portions, and at every step of the swap."""
    table = Notes()
    fill(ledger)
    catch_up(ledger, table)
    before = data_of(ledger, table).snapshot()
    write = ledger.store.write

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    def within(step: str, work: Callable[[Transaction], Any]) -> Any:
        def interrupted(tx: Transaction) -> Any:
            for owner in (tx, tx.derived):
                if hasattr(owner, step):
                    monkeypatch.setattr(type(owner), step, interrupt)
            return work(tx)

        return write(interrupted)

    for step in ("watermark", "set_watermark", "clear", "put", "commit"):
        monkeypatch.setattr(ledger.store, "write", partial(within, step))
        with pytest.raises(KeyboardInterrupt):
            rebuild(ledger, table)
        monkeypatch.undo()
        assert data_of(ledger, table).snapshot() == before
    with pytest.raises(KeyboardInterrupt):
        rebuild(ledger, table, progress=interrupt)
    assert data_of(ledger, table).snapshot() == before


# --- executors -----------------------------------------------------------------------


@pytest.mark.usefixtures("small")
def test_threads_can_fold(ledger: Ledger) -> None:
    """On every store, a ledger in memory too."""
    fill(ledger)
    with ThreadPoolExecutor(3) as executor:
        for table in TABLES:
            rebuild(ledger, table, executor=executor, workers=3)
            assert table_rows(ledger, table).rows == clean_fold(ledger, table)


class Cluster(Executor):
    """An executor that runs each task at once, after a journey through pickle."""

    def __init__(self) -> None:
        self.most = self.tasks = 0
        self._open: set[Future[Any]] = set()

    def submit(self, work: Any, /, *args: Any, **kwargs: Any) -> Future[Any]:
        self.tasks += 1
        future: Future[Any] = Future()
        travelled, given, named = pickle.loads(pickle.dumps((work, args, kwargs)))
        future.set_result(pickle.loads(pickle.dumps(travelled(*given, **named))))
        whole, self._open = future.result, self._open | {future}
        self.most = max(self.most, len(self._open))

        def result(timeout: float | None = None) -> Any:
            self._open.discard(future)
            return whole(timeout)

        future.result = result  # type: ignore[method-assign]
        return future


def is_closed(ledger: Ledger) -> bool:
    try:
        ledger.head(new_run_id())
    except LedgerClosedError:
        return True
    return False


@pytest.mark.usefixtures("small")
def test_any_executor_can_fold(
    shared_store: StoreUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tasks need nothing but what they are given, and only a few are on their way at once.

    What they opened is used by the next ones, and closed when none comes.
    """
    ledger, cluster = shared_store.open(), Cluster()
    opened: list[Ledger] = []
    whole = over_runs._opened
    monkeypatch.setattr(over_runs, "_opened", lambda url: opened.append(whole(url)) or opened[-1])
    fill(ledger, 9)
    rebuild(ledger, ToolStatistics(), executor=cluster, workers=2)
    assert table_rows(ledger, ToolStatistics()).rows == clean_fold(ledger, ToolStatistics())
    assert cluster.tasks > cluster.most
    assert cluster.most == 2 * over_runs.IN_FLIGHT
    assert len(opened) == 1
    monkeypatch.setattr(over_runs, "LINGER", 0)
    rebuild(ledger, Notes(), executor=cluster, workers=2)
    eventually(lambda: all(map(is_closed, opened)))


def test_processes_can_not_fold_what_is_in_memory() -> None:
    """The error says what to do, and comes before anything is done."""
    with Ledger.open("memory://") as ledger:
        fill(ledger, 1)
        for options in ({"workers": 2}, {"executor": Cluster()}):
            with pytest.raises(InvalidInputError, match="ThreadPoolExecutor"):
                rebuild(ledger, Notes(), **options)  # type: ignore[arg-type]
        with pytest.raises(InvalidInputError, match="workers"):
            rebuild(ledger, Notes(), workers=0)
        with pytest.raises(TableNotMadeError):
            table_rows(ledger, Notes())


class Pool:
    """Looks like the pools of multiprocessing and ray, which are not executors."""

    def submit(self, work: Any, *args: Any) -> Any:
        raise AssertionError("was asked to work")


def test_what_is_not_an_executor_is_refused(ledger: Ledger) -> None:
    """The error names what came and what to pass, and comes before anything is done."""
    fill(ledger, 1)
    with pytest.raises(InvalidInputError, match=r"test_rebuilding\.Pool.*get_executor"):
        rebuild(ledger, Notes(), executor=Pool())  # type: ignore[arg-type]
    with pytest.raises(TableNotMadeError):
        table_rows(ledger, Notes())


def test_processes_can_fold(shared_store: StoreUnderTest) -> None:
    """Two of them; and if one fails or dies, the table stays what it was."""
    ledger = shared_store.open()
    runs = fill(ledger, 6)
    rebuild(ledger, ToolStatistics(), workers=2)
    assert table_rows(ledger, ToolStatistics()).rows == clean_fold(ledger, ToolStatistics())
    assert rebuild(ledger, ToolStatistics(), workers=2, verify=True).ok
    catch_up(ledger, Notes())
    before = table_rows(ledger, Notes())
    ledger.append(runs[0], [note()], ANY)
    with pytest.raises(ZeroDivisionError, match="in a worker"):
        rebuild(ledger, Faulty(), workers=2)
    with pytest.raises(BrokenExecutor):
        rebuild(ledger, Deadly(), workers=2)
    assert table_rows(ledger, Notes()) == before
    assert catch_up(ledger, Notes()) == 1


def test_a_ledger_is_opened_elsewhere_by_its_url(
    store: StoreUnderTest, tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Wherever that is: a file's name becomes its whole path."""
    assert store.open().url == store.url.removeprefix("sqlite:///")
    monkeypatch.chdir(tmp_path)
    for given in ("here.db", "sqlite:///here.db"):
        with Ledger.open(given) as ledger:
            assert ledger.url == str(tmp_path / "here.db")


# --- verifying -----------------------------------------------------------------------


def test_verifying_finds_what_differs(ledger: Ledger) -> None:
    """Each row by its key, with both values; nothing is changed."""
    table = ToolStatistics()
    fill(ledger, 3)
    catch_up(ledger, table)
    true = table_rows(ledger, table).rows
    data = data_of(ledger, table)
    kept = dict(data.items())
    run = next(key for key in kept if key.startswith("run/"))
    data.put(
        {
            "row/search": '{"started":999}',
            "row/pay": None,
            "row/write": "{broken",
            "row/more": "1",
            run: '{"x":1}',
        }
    )
    damaged = data.snapshot()
    report = rebuild(ledger, table, verify=True)
    found = {(d.kind, d.key): (d.stored, d.folded) for d in report.differences}
    assert found == {
        ("row", "search"): ({"started": 999}, true["search"]),
        ("row", "pay"): (None, true["pay"]),
        ("row", "write"): ("{broken", true["write"]),
        ("row", "more"): (1, None),
        ("run", run.removeprefix("run/")): ({"x": 1}, msgspec.json.decode(kept[run])),
    }
    assert "row pay: stored is nothing, the events say {" in "\n".join(map(str, report.differences))
    assert (report.ok, report.verified) == (False, True)
    assert data.snapshot() == damaged


def test_verifying_finds_an_edited_watermark(ledger: Ledger) -> None:
    """A position that is not where the rows end."""
    table = Notes()
    fill(ledger, 2)
    catch_up(ledger, table)
    data, first = data_of(ledger, table), next(ledger.tail()).position
    watermark = data.watermark()
    assert watermark is not None
    assert data.advance(watermark, watermark._replace(position=first), {})
    kinds = {difference.kind for difference in rebuild(ledger, table, verify=True).differences}
    assert kinds == {"row", "mark"}


def test_verifying_looks_no_further_than_the_table(ledger: Ledger) -> None:
    """What came since is not a difference."""
    table = ToolStatistics()
    runs = fill(ledger, 2)
    catch_up(ledger, table)
    position = table_rows(ledger, table).position
    ledger.append(runs[0], [completes("c")], ANY)
    report = rebuild(ledger, table, verify=True)
    assert (report.ok, report.position) == (True, position)
