"""`verify`, `rebuild-index` and `rebase`, on ledgers that are well and that are not."""

from __future__ import annotations

from uuid import UUID

import pytest

from tests.e2e.driving import InProcess, Processes, tamper
from turnledger.ledger import (
    NEW,
    CustomEvent,
    ResourceSnapshotted,
    RunStarted,
    blob_name,
    new_run_id,
)


@pytest.fixture
def run(cli: InProcess) -> UUID:
    """A run of three events, and another one."""
    run = new_run_id()
    with cli.ledger() as ledger:
        ledger.append(run, [RunStarted(), CustomEvent(kind="a.b"), CustomEvent(kind="a.c")], NEW)
        ledger.append(new_run_id(), [RunStarted()], NEW)
    return run


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
        ("UPDATE runs SET parent=run_id, parent_version=2", "is its own ancestor"),
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


def test_rebuild_index_leaves_a_row_that_shows_a_loss(cli: InProcess, run: UUID) -> None:
    """It is named, and the exit code is 5, until the loss is accepted: then the run is parked."""
    tamper(cli.db, "DELETE FROM events WHERE run_id=? AND version=3", str(run))
    for _ in range(2):
        done = cli("rebuild-index")
        assert done.code == 5
        assert f"{run}: version 3 missing" in done.err
        assert "--accept-loss" in done.err
        assert cli("verify").code == 5
    assert cli("rebuild-index", "--accept-loss", run).code == 0
    assert cli("verify").code == 0
    assert cli("show", run, "-o", "json").json["status"] == "parked"
    assert "records 3 to 3 are missing" in cli("log", run).out
    assert cli("rebuild-index", "--accept-loss", run).code == 1
    assert cli("abandon", run).code == 0


def test_rebase_says_when_there_is_nothing_to_do(cli: InProcess) -> None:
    """On a ledger that was never restored it changes nothing."""
    cli("append", "new", "-", "--expect", "new", stdin='{"type":"custom","data":{"kind":"a.b"}}')
    done = cli("rebase", "-o", "json")
    assert (done.code, done.json) == (0, {"rebased": False})
