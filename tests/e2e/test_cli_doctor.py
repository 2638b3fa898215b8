"""`doctor` on real stores, well and not: it says what could lose data, and what to do."""

from __future__ import annotations

import _ctypes
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from tests.e2e.driving import InProcess, Outcome, Processes
from tests.postgres import ROOT, PostgresServer, new_database
from turnledger.ledger import NEW, Ledger, RunStarted, SystemClock, new_run_id

# Loads everything, then goes on as a user whom the file does not belong to, superuser or not.
AS_SOMEBODY_ELSE = """
import os, sys
from click.testing import CliRunner
from turnledger.adapters.cli import turnledger
command = ["doctor", "--db", sys.argv[1], "-o", "json"]
CliRunner().invoke(turnledger, command)
if os.geteuid() == 0:
    os.setgroups([])
    os.setresgid(65534, 65534, 65534)
    os.setresuid(65534, 65534, 65534)
turnledger(command)
"""


def checks(done: Outcome) -> dict[str, Any]:
    return {check["name"]: check for check in done.json["checks"]}


def troubles(done: Outcome) -> dict[str, str]:
    return {
        name: check["verdict"] for name, check in checks(done).items() if check["verdict"] != "ok"
    }


def make(url: str | Path) -> None:
    with Ledger.open(url) as ledger:
        ledger.append(new_run_id(), RunStarted(), NEW)


# --- files ----------------------------------------------------------------------------


def test_doctor_shows_facts_and_checks(cli: InProcess) -> None:
    """`doctor` prints the store's facts and a verdict for each check."""
    make(cli.db)
    done = cli("doctor", "-o", "json")
    assert done.json["facts"]["store"] == "sqlite"
    assert set(checks(done)) == {
        *("event catalogue", "clock", "SQLite", "journal mode", "synchronous", "size of the WAL"),
        *("damage", "access", "file system", "flushing", "disk", "privacy", "file check"),
    }
    for name in ("clock", "journal mode", "synchronous", "access"):
        assert checks(done)[name]["verdict"] == "ok"
    assert done.code == (1 if "fail" in troubles(done).values() else 0)
    assert "synchronous" in cli("doctor").out


def test_doctor_says_when_the_file_is_not_checked(cli: InProcess) -> None:
    """A ledger that is opened with check_file=off acknowledges into a file that is gone."""
    make(cli.db)
    done = cli("doctor", "--db", f"sqlite:///{cli.db}?check_file=off", "-o", "json")
    assert troubles(done)["file check"] == "warn"
    assert "acknowledged" in checks(done)["file check"]["advice"]


def test_doctor_says_which_files_are_not_for_their_owner_only(cli: InProcess) -> None:
    """Of the file and of those beside it, also if only its group can read them."""
    make(cli.db)
    assert "privacy" not in troubles(cli("doctor", "-o", "json"))
    locks = Path(f"{cli.db}-locks")
    for path, mode in ((cli.db, 0o640), (locks, 0o750)):
        before = path.stat().st_mode & 0o777
        path.chmod(mode)
        done = cli("doctor", "-o", "json")
        assert troubles(done)["privacy"] == "warn"
        assert checks(done)["privacy"]["found"] == f"not for its owner only: {path}"
        path.chmod(before)


def test_doctor_looks_at_a_ledger_that_may_only_be_read() -> None:
    """A file in another user's folder is opened read-only, and reported so."""
    with tempfile.TemporaryDirectory(prefix="tl", dir=ROOT) as name:
        folder = Path(name)
        make(folder / "runs.db")
        for path in (*folder.rglob("*"), folder):
            path.chmod(0o555 if path.is_dir() else 0o444)
        command = [sys.executable, "-c", AS_SOMEBODY_ELSE, str(folder / "runs.db")]
        ran = subprocess.run(command, capture_output=True, text=True, timeout=60)
        folder.chmod(0o755)
    done = Outcome(ran.returncode, ran.stdout, ran.stderr)
    assert troubles(done)["access"] == "fail", ran.stderr
    assert done.json["facts"]["access"] == "read only"
    assert done.code == 1


def test_doctor_says_why_a_ledger_can_not_be_opened(cli: InProcess) -> None:
    """A file that is not a ledger is a failed check, with the state of its disk."""
    cli.db.write_text("something else, and long enough to be taken for a database's header")
    done = cli("doctor", "-o", "json")
    assert (done.code, done.json["facts"]) == (1, {})
    assert "not a usable database" in checks(done)["opening"]["found"]
    assert "disk" in checks(done)


def test_doctor_sees_damaged_pages(cli: InProcess) -> None:
    """Pages that were overwritten are a failed check, and the answer is JSON all the same."""
    make(cli.db)
    content = bytearray(cli.db.read_bytes())
    size = int.from_bytes(content[16:18], "big")
    for start in range(size, len(content), size):
        content[start : start + size] = b"\x5a" * len(content[start : start + size])
    cli.db.write_bytes(content)
    done = cli("doctor", "-o", "json")
    assert done.code == 1
    assert troubles(done)["damage"] == "fail"
    assert "not affected" not in done.out


def test_doctor_says_that_there_is_no_ledger_in_json_too(cli: InProcess) -> None:
    """A script that reads JSON gets JSON, whatever is wrong."""
    done = cli("doctor", "-o", "json")
    assert (done.code, done.json["facts"]) == (1, {})
    assert "There is no ledger" in checks(done)["opening"]["found"]
    assert not cli.db.exists()


def test_doctor_finds_a_library_that_turns_fsync_off(processes: Processes, tmp_path: Path) -> None:
    """What is loaded into the process by that name is a failed check."""
    make(processes.db)
    # Any library under that name: what counts is what the process has loaded.
    library = tmp_path / "libeatmydata.so"
    library.write_bytes(Path(_ctypes.__file__).read_bytes())
    done = processes("doctor", "-o", "json", LD_PRELOAD=str(library))
    assert troubles(done)["flushing"] == "fail"


def test_doctor_minds_records_from_the_future(cli: InProcess) -> None:
    """A record that is later than this machine's clock is warned about."""

    class Ahead(SystemClock):
        def micros(self) -> int:
            return super().micros() + 10 * 86_400 * 1_000_000

    with Ledger.open(cli.db, clock=Ahead()) as ledger:
        ledger.append(new_run_id(), RunStarted(), NEW)
    clock = checks(cli("doctor", "-o", "json"))["clock"]
    assert (clock["verdict"], "10 days in the future" in clock["found"]) == ("warn", True)


def test_doctor_says_that_memory_does_not_last(cli: InProcess) -> None:
    """A ledger in memory is warned about."""
    done = cli("doctor", "--db", "memory://", "-o", "json")
    assert done.code == 0
    assert done.json["checks"][-1]["verdict"] == "warn"


# --- PostgreSQL -----------------------------------------------------------------------


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    """A server with nothing switched off for the sake of speed."""
    with PostgresServer({"max_prepared_transactions": "2"}) as server:
        yield server


def test_doctor_judges_a_real_postgresql(cli: InProcess, server: PostgresServer) -> None:
    """With the defaults all is well, and every fact that a check wants is one that is told."""
    url = new_database(server.url())
    make(url)
    done = cli("doctor", "--db", url, "-o", "json")
    # How much room there is, and what a server of this version checks, is not ours to say.
    assert troubles(done).keys() <= {"disk", "data_checksums"}
    assert done.code == (1 if "fail" in troubles(done).values() else 0)
    assert all("unknown" not in check["found"] for check in checks(done).values())
    assert "one disk" in checks(done)["standbys"]["advice"]


def test_doctor_says_that_the_tests_own_server_keeps_nothing(cli: InProcess) -> None:
    """One with fsync off fails."""
    url = new_database()
    make(url)
    done = cli("doctor", "--db", url, "-o", "json")
    assert done.code == 1
    assert troubles(done)["fsync"] == "fail"


def test_doctor_sees_transactions_that_nobody_ends(cli: InProcess, server: PostgresServer) -> None:
    """Prepared and idle ones, by whom a role that sees little is told that it sees little."""
    url = new_database(server.url())
    make(url)
    with psycopg.connect(url, autocommit=True) as db:
        db.execute("CREATE ROLE guest LOGIN")
        db.execute("GRANT USAGE ON SCHEMA turnledger TO guest")
        db.execute("GRANT SELECT ON ALL TABLES IN SCHEMA turnledger TO guest")
        db.execute("BEGIN")
        db.execute("CREATE TABLE forgotten ()")
        db.execute("PREPARE TRANSACTION 'forgotten'")
        facts = cli("doctor", "--db", url, "-o", "json").json["facts"]
        assert facts["prepared_transactions"] == "1"
        assert float(facts["oldest_prepared_seconds"]) > 0
        db.execute("BEGIN")
        db.execute("SELECT pg_current_xact_id()")
        guest = cli("doctor", "--db", url.replace("postgres@", "guest@"), "-o", "json")
        assert "hidden from it" in checks(guest)["oldest transaction"]["found"]
        assert "data_directory" not in guest.json["facts"]
        db.execute("ROLLBACK")
        db.execute("ROLLBACK PREPARED 'forgotten'")


def test_doctor_sees_a_restored_dump(cli: InProcess, server: PostgresServer) -> None:
    """Transaction numbers below the stored positions: appends are refused until `rebase`."""
    url = new_database(server.url())
    with psycopg.connect(url, autocommit=True) as db:
        Ledger.open(url).close()
        db.execute("UPDATE meta SET value = '1000000' WHERE key = 'xid_offset'")
        make(url)
        db.execute("UPDATE meta SET value = '0' WHERE key = 'xid_offset'")
    done = cli("doctor", "--db", url, "-o", "json")
    assert (done.code, troubles(done)["transaction numbers"]) == (1, "fail")
    assert "turnledger rebase" in checks(done)["transaction numbers"]["advice"]
    assert cli("rebase", "--db", url).code == 0
    assert "transaction numbers" not in troubles(cli("doctor", "--db", url, "-o", "json"))


def test_doctor_sees_standbys(cli: InProcess, server: PostgresServer) -> None:
    """One that no commit waits for, one that is waited for, and one that is not there."""
    url = new_database(server.url())
    make(url)

    def verdict() -> str:
        return str(checks(cli("doctor", "--db", url, "-o", "json"))["standbys"]["verdict"])

    with PostgresServer(standby_of=server) as standby:
        assert verdict() == "warn"
        server.require(standby)
        assert verdict() == "ok"
        there = url.replace(str(server.folder), str(standby.folder))
        assert checks(cli("doctor", "--db", there, "-o", "json"))["role"]["found"] == "a standby"
        standby.kill()
        server.await_standbys(0)
        assert verdict() == "fail"
        server.set(synchronous_standby_names="")


def test_doctor_says_that_the_server_is_down(cli: InProcess) -> None:
    """A server that can't be reached is a failed check, without the password."""
    with PostgresServer() as server:
        url = new_database(server.url()).replace("postgres@", "postgres:s3cret@")
        make(url)
        server.kill()
        done = cli("doctor", "--db", url, "-o", "json")
    assert done.code == 1
    assert "can't be reached" in checks(done)["opening"]["found"]
    assert "s3cret" not in done.out + done.err
