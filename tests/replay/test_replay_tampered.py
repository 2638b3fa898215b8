"""A record that was changed in its file is an integrity failure, and never a divergence.

Whatever byte it is: a divergence says that the program is another one, and it is not.
"""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any
from uuid import UUID, uuid4

import pytest

from tests.agent import Crash
from tests.replay.farm import Farm, farm_at
from tests.replay.shepherd import DONE, Shepherd, calls, remembers
from turnledger.ledger import (
    ANY,
    IntegrityFailureError,
    Ledger,
    ToolCallDecided,
    TurnledgerError,
    blob_name,
)
from turnledger.ledger.events.chain import link
from turnledger.ledger.runs.record import RawRow
from turnledger.runtime import MessageBuilder, Prompt
from turnledger.runtime.replaying.replay import replay

TEXTS = ("run_id", "tag", "event_id", "data")
COLUMNS = "position, run_id, version, tag, event_id, recorded_at, digest, data"


PICTURE = b"\x89PNG sheep"


def _picture(prompt: Prompt[Any]) -> Prompt[Any]:
    said = MessageBuilder.next_step(None).add_text("Look.")
    return prompt.with_messages(said.add_image("a sheep", data=PICTURE, mime="image/png"))


def _dies(params: Any, context: Any) -> Any:
    if context.call_id == "a2":
        raise Crash
    return remembers(params, context)


@dataclass(frozen=True)
class Kept:
    """A ledger in a file with a run that died, was recovered and forked; and its fork."""

    path: Path
    run: UUID
    fork: UUID
    options: dict[str, Any]

    def copy(self, folder: Path) -> Path:
        """A file of its own each time: nothing is left beside it from another."""
        return Path(shutil.copy(self.path, folder / f"{uuid4()}.db"))

    def dead(self) -> Shepherd:
        return Shepherd(Ledger.open("memory://"), **{**self.options, "live": False})

    def rows(self) -> list[RawRow]:
        """All events as they are stored, text as bytes."""
        with closing(sqlite3.connect(self.path)) as file:
            file.text_factory = bytes
            found = file.execute(f"SELECT {COLUMNS} FROM events ORDER BY position")
            return [RawRow(*row) for row in found]


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Kept:
    """Recorded once; every test changes a copy."""
    path = tmp_path_factory.mktemp("tampered") / "ledger.db"
    with farm_at(str(path)) as farm:
        run = _recorded(farm)
        fork = farm.ledger.fork(run, at=_at(farm, run))
        farm.ledger.append(fork, ToolCallDecided(call_id="a2", decision="retry"), ANY)
        farm.recover(fork, handler=remembers)
        farm.recover(run, handler=remembers)
        options = farm.options
    with closing(sqlite3.connect(path)) as file:
        file.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    return Kept(path, run, fork, options)


def _recorded(farm: Farm) -> UUID:
    replies = [calls("a1"), calls("a2", "a3"), DONE]
    return farm.record(Crash, replies=replies, handler=_dies, opens_with=_picture)


def _at(farm: Farm, run: UUID) -> int:
    return farm.ledger.head(run)


@contextmanager
def opened_for_change(path: Path) -> Iterator[sqlite3.Connection]:
    """The file without the triggers that refuse changes; they are there again afterwards."""
    with closing(sqlite3.connect(path)) as file:
        found = "SELECT name, sql FROM sqlite_master WHERE type = 'trigger'"
        triggers = file.execute(found).fetchall()
        for name, _ in triggers:
            file.execute(f"DROP TRIGGER {name}")
        yield file
        for _, sql in triggers:
            file.execute(sql)
        file.commit()


def outcome(path: Path, run: UUID, kept: Kept, *, execute: bool, until: int | None = None) -> str:
    """What a replay says about a file: "ok", "diverged", or the name of what it raises."""
    try:
        with Ledger.open(str(path)) as ledger:
            loop = kept.dead() if execute else None
            return "ok" if replay(ledger, run, loop=loop, until=until).ok else "diverged"
    except TurnledgerError as error:
        return type(error).__name__


def refused(path: Path, run: UUID, kept: Kept) -> None:
    """Folded or run again, whole or in part: it is no record to compare with."""
    for execute in (False, True):
        for until in (None, 3):
            found = outcome(path, run, kept, execute=execute, until=until)
            assert found == IntegrityFailureError.__name__


def test_unchanged_it_replays(kept: Kept, tmp_path: Path) -> None:
    """Both runs, folded and run again, also from a file whose triggers were taken and put back."""
    path = kept.copy(tmp_path)
    with opened_for_change(path):
        pass
    for run in (kept.run, kept.fork):
        for execute in (False, True):
            assert outcome(path, run, kept, execute=execute) == "ok"


def _places(text: bytes, random: Random) -> list[int]:
    """Some places of a text: one of its ends, and one anywhere."""
    return sorted({random.choice((0, len(text) - 1)), random.randrange(len(text))})


def _changed(text: bytes, place: int) -> bytes:
    """One byte is another one, and all is still text."""
    byte = text[place]
    new = byte ^ 1 if 32 < byte ^ 1 < 127 and chr(byte ^ 1) not in '"\\' else ord("x")
    return text[:place] + bytes([new if new != byte else ord("y")]) + text[place + 1 :]


@pytest.mark.parametrize("column", TEXTS)
def test_any_byte_of_a_text(kept: Kept, tmp_path: Path, column: str) -> None:
    """Of every record that the run has, its parent's too."""
    random = Random(column)
    place_of = COLUMNS.split(", ").index(column)
    for row in kept.rows():
        run = kept.fork if row.run_id.decode() == str(kept.fork) else kept.run
        for place in _places(row[place_of], random):
            path = kept.copy(tmp_path)
            with opened_for_change(path) as file:
                new = _changed(row[place_of], place).decode()
                file.execute(
                    f"UPDATE events SET {column} = ? WHERE position = ?", (new, row.position)
                )
            found = outcome(path, run, kept, execute=bool(place % 2))
            where = f"{row.tag.decode()}, byte {place} of {column}"
            assert found == IntegrityFailureError.__name__, where


@pytest.mark.parametrize("column", TEXTS)
def test_bytes_that_are_no_text(kept: Kept, tmp_path: Path, column: str) -> None:
    """A text can't even be read with them."""
    place_of = COLUMNS.split(", ").index(column)
    for row in kept.rows()[::5]:
        run = kept.fork if row.run_id.decode() == str(kept.fork) else kept.run
        path = kept.copy(tmp_path)
        with opened_for_change(path) as file:
            file.execute(
                f"UPDATE events SET {column} = CAST(? AS TEXT) WHERE position = ?",
                (row[place_of][:-1] + b"\xff", row.position),
            )
        refused(path, run, kept)


@pytest.mark.parametrize("column", TEXTS)
def test_a_blob_where_a_text_was(kept: Kept, tmp_path: Path, column: str) -> None:
    """The same bytes, of another type than was recorded."""
    place_of = COLUMNS.split(", ").index(column)
    for row in kept.rows()[::5]:
        run = kept.fork if row.run_id.decode() == str(kept.fork) else kept.run
        path = kept.copy(tmp_path)
        with opened_for_change(path) as file:
            change = f"UPDATE events SET {column} = ? WHERE position = ?"
            file.execute(change, (row[place_of], row.position))
        refused(path, run, kept)


@pytest.mark.parametrize(
    ("change", "names"),
    [
        ("version = version + 100", "another version"),
        ("version = 'x'", "no version"),
        ("recorded_at = recorded_at + 1", "another time"),
        ("recorded_at = 'noon'", "no time"),
        ("digest = zeroblob(32)", "another digest"),
        ("digest = 'x'", "no digest"),
        ("digest = substr(digest, 1, 31)", "a shorter digest"),
        ("position = -position", "another position"),
        ("data = data || ' '", "a space at its end"),
        ("data = replace(data, ',', ', ')", "the same JSON, written otherwise"),
        ("data = ''", "no data"),
        ("data = '{}'", "empty data"),
        ("tag = 'custom'", "another tag"),
        ("tag = upper(tag)", "a tag of nobody's"),
    ],
)
def test_any_other_change_of_a_record(kept: Kept, tmp_path: Path, change: str, names: str) -> None:
    """The first, one in the middle and the last."""
    rows = [row for row in kept.rows() if row.run_id.decode() == str(kept.run)]
    for row in (rows[0], rows[len(rows) // 2], rows[-1]):
        if "position" in change and row is rows[0]:
            continue  # it stays the first
        path = kept.copy(tmp_path)
        with opened_for_change(path) as file:
            file.execute(f"UPDATE events SET {change} WHERE position = ?", (row.position,))
            now = file.execute(
                "SELECT data FROM events WHERE run_id = ? AND position = ?",
                (str(kept.run), row.position),
            )
            same = sum(data == row.data.decode() for (data,) in now)
        if not same or "data" not in change:  # without a comma there is nothing to write otherwise
            refused(path, kept.run, kept)


@pytest.mark.parametrize("which", ["first", "middle", "last"])
def test_records_that_are_gone(kept: Kept, tmp_path: Path, which: str) -> None:
    """One of them, wherever."""
    rows = [row for row in kept.rows() if row.run_id.decode() == str(kept.run)]
    row = {"first": rows[0], "middle": rows[len(rows) // 2], "last": rows[-1]}[which]
    path = kept.copy(tmp_path)
    with opened_for_change(path) as file:
        file.execute("DELETE FROM events WHERE position = ?", (row.position,))
    refused(path, kept.run, kept)


@pytest.mark.parametrize("how_many", ["own", "all later"])
def test_digests_that_were_worked_out_anew(kept: Kept, tmp_path: Path, how_many: str) -> None:
    """Of the changed record, or of all that follow: the index, or the next record, knows better."""
    rows = [row for row in kept.rows() if row.run_id.decode() == str(kept.run)]
    for number, row in enumerate(rows):
        path = kept.copy(tmp_path)
        with opened_for_change(path) as file:
            previous = rows[number - 1].digest if number else bytes(32)
            for other in rows[number : None if how_many == "all later" else number + 1]:
                data = _another(other.data) if other is row else other.data
                previous = link(
                    previous,
                    other.run_id,
                    other.version,
                    other.event_id,
                    other.tag,
                    other.recorded_at,
                    data,
                )
                file.execute(
                    "UPDATE events SET data = ?, digest = ? WHERE position = ?",
                    (data.decode(), previous, other.position),
                )
        found = outcome(path, kept.run, kept, execute=bool(number % 2))
        assert found == IntegrityFailureError.__name__, row.tag.decode()


def _another(data: bytes) -> bytes:
    """The same event with something else in it: still an event, if it has a word to change."""
    for word, other in ((b"sheep", b"goats"), (b"a1", b"a9"), (b"0", b"1"), (b"e", b"o")):
        if word in data:
            return data.replace(word, other, 1)
    return data[:-1] + b" }"


@pytest.mark.parametrize(
    "change",
    [
        "version = version - 1",
        "version = version + 1",
        "digest = zeroblob(32)",
        "status = 'running'",
        "parent_version = parent_version - 1",
        "parent = NULL",
        "kind = 'continuation'",
        "run_id = '0197b0a4-7c55-7a4e-9d0e-3b1d3a2f6c01'",
    ],
)
def test_a_changed_index(kept: Kept, tmp_path: Path, change: str) -> None:
    """What it says of a fork is not what the events say."""
    path = kept.copy(tmp_path)
    with opened_for_change(path) as file:
        file.execute(f"UPDATE runs SET {change} WHERE run_id = ?", (str(kept.fork),))
    refused(path, kept.fork, kept)


def test_a_changed_parent(kept: Kept, tmp_path: Path) -> None:
    """A fork's record is its parent's too, up to where it was forked and no further."""
    rows = [row for row in kept.rows() if row.run_id.decode() == str(kept.run)]
    with Ledger.open(str(kept.path)) as ledger:
        at = ledger.run(kept.fork).parent_version
    chosen = [row for row in rows if row.version in (1, at // 2, at, at + 1, len(rows))]
    for row in chosen:
        path = kept.copy(tmp_path)
        with opened_for_change(path) as file:
            new = _another(row.data).decode()
            file.execute("UPDATE events SET data = ? WHERE position = ?", (new, row.position))
        if row.version <= at:
            refused(path, kept.fork, kept)
        else:
            assert outcome(path, kept.fork, kept, execute=False) == "ok"


@pytest.mark.parametrize("which", ["=", "<>"], ids=["picture", "tool schema"])
@pytest.mark.parametrize("change", ["content = x'00'", "content = 'text'", "name = 'x'"])
def test_changed_bytes_of_a_blob(kept: Kept, tmp_path: Path, change: str, which: str) -> None:
    """What a message shows, and what the model was offered, is part of the record."""
    path = kept.copy(tmp_path)
    with opened_for_change(path) as file:
        changed = f"UPDATE blobs SET {change} WHERE name {which} ?"
        assert file.execute(changed, (blob_name(PICTURE),)).rowcount == 1
    refused(path, kept.run, kept)


def test_any_byte_of_the_file(kept: Kept, tmp_path: Path) -> None:
    """Whatever is hit, it is no divergence; and what replays is what was recorded."""
    content, random = kept.path.read_bytes(), Random(11)
    before = kept.rows()
    found: dict[str, int] = {}
    for number in range(150):
        place = random.randrange(100, len(content))
        changed = bytearray(content)
        changed[place] ^= 1 << random.randrange(8)
        path = tmp_path / f"{number}.db"
        path.write_bytes(changed)
        said = outcome(path, kept.run, kept, execute=bool(place % 2))
        found[said] = found.get(said, 0) + 1
        assert said != "diverged", place
        if said == "ok":
            own = [row for row in before if row.run_id.decode() == str(kept.run)]
            with Ledger.open(str(path)) as ledger:
                assert [
                    (r.version, r.tag, r.row.event_id, r.commit) for r in ledger.read(kept.run)
                ] == [
                    (row.version, row.tag.decode(), row.event_id.decode(), row.recorded_at)
                    for row in own
                ]
    assert found.get(IntegrityFailureError.__name__, 0) > 10
