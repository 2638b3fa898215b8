"""Backups of every kind of store: one moment, one file, whole or not there."""

from __future__ import annotations

import errno
import fcntl
import io
import os
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.conformance.harness import STORES, StoreUnderTest, store_under_test
from tests.conformance.samples import note, notes
from tests.postgres import new_database
from tests.unit.ledger.export_files import export, family
from turnledger.ledger import (
    ANY,
    NEW,
    IntegrityFailureError,
    InvalidInputError,
    Ledger,
    Limits,
    StoreUnavailableError,
    SystemClock,
    export_runs,
    import_runs,
    new_run_id,
)
from turnledger.ledger.integrity.seal import check_seal, make_seal
from turnledger.ledger.transfer.backup import PAGES_AT_ONCE, back_up, snapshot_of


@pytest.fixture(params=STORES)
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    """Every kind of store in turn."""
    folder = tmp_path / "store"
    folder.mkdir()
    with store_under_test(request.param, folder) as store:
        yield store


@pytest.fixture
def ledger(store: StoreUnderTest) -> Ledger:
    """A ledger with some runs."""
    ledger = store.open()
    family(ledger)
    return ledger


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """Where the backup goes: a folder of its own, so that nothing stays there unseen."""
    folder = tmp_path / "backups"
    folder.mkdir()
    return folder / "monday.db"


def only(file: Path) -> bool:
    return [path.name for path in file.parent.iterdir()] == [file.name]


def test_a_backup_is_the_same_ledger(ledger: Ledger, file: Path) -> None:
    """Every run, record and blob; it verifies, fits a seal of the first, and can be restored."""
    seal = make_seal(ledger, 0)
    report = back_up(ledger, file)
    assert (report.path, report.runs, report.records, report.blobs) == (str(file), 4, 11, 1)
    assert (report.bytes, report.verified) == (file.stat().st_size, True)
    assert only(file)
    with Ledger.open(file) as copy:
        assert export(copy) == export(ledger)
        assert list(copy.runs()) == list(ledger.runs())
        assert check_seal(copy, seal).ok
        assert report.position == make_seal(copy, 0).position
        content = io.BytesIO()
        export_runs(copy, content)
    content.seek(0)
    with Ledger.open(new_database()) as restored:
        import_runs(restored, content)
        assert export(restored) == export(ledger)


def test_a_backup_needs_no_other_file(ledger: Ledger, file: Path) -> None:
    """It is moved, read-only, to another place, and all of it is there."""
    back_up(ledger, file)
    content = file.read_bytes()
    elsewhere = file.parent.parent / "elsewhere.db"
    elsewhere.write_bytes(content)
    with closing(sqlite3.connect(f"{elsewhere.as_uri()}?mode=ro&immutable=1", uri=True)) as db:
        assert db.execute("SELECT count(*) FROM events").fetchone() == (11,)
        assert db.execute("PRAGMA journal_mode").fetchone() == ("delete",)
        assert db.execute("PRAGMA integrity_check").fetchone() == ("ok",)


def test_nobody_works_on_a_copy(ledger: Ledger, file: Path) -> None:
    """A run that is claimed here can be claimed there at once, and its holder isn't named."""
    run = new_run_id()
    ledger.append(run, note(), NEW)
    claim = ledger.claim(run, worker="somebody")
    back_up(ledger, file)
    with Ledger.open(file) as copy:
        assert copy.worker_of(run) is None
        with copy.claim(run) as theirs:
            assert theirs.epoch == claim.epoch + 1
    file.unlink()
    back_up(ledger, file)
    with closing(sqlite3.connect(file)) as db:
        assert db.execute("SELECT count(*) FROM leases").fetchone() == (0,)
    assert ledger.store.holder().encode() not in file.read_bytes()


def test_a_ledger_with_larger_limits_is_taken_whole(store: StoreUnderTest, file: Path) -> None:
    """What was once accepted is backed up, whatever the limits are by default."""
    ledger = store.open(limits=Limits(max_batch_events=1500, max_json_depth=100))
    nested: Any = 1
    for _ in range(80):
        nested = [nested]
    ledger.append(new_run_id(), [note(deep=nested), *notes(1400)], NEW)
    assert back_up(ledger, file).records == 1401


def test_a_commit_that_is_larger_than_any_by_default_is_taken(file: Path) -> None:
    """How much is written at once is the copy's matter; how large a commit was is not."""
    large = Limits(max_batch_bytes=100 * 1024 * 1024)
    with Ledger.open("memory://", limits=large, redactor=None) as ledger:
        ledger.append(new_run_id(), [note(text="x" * 7_500_000)] * 9, NEW)
        assert back_up(ledger, file).records == 9


def test_a_backup_takes_nothing_out(store: StoreUnderTest, file: Path) -> None:
    """What looks like a secret and was recorded all the same is in the copy, digests and all."""
    ledger = store.open(redactor=None)
    ledger.append(new_run_id(), note(text="Authorization: Bearer " + "a1B2" * 12), NEW)
    back_up(ledger, file)
    with Ledger.open(file) as copy:
        assert export(copy) == export(ledger)


def test_it_is_the_ledger_of_one_moment(store: StoreUnderTest, file: Path) -> None:
    """What others append while it is made is not in it, and they do not wait for it."""
    ledger, writing = store.open(), store.open()
    runs = [new_run_id() for _ in range(3)]
    for run in runs:
        for _ in range(2):
            ledger.append(run, [note(text="x" * 3500) for _ in range(500)], ANY)
    seal = make_seal(ledger, 0)
    before = export(ledger)
    told: list[str] = []

    def go_on(doing: str, done: int, total: int | None) -> None:
        told.append(doing)
        if len(told) < 6:
            writing.append(runs[len(told) % 3], note(), ANY)
            writing.append(new_run_id(), note(), NEW)

    report = back_up(ledger, file, progress=go_on)
    assert told[0].startswith("copying")
    assert len(set(told)) > 1
    assert (report.runs, report.records) == (3, 3000)
    with Ledger.open(file) as copy:
        assert export(copy) == before
        assert make_seal(copy, 0).root == seal.root
    assert ledger.store.last_position() is not None
    assert sum(1 for _ in ledger.runs()) == 8


@pytest.mark.parametrize("kind", ["memory", "postgres"])
def test_a_snapshot_stands_still(kind: str, tmp_path: Path) -> None:
    """Runs that grow and begin while it is read are, in it, what they were: all at one moment."""
    with store_under_test(kind, tmp_path) as store:
        ledger = store.open()
        runs = family(ledger)
        before = export(ledger)
        with closing(snapshot_of(ledger.store)) as snapshot:
            frozen = Ledger(snapshot, codec=ledger.codec, clock=SystemClock())
            ledger.append(runs[0], note(), ANY)
            ledger.append(new_run_id(), note(), NEW)
            assert frozen.head(runs[0]) + 1 == ledger.head(runs[0])
            assert sum(1 for _ in frozen.runs()) + 1 == sum(1 for _ in ledger.runs())
            assert export(frozen) == before
        assert ledger.verify_all().ok


def test_the_wal_is_taken_back_after_it(tmp_path: Path, file: Path) -> None:
    """The WAL can't be reset while the copy is read; afterwards it is."""
    with Ledger.open(tmp_path / "runs.db") as ledger:
        wal = tmp_path / "runs.db-wal"
        run = new_run_id()

        def fill(megabytes: int) -> None:
            for _ in range(megabytes):
                ledger.append(run, note(text="x" * 1_000_000), ANY)

        fill(10)
        back_up(ledger, file, verify=False, progress=lambda *_: fill(3))
        fill(20)
        first = wal.stat().st_size
        fill(40)
        assert wal.stat().st_size < first + 20_000_000
        assert PAGES_AT_ONCE * 4096 < 10_000_000  # there was progress, and so writing, within


def test_what_is_there_stays(ledger: Ledger, file: Path) -> None:
    """A file is replaced only when that is asked for, and by a whole backup."""
    file.write_text("mine")
    with pytest.raises(InvalidInputError, match="exists and was not changed"):
        back_up(ledger, file)
    assert file.read_text() == "mine"
    assert only(file)
    assert back_up(ledger, file, overwrite=True).runs == 4
    ledger.append(new_run_id(), note(), NEW)
    assert back_up(ledger, file, overwrite=True).runs == 5
    with Ledger.open(file) as copy:
        assert copy.verify_all().ok


def test_what_comes_meanwhile_stays_too(ledger: Ledger, file: Path) -> None:
    """A file that appears under the name while the copy is made is not replaced."""

    def come(*_: object) -> None:
        file.write_text("theirs")

    with pytest.raises(InvalidInputError, match="exists and was not changed"):
        back_up(ledger, file, progress=come)
    assert file.read_text() == "theirs"
    assert only(file)


def test_a_ledger_in_use_is_never_replaced(ledger: Ledger, file: Path) -> None:
    """SQLite would take the WAL beside it for a part of the new file."""
    with Ledger.open(file) as other:
        other.append(new_run_id(), note(), NEW)
        with pytest.raises(InvalidInputError, match="in use"):
            back_up(ledger, file, overwrite=True)
        assert other.verify_all().records == 1


def test_a_wal_without_its_ledger_is_in_the_way(ledger: Ledger, file: Path) -> None:
    """SQLite would apply the WAL of a killed process to the backup."""
    Path(f"{file}-wal").write_bytes(b"x")
    with pytest.raises(InvalidInputError, match="-wal exists"):
        back_up(ledger, file)
    assert not file.exists()


def test_a_ledger_is_not_its_own_backup(tmp_path: Path) -> None:
    """By whatever name the file is called."""
    (tmp_path / "link.db").symlink_to(tmp_path / "runs.db")
    with Ledger.open(tmp_path / "runs.db") as ledger:
        ledger.append(new_run_id(), note(), NEW)
        for name in ("runs.db", "link.db"):
            with pytest.raises(InvalidInputError, match="ledger itself"):
                back_up(ledger, tmp_path / name, overwrite=True)
        assert ledger.verify_all().records == 1


@pytest.mark.parametrize(
    "name", ["-wal", "-shm", "-journal", "-locks", "-locks/gate", "-locks/write", "-locks/new.db"]
)
@pytest.mark.parametrize("overwrite", [True, False])
def test_what_belongs_to_the_ledger_is_no_place_for_its_backup(
    tmp_path: Path, name: str, overwrite: bool
) -> None:
    """Its last commits may be in the WAL only; and without its locks it has no order."""
    run = new_run_id()
    (tmp_path / "here").symlink_to(tmp_path)
    with Ledger.open(tmp_path / "runs.db") as ledger:
        ledger.append(run, note(), NEW)
        for folder in (tmp_path, tmp_path / "here"):
            with pytest.raises(InvalidInputError, match="belongs to the ledger itself"):
                back_up(ledger, f"{folder}/runs.db{name}", overwrite=overwrite)
        assert ledger.append(run, note(), ANY).version == 2
        assert ledger.verify_all().ok


def test_a_link_that_leads_nowhere_is_there(ledger: Ledger, file: Path) -> None:
    """That is told before anything is copied; by force the link is replaced, not followed."""
    file.symlink_to("nowhere")
    told: list[object] = []
    with pytest.raises(InvalidInputError, match="exists and was not changed"):
        back_up(ledger, file, progress=lambda *args: told.append(args))
    assert told == []
    assert file.is_symlink()
    assert back_up(ledger, file, overwrite=True).runs == 4
    assert only(file)
    assert not file.is_symlink()


def test_a_wal_beside_a_link_is_in_the_way_too(ledger: Ledger, file: Path) -> None:
    """The copy takes the link's own name, and SQLite looks for a WAL by that."""
    theirs = file.parent.parent / "theirs.db"
    theirs.write_text("")
    file.symlink_to(theirs)
    Path(f"{file}-wal").write_bytes(b"x")
    with pytest.raises(InvalidInputError, match="-wal exists"):
        back_up(ledger, file, overwrite=True)
    assert file.is_symlink()


@pytest.mark.parametrize("name", ["a\0b", "\ud800", "loop", "loop/x.db", "n" * 300, "n" * 252])
def test_a_name_that_can_not_be_is_an_error_of_ours(ledger: Ledger, file: Path, name: str) -> None:
    """A NUL, half a character, links in a circle, too many letters."""
    loop = file.parent / "loop"
    loop.symlink_to("loop")
    with pytest.raises((InvalidInputError, StoreUnavailableError), match=r"name|backup|there"):
        back_up(ledger, file.parent / name)
    assert only(loop)


def test_a_relative_name_in_a_folder_that_is_gone_is_an_error_of_ours(
    ledger: Ledger, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It names nothing."""
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    with pytest.raises(StoreUnavailableError, match=r"monday\.db"):
        back_up(ledger, "monday.db")


def test_a_folder_that_may_not_be_looked_into_is_an_error_of_ours(
    ledger: Ledger, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever is in there."""

    def refuse(path: Path, **_: object) -> None:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))

    with monkeypatch.context() as patch:
        patch.setattr(Path, "is_dir", refuse)
        with pytest.raises(StoreUnavailableError, match=r"monday\.db"):
            back_up(ledger, file)


@pytest.mark.parametrize("where", ["nowhere/x.db", "file/x.db"])
def test_a_place_that_can_not_be_written_is_an_error(
    ledger: Ledger, tmp_path: Path, where: str
) -> None:
    """Of our own kind, with the name of the place."""
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreUnavailableError, match=r"x\.db"):
        back_up(ledger, tmp_path / where)
    with pytest.raises(InvalidInputError, match="folder"):
        back_up(ledger, tmp_path)


def test_one_backup_to_a_file_at_a_time(ledger: Ledger, file: Path) -> None:
    """The second is refused, the first not disturbed; what a dead one left is cleared away."""
    part = Path(f"{file}.part")

    def second(*_: object) -> None:
        with pytest.raises(InvalidInputError, match="under way"):
            back_up(ledger, file)

    back_up(ledger, file, progress=second)
    assert only(file)
    file.unlink()
    part.mkdir()
    (part / "ledger.db").write_text("half of one")
    (part / "ledger.db-locks").mkdir()
    assert back_up(ledger, file).runs == 4
    assert only(file)


@pytest.mark.parametrize(
    "name", ["thesis.txt", "ledger.db.bak", "ledger.db-locks/thesis.txt", "ledger.db/x", "sub/x"]
)
def test_somebody_s_own_files_in_the_folder_stay(ledger: Ledger, file: Path, name: str) -> None:
    """What no backup makes was not left by one: it is refused, named, and nothing is removed."""
    theirs = Path(f"{file}.part") / name
    theirs.parent.mkdir(parents=True)
    theirs.write_text("years of work")
    (file.parent / "monday.db.part" / "ledger.jsonl").write_text("half of one")
    before = sorted(file.parent.rglob("*"))
    with pytest.raises(InvalidInputError, match=r"monday\.db\.part/"):
        back_up(ledger, file)
    assert theirs.read_text() == "years of work"
    assert sorted(file.parent.rglob("*")) == before


def test_what_comes_into_the_folder_meanwhile_stays(ledger: Ledger, file: Path) -> None:
    """The backup takes away what it made, and no more."""
    theirs = Path(f"{file}.part") / "thesis.txt"

    def come(*_: object) -> None:
        theirs.write_text("years of work")

    assert back_up(ledger, file, progress=come).runs == 4
    assert theirs.read_text() == "years of work"


@pytest.mark.parametrize("name", ["monday.db.part", "monday.db.part/ledger.db-locks"])
def test_a_link_to_somebody_s_folder_is_not_followed(ledger: Ledger, file: Path, name: str) -> None:
    """Neither is anything there removed, nor the copy made there."""
    theirs = file.parent.parent / "theirs"
    theirs.mkdir()
    (theirs / "gate").write_text("mine")
    link = file.parent / name
    link.parent.mkdir(exist_ok=True)
    link.symlink_to(theirs)
    with pytest.raises(InvalidInputError, match=name):
        back_up(ledger, file)
    assert link.is_symlink()
    assert [path.name for path in theirs.iterdir()] == ["gate"]


def test_all_that_a_killed_backup_leaves_is_cleared_away(ledger: Ledger, file: Path) -> None:
    """Whenever it was killed."""
    part = Path(f"{file}.part")
    locks = part / "ledger.db-locks"
    locks.mkdir(parents=True)
    for name in ("gate", "write", f"alive-{new_run_id()}"):
        (locks / name).touch()
    for name in ("ledger.db", "ledger.db-wal", "ledger.db-shm", "ledger.db-journal"):
        (part / name).touch()
    (part / "ledger.jsonl").touch()
    assert back_up(ledger, file).runs == 4
    assert only(file)


def test_what_another_user_s_backup_left_is_an_error_of_ours(
    ledger: Ledger, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It can't be removed, and the error says which file that is."""
    part = Path(f"{file}.part")
    part.mkdir()
    (part / "ledger.db").touch()

    def refuse(path: Path, missing_ok: bool = False) -> None:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))

    with monkeypatch.context() as patch:
        patch.setattr(Path, "unlink", refuse)
        with pytest.raises(StoreUnavailableError, match=r"monday\.db\.part/ledger\.db"):
            back_up(ledger, file)
    assert back_up(ledger, file).runs == 4


def test_a_ledger_is_not_cleared_away_for_its_own_backup(tmp_path: Path) -> None:
    """One that lies where the copy would be made, under the copy's name."""
    folder = tmp_path / "monday.db.part"
    folder.mkdir()
    with Ledger.open(folder / "ledger.db") as ledger:
        ledger.append(new_run_id(), note(), NEW)
        with pytest.raises(InvalidInputError, match="Name another file"):
            back_up(ledger, tmp_path / "monday.db")
        assert ledger.append(new_run_id(), note(), NEW).version == 1
        assert ledger.verify_all().records == 2


def test_somebody_s_lock_on_the_folder_counts(ledger: Ledger, file: Path) -> None:
    """Its holder, in any process, is making a backup."""
    part = Path(f"{file}.part")
    part.mkdir()
    handle = os.open(part, os.O_RDONLY)
    fcntl.flock(handle, fcntl.LOCK_EX)
    with pytest.raises(InvalidInputError, match="under way"):
        back_up(ledger, file)
    os.close(handle)
    assert back_up(ledger, file).runs == 4


def _change_data(store: StoreUnderTest) -> None:
    row = store.vandal.rows()[2]
    store.vandal.change(row.position, "data", row.data.replace(b"note", b"gone"))


def _lose_the_end(store: StoreUnderTest) -> None:
    store.vandal.change_run(store.vandal.rows()[0].run_id.decode(), "version", 99)


@pytest.mark.parametrize("damage", [_change_data, _lose_the_end])
def test_damage_is_no_backup(
    store: StoreUnderTest, ledger: Ledger, file: Path, damage: Callable[[StoreUnderTest], None]
) -> None:
    """The run is named, and nothing is left under the name or beside it."""
    damage(store)
    with pytest.raises(IntegrityFailureError, match=r"[0-9a-f]{8}-"):
        back_up(ledger, file)
    assert list(file.parent.iterdir()) == []


def test_damage_can_be_kept_as_it_is(tmp_path: Path, file: Path) -> None:
    """A damaged file is copied, damage and all, for who asks for that."""
    with store_under_test("sqlite", tmp_path) as store:
        ledger = store.open()
        family(ledger)
        _change_data(store)
        assert not back_up(ledger, file, verify=False).verified
        with Ledger.open(file) as copy:
            assert copy.verify_all().problems == ledger.verify_all().problems


def test_an_interrupted_backup_leaves_nothing(ledger: Ledger, file: Path) -> None:
    """Ctrl-C, wherever it comes."""
    calls = 0

    def counted(*_: object) -> None:
        nonlocal calls
        calls += 1

    back_up(ledger, file, progress=counted)
    file.unlink()
    for end in range(1, calls + 1):
        left = end

        def interrupt(*_: object) -> None:
            nonlocal left
            left -= 1
            if left == 0:
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            back_up(ledger, file, progress=interrupt)
        assert list(file.parent.iterdir()) == []


def test_an_empty_ledger_has_a_backup(store: StoreUnderTest, file: Path) -> None:
    """There is nothing in it, and it is a ledger."""
    report = back_up(store.open(), file)
    assert (report.runs, report.records, report.position) == (0, 0, 0)
    with Ledger.open(file, create=False) as copy:
        copy.append(new_run_id(), note(), NEW)
