"""How a table is stored: one row of derived data a key, and a watermark with a checksum.

A row `row/KEY` holds a table's row, `run/ID` what the table remembers of a run. The sum of the
rows' hashes finds any that was edited, lost or added behind the table's back.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from threading import Event as Flag
from typing import Any, NamedTuple

import msgspec

from turnledger.ledger import DerivedData, Ledger, Record, Watermark
from turnledger.ledger.arguments import explain_arguments
from turnledger.ledger.integrity.verify import every_run
from turnledger.projections.digests import combine, map_add, map_digest, map_remove
from turnledger.projections.tables.table import (
    Additions,
    Table,
    TableDamagedError,
    TableNotMadeError,
    has_carry,
    plain_text,
    table_tags,
)

PREFIX = "table:"
ROW, CARRY = "row/", "run/"

Load = Callable[[Sequence[str]], Mapping[str, str]]


class _State(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a table's watermark has in `state`."""

    events: int
    sum: str
    check: str
    skipped: tuple[str, ...] = ()


class TableMark(msgspec.Struct, frozen=True):
    """A table's watermark: what its rows mean, up to where it was made, and their checksum."""

    fingerprint: str
    position: int = 0
    events: int = 0
    total: int = 0
    # Records that can't be read and are not counted, as "run version", in order.
    skipped: tuple[str, ...] = ()

    @property
    def watermark(self) -> Watermark:
        # A digest of all the rest, so that an edited watermark is noticed too.
        numbers = f"{self.position} {self.events}".encode()
        parts = [self.fingerprint.encode(), numbers, map_digest(self.total)]
        parts += [place.encode() for place in self.skipped]
        check = combine("table", *parts).hex()
        state = _State(self.events, f"{self.total:064x}", check, self.skipped)
        return Watermark(self.fingerprint, self.position, msgspec.json.encode(state).decode())

    @classmethod
    def of(cls, watermark: Watermark, name: str) -> TableMark:
        """The mark that a stored watermark is of; TableDamagedError if it was edited."""
        with suppress(msgspec.DecodeError, TypeError, ValueError, OverflowError):
            state = msgspec.json.decode(watermark.state, type=_State)
            total = int(state.sum, 16)
            mark = cls(
                watermark.fingerprint, watermark.position, state.events, total, state.skipped
            )
            if mark.watermark == watermark:
                return mark
        raise damaged(name, "its watermark is not as it was written")


class TableRows(NamedTuple):
    """A table as it was at one moment: made from all events up to a position."""

    position: int
    rows: dict[str, Any]


class KeptTable(msgspec.Struct, frozen=True, kw_only=True):
    """A table that a ledger holds, known here or not; `behind` is how many events it lags."""

    name: str
    version: int
    reads: tuple[str, ...]
    position: int
    behind: int | None


def kept_tables(ledger: Ledger) -> list[KeptTable]:
    """All tables in a ledger, by their watermarks alone: the rows are not read."""
    total = sum(row.length for row in every_run(ledger.store))
    found = []
    for stored, watermark in ledger.store.derived.watermarks().items():
        if not stored.startswith(PREFIX):
            continue
        name = stored.removeprefix(PREFIX)
        behind: int | None = None
        with suppress(TableDamagedError):
            behind = max(total - TableMark.of(watermark, name).events, 0)
        found.append(
            KeptTable(
                name=name,
                version=version_of(watermark),
                reads=tuple(watermark.fingerprint.split(" ")[1:]),
                position=watermark.position,
                behind=behind,
            )
        )
    return found


def fingerprint(table: Table[Any]) -> str:
    """What the rows mean: the table's name and version, and the events that it reads."""
    return " ".join((f"{table.name}/{table.version}", *sorted(kind.tag for kind in table.reads)))


def version_of(watermark: Watermark) -> int:
    """The version of the table that a watermark is of; 0 if it doesn't say."""
    version = watermark.fingerprint.partition(" ")[0].rpartition("/")[2]
    return int(version) if version.isascii() and version.isdigit() else 0


def data_of(ledger: Ledger, table: Table[Any]) -> DerivedData:
    """The derived data that holds a table."""
    return ledger.derived_data(PREFIX + table.name)


def damaged(name: str, what: str) -> TableDamagedError:
    return TableDamagedError(
        f"The table {name} is damaged: {what}. Nothing is lost: the events are its source. "
        f"`turnledger rebuild {name} --verify` says what differs, `turnledger rebuild {name}` "
        "fixes it.",
        table=name,
    )


@explain_arguments
def table_rows(ledger: Ledger, table: Table[Any]) -> TableRows:
    """A table's rows, sorted by key, as far as it was made; `catch_up` brings it up to date."""
    watermark, texts = data_of(ledger, table).snapshot()
    mark = TableMark.of(check_made(table, watermark), table.name)
    if sum_of(texts) != mark.total:
        raise damaged(table.name, "its rows are not those that were written")
    rows = {
        place.removeprefix(ROW): _decoded(text, table.name)
        for place, text in texts.items()
        if place.startswith(ROW)
    }
    return TableRows(mark.position, dict(sorted(rows.items())))


def skipped_records(ledger: Ledger, table: Table[Any]) -> tuple[str, ...]:
    """The records that a stored table does not count as they can't be read, as "run version"."""
    watermark = data_of(ledger, table).watermark()
    return TableMark.of(check_made(table, watermark), table.name).skipped


def check_made(table: Table[Any], watermark: Watermark | None) -> Watermark:
    """The watermark; TableNotMadeError if there is none, or one of another meaning."""
    name, meaning = table.name, fingerprint(table)
    if watermark is not None and watermark.fingerprint == meaning:
        return watermark
    command = f"`turnledger rebuild {name}`"
    if watermark is None:
        message = f"The ledger has no table {name} yet. Make it with {command}, or catch_up."
    else:
        message = f"The table {name} is stored as {watermark.fingerprint!r}, not as {meaning!r}. "
        if version_of(watermark) > table.version:
            message += f"A newer program made it. Upgrade this one, or go back with {command}."
        else:
            message += f"Bring it up to date with {command}, or catch_up."
    raise TableNotMadeError(message, table=name)


def sum_of(texts: Mapping[str, str]) -> int:
    """The checksum of stored rows."""
    total = 0
    for place, text in texts.items():
        total = map_add(total, place, text)
    return total


def texts_of(rows: Mapping[str, Any], carries: Mapping[str, Any]) -> dict[str, str | None]:
    """Rows and carries as they are stored; None for a carry that ended."""
    texts: dict[str, str | None] = {
        ROW + key: plain_text(value, f"The row {key!r:.100}") for key, value in rows.items()
    }
    for run, carry in carries.items():
        what = f"What the table remembers of run {run}"
        texts[CARRY + run] = None if carry is None else plain_text(carry, what)
    return texts


def _decoded(text: str, name: str) -> Any:
    try:
        return msgspec.json.decode(text)
    except msgspec.DecodeError as error:
        raise damaged(name, f"a row can't be read ({error})") from error


# --- a page of the ledger -----------------------------------------------------------


class _OnePage(Flag):
    """Stops a reader of the ledger after a page, or when the caller's own flag is set."""

    def __init__(self, outer: Flag | None) -> None:
        super().__init__()
        self._outer = outer

    def is_set(self) -> bool:
        return super().is_set() or (self._outer is not None and self._outer.is_set())


def next_page(
    ledger: Ledger, after: int, size: int, *, follow: bool = False, stop: Flag | None = None
) -> list[Record]:
    """The next records after a position; empty at the end, or if `stop` is set."""
    page: list[Record] = []
    enough = _OnePage(stop)
    for record in ledger.tail(after, follow=follow, stop=enough, page_size=size):
        if not page:
            enough.set()
        page.append(record)
    return page


def fold_page(
    table: Table[Any], mark: TableMark, page: Sequence[Record], load: Load
) -> tuple[dict[str, str | None], TableMark]:
    """The changes that a page of records makes to a table's stored rows, and its mark then.

    Args:
        table: The table.
        mark: Its mark before the page.
        page: The records that follow its position.
        load: Gives the stored rows that have some keys.
    """
    if not page:
        return {}, mark
    name, tags = table.name, table_tags(table)
    read = [record for record in page if record.tag in tags]
    keys: set[Any] = {record.run_key for record in read} if has_carry(table) else set()
    known = dict(load([CARRY + run for run in sorted(k for k in keys if isinstance(k, str))]))
    carries = {place.removeprefix(CARRY): _decoded(text, name) for place, text in known.items()}
    new = Additions(carries=carries)
    new.add(table, read)
    known.update(load([ROW + key for key in new.rows]))
    for key, value in new.rows.items():
        if (text := known.get(ROW + key)) is not None:
            new.rows[key] = table.merge(_decoded(text, name), value)
    changes: dict[str, str | None] = {}
    total = mark.total
    for place, changed in texts_of(new.rows, new.carries).items():
        before = known.get(place)
        if changed == before:
            continue
        total = total if before is None else map_remove(total, place, before)
        total = total if changed is None else map_add(total, place, changed)
        changes[place] = changed
    skipped = tuple(sorted({*mark.skipped, *new.skipped}))
    events = mark.events + len(page)
    return changes, TableMark(mark.fingerprint, page[-1].position, events, total, skipped)
