"""The checks of `doctor`, over facts: each finds its trouble, and says what to do."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from turnledger.adapters.cli.maintain.doctor.command import examine, examine_closed, readable
from turnledger.adapters.cli.maintain.doctor.place import Mount, Place, mount_of
from turnledger.adapters.cli.maintain.doctor.postgres import SERVER_RULES
from turnledger.adapters.cli.maintain.doctor.rules import (
    STORE_RULES,
    Check,
    Rule,
    Subject,
    Verdict,
    differs,
    equals,
    fact,
    fail,
    judge,
    warn,
)
from turnledger.adapters.cli.maintain.doctor.sqlite import FILE_RULES, SETTINGS_RULES
from turnledger.ledger.errors import NotALedgerError, StoreUnavailableError
from turnledger.ledger.events.types import CATALOGUE

NOW = 1_800_000_000_000_000
MINUTE = 60_000_000
MOUNTS = "\n".join(
    (
        "/dev/sda / ext4 rw,relatime 0 0",
        "server:/x /mnt/team nfs4 rw 0 0",
        "tmpfs /mnt/team/ram tmpfs rw 0 0",
        "server:/y /mnt/with\\040space cifs rw 0 0",
        "server:/z /mnt/é cifs rw 0 0",
        "/dev/sdb /mnt/fast ext4 rw,nobarrier,data=writeback 0 0",
        "/dev/sdc /mnt/loose ext4 rw,data=writeback 0 0",
        "/dev/sdd /mnt/cd iso9660 ro 0 0",
        "overlay /mnt/layer overlay rw,volatile,upperdir=/u 0 0",
        "host /mnt/shared virtiofs rw 0 0",
        "it /mnt/odd fuse.something rw 0 0",
        "broken",
    )
)
GOOD_FILE = {
    "store": "sqlite",
    "sqlite": "3.51.3",
    "journal_mode": "wal",
    "synchronous": "2",
    "wal_bytes": "0",
    "access": "read and write",
    "file": "/home/x.db",
    "locks": "/home/x.db-locks",
}
GOOD_PLACE = Place(
    Path("/home/x.db"),
    mounts=MOUNTS,
    free=10**12,
    free_inodes=10**6,
    mode=0o100600,
    pages="ok",
)
GOOD_SERVER = {
    "store": "postgresql",
    "server_version": "18.4",
    "fsync": "on",
    "synchronous_commit": "on",
    "full_page_writes": "on",
    "data_checksums": "on",
    "zero_damaged_pages": "off",
    "synchronous_standby_names": "one",
    "default_transaction_read_only": "off",
    "standby": "false",
    "server_clock": str(NOW),
    "newest_recorded_at": str(NOW),
    "needs_rebase": "false",
    "public_may_read": "false",
    "longest_write_seconds": "0.2",
    "longest_idle_in_transaction_seconds": "0",
    "hidden_sessions": "0",
    "prepared_transactions": "0",
    "oldest_prepared_seconds": "0",
    "transactions_tail_waits_for": "0",
    "oldest_frozen_age": "1000",
    "standbys": "1",
    "standbys_in_sync": "1",
    "idle_slots": "0",
    "idle_slots_bytes": "0",
}


def check_file(facts: dict[str, str], place: Place) -> list[Check]:
    return judge((*SETTINGS_RULES, *FILE_RULES), Subject(facts, place))


def check_server(facts: dict[str, str], place: Place | None = None) -> list[Check]:
    return judge(SERVER_RULES, Subject(facts, place))


def named(name: str, checks: list[Check]) -> Check:
    (check,) = (check for check in checks if check.name == name)
    return check


def problems(checks: list[Check]) -> dict[str, str]:
    """The checks that are not ok; each of them must say what to do."""
    found = {}
    for check in checks:
        if check.verdict is not Verdict.OK:
            assert check.advice, check
            found[check.name] = check.verdict.value
    return found


def test_the_first_case_that_holds_decides() -> None:
    """Cases are tried in order; without one a check is ok, and one that does not apply is left
    out."""

    def judged(*rules: Rule) -> list[Check]:
        return judge(rules, Subject({"a": "1"}))

    one = warn(equals("a", "1"), "first", "found")
    two = fail(equals("a", "1"), "second")
    assert judged(Rule("x", fact("a"), fail(differs("a", "1"), "no"), one, two)) == [
        Check("x", Verdict.WARN, "found", "first")
    ]
    assert judged(Rule("x", fact("a"))) == [Check("x", Verdict.OK, "1")]
    assert judged(Rule("x", "", two, applies=equals("a", "2"))) == []


# --- files ----------------------------------------------------------------------------


def test_a_file_that_is_well_has_no_trouble() -> None:
    """Where everything is as it should be, every check is ok."""
    assert problems(check_file(GOOD_FILE, GOOD_PLACE)) == {}


@pytest.mark.parametrize(
    ("facts", "place", "expected"),
    [
        ({"journal_mode": "delete"}, {}, {"journal mode": "fail"}),
        ({"synchronous": "1"}, {}, {"synchronous": "fail"}),
        ({"synchronous": "0"}, {}, {"synchronous": "fail"}),
        ({"wal_bytes": str(10**9)}, {}, {"size of the WAL": "warn"}),
        ({"file_check": "off"}, {}, {"file check": "warn"}),
        ({"access": "read only", "journal_mode": "delete"}, {}, {"access": "fail"}),
        ({}, {"writable": False}, {"access": "fail"}),
        ({}, {"closed": "/home/x.db-locks"}, {"access": "fail"}),
        ({}, {"mode": 0o040700}, {"access": "fail"}),
        ({}, {"pages": "Tree 5 page 9: btreeInitPage() returns error code 11"}, {"damage": "fail"}),
        ({}, {"pages": None}, {}),
        ({}, {"free": 10**8}, {"disk": "warn"}),
        ({}, {"free": 1}, {"disk": "fail"}),
        ({}, {"free_inodes": 3}, {"disk": "fail"}),
        ({}, {"free": None}, {"disk": "warn"}),
        ({}, {"maps": "7f /usr/lib/libeatmydata.so.1.3.0"}, {"flushing": "fail"}),
        ({}, {"mode": 0o100644}, {"privacy": "warn"}),
        ({}, {"mode": 0o100666}, {"privacy": "fail"}),
        ({}, {"mode": 0o100644, "open_to_all": False}, {}),
        ({}, {"mode": None}, {"privacy": "warn"}),
        ({}, {"exposed": "/home/x.db-locks"}, {"privacy": "warn"}),
        ({"locks": "/mnt/team/x.db-locks"}, {}, {"file system of the locks": "fail"}),
    ],
)
def test_each_trouble_of_a_file_is_found(
    facts: dict[str, str], place: dict[str, object], expected: dict[str, str]
) -> None:
    """One thing that is wrong is one check that is not ok, and no other."""
    there = msgspec.structs.replace(GOOD_PLACE, **place)
    assert problems(check_file(GOOD_FILE | facts, there)) == expected


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("/home/x.db", {}),
        ("/mnt/team/x.db", {"file system": "fail"}),
        ("/mnt/with space/x.db", {"file system": "fail"}),
        ("/mnt/é/x.db", {"file system": "fail"}),
        ("/mnt/team/ram/x.db", {"file system": "warn"}),
        ("/mnt/odd/x.db", {"file system": "warn"}),
        ("/mnt/fast/x.db", {"flushing": "fail"}),
        ("/mnt/loose/x.db", {"flushing": "warn"}),
        ("/mnt/layer/x.db", {"file system": "warn", "flushing": "fail"}),
        ("/mnt/shared/x.db", {"file system": "fail"}),
        ("/mnt/cd/x.db", {"access": "fail"}),
    ],
)
def test_the_mount_that_holds_the_file_decides(path: str, expected: dict[str, str]) -> None:
    """The longest mount point counts: its kind, and options that weaken fsync."""
    place = msgspec.structs.replace(GOOD_PLACE, path=Path(path))
    facts = GOOD_FILE | {"file": path, "locks": f"{path}-locks"}
    assert problems(check_file(facts, place)) == expected


def test_mounts_are_read_as_the_kernel_writes_them() -> None:
    """A folder whose name begins like a mount point is not on it; nothing known is a warning."""
    assert mount_of(Path("/mnt/teamwork/x"), MOUNTS) == Mount(
        "/", "ext4", frozenset({"rw", "relatime"})
    )
    unknown = msgspec.structs.replace(GOOD_PLACE, mounts="")
    assert problems(check_file(GOOD_FILE, unknown)) == {"file system": "warn"}


def test_the_wal_fault_is_explained() -> None:
    """An SQLite with the WAL fault is covered by the ledger's lock, on one condition."""

    def version(number: str) -> Check:
        return named("SQLite", check_file(GOOD_FILE | {"sqlite": number}, GOOD_PLACE))

    old = version("3.40.1")
    assert (old.verdict, "as long as only turnledger writes" in old.advice) == (Verdict.OK, True)
    assert version("3.51.3").advice == version("3.52.0").advice == ""


def test_a_file_that_can_not_be_opened_is_looked_at_all_the_same(tmp_path: Path) -> None:
    """The error is the first check; what the machine says of the disk follows."""
    (tmp_path / "x.db").write_text("something")
    checks = examine_closed(str(tmp_path / "x.db"), NotALedgerError("no ledger of mine"))
    assert (checks[0].verdict, checks[0].found) == (Verdict.FAIL, "no ledger of mine")
    assert {"file system", "disk", "flushing", "access"} < {check.name for check in checks}


def test_what_to_do_goes_by_what_is_wrong(tmp_path: Path) -> None:
    """A broken file is not to be written to; one that is out of reach is as it was."""
    file = tmp_path / "x.db"
    file.write_text("x")
    broken = examine_closed(str(file), NotALedgerError("broken"))[0]
    away = examine_closed(str(file), StoreUnavailableError("busy"))[0]
    (missing,) = examine_closed(str(tmp_path / "y.db"), StoreUnavailableError("no such file"))
    assert "Write nothing more" in broken.advice
    assert "not affected" in away.advice
    assert "--db" in missing.advice


# --- PostgreSQL -----------------------------------------------------------------------


def test_a_server_that_is_well_has_no_trouble() -> None:
    """With a synchronous standby and the default settings every check is ok."""
    assert problems(check_server(GOOD_SERVER, GOOD_PLACE)) == {}
    assert problems(check_server(GOOD_SERVER)) == {}


@pytest.mark.parametrize(
    ("facts", "expected"),
    [
        ({"server_version": "13.9 (Debian)"}, {"PostgreSQL": "warn"}),
        ({"fsync": "off"}, {"fsync": "fail"}),
        ({"full_page_writes": "off"}, {"full_page_writes": "warn"}),
        ({"data_checksums": "off"}, {"data_checksums": "warn"}),
        ({"zero_damaged_pages": "on"}, {"zero_damaged_pages": "fail"}),
        ({"synchronous_commit": "off"}, {"synchronous_commit": "fail"}),
        ({"synchronous_commit": "local"}, {"synchronous_commit": "warn"}),
        ({"synchronous_commit": "remote_write"}, {"synchronous_commit": "warn"}),
        ({"synchronous_commit": "remote_apply"}, {}),
        ({"synchronous_standby_names": "", "standbys": "0"}, {}),
        ({"synchronous_standby_names": ""}, {"standbys": "warn"}),
        ({"standbys": "0", "standbys_in_sync": "0"}, {"standbys": "fail"}),
        ({"standby": "true"}, {"role": "warn"}),
        ({"default_transaction_read_only": "on"}, {"role": "fail"}),
        ({"needs_rebase": "true"}, {"transaction numbers": "fail"}),
        ({"longest_write_seconds": "3600.5"}, {"oldest transaction": "warn"}),
        ({"longest_idle_in_transaction_seconds": "61"}, {"idle in a transaction": "warn"}),
        (
            {"prepared_transactions": "1", "oldest_prepared_seconds": "90"},
            {"prepared transactions": "warn"},
        ),
        ({"oldest_frozen_age": "1900000000"}, {"vacuum": "warn"}),
        ({"idle_slots": "1", "idle_slots_bytes": str(2**34)}, {"idle replication slots": "warn"}),
        ({"public_may_read": "true"}, {"privacy": "warn"}),
        ({"hidden_sessions": "3"}, {}),
        (
            {"hidden_sessions": "3", "transactions_tail_waits_for": "2"},
            {"oldest transaction": "warn", "idle in a transaction": "warn"},
        ),
    ],
)
def test_each_trouble_of_a_server_is_found(facts: dict[str, str], expected: dict[str, str]) -> None:
    """One thing that is wrong is one check that is not ok, and no other."""
    assert problems(check_server(GOOD_SERVER | facts)) == expected


def test_what_a_weaker_commit_can_lose_is_said_in_words() -> None:
    """With standbys, `local` and `remote_write` say what is lost, and when."""
    for level, words in (("local", "a fail-over can lose"), ("remote_write", "loses power")):
        facts = GOOD_SERVER | {"synchronous_commit": level}
        assert words in named("synchronous_commit", check_server(facts)).advice


def test_what_a_server_does_not_say_is_no_all_clear() -> None:
    """Settings of durability that are not known are warnings."""
    expected = {"fsync", "synchronous_commit", "full_page_writes", "data_checksums"}
    assert expected < set(problems(check_server({"store": "postgresql"})))


# --- both -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("facts", "now", "words"),
    [
        ({}, NOW, ""),
        ({"server_clock": str(NOW + MINUTE), "newest_recorded_at": "0"}, NOW, "behind the server"),
        ({"server_clock": str(NOW - MINUTE)}, NOW, "ahead of the server"),
        ({"newest_recorded_at": str(NOW + 2 * MINUTE)}, NOW, "2 minutes in the future"),
        ({"newest_recorded_at": str(NOW - 10**15)}, NOW, ""),
        ({}, 0, "not set"),
        ({}, 5 * 10**15, "not set"),
    ],
)
def test_the_clock_is_compared(facts: dict[str, str], now: int, words: str) -> None:
    """With sense, with the server's clock, and with the newest record."""
    check = named("clock", judge(STORE_RULES, Subject(facts, now=now)))
    assert (check.verdict is Verdict.WARN) == bool(words)
    assert words in check.found


@pytest.mark.parametrize(
    ("micros", "shown"),
    [(str(NOW), "2027-01-15T08:00:00.000+00:00"), ("0", "never"), ("9" * 20, "9" * 20)],
)
def test_moments_are_shown_as_dates(micros: str, shown: str) -> None:
    """Microseconds are shown as dates; a number beyond any date stays."""
    facts = {"store": "sqlite", "newest_recorded_at": micros}
    assert readable(facts) == {"store": "sqlite", "newest_recorded_at": shown}


def test_a_newer_program_wrote_here() -> None:
    """A catalogue that this program does not know is warned about."""
    (first, *_) = examine({"store": "memory"}, CATALOGUE + 1, NOW)
    assert first.verdict is Verdict.WARN
