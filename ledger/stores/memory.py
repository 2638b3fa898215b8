"""Memory store: for tests, and for sessions that need no disk.

`memory://name` is shared by all ledgers of the process with that name, until the last is closed.
"""

from __future__ import annotations

import time
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from threading import Lock, RLock
from typing import Any
from uuid import uuid4

from turnledger.ledger.errors import IntegrityFailureError
from turnledger.ledger.events.types import CATALOGUE
from turnledger.ledger.runs.index import (
    PROMPT,
    RebuiltIndex,
    RunRow,
    is_work,
    list_key,
    place_of,
)
from turnledger.ledger.runs.record import Columns, NewColumns, RawRow, Row, as_raw_row, as_row
from turnledger.ledger.runs.transaction import (
    DerivedWriter,
    EventIdTakenError,
    IndexFold,
    Lease,
    Leases,
    TokenRow,
    Transaction,
    Watermark,
    WorkQuery,
)
from turnledger.ledger.stores.base import RunQuery, Store
from turnledger.ledger.stores.derived_data import DerivedReader
from turnledger.ledger.stores.wakeup import Wakeup


class MemoryTables:
    """What the SQL stores have in tables; stores of one name share it."""

    def __init__(self) -> None:
        self.lock = RLock()
        self.writing = Lock()
        self.appended = Wakeup()
        self.rows: list[Row] = []
        self.by_run: dict[str, list[int]] = {}
        self.by_id: dict[str, int] = {}
        self.runs: dict[str, RunRow] = {}
        self.blobs: dict[str, bytes] = {}
        self.leases: dict[str, Lease] = {}
        self.tokens: dict[str, TokenRow] = {}
        self.watermarks: dict[str, Watermark] = {}
        self.derived: dict[str, dict[str, str]] = {}
        self.holders: set[str] = set()
        self.handles = 0

    def own_places(self, run_id: str, after: int, until: int | None) -> list[int]:
        """Where a run's rows are, by version: found, not computed, as some may be missing."""
        own = self.by_run.get(run_id, [])

        def place_after(version: int) -> int:
            return bisect_right(own, version, key=lambda place: self.rows[place].version)

        stop = len(own) if until is None else place_after(until)
        return own[place_after(after) : stop]


class MemoryLeases(Leases):
    """Leases, written at once; `undo` is the transaction's list of how to undo it."""

    __slots__ = ("_tables", "_undo")

    def __init__(self, tables: MemoryTables, undo: list[Callable[[], Any]]) -> None:
        super().__init__()
        self._tables = tables
        self._undo = undo

    def get(self, run_id: str) -> Lease | None:
        return self._tables.leases.get(run_id)

    def of_worker(self, worker: str) -> list[Lease]:
        return [lease for lease in self._tables.leases.values() if lease.worker == worker]

    def holders(self, now: int) -> list[str]:
        leases = self._tables.leases.values()
        return [*{one.holder for one in leases if one.expires_at > now and not one.is_keyed}]

    def put(self, lease: Lease) -> None:
        _set(self._undo, self._tables.leases, lease.run_id, lease)

    def drop(self, run_id: str) -> None:
        if run_id in self._tables.leases:
            _set(self._undo, self._tables.leases, run_id, None)

    def holder_alive(self, holder: str) -> bool:
        return holder in self._tables.holders

    def now(self) -> int:
        return time.time_ns() // 1000


class MemoryDerivedWriter(DerivedWriter):
    """Derived data, written at once; `undo` is the transaction's list of how to undo it."""

    def __init__(self, tables: MemoryTables, undo: list[Callable[[], Any]]) -> None:
        self._tables = tables
        self._undo = undo

    def watermark(self, name: str) -> Watermark | None:
        return self._tables.watermarks.get(name)

    def set_watermark(self, name: str, watermark: Watermark | None) -> None:
        _set(self._undo, self._tables.watermarks, name, watermark)

    def put(self, name: str, rows: Mapping[str, str | None]) -> None:
        new = {**self._tables.derived.get(name, {}), **rows}
        kept = {key: text for key, text in new.items() if text is not None}
        _set(self._undo, self._tables.derived, name, kept)

    def clear(self, name: str) -> None:
        _set(self._undo, self._tables.derived, name, None)


class MemoryDerivedReader(DerivedReader):
    """Derived data, read while no transaction is under way."""

    def __init__(self, tables: MemoryTables, check_open: Callable[[], None]) -> None:
        self._tables = tables
        self._check_open = check_open

    def watermarks(self) -> dict[str, Watermark]:
        self._check_open()
        with self._tables.lock:
            return dict(sorted(self._tables.watermarks.items()))

    def watermark(self, name: str) -> Watermark | None:
        return self.watermarks().get(name)

    def get(self, name: str, keys: Sequence[str]) -> dict[str, str]:
        rows = self._rows(name)
        return {key: rows[key] for key in keys if key in rows}

    def page(self, name: str, after: str, limit: int) -> list[tuple[str, str]]:
        return sorted(item for item in self._rows(name).items() if item[0] > after)[:limit]

    def last(self, name: str, after: str, until: str, limit: int) -> list[tuple[str, str]]:
        found = (item for item in self._rows(name).items() if after < item[0] <= until)
        return sorted(found, reverse=True)[:limit]

    def _rows(self, name: str) -> dict[str, str]:
        self._check_open()
        with self._tables.lock:
            return self._tables.derived.get(name, {})


def _set(undo: list[Callable[[], Any]], table: dict[str, Any], key: str, value: Any) -> None:
    undo.append(partial(_put, table, key, table.get(key)))
    _put(table, key, value)


def _put(table: dict[str, Any], key: str, value: Any) -> None:
    """Set an entry, or remove it if the value is None."""
    if value is None:
        table.pop(key, None)
    else:
        table[key] = value


class MemoryTransaction(Transaction):
    """Writes at once and remembers how to undo it."""

    __slots__ = ("_savepoint", "_seen", "_tables", "_undo")

    def __init__(self, tables: MemoryTables, heads: dict[str, RunRow], *, careful: bool) -> None:
        super().__init__(heads, careful=careful)
        self._tables = tables
        self._undo: list[Callable[[], Any]] = []
        self.derived = MemoryDerivedWriter(tables, self._undo)
        self.leases = MemoryLeases(tables, self._undo)
        self._savepoint = 0
        self._seen = 0

    def begin(self) -> None:
        # Held to the end, so that no reader sees what may still be undone.
        self._tables.lock.acquire()
        self._undo.clear()

    def commit(self) -> None:
        self._undo.clear()
        self.end()

    def rollback(self) -> None:
        self.end()

    def end(self) -> None:
        """Undo what was not committed, and let readers in. May be repeated."""
        # By the lock itself, not by a note of ours: an interrupt may come between the two.
        lock: Any = self._tables.lock
        if lock._is_owned():
            self._undo_to(0)
        while lock._is_owned():
            lock.release()

    def savepoint(self) -> None:
        self._savepoint = len(self._undo)

    def release_savepoint(self) -> None:
        pass

    def rollback_to_savepoint(self) -> None:
        self._undo_to(self._savepoint)

    def _undo_to(self, mark: int) -> None:
        # Undone first, then forgotten: Ctrl-C may come in between, and each may be undone twice.
        while len(self._undo) > mark:
            self._undo[-1]()
            del self._undo[-1]

    def wrote(self) -> bool:
        wrote, self._seen = len(self._undo) > self._seen, len(self._undo)
        return wrote

    def advance(
        self,
        before: RunRow | None,
        after: RunRow,
        rows: Sequence[NewColumns],
        blobs: Mapping[str, bytes],
    ) -> list[int] | None:
        tables = self._tables
        with tables.lock:
            now = tables.runs.get(after.run_id)
            if (now and now.version) != (before and before.version):
                return None
            if any(event_id in tables.by_id for _, _, _, event_id, *_ in rows):
                raise EventIdTakenError
            _set(self._undo, tables.runs, after.run_id, after)
            for name, content in blobs.items():
                if name not in tables.blobs:
                    _set(self._undo, tables.blobs, name, content)
            positions = [self._insert(row) for row in rows]
        self.staged[after.run_id] = after
        return positions

    def _insert(self, columns: NewColumns) -> int:
        tables, position = self._tables, len(self._tables.rows) + 1
        row = as_row((position, *columns))
        own = tables.by_run.setdefault(row.run_id, [])

        def undo() -> None:
            del tables.rows[position - 1 :]
            if own and own[-1] == position - 1:
                del own[-1]
            tables.by_id.pop(row.event_id, None)

        self._undo.append(undo)
        tables.rows.append(row)
        own.append(position - 1)
        tables.by_id[row.event_id] = position - 1
        return position

    def run(self, run_id: str) -> RunRow | None:
        return self._tables.runs.get(run_id)

    def find_work(self, query: WorkQuery) -> tuple[int, str] | None:
        found = [row for row in self._tables.runs.values() if self._is_free(row, query)]
        row = min(found, key=place_of, default=None)
        return (row.started_at, row.run_id) if row is not None else None

    def _is_free(self, row: RunRow, query: WorkQuery) -> bool:
        after = query.after and tuple(map(list_key, query.after))
        if (after and place_of(row) <= after) or row.run_id in query.exclude:
            return False
        try:
            if not is_work(row, query.agents):
                return False
        except IntegrityFailureError:
            return True  # so that it is named as damaged
        lease = self._tables.leases.get(row.run_id)
        return (
            lease is None
            or lease.epoch != row.epoch
            or lease.expires_at <= query.now
            or lease.holder in query.holders
        )

    def row_at(self, run_id: str, version: int) -> Row | None:
        found = self._tables.own_places(run_id, version - 1, version)
        return self._tables.rows[found[0]] if found else None

    def rows_by_id(self, event_ids: Sequence[str]) -> list[Row]:
        places = (self._tables.by_id.get(event_id) for event_id in event_ids)
        return [self._tables.rows[place] for place in places if place is not None]

    def has_blob(self, name: str) -> bool:
        return name in self._tables.blobs

    def token(self, token_id: str) -> TokenRow | None:
        return self._tables.tokens.get(token_id)

    def put_token(self, row: TokenRow) -> None:
        _set(self._undo, self._tables.tokens, row.token_id, row)

    def rebuild_index(self, fold: IndexFold) -> RebuiltIndex:
        tables, old = self._tables, self._tables.runs
        self._undo.append(lambda: setattr(tables, "runs", old))
        heads = {run_id: (row.version, row.epoch) for run_id, row in old.items()}
        rebuilt = fold(iter(tables.rows), heads)
        kept = {run_id: old[run_id] for run_id in rebuilt.kept if run_id in old}
        tables.runs = kept | {row.run_id: row for row in rebuilt.rows}
        return rebuilt


class MemoryStore(Store):
    """The store over plain Python objects."""

    def __init__(self, tables: MemoryTables | None = None) -> None:
        super().__init__()
        self.tables = tables or MemoryTables()
        self.tables.handles += 1
        self.derived = MemoryDerivedReader(self.tables, self._check_open)
        self._write_lock = self.tables.writing
        self._tx: MemoryTransaction | None = None
        self._holder = ""

    def _begin_group(self) -> None:
        self._check_open()

    def _transaction(self, *, careful: bool) -> Transaction:
        self._tx = MemoryTransaction(self.tables, self._heads, careful=careful)
        return self._tx

    def _end_group(self) -> None:
        if self._tx is not None:
            self._tx.end()
        self.tables.appended.wake_all()

    def rows(
        self, run_id: str, after: int, until: int | None, *, backwards: bool, limit: int
    ) -> list[Columns]:
        self._check_open()
        with self.tables.lock:
            places = self.tables.own_places(run_id, after, until)
            places = places[::-1][:limit] if backwards else places[:limit]
            return [self.tables.rows[place] for place in places]

    def rows_after(self, position: int, limit: int, until: int | None = None) -> list[Columns]:
        self._check_open()
        with self.tables.lock:
            start = bisect_right(self.tables.rows, position, key=lambda row: row.position)
            page = self.tables.rows[start : start + limit]
        return [row for row in page if until is None or row.position <= until]

    def rows_before(self, position: int, limit: int) -> list[Columns]:
        self._check_open()
        with self.tables.lock:
            end = bisect_left(self.tables.rows, position, key=lambda row: row.position)
            page = self.tables.rows[max(end - limit, 0) : end]
        return [*reversed(page)]

    def wait_for_more(self, position: int, seconds: float) -> None:
        if len(self.tables.rows) <= position:
            self.tables.appended.wait(seconds)

    def run(self, run_id: str) -> RunRow | None:
        self._check_open()
        with self.tables.lock:
            return self.tables.runs.get(run_id)

    def list_runs(self, query: RunQuery) -> list[RunRow]:
        self._check_open()
        with self.tables.lock:
            runs = sorted(self.tables.runs.values(), key=place_of, reverse=True)
        return [row for row in runs if _matches(row, query)][: query.limit]

    def blob(self, name: str) -> bytes | None:
        self._check_open()
        with self.tables.lock:
            return self.tables.blobs.get(name)

    def blob_names(self) -> Iterator[str]:
        with self.tables.lock:
            return iter(sorted(self.tables.blobs))

    def lease(self, run_id: str) -> Lease | None:
        with self.tables.lock:
            return self.tables.leases.get(run_id)

    def token(self, token_id: str) -> TokenRow | None:
        self._check_open()
        with self.tables.lock:
            return self.tables.tokens.get(token_id)

    def tokens(self) -> list[TokenRow]:
        self._check_open()
        with self.tables.lock:
            rows = list(self.tables.tokens.values())
        return sorted(rows, key=lambda row: (row.created_at, row.token_id))

    def holder(self) -> str:
        self._check_open()
        if not self._holder:
            self._holder = str(uuid4())
            self.tables.holders.add(self._holder)
        return self._holder

    def written_catalogue(self) -> int | None:
        return CATALOGUE

    def raw_run_ids(self) -> Iterator[Any]:
        self._check_open()
        with self.tables.lock:
            return iter(Counter(_raw(row.run_id) for row in self.tables.rows).items())

    def raw_rows(self, run_id: Any, first: int | None = None) -> Iterator[RawRow]:
        with self.tables.lock:
            own = [
                row
                for row in self.tables.rows
                if _raw(row.run_id) == run_id
                and (first is None or not isinstance(row.version, int) or row.version >= first)
            ]
        for row in sorted(own, key=lambda row: (isinstance(row.version, int), row.version)):
            yield as_raw_row(tuple(map(_raw, row)))

    def raw_tags(self) -> Iterator[tuple[Any, Any, Any]]:
        """From the index: there is no table of tags beside it."""
        with self.tables.lock:
            rows = list(self.tables.runs.values())
        for row in rows:
            with suppress(IntegrityFailureError):
                for key, value in row.tag_map.items():
                    yield _raw(row.run_id), _raw(key), _raw(value)

    def last_position(self) -> int | None:
        with self.tables.lock:
            return self.tables.rows[-1].position if self.tables.rows else None

    def diagnostics(self) -> dict[str, str]:
        return {"store": "memory", "durable": "no: gone with this process"}

    def close(self) -> None:
        if self._closed:
            return
        self._closed = "This ledger was closed. Open it again."
        self.tables.holders.discard(self._holder)
        self.tables.handles -= 1
        self.tables.appended.wake_all()


def _raw(value: Any) -> Any:
    return value.encode("utf-8", "surrogateescape") if isinstance(value, str) else value


def _matches(row: RunRow, query: RunQuery) -> bool:
    try:
        tags = row.tag_map if query.tags else {}
    except IntegrityFailureError:
        return True  # so that it is named as damaged, and not left out in silence
    started = list_key(row.started_at)
    before = query.before and tuple(map(list_key, query.before))
    return (
        query.status in (None, row.status)
        and query.prompt in (None, row.prompt)
        and query.parent in (None, row.parent)
        and query.prompts in (None, row.kind == PROMPT)
        and (query.since is None or started >= list_key(query.since))
        and (query.until is None or started < list_key(query.until))
        and (not before or place_of(row) < before)
        and (query.ends is None or _has_end(str(row.run_id), *query.ends))
        and all(key in tags and value in (None, tags[key]) for key, value in query.tags)
    )


def _has_end(run_id: str, beginning: str, end: str) -> bool:
    return run_id.startswith(beginning) or run_id.endswith(end)


_shared: dict[str, MemoryTables] = {}
_shared_lock = Lock()


def open_memory(name: str) -> MemoryStore:
    """A store of its own, or the one that all who open the same name in this process share."""
    if not name:
        return MemoryStore()
    with _shared_lock:
        tables = _shared.get(name)
        if tables is None or tables.handles == 0:
            tables = _shared[name] = MemoryTables()
        return MemoryStore(tables)
