"""What fuzzing has found, each as it was found: it stays mended."""

from __future__ import annotations

import io
import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.conformance.harness import SqlVandal, store_under_test
from tests.conformance.samples import notes
from tests.e2e.driving import InProcess, Processes
from tests.fuzz.byte_changes import seen_in
from turnledger.ledger import (
    ANY,
    NEW,
    CustomEvent,
    IntegrityFailureError,
    InvalidEventError,
    InvalidInputError,
    Ledger,
    NotAnExportError,
    ResourceSnapshotted,
    RunStarted,
    TurnledgerError,
    blob_name,
    import_runs,
    new_run_id,
)
from turnledger.ledger.integrity.signing import read_public_key
from turnledger.ledger.redaction import Redactor


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "runs.db"


@pytest.fixture
def cli(path: Path) -> InProcess:
    return InProcess(path)


@pytest.fixture
def processes(path: Path) -> Iterator[Processes]:
    made = Processes(path)
    yield made
    made.end()


def filled(path: Path) -> str:
    """A ledger with a run that has tags; the run."""
    run = new_run_id()
    with Ledger.open(path) as ledger:
        ledger.append(run, [RunStarted(tags={"team": "red", "env": "test"}), *notes(3)], NEW)
    return str(run)


def by_hand(path: Path, *statements: str) -> None:
    """What somebody does who has SQLite."""
    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        found = "SELECT name, sql FROM sqlite_master WHERE type='trigger'"
        triggers = db.execute(found).fetchall()
        for name, _ in triggers:
            db.execute(f"DROP TRIGGER {name}")
        for statement in statements:
            db.execute(statement)
        for _, definition in triggers:
            db.execute(definition)


# --- the codec and the ledger ---------------------------------------------------------------


def test_an_object_that_raises_when_it_is_looked_at_is_refused() -> None:
    """Whatever it raises: the event can't be written, and that is all."""

    class Wayward(dict[str, Any]):
        def items(self) -> Any:
            raise RuntimeError("no items")

    with Ledger.open("memory://") as ledger:
        event = CustomEvent(kind="a.b", data=(Wayward(a=1),))
        with pytest.raises(InvalidEventError, match="no items"):
            ledger.append(new_run_id(), event, ANY)


@pytest.mark.parametrize("text", ["\udcff", "a\x00b"])
def test_text_that_no_store_holds_is_not_looked_for(path: Path, text: str) -> None:
    """A shell hands odd bytes over as halves of characters."""
    with Ledger.open(path) as ledger:
        for wanted in ({"prompt": text}, {"tags": {text: None}}, {"tags": {"a": text}}):
            with pytest.raises(InvalidInputError, match="Invalid text"):
                list(ledger.runs(**wanted))


def test_a_position_of_64_bits_is_a_place_to_go_on_from(path: Path) -> None:
    """There is nothing at the end, and everything after less than nothing; beyond is refused."""
    filled(path)
    with Ledger.open(path) as ledger:
        assert list(ledger.tail(after=2**63 - 1)) == []
        assert len(list(ledger.tail(after=-(2**63)))) == 4
        with pytest.raises(InvalidInputError, match="64 bits"):
            list(ledger.tail(after=10**30))


# --- files --------------------------------------------------------------------------------------


def test_a_first_line_that_is_no_utf8_is_no_export() -> None:
    """Like any other first line that is none."""
    with Ledger.open("memory://") as ledger, pytest.raises(NotAnExportError):
        import_runs(ledger, io.BytesIO(b'{"t\xf5rnledger":1,"catalogue":1}\n'))


class Endless(io.RawIOBase):
    """Lines without an end; as a pipe it can't be gone back in."""

    def __init__(self, seekable: bool) -> None:
        self._seekable = seekable
        self.given = 0

    def seekable(self) -> bool:
        return self._seekable

    def seek(self, offset: int, whence: int = 0) -> int:
        return 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        self.given += len(buffer)
        assert self.given < 10_000_000, "it is read on and on"
        buffer[:] = (b"no export\n" * (len(buffer) // 10 + 1))[: len(buffer)]
        return len(buffer)


@pytest.mark.parametrize("seekable", [True, False])
def test_what_is_no_export_is_not_read_to_its_end(seekable: bool) -> None:
    """It may have none: a device, or a pipe that would fill the disk."""
    source = io.BufferedReader(Endless(seekable))
    with Ledger.open("memory://") as ledger, pytest.raises(NotAnExportError):
        import_runs(ledger, source)


def test_an_endless_key_is_none() -> None:
    """A device instead of a file fills no memory."""
    with pytest.raises(InvalidInputError, match="Invalid key"):
        read_public_key(Path("/dev/zero"))


@pytest.mark.parametrize(
    "args",
    [
        ("import", "/dev/zero", "--format", "openai-chat"),
        ("import", "/dev/urandom"),
        ("append", "new", "/dev/zero"),
        ("append", "new", "--blob", "/dev/zero"),
        ("verify", "--seal", "/dev/zero"),
    ],
)
def test_an_endless_file_is_an_error(processes: Processes, path: Path, args: tuple[str]) -> None:
    """In a process of its own: it ends, without a traceback, and nothing was written."""
    filled(path)
    before = path.read_bytes()
    done = processes(*args, stdin='{"type": "custom", "data": {"kind": "a.b"}}')
    assert done.code in (1, 5)
    assert "Traceback" not in done.err
    assert done.err.count("Error") == 1
    assert path.read_bytes() == before


@pytest.mark.parametrize("name", ["runs.db", "runs.db-wal", "runs.db-shm"])
def test_an_export_never_replaces_a_ledger(cli: InProcess, path: Path, name: str) -> None:
    """Named by mistake as the place to write to, it stays, with all that belongs to it."""
    filled(path)
    before = path.read_bytes()
    done = cli("export", "--all", "-O", path.with_name(name))
    assert done.code == 1
    assert "database" in done.err
    assert path.read_bytes() == before


def test_a_ledger_can_have_any_name_that_a_file_can(tmp_path: Path) -> None:
    """Also one that is no UTF-8."""
    path = Path(os.fsdecode(os.fsencode(tmp_path) + b"/\xff\xfe?#.db"))
    run = filled(path)
    with Ledger.open(path, create=False) as ledger:
        assert ledger.head(run) == 4


@pytest.mark.parametrize("content", [b"a = " + b"[" * 5000, b"\xff", b"a"])
def test_rules_of_a_redactor_that_are_none_are_refused(tmp_path: Path, content: bytes) -> None:
    """Nested too deep, or not text: not valid TOML."""
    file = tmp_path / "redactor.toml"
    file.write_bytes(content)
    with pytest.raises(InvalidInputError, match="not valid TOML"):
        Redactor.read(file)
    with pytest.raises(InvalidInputError, match="not valid TOML"):
        Redactor.read("/dev/zero")


# --- the command line -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("args", "code"),
    [
        (("runs", "--limit", "9" * 30), 2),
        (("tail", "--after", "9" * 30), 2),
        (("runs", "--prompt", "\udcff"), 1),
        (("runs", "--tag", "\udcff"), 1),
        (("append", "RUN", "--expect", "9" * 5000), 2),
        (("rebuild", "..a:b"), 2),
        (("resolve", "RUN", "c1", "--completed", "\udcff"), 2),
        (("resolve", "RUN", "c1", "--completed", "[" * 5000), 2),
    ],
)
def test_odd_arguments_have_plain_answers(
    cli: InProcess, path: Path, args: tuple[str, ...], code: int
) -> None:
    """An exit code that is one of ours, and no traceback."""
    run = filled(path)
    assert cli(*(run if arg == "RUN" else arg for arg in args)).code == code


@pytest.mark.parametrize("form", ["table", "json", "jsonl"])
def test_a_name_that_is_no_utf8_is_printed(cli: InProcess, path: Path, form: str) -> None:
    """What is odd in it is written as an escape."""
    filled(path)
    done = cli("backup", path.with_name("\udcff.db"), "-o", form)
    assert done.code == 0
    assert "\\udcff.db" in done.out


def test_a_run_is_not_claimed_for_a_reason_that_is_refused(cli: InProcess, path: Path) -> None:
    """A claim is an event: `abandon` looks at what it is to record before it takes one."""
    run = filled(path)
    assert cli("abandon", run, "--reason", "\udcff").code == 1
    with Ledger.open(path) as ledger:
        assert ledger.head(run) == 4


# --- damage -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "statement",
    [
        "DELETE FROM run_tags WHERE key='team'",
        "UPDATE run_tags SET value='blue' WHERE key='team'",
        "UPDATE run_tags SET key=CAST(key AS BLOB)",
        "UPDATE run_tags SET run_id='x' WHERE key='env'",
        "INSERT INTO run_tags SELECT 'forged', 'tag', run_id FROM runs",
        "INSERT INTO run_tags VALUES ('forged', 'tag', '01890a5d-ac96-774b-bcce-b302099a8057')",
        "UPDATE events SET digest=CAST(digest AS TEXT) WHERE version=2",
        "UPDATE runs SET run_id=CAST(run_id AS BLOB)",
        "UPDATE runs SET tags='{'",
        "UPDATE runs SET parent_version=x'00'",
        "UPDATE runs SET parent_version=4611686018427387904",
        "UPDATE runs SET parent_version=-1",
        "UPDATE runs SET version=CAST(version AS BLOB)",
        "UPDATE events SET recorded_at=CAST(recorded_at AS BLOB) WHERE version=3",
        "UPDATE events SET data=CAST(data AS BLOB) WHERE version=3",
        "UPDATE events SET event_id=CAST(event_id AS BLOB) WHERE version=3",
    ],
)
def test_what_a_foreign_hand_did_is_found_and_read_with_typed_errors(
    path: Path, statement: str
) -> None:
    """Tags that listings go by, and values of another type; verify never stumbles over them."""
    filled(path)
    by_hand(path, statement)
    with Ledger.open(path) as ledger:
        assert not ledger.verify_all().ok
        try:
            seen_in(ledger)
        except TurnledgerError:
            return


def test_tags_that_parted_from_their_runs_are_named_and_mended(path: Path) -> None:
    """Verify says which tag of which run; rebuilding the index makes it right."""
    run = filled(path)
    by_hand(path, "UPDATE run_tags SET value='blue' WHERE key='team'")
    with Ledger.open(path) as ledger:
        problems = ledger.verify_all().problems
        assert {problem.run_id for problem in problems} == {run}
        assert any("the index of tags has team=blue" in problem.what for problem in problems)
        assert any("the index of tags lacks team=red" in problem.what for problem in problems)
        ledger.rebuild_index()
        assert ledger.verify_all().ok


def test_names_of_blobs_that_are_out_of_order_end_a_verification(path: Path) -> None:
    """A damaged index gives the same name again and again: that is found, not followed."""
    contents = [b"a file", b"another"]
    names = {content.decode(): blob_name(content) for content in contents}
    name = min(names.values())
    with Ledger.open(path) as ledger:
        event = ResourceSnapshotted(resource="fs", files=names)
        ledger.append(new_run_id(), event, NEW, blobs=contents)
    found = path.read_bytes()
    places = [at for at in range(len(found)) if found.startswith(name.encode(), at)]
    assert places
    for place in places:
        # In the row or in its index: one of the two is not what the other says.
        path.write_bytes(found[:place] + b"t" + found[place + 1 :])
        with Ledger.open(path) as ledger:
            assert not ledger.verify_all().ok


@pytest.mark.parametrize(
    "index",
    [
        "events_by_run",
        "events_by_id",
        "runs_by_start",
        "runs_by_status",
        "runs_by_prompt",
        "runs_by_end",
    ],
)
def test_an_index_that_lacks_a_row_is_found(path: Path, index: str) -> None:
    """A reader that goes by it sees less than there is."""
    filled(path)
    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        # Hidden from the index, and put back without it: what a torn write leaves behind.
        (sql,) = db.execute("SELECT sql FROM sqlite_master WHERE name=?", (index,)).fetchone()
        table = "events" if "events" in index else "runs"
        db.execute(f"DROP INDEX {index}")
        db.execute(sql.replace("UNIQUE ", "") + f" WHERE version < {4 if table == 'events' else 0}")
        db.execute("PRAGMA writable_schema=ON")
        db.execute("UPDATE sqlite_master SET sql=? WHERE name=?", (sql, index))
        db.execute("PRAGMA writable_schema=RESET")
    with Ledger.open(path) as ledger:
        problems = ledger.verify_all().problems
    assert any(index in problem.what for problem in problems), problems


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE meta SET value='B' WHERE key='catalogue'",
        "UPDATE meta SET value=x'31' WHERE key='catalogue'",
        "UPDATE meta SET value='' WHERE key='catalogue'",
        "DELETE FROM meta WHERE key='catalogue'",
    ],
)
def test_a_ledger_that_does_not_say_who_wrote_it_is_damaged(path: Path, statement: str) -> None:
    """It is refused when it is opened, not with an error of Python's."""
    filled(path)
    by_hand(path, statement)
    with pytest.raises(IntegrityFailureError, match="catalogue"):
        Ledger.open(path)


@pytest.mark.parametrize("name", ["sqlite", "postgres"])
def test_a_forged_tag_is_found_on_every_store_that_has_a_table_of_them(
    name: str, tmp_path: Path
) -> None:
    """Changed, removed or added: each is named with its run, and nothing else is."""
    run = new_run_id()
    with store_under_test(name, tmp_path) as store:
        ledger = store.open()
        ledger.append(run, RunStarted(tags={"team": "red", "env": "test"}), NEW)
        vandal = store.vandal
        assert isinstance(vandal, SqlVandal)
        for statement, count in (
            ("UPDATE run_tags SET value='blue' WHERE key='team'", 2),
            ("DELETE FROM run_tags", 2),
            (f"INSERT INTO run_tags VALUES ('forged', 'tag', '{run}')", 1),
        ):
            vandal._do(statement)
            problems = ledger.verify_all().problems
            assert [problem.run_id for problem in problems] == [str(run)] * count
            ledger.rebuild_index()
            assert ledger.verify_all().ok
