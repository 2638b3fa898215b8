"""Where a table is kept: rows on a shelf of the ledger, and a mark that says what they are.

The mark holds how far the table was made, of how many events, and the sum of its rows'
hashes. The sum is carried along from change to change, so a row that was edited, lost or
added behind its back is found out whenever all rows are read, however much was written since.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from hashlib import sha256
from threading import Event as Flag
from typing import Any, NamedTuple

import msgspec

from turnledger.ledger import NO_MARK, Ledger, Mark, Record, Shelf
from turnledger.ledger.integrity.verify import every_run
from turnledger.projections.digests import combine, map_add, map_digest, map_remove
from turnledger.projections.tables.table import (
    Table,
    TableDamagedError,
    TableNotMadeError,
    additions,
    has_carry,
    plain_text,
    table_tags,
)

PREFIX = "table:"
# The shelf whose mark's generation is the last one that was given to any table.
GENERATIONS = "tables"
# Rows and carries stand beside each other. A key that is long or odd is known by its hash.
ROW, HASHED_ROW, CARRY = "row/", "row#", "run/"
LONGEST_KEY = 200

Load = Callable[[Sequence[str]], Mapping[str, str]]


class _State(msgspec.Struct, frozen=True):
    """What a mark's state says."""

    events: int
    sum: str
    check: str


class Standing(msgspec.Struct, frozen=True):
    """How far a table was made, and what its rows must come to."""

    fingerprint: str
    generation: int
    position: int = 0
    events: int = 0
    total: int = 0

    @property
    def mark(self) -> Mark:
        state = _State(self.events, f"{self.total:064x}", self._check())
        text = msgspec.json.encode(state).decode()
        return Mark(self.fingerprint, self.generation, self.position, text)

    def _check(self) -> str:
        """A digest of all the rest, for a mark that was edited."""
        numbers = f"{self.generation} {self.position} {self.events}"
        parts = (self.fingerprint.encode(), numbers.encode(), map_digest(self.total))
        return combine("table", *parts).hex()

    @classmethod
    def of(cls, mark: Mark, name: str) -> Standing:
        """What a mark says; TableDamagedError if nobody wrote it so."""
        try:
            state = msgspec.json.decode(mark.state, type=_State)
            found = cls(mark[0], mark[1], mark[2], state.events, int(state.sum, 16))
            if found.mark == mark:
                return found
        except (msgspec.DecodeError, TypeError, ValueError, OverflowError):
            pass
        raise damaged(name, "its mark is not as it was written")


class TableRows(NamedTuple):
    """A table as it was at one moment: of all events up to a position."""

    position: int
    rows: dict[str, Any]


class KeptTable(msgspec.Struct, frozen=True, kw_only=True):
    """A table that a ledger holds, whoever's it is; `behind` is how many events came since."""

    name: str
    version: int
    reads: tuple[str, ...]
    position: int
    behind: int | None


def kept_tables(ledger: Ledger) -> list[KeptTable]:
    """Every table in a ledger, by its mark alone: its rows are not looked at."""
    total = sum(row.version - row.parent_version for row in every_run(ledger.store))
    found = []
    for shelf in ledger.store.shelf_names():
        name, mark = shelf.removeprefix(PREFIX), ledger.shelf(shelf).mark()
        if not shelf.startswith(PREFIX) or mark == NO_MARK:
            continue
        behind: int | None = None
        with suppress(TableDamagedError):
            behind = max(total - Standing.of(mark, name).events, 0)
        found.append(
            KeptTable(
                name=name,
                version=version_of(mark),
                reads=tuple(mark.fingerprint.split(" ")[1:]),
                position=mark.position,
                behind=behind,
            )
        )
    return found


def fingerprint(table: Table[Any]) -> str:
    """What the rows mean: the table's name and version, and what it reads."""
    return " ".join((f"{table.name}/{table.version}", *sorted(kind.tag for kind in table.reads)))


def version_of(mark: Mark) -> int:
    """The version of the table that a mark is of; 0 if it doesn't say."""
    version = mark.fingerprint.partition(" ")[0].rpartition("/")[2]
    return int(version) if version.isascii() and version.isdigit() else 0


def shelf_of(ledger: Ledger, table: Table[Any]) -> Shelf:
    return ledger.shelf(PREFIX + table.name)


def new_generation(ledger: Ledger, above: int = 0) -> int:
    """A number that no table here ever had: whoever writes rows under it does so alone."""
    numbers = ledger.shelf(GENERATIONS)
    while True:
        last = numbers.mark()
        number = max(last.generation, above) + 1
        if numbers.put({}, number, expected=last, mark=Mark(GENERATIONS, number, 0, "")):
            return number


def damaged(name: str, what: str) -> TableDamagedError:
    return TableDamagedError(
        f"The table {name} is damaged: {what}. Nothing is lost: the events are its source. "
        f"`turnledger rebuild {name} --verify` says what differs, without --verify it is "
        "made anew.",
        table=name,
    )


def table_rows(ledger: Ledger, table: Table[Any]) -> TableRows:
    """A table's rows, sorted by key, as far as it was made; `catch_up` takes it further."""
    mark, texts = shelf_of(ledger, table).shown()
    check_made(table, mark)
    name = table.name
    standing = Standing.of(mark, name)
    if sum_of(texts) != standing.total:
        raise damaged(name, "its rows are not those that were written")
    rows = (read_row(text, name) for place, text in texts.items() if not place.startswith(CARRY))
    return TableRows(mark.position, dict(sorted(rows, key=lambda row: row[0])))


def check_made(table: Table[Any], mark: Mark) -> None:
    """TableNotMadeError if no such table is shown, or one that means something else."""
    name, meaning = table.name, fingerprint(table)
    if mark.fingerprint == meaning:
        return
    again = f"`turnledger rebuild {name}`"
    if mark == NO_MARK:
        message = f"There is no table {name} in this ledger yet. Make it with {again}, or catch_up."
    else:
        message = f"The table {name} is kept as {mark.fingerprint!r}, not as {meaning!r}. "
        if version_of(mark) > table.version:
            message += f"A newer program made it. Upgrade this one, or go back with {again}."
        else:
            message += f"Bring it up to date with {again}, or catch_up."
    raise TableNotMadeError(message, table=name)


# --- rows --------------------------------------------------------------------------


def row_place(key: str) -> str:
    """Where a row stands on the shelf; its text holds the whole key."""
    if isinstance(key, str) and len(key) <= LONGEST_KEY and key.isprintable():
        return ROW + key
    return HASHED_ROW + sha256(plain_text(key, "A table's key").encode()).hexdigest()


def row_text(key: str, value: Any) -> str:
    return plain_text([key, value], f"The row {key!r:.100}")


def read_row(text: str, name: str) -> tuple[str, Any]:
    """A row's key and value."""
    try:
        key, value = msgspec.json.decode(text, type=tuple[str, Any])
    except msgspec.DecodeError as error:
        raise damaged(name, f"a row can't be read ({error})") from error
    return key, value


def sum_of(texts: Mapping[str, str]) -> int:
    total = 0
    for place, text in texts.items():
        total = map_add(total, place, text)
    return total


def texts_of(rows: Mapping[str, Any], carries: Mapping[str, Any]) -> dict[str, str | None]:
    """Rows and carries as they are kept; None where nothing is."""
    texts: dict[str, str | None] = {row_place(k): row_text(k, v) for k, v in rows.items()}
    for run, carry in carries.items():
        what = f"What is remembered of run {run}"
        texts[CARRY + run] = None if carry is None else plain_text(carry, what)
    return texts


# --- a page of the ledger -----------------------------------------------------------


class _OnePage(Flag):
    """Stops a reader of the ledger after a page, or when the caller's own flag says so."""

    def __init__(self, outer: Flag | None) -> None:
        super().__init__()
        self._outer = outer

    def is_set(self) -> bool:
        return super().is_set() or (self._outer is not None and self._outer.is_set())


def next_page(
    ledger: Ledger, after: int, size: int, *, follow: bool = False, stop: Flag | None = None
) -> list[Record]:
    """The next records after a position, none if there are none or if it was to stop."""
    page: list[Record] = []
    enough = _OnePage(stop)
    for record in ledger.tail(after, follow=follow, stop=enough, page_size=size):
        if not page:
            enough.set()
        page.append(record)
    return page


def turned(
    table: Table[Any], at: Standing, page: Sequence[Record], load: Load
) -> tuple[dict[str, str | None], Standing]:
    """What a page changes on the shelf, and how the table stands after it."""
    if not page:
        return {}, at
    name, tags = table.name, table_tags(table)
    read = [record for record in page if record.row.tag in tags]
    runs = {record.row.run_id for record in read} if has_carry(table) else set()
    known = dict(load([CARRY + run for run in sorted(runs)]))
    carries = {place.removeprefix(CARRY): _carry(text, name) for place, text in known.items()}
    new = additions(table, read, carries)
    known.update(load([row_place(key) for key in new.rows]))
    for key, value in new.rows.items():
        if (text := known.get(row_place(key))) is not None:
            found, old = read_row(text, name)
            if found != key:
                raise damaged(name, f"the row {key!r:.100} holds another key")
            new.rows[key] = table.merge(old, value)
    changes: dict[str, str | None] = {}
    total = at.total
    for place, changed in texts_of(new.rows, new.carries).items():
        before = known.get(place)
        if changed == before:
            continue
        total = total if before is None else map_remove(total, place, before)
        total = total if changed is None else map_add(total, place, changed)
        changes[place] = changed
    position, events = page[-1].position, at.events + len(page)
    return changes, Standing(at.fingerprint, at.generation, position, events, total)


def _carry(text: str, name: str) -> Any:
    try:
        return msgspec.json.decode(text)
    except msgspec.DecodeError as error:
        raise damaged(name, f"what is remembered of a run can't be read ({error})") from error
