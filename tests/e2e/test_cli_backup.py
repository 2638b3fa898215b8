"""`backup`: the whole ledger in one file, from the command line."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest

from tests.conformance.forging import rewrite, small_book
from tests.conformance.harness import SQLiteVandal
from tests.e2e.driving import InProcess, Processes, hold
from tests.postgres import new_database
from turnledger.ledger import Ledger


@pytest.fixture
def book(cli: InProcess) -> InProcess:
    """A ledger with a few runs."""
    with cli.ledger() as ledger:
        small_book(ledger)
    return cli


def test_a_backup_is_a_ledger(book: InProcess, tmp_path: Path) -> None:
    """Every command works on it; the report says what is in it."""
    file = tmp_path / "monday.db"
    done = book("backup", file, "-o", "json")
    assert (done.code, done.err) == (0, "")
    assert done.json == {
        "path": str(file),
        "runs": 4,
        "records": 10,
        "blobs": 0,
        "bytes": file.stat().st_size,
        "position": 10,
        "verified": True,
    }
    copy = InProcess(file)
    assert copy("verify").code == 0
    assert copy("export", "--all").out == book("export", "--all").out
    assert copy("seal").json["root"] == book("seal").json["root"]


def test_a_file_is_replaced_only_by_force(book: InProcess, tmp_path: Path) -> None:
    """Without --force it exits with 1 and leaves the file."""
    file = tmp_path / "monday.db"
    file.write_text("mine")
    done = book("backup", file)
    assert (done.code, done.out, file.read_text()) == (1, "", "mine")
    assert "--force" in done.err
    assert "verified  yes" in book("backup", file, "--force").out
    assert InProcess(file)("verify").code == 0


def test_damage_exits_with_5(book: InProcess, tmp_path: Path) -> None:
    """And there is no file; with --no-verify there is, and it says so."""
    with closing(SQLiteVandal(book.db)) as vandal:
        row = vandal.rows()[1]
        vandal.change(row.position, "digest", bytes(32))
    file = tmp_path / "monday.db"
    done = book("backup", file)
    assert (done.code, done.out, file.exists()) == (5, "", False)
    assert row.run_id.decode() in done.err
    assert "verified  NO" in book("backup", file, "--no-verify").out
    assert InProcess(file)("verify").code == 5


def test_a_claimed_run_is_free_in_the_copy(processes: Processes, tmp_path: Path) -> None:
    """A worker that lives does not stop the backup, and does not hold the copy's run."""
    with Ledger.open(processes.db) as ledger:
        run = small_book(ledger)["other"]
    hold(processes, run)
    file = tmp_path / "monday.db"
    assert processes("backup", file).code == 0
    with Ledger.open(file) as copy:
        assert copy.worker_of(run) is None
    with Ledger.open(processes.db) as ledger:
        assert ledger.worker_of(run) == "holder"


def test_from_postgresql_and_back(cli: InProcess, tmp_path: Path) -> None:
    """A server's ledger in a file, and from there by export and import on a new server."""
    url, restored = new_database(), new_database()
    with Ledger.open(url) as ledger:
        small_book(ledger)
    file = tmp_path / "monday.db"
    done = cli("backup", file, "--db", url)
    assert done.code == 0, done.err
    whole = cli("export", "--all", "--db", file).out
    assert cli("import", "-", "--db", restored, stdin=whole).code == 0
    assert cli("export", "--all", "--db", restored).out == whole
    assert cli("export", "--all", "--db", url).out == whole


def test_a_rewritten_ledger_does_not_fit_the_seal_of_its_backup(
    book: InProcess, tmp_path: Path
) -> None:
    """A seal of a backup is as good as one of the ledger."""
    file, seal = tmp_path / "monday.db", tmp_path / "seal.json"
    book("backup", file)
    seal.write_text(InProcess(file)("seal").out)
    assert book("verify", "--seal", seal).code == 0
    with closing(SQLiteVandal(book.db)) as vandal:
        rewrite(vandal, b'"cents":20,', b'"cents":21,')
    assert book("rebuild-index").code == 0
    assert book("verify", "--seal", seal).code == 5


@pytest.mark.parametrize("arguments", [(), ("a.db", "b.db"), ("a.db", "--seal", "x")])
def test_usage_errors_exit_2(book: InProcess, arguments: tuple[str, ...]) -> None:
    """One file, and nothing that a backup does not do."""
    assert book("backup", *arguments).code == 2


def test_no_ledger_no_backup(cli: InProcess, tmp_path: Path) -> None:
    """A name that is mistyped gives an error, not an empty backup."""
    assert cli("backup", tmp_path / "monday.db").code == 1
    assert not (tmp_path / "monday.db").exists()
