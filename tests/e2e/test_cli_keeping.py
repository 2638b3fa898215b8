"""`verify`, `doctor` and `rebuild-index`, on ledgers that are well and that are not."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from uuid import UUID

import pytest

from adapters.cli.health import (
    Verdict,
    examine,
    file_system,
    free_space,
    mount_of,
    sqlite_version,
)
from ledger import NEW, CustomEvent, Ledger, ResourceSnapshotted, RunStarted, blob_name, new_run_id
from ledger.events import CATALOGUE
from tests.e2e.driving import InProcess, Processes
from tests.postgres import new_database


@pytest.fixture
def run(cli: InProcess) -> UUID:
    """A run of three events, and another one."""
    run = new_run_id()
    with cli.ledger() as ledger:
        ledger.append(run, [RunStarted(), CustomEvent(kind="a.b"), CustomEvent(kind="a.c")], NEW)
        ledger.append(new_run_id(), [RunStarted()], NEW)
    return run


def tamper(db: Path, statement: str, *values: object) -> None:
    """Change a ledger's file behind its back, past the triggers that forbid it."""
    with closing(sqlite3.connect(db)) as file, file:
        triggers = file.execute("SELECT name FROM sqlite_master WHERE type='trigger'").fetchall()
        for (trigger,) in triggers:
            file.execute(f"DROP TRIGGER {trigger}")
        file.execute(statement, values)


def test_verify_says_ok(cli: InProcess, run: UUID) -> None:
    """A ledger as it was recorded verifies, whole or by run, and exits with 0."""
    whole = cli("verify", "-o", "json")
    assert (whole.code, whole.err) == (0, "")
    assert whole.json == {"ok": True, "runs": 2, "records": 4, "blobs": 0, "problems": []}
    assert cli("verify", "--all", "-o", "json").json == whole.json
    assert cli("verify", run, "-o", "jsonl").lines[0]["records"] == 3
    assert "ok" in cli("verify").out


def test_verify_names_a_changed_record(processes: Processes, run: UUID) -> None:
    """A changed record is named by run, version and position, and the exit code is 5."""
    tamper(
        processes.db,
        """UPDATE events SET data='{"kind":"a.x"}' WHERE run_id=? AND version=2""",
        str(run),
    )
    for arguments in (("verify",), ("verify", run)):
        done = processes(*arguments, "-o", "json")
        assert (done.code, done.json["ok"]) == (5, False)
        (problem,) = done.json["problems"]
        assert (problem["run_id"], problem["version"], problem["position"]) == (str(run), 2, 2)
    table = processes("verify")
    assert table.code == 5
    assert f"run {run}, version 2" in table.out


@pytest.mark.parametrize(
    ("statement", "words"),
    [
        ("UPDATE events SET recorded_at=recorded_at+1 WHERE version=3", "version 3"),
        ("DELETE FROM events WHERE version=2", "version 2"),
        ("DELETE FROM events WHERE version=3", "version 3"),
        ("DELETE FROM blobs", "Blob sha256:"),
        ("UPDATE blobs SET content=x'00'", "Blob sha256:"),
        ("UPDATE runs SET parent=run_id, parent_version=2", "descends from itself"),
    ],
)
def test_export_refuses_what_is_not_as_recorded(
    cli: InProcess, run: UUID, statement: str, words: str
) -> None:
    """An export ends with 5 where a record or blob is missing or does not fit its digest."""
    with cli.ledger() as ledger:
        files = ResourceSnapshotted(resource="r", files={"f": blob_name(b"x")})
        ledger.append(run, [files], 3, blobs=[b"x"])
    tamper(cli.db, statement)
    done = cli("export", run)
    assert done.code == 5
    assert words in done.err


def test_rebuild_index_mends_the_index(cli: InProcess, run: UUID) -> None:
    """The index is folded again from the events, and all is as before."""
    before = cli("runs", "-o", "json").json
    tamper(cli.db, "UPDATE runs SET version=1, status='failed'")
    assert cli("verify").code == 5
    done = cli("rebuild-index", "-o", "json")
    assert (done.code, done.json) == (0, {"runs": 2})
    assert cli("verify").code == 0
    assert cli("runs", "-o", "json").json == before


def test_doctor_shows_facts_and_checks(cli: InProcess, run: UUID) -> None:
    """`doctor` prints the store's facts and a verdict for each check."""
    done = cli("doctor", "-o", "json")
    report = done.json
    assert report["facts"]["store"] == "sqlite"
    verdicts = {check["name"]: check["verdict"] for check in report["checks"]}
    assert verdicts["synchronous"] == "ok"
    assert set(verdicts) == {
        *("event catalogue", "SQLite", "journal mode", "synchronous", "size of the WAL"),
        *("file system", "disk"),
    }
    assert done.code == (1 if "fail" in verdicts.values() else 0)
    assert "synchronous" in cli("doctor").out


def test_doctor_explains_the_wal_fault() -> None:
    """An SQLite with the WAL fault is covered by the ledger's lock, on one condition."""
    old = sqlite_version("3.40.1")
    assert old.verdict is Verdict.OK
    assert "as long as only turnledger writes" in old.advice
    assert sqlite_version("3.51.3").advice == ""
    assert sqlite_version("3.52.0").advice == ""


def test_doctor_finds_network_and_volatile_file_systems() -> None:
    """The longest mount point that holds the file decides what kind of disk it is on."""
    mounts = "\n".join(
        (
            "/dev/sda / ext4 rw 0 0",
            "server:/x /mnt/team nfs4 rw 0 0",
            "tmpfs /mnt/team/ram tmpfs rw 0 0",
            "server:/y /mnt/with\\040space cifs rw 0 0",
            "broken",
        )
    )
    assert mount_of(Path("/mnt/teamwork/x"), mounts) == ("/", "ext4")
    assert file_system(Path("/home/x.db"), mounts).verdict is Verdict.OK
    assert file_system(Path("/mnt/team/x.db"), mounts).verdict is Verdict.FAIL
    assert file_system(Path("/mnt/with space/x.db"), mounts).verdict is Verdict.FAIL
    assert file_system(Path("/mnt/team/ram/x.db"), mounts).verdict is Verdict.WARN
    assert file_system(Path("/x"), "").verdict is Verdict.WARN


def test_doctor_minds_the_disk_and_the_settings() -> None:
    """Little space warns, none fails, and so do settings that lose acknowledged events."""
    assert [free_space(n).verdict.value for n in (1, 10**8, 10**12)] == ["fail", "warn", "ok"]
    facts = {
        "store": "sqlite",
        "sqlite": "3.40.1",
        "journal_mode": "delete",
        "synchronous": "1",
        "wal_bytes": str(10**9),
        "file": "/x.db",
    }
    verdicts = {check.name: check.verdict.value for check in examine(facts, CATALOGUE + 1)}
    assert verdicts["event catalogue"] == "warn"
    assert verdicts["journal mode"] == "fail"
    assert verdicts["synchronous"] == "fail"
    assert verdicts["size of the WAL"] == "warn"


@pytest.mark.parametrize(
    ("facts", "verdicts"),
    [
        (
            {
                "fsync": "on",
                "synchronous_commit": "on",
                "full_page_writes": "on",
                "longest_write_seconds": "0.2",
            },
            ["ok", "ok", "ok", "ok", "ok"],
        ),
        (
            {
                "fsync": "off",
                "synchronous_commit": "off",
                "full_page_writes": "off",
                "longest_write_seconds": "3600.5",
            },
            ["ok", "fail", "fail", "warn", "warn"],
        ),
        ({"longest_write_seconds": "?"}, ["ok", "warn", "warn", "warn", "warn"]),
    ],
)
def test_doctor_checks_postgresql(facts: dict[str, str], verdicts: list[str]) -> None:
    """On PostgreSQL the settings of durability and old transactions are judged."""
    checks = examine({"store": "postgresql", **facts}, CATALOGUE)
    assert [check.verdict.value for check in checks] == verdicts


def test_doctor_says_that_memory_does_not_last(cli: InProcess) -> None:
    """A ledger in memory is warned about."""
    done = cli("doctor", "--db", "memory://", "-o", "json")
    assert done.code == 0
    assert done.json["checks"][-1]["verdict"] == "warn"


def test_doctor_judges_a_real_postgresql(cli: InProcess) -> None:
    """Every setting that it judges is one that the store reports."""
    postgres = new_database()
    Ledger.open(postgres).close()
    done = cli("doctor", "--db", postgres, "-o", "json")
    checks = {check["name"]: check for check in done.json["checks"]}
    assert checks["synchronous_commit"]["verdict"] == "ok"
    assert checks["oldest transaction"]["verdict"] == "ok"
    assert all(check["found"] != "unknown" for check in checks.values())


def test_rebase_says_when_there_is_nothing_to_do(cli: InProcess) -> None:
    """On a ledger that was never restored it changes nothing."""
    cli("append", "new", "-", "--expect", "new", stdin='{"type":"custom","data":{"kind":"a.b"}}')
    done = cli("rebase", "-o", "json")
    assert (done.code, done.json) == (0, {"rebased": False})
