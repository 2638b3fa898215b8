"""SQL that the SQL stores share: reads of runs, events, blobs, derived data, tokens; leases.

Statements have a `?` for each value; the PostgreSQL store writes its driver's mark instead.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from typing import Any, ClassVar, NamedTuple

from turnledger.ledger.errors import IntegrityFailureError
from turnledger.ledger.events.types import AGENT_TAG
from turnledger.ledger.runs.index import PROMPT, RunRow, tag_text
from turnledger.ledger.runs.names import UNQUEUED_TAGS
from turnledger.ledger.runs.record import Columns, Row, as_row
from turnledger.ledger.runs.transaction import (
    KEY_HOLDER,
    Lease,
    Leases,
    TokenRow,
    Watermark,
    WorkQuery,
)
from turnledger.ledger.stores.base import PAGE, RunQuery, Store
from turnledger.ledger.stores.derived_data import DerivedReader
from turnledger.ledger.stores.wakeup import Wakeup

ROW = "position, run_id, version, tag, event_id, recorded_at, digest, data"
RUN = (
    "run_id, version, digest, recorded_at, epoch, status, started_at, prompt, kind, "
    "parent, parent_version, tags"
)
LEASE = "run_id, worker, epoch, holder, expires_at"
GET_LEASE = f"SELECT {LEASE} FROM leases WHERE run_id = ?"
PUT_LEASE = """INSERT INTO leases VALUES (?, ?, ?, ?, ?) ON CONFLICT (run_id) DO UPDATE SET
    worker = excluded.worker, epoch = excluded.epoch, holder = excluded.holder,
    expires_at = excluded.expires_at"""
ACCESS = "token_id, name, role, secret_hash, created_at, expires_at, revoked_at"
GET_TOKEN = f"SELECT {ACCESS} FROM access_tokens WHERE token_id = ?"
PUT_TOKEN = f"""INSERT INTO access_tokens ({ACCESS}) VALUES (?, ?, ?, ?, ?, ?, ?)
    ON CONFLICT (token_id) DO UPDATE SET name = excluded.name, role = excluded.role,
    secret_hash = excluded.secret_hash, created_at = excluded.created_at,
    expires_at = excluded.expires_at, revoked_at = excluded.revoked_at"""
# Watermarks are in the table `shelves`, rows in `shelf_rows`. Their column `generation` is
# always 0: what an older version wrote under other numbers is ignored, and made again.
WATERMARK = "fingerprint, position, state"
PLAIN = "generation = 0"
# A listing goes by the newest runs and leaves out those that do not fit, unless so few fit that
# finding and sorting them is quicker. Databases guess that wrongly for values that they don't know.
FEW = 250
# The last characters of a run's id, by which the stores have an index.
END = 4


def run_values(row: RunRow) -> tuple[Any, ...]:
    """A run's row in the order of RUN."""
    return tuple(getattr(row, name) for name in row.__struct_fields__)


def catalogue_number(value: Any) -> int:
    """The event catalogue in the table `meta`; IntegrityFailureError if that was changed."""
    if isinstance(value, str) and value.isascii() and value.isdecimal() and len(value) < 10:
        return int(value)
    raise IntegrityFailureError(
        f"Invalid event catalogue {value!r:.80} in the table meta: expected a number. The table "
        "was changed or is damaged. Go on from an export or a backup."
    )


class Narrowing(NamedTuple):
    """A condition on runs, in two ways: a query for the ids of all that fit, and of each row."""

    runs: str
    values: tuple[Any, ...]
    by_row: str
    row_values: tuple[Any, ...]


class SQLDerivedReader(DerivedReader):
    """Derived data in a SQL database, read by `query`."""

    def __init__(self, query: Callable[[str, Sequence[Any]], list[Any]]) -> None:
        self._query = query

    def watermarks(self) -> dict[str, Watermark]:
        found = self._query(f"SELECT name, {WATERMARK} FROM shelves WHERE {PLAIN}", ())
        return {name: Watermark(*rest) for name, *rest in sorted(found)}

    def watermark(self, name: str) -> Watermark | None:
        found = self._query(f"SELECT {WATERMARK} FROM shelves WHERE {PLAIN} AND name = ?", (name,))
        return Watermark(*found[0]) if found else None

    def get(self, name: str, keys: Sequence[str]) -> dict[str, str]:
        marks = ", ".join("?" * len(keys))
        return dict(
            self._query(
                "SELECT key, value FROM shelf_rows "
                f"WHERE shelf = ? AND {PLAIN} AND key IN ({marks})",
                (name, *keys),
            )
        )

    def page(self, name: str, after: str, limit: int) -> list[tuple[str, str]]:
        return self._query(
            "SELECT key, value FROM shelf_rows "
            f"WHERE shelf = ? AND {PLAIN} AND key > ? ORDER BY key LIMIT ?",
            (name, after, limit),
        )

    def last(self, name: str, after: str, until: str, limit: int) -> list[tuple[str, str]]:
        return self._query(
            "SELECT key, value FROM shelf_rows "
            f"WHERE shelf = ? AND {PLAIN} AND key > ? AND key <= ? ORDER BY key DESC LIMIT ?",
            (name, after, until, limit),
        )


class SQLStore(Store):
    """What both SQL stores read in the same way; `_all` gives the rows of a query."""

    # SQL for the last END characters of a run's id, as the store's index has it.
    _end_of_id: ClassVar[str]
    # SQL for a column that has a value: one value for each mark.
    _equal: ClassVar[str] = "{0} = ?"
    # SQL for the runs of a table whose ids are in a list, if that serves better than a query.
    _chosen: ClassVar[str] = ""

    def __init__(self) -> None:
        super().__init__()
        self.derived = SQLDerivedReader(self._all)
        self._appended = Wakeup()

    @abstractmethod
    def _all(self, statement: str, values: Sequence[Any] = ()) -> list[Any]: ...

    def _as_found(self, statement: str, values: Sequence[Any] = ()) -> list[Any]:
        """Like `_all`, but text that can't be decoded is given as bytes."""
        return self._all(statement, values)

    def rows_as_found(self, run_id: str, after: int, until: int, *, limit: int) -> list[Columns]:
        return self._as_found(
            f"SELECT {ROW} FROM events WHERE run_id = ? AND version > ? AND version <= ? "
            "ORDER BY version LIMIT ?",
            (run_id, after, until, limit),
        )

    def rows(
        self, run_id: str, after: int, until: int | None, *, backwards: bool, limit: int
    ) -> list[Columns]:
        return self._all(
            f"SELECT {ROW} FROM events WHERE run_id = ? AND version > ? AND version <= ? "
            f"ORDER BY version {'DESC' if backwards else 'ASC'} LIMIT ?",
            (run_id, after, until if until is not None else 2**62, limit),
        )

    def run(self, run_id: str) -> RunRow | None:
        found = self._all(f"SELECT {RUN} FROM runs WHERE run_id = ?", (run_id,))
        return RunRow(*found[0]) if found else None

    def list_runs(self, query: RunQuery) -> list[RunRow]:
        source, values = self._source(query)
        # The limit is in the text: PostgreSQL plans for a tenth of all rows where it is a value.
        order = f"ORDER BY started_at DESC, run_id DESC LIMIT {query.limit:d}"
        found = self._as_found(f"SELECT {RUN} FROM {source} {order}", values)
        return [RunRow(*row) for row in found]

    def _source(self, query: RunQuery) -> tuple[str, list[Any]]:
        """The table that a listing of runs reads, with its WHERE, and its values."""
        source, chosen = "runs", list[Any]()
        conditions, values = _plain_conditions(query, self._equal)
        narrowings = [_tagged(key, value) for key, value in query.tags]
        if query.ends is not None:
            narrowings.append(_ending(*query.ends, self._end_of_id))
        for narrowing in narrowings:
            few = self._few(narrowing)
            if few is not None and self._chosen:
                source = self._chosen.format(source)
                chosen.append(few)
            elif few is None and narrowing.by_row:
                conditions.append(narrowing.by_row)
                values.extend(narrowing.row_values)
            else:
                conditions.append(f"run_id IN ({narrowing.runs})")
                values.extend(narrowing.values)
        where = f"WHERE {' AND '.join(conditions)}" if conditions else ""
        return f"{source} {where}", [*chosen, *values]

    def _few(self, narrowing: Narrowing) -> list[str] | None:
        """The runs that fit; None if they are many, or there is only one way to say it."""
        if not (narrowing.by_row and narrowing.runs):
            return None
        found = self._as_found(f"{narrowing.runs} LIMIT {FEW}", narrowing.values)
        return [run for (run,) in found] if len(found) < FEW else None

    def blob(self, name: str) -> bytes | None:
        found = self._all("SELECT content FROM blobs WHERE name = ?", (name,))
        return found[0][0] if found else None

    def blob_names(self) -> Iterator[str]:
        last = ""
        page = "SELECT name FROM blobs WHERE name > ? ORDER BY name LIMIT ?"
        while names := self._all(page, (last, PAGE)):
            yield from (name for (name,) in names)
            reached: object = names[-1][0]
            if not isinstance(reached, str) or reached <= last:
                # A damaged index would give the same names again and again.
                raise IntegrityFailureError(
                    "The names of blobs are not in order: the ledger is damaged."
                )
            last = reached

    def row_by_id(self, event_id: str) -> Row | None:
        found = self._all(f"SELECT {ROW} FROM events WHERE event_id = ?", (event_id,))
        return as_row(found[0]) if found else None

    def lease(self, run_id: str) -> Lease | None:
        found = self._all(GET_LEASE, (run_id,))
        return Lease(*found[0]) if found else None

    def token(self, token_id: str) -> TokenRow | None:
        found = self._all(GET_TOKEN, (token_id,)) if self.has_tokens else []
        return TokenRow(*found[0]) if found else None

    def tokens(self) -> list[TokenRow]:
        statement = f"SELECT {ACCESS} FROM access_tokens ORDER BY created_at, token_id"
        return [TokenRow(*row) for row in self._all(statement)] if self.has_tokens else []

    def written_catalogue(self) -> int | None:
        found = self._all("SELECT value FROM meta WHERE key = 'catalogue'")
        return catalogue_number(found[0][0] if found else None)

    def wait_for_more(self, position: int, seconds: float) -> None:
        self._appended.wait(seconds)


class SQLLeases(Leases):
    """Leases as rows; `one` runs a statement of the transaction and gives its first row.

    `every` gives all rows.
    """

    __slots__ = ("_every", "_one")

    def __init__(self, one: Callable[..., Any], every: Callable[..., list[Any]]) -> None:
        super().__init__()
        self._one = one
        self._every = every

    def get(self, run_id: str) -> Lease | None:
        found = self._one(GET_LEASE, run_id)
        return Lease(*found) if found else None

    def of_worker(self, worker: str) -> list[Lease]:
        found = self._every(f"SELECT {LEASE} FROM leases WHERE worker = ?", worker)
        return [Lease(*row) for row in found]

    def holders(self, now: int) -> list[str]:
        statement = "SELECT DISTINCT holder FROM leases WHERE expires_at > ? AND holder NOT LIKE ?"
        return [holder for (holder,) in self._every(statement, now, f"{KEY_HOLDER}%")]

    def put(self, lease: Lease) -> None:
        self.wrote = True
        self._one(PUT_LEASE, *lease)

    def drop(self, run_id: str) -> None:
        self.wrote = True
        self._one("DELETE FROM leases WHERE run_id = ?", run_id)


def work_query(query: WorkQuery, contains: str, lock: str = "") -> tuple[str, list[Any]]:
    """The statement that finds the next run for a worker, and its values.

    It goes along the index of status and start from the oldest run on, and so does not look at
    those that have ended. That a run has a tag is seen in its row: the table of tags has rows for
    all runs of an agent, however many have ended.

    Args:
        query: What is looked for.
        contains: The function that finds a text in another: its place, or 0.
        lock: What the statement ends with, to lock the row.
    """
    conditions = [
        "r.status = 'running'",
        "NOT (r.kind = 'fork' AND r.epoch = 0)",
        f"({' OR '.join([f'{contains}(r.tags, ?) > 0'] * len(query.agents))})",
        # Not "= 0", which a planner takes for rare: it would rather sort all runs than follow
        # the index to the first one.
        *[f"{contains}(r.tags, ?) < 1"] * len(UNQUEUED_TAGS),
    ]
    values: list[Any] = [tag_text(AGENT_TAG, agent) for agent in query.agents]
    values += map(tag_text, UNQUEUED_TAGS)
    ended = ["l.run_id IS NULL", "l.epoch <> r.epoch", "l.expires_at <= ?"]
    values.append(query.now)
    if query.holders:
        ended.append(f"l.holder IN ({', '.join('?' * len(query.holders))})")
        values += query.holders
    conditions.append(f"({' OR '.join(ended)})")
    if query.exclude:
        conditions.append(f"r.run_id NOT IN ({', '.join('?' * len(query.exclude))})")
        values += query.exclude
    if query.after is not None:
        conditions.append("(r.started_at, r.run_id) > (?, ?)")
        values += query.after
    statement = (
        "SELECT r.started_at, r.run_id FROM runs r LEFT JOIN leases l ON l.run_id = r.run_id "
        f"WHERE {' AND '.join(conditions)} ORDER BY r.started_at, r.run_id LIMIT 1 {lock}"
    )
    return statement, values


def _plain_conditions(query: RunQuery, equal: str) -> tuple[list[str], list[Any]]:
    """The conditions of a listing that a column of the run's row answers, and their values."""
    conditions: list[str] = []
    values: list[Any] = []

    def add(condition: str, *bound: Any) -> None:
        conditions.append(condition)
        values.extend(bound)

    def add_equal(column: str, value: str | None) -> None:
        if value is not None:
            add(equal.format(column), *[value] * equal.count("?"))

    add_equal("status", query.status)
    add_equal("prompt", query.prompt)
    if query.prompts is not None:
        # In the text: as a value, PostgreSQL's plan for any would take nearly no runs to be of it.
        add(f"kind {'=' if query.prompts else '<>'} '{PROMPT}'")
    if query.since is not None:
        add("started_at >= ?", query.since)
    if query.until is not None:
        add("started_at < ?", query.until)
    if query.before is not None:
        add("(started_at, run_id) < (?, ?)", *query.before)
    add_equal("parent", query.parent)
    return conditions, values


def _tagged(key: str, value: str | None) -> Narrowing:
    """Runs with a tag; of a key with any value there is no way to ask for one row."""
    if value is None:
        return Narrowing("SELECT run_id FROM run_tags WHERE key = ?", (key,), "", ())
    tag = "FROM run_tags WHERE key = ? AND value = ?"
    # Not EXISTS, which a database may turn into the other way.
    by_row = f"(SELECT 1 {tag} AND run_tags.run_id = runs.run_id) IS NOT NULL"
    return Narrowing(f"SELECT run_id {tag}", (key, value), by_row, (key, value))


def _ending(first: str, last: str, end_of_id: str) -> Narrowing:
    """Runs whose id begins or ends with these."""
    # Hexadecimal digits and hyphens: there is no wildcard in them.
    by_row, row_values = "(run_id LIKE ? OR run_id LIKE ?)", (f"{first}%", f"%{last}")
    if len(last) < END:
        return Narrowing("", (), by_row, row_values)  # one of the newest runs will do
    # "g" comes after every digit.
    runs = (
        "SELECT run_id FROM runs WHERE run_id >= ? AND run_id < ? UNION ALL "
        f"SELECT run_id FROM runs WHERE {end_of_id} = ? AND run_id LIKE ?"
    )
    return Narrowing(runs, (first, f"{first}g", last[-END:], f"%{last}"), by_row, row_values)
