"""Projections over all runs: what each event adds to the rows of a table, by key.

A table is a sum. Its rows are merged in any order and in any portions, so it can be kept up
to date a few events at a time and made anew by many processes. Where it is kept is in
projections/tables/storage.py, how it follows the ledger in projections/tables/catch_up.py.
"""

from __future__ import annotations

from abc import ABC
from collections.abc import Iterable, Mapping
from typing import Any, ClassVar, Generic, TypeVar, cast

import msgspec

from turnledger.ledger import (
    Event,
    IntegrityFailureError,
    InvalidInputError,
    Record,
    TurnledgerError,
)
from turnledger.projections.digests import canonical
from turnledger.projections.projection import Projection, tags_read

C = TypeVar("C")


class Table(ABC, Generic[C]):
    """A projection over all runs. `version` grows when the meaning of its rows changes.

    `adds` says what an event adds. A table that has to remember something of a run between
    two of its events (a start that awaits its end) overrides `step` instead. Values and
    carries are plain JSON: objects, lists, text, whole numbers.
    """

    name: ClassVar[str]
    version: ClassVar[int] = 1
    reads: ClassVar[tuple[type[Event], ...]]

    def adds(self, record: Record) -> Iterable[tuple[str, Any]]:
        """What an event of the kinds that it reads adds to which rows."""
        raise NotImplementedError(f"{type(self).__name__} says neither `adds` nor `step`.")

    def step(self, carry: C | None, record: Record) -> tuple[C | None, Iterable[tuple[str, Any]]]:
        """What to remember of the run from here on (None: nothing), and what the event adds."""
        return carry, self.adds(record)

    def merge(self, old: Any, new: Any) -> Any:
        """Two parts of a row as one; in whatever order and portions, it must come to the same."""
        return added(old, new)


class TableNotMadeError(TurnledgerError, LookupError):
    """The ledger holds no such table, or one of another version."""

    def __init__(self, message: str, *, table: str = "") -> None:
        self.table = table
        super().__init__(message)


class TableDamagedError(IntegrityFailureError):
    """A table's rows are not those that were written."""

    def __init__(self, message: str, *, table: str = "") -> None:
        self.table = table
        super().__init__(message)


class RebuildOvertakenError(TurnledgerError):
    """Somebody else made the table anew in the meantime; theirs is shown."""

    def __init__(self, message: str, *, table: str = "") -> None:
        self.table = table
        super().__init__(message)


def added(old: Any, new: Any) -> Any:
    """Numbers add up, objects field by field, and what is equal stays."""
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
        f"{old!r:.100} and {new!r:.100} can't be added: only whole numbers and objects of them "
        "can. Use whole numbers (microseconds, cents), or override `merge` of the table."
    )


class Additions(msgspec.Struct):
    """What some records add to a table, by key, and what is remembered of their runs."""

    rows: dict[str, Any] = {}
    carries: dict[str, Any] = {}
    events: int = 0

    def put(self, table: Table[Any], key: str, value: Any) -> None:
        """Merge a part into its row."""
        rows = self.rows
        rows[key] = table.merge(rows[key], value) if key in rows else value

    def join(self, table: Table[Any], other: Additions) -> None:
        """Take in what other runs' records add."""
        for key, value in other.rows.items():
            self.put(table, key, value)
        self.carries.update(other.carries)
        self.events += other.events


def additions(
    table: Table[Any], records: Iterable[Record], carries: Mapping[str, Any] | None = None
) -> Additions:
    """What records add that the table reads, each run's in its order.

    `carries` are what is remembered of runs; in the answer they are as they are afterwards.
    """
    found = Additions(carries=dict(carries or {}))
    remembers = has_carry(table)
    for record in records:
        if remembers:
            run = record.row.run_id
            found.carries[run], parts = table.step(found.carries.get(run), record)
        else:
            parts = table.adds(record)
        for key, value in parts:
            found.put(table, key, value)
    return found


def has_carry(table: Table[Any]) -> bool:
    """Whether a table remembers anything of a run."""
    return type(table).step is not Table.step


def table_tags(table: Table[Any]) -> frozenset[str]:
    """The tags of the events that it reads, and the retired tags that are read as them."""
    # It asks for nothing but `reads`, which both kinds of projection have.
    return tags_read(cast("Projection[Any]", table))


def plain_text(value: Any, what: str) -> str:
    """A value's one JSON text; InvalidInputError if it would be read as something else."""
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
