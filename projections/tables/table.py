"""Tables: projections over all runs that map events to rows by key.

Rows are merged with a commutative, associative `merge`, so order and batching do not matter:
a table can catch up a few events at a time and be rebuilt by many processes.
"""

from __future__ import annotations

from abc import ABC
from collections.abc import Iterable
from hashlib import sha256
from typing import Any, ClassVar, Generic, TypeVar, cast

import msgspec

from turnledger.ledger import (
    Event,
    IntegrityFailureError,
    InvalidInputError,
    Record,
    TurnledgerError,
)
from turnledger.ledger.errors import DAMAGE
from turnledger.ledger.stores.derived_data import is_storable
from turnledger.projections.digests import canonical
from turnledger.projections.projection import Projection, tags_read

C = TypeVar("C")
# Characters, of up to four bytes each, so that a key fits every store's index.
LONGEST_KEY = 400


class Table(ABC, Generic[C]):
    """A projection over all runs. Raise `version` when the meaning of its rows changes.

    `adds` says what an event adds. A table that has to remember something of a run between
    two of its events (a start that awaits its end) overrides `step` instead. Values and
    carries are plain JSON: objects, lists, text, whole numbers.
    """

    name: ClassVar[str]
    version: ClassVar[int] = 1
    reads: ClassVar[tuple[type[Event], ...]]

    def adds(self, record: Record) -> Iterable[tuple[str, Any]]:
        """The parts that an event adds to rows, as (key, part); only events in `reads` come."""
        raise NotImplementedError(f"{type(self).__name__} has neither `adds` nor `step`.")

    def step(self, carry: C | None, record: Record) -> tuple[C | None, Iterable[tuple[str, Any]]]:
        """Like `adds`, with what the table remembers of the run.

        Args:
            carry: What the previous event of the run returned, None at first.
            record: The event.

        Returns:
            What to remember for the run's next event (None: nothing), and the parts.
        """
        return carry, self.adds(record)

    def merge(self, old: Any, new: Any) -> Any:
        """Two parts of a row as one; must be commutative and associative."""
        return added(old, new)


class _TableError(TurnledgerError):
    def __init__(self, message: str, *, table: str = "") -> None:
        self.table = table
        super().__init__(message)


class TableNotMadeError(_TableError, LookupError):
    """The ledger has no such table, or one of another version."""


class TableDamagedError(_TableError, IntegrityFailureError):
    """A table's stored rows or watermark were changed by something else."""


class RebuildOvertakenError(_TableError):
    """The table was replaced by one of another version during a rebuild, and that one is kept."""


def added(old: Any, new: Any) -> Any:
    """The default merge: whole numbers add up, objects field by field, equal values stay."""
    if isinstance(old, dict) and isinstance(new, dict):
        both = dict(old)
        for name, value in new.items():
            before = both.get(name)
            if type(before) is int and type(value) is int:
                both[name] = before + value
            else:
                both[name] = added(before, value) if name in both else value
        return both
    if type(old) is int and type(new) is int:
        return old + new
    if type(old) is type(new) and old == new and not isinstance(old, float):
        return old
    raise InvalidInputError(
        f"Can't add {old!r:.100} and {new!r:.100}: expected whole numbers, or objects of them. "
        "Use whole numbers (microseconds, cents), or override `merge` of the table."
    )


def plain_key(key: str) -> str:
    """A row's key as it is stored and shown.

    A key that no store can index, because it is long or has a NUL, is cut and ends in a
    digest: names that a model made up must not stop a table.
    """
    if not isinstance(key, str):
        raise InvalidInputError(f"Invalid key of a row: got {key!r:.100}, expected text.")
    if len(key) <= LONGEST_KEY and is_storable(key):
        return key
    start = key[:100].replace("\0", "?").encode(errors="replace").decode()
    return f"{start}... sha256:{sha256(key.encode(errors='surrogatepass')).hexdigest()}"


class Additions(msgspec.Struct):
    """What `events` records add to a table: rows by key, and carries by run (None: ended).

    `skipped` are records that can't be read, as "run version".
    """

    rows: dict[str, Any] = {}
    carries: dict[str, Any] = {}
    events: int = 0
    skipped: set[str] = set()

    def add(self, table: Table[Any], records: Iterable[Record]) -> None:
        """Add records of the kinds that the table reads, each run's in its order."""
        remembers = has_carry(table)
        for record in records:
            try:
                record.row, record.event, record.recorded_at  # noqa: B018
            except DAMAGE:
                self.skipped.add(f"{record.run_key} {record.version}")
                continue
            if remembers:
                run = record.run_key
                self.carries[run], parts = table.step(self.carries.get(run), record)
            else:
                parts = table.adds(record)
            for key, value in parts:
                self._merge(table, plain_key(key), value)

    def join(self, table: Table[Any], other: Additions) -> None:
        """Add what the records of other runs add."""
        for key, value in other.rows.items():
            self._merge(table, key, value)
        self.carries.update(other.carries)
        self.skipped.update(other.skipped)
        self.events += other.events

    def _merge(self, table: Table[Any], key: str, value: Any) -> None:
        rows = self.rows
        rows[key] = table.merge(rows[key], value) if key in rows else value


def has_carry(table: Table[Any]) -> bool:
    """Whether a table remembers something of runs."""
    return type(table).step is not Table.step


def table_tags(table: Table[Any]) -> frozenset[str]:
    """The tags of the events that it reads, and the retired tags that are read as them."""
    # It only uses `reads`, which both kinds of projection have.
    return tags_read(cast("Projection[Any]", table))


def plain_text(value: Any, what: str) -> str:
    """A value as canonical JSON; InvalidInputError if it would be read as something else."""
    try:
        text = canonical(value)
        same = msgspec.json.decode(text) == value
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise InvalidInputError(f"{what} can't be written as JSON: {error}") from error
    if not same:
        raise InvalidInputError(
            f"{what} is not plain JSON: {value!r:.100} would be read as {text.decode():.100}."
        )
    return text.decode()
