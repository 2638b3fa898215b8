"""A transaction of a store: the interface over which appends and claims are decided.

A store implements the abstract part; leases and derived data are parts of their own that it
holds. An optimistic transaction relies on the heads that the store remembers and on ids being
new, and may hold its writes back. If it was wrong (RedoError), the work is run again in a careful
one, which checks first.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple, TypeAlias

from turnledger.ledger.runs.index import Heads, RebuiltIndex, RunRow
from turnledger.ledger.runs.record import Columns, NewColumns, Row

IndexFold: TypeAlias = Callable[[Iterator[Columns], Heads], RebuiltIndex]


# The holder of a lease that was taken with a claim key begins so. No liveness lock has such a name.
KEY_HOLDER = "key-"


class Lease(NamedTuple):
    """Which worker has a run until when.

    `holder` names a lock that lasts as long as the worker's ledger is open, or it is made from a
    claim key: then no process stands for it, and only its time or a release ends the lease.
    """

    run_id: str
    worker: str
    epoch: int
    holder: str
    expires_at: int

    @property
    def is_keyed(self) -> bool:
        """Whether it was taken with a claim key."""
        return self.holder.startswith(KEY_HOLDER)


class WorkQuery(NamedTuple):
    """Which run of the index a worker may take next.

    `holders` are those of leases that count no more although their time is not up. `after` is the
    place in the order, start and id, of a run that was looked at already.
    """

    agents: tuple[str, ...]
    exclude: tuple[str, ...]
    now: int
    holders: tuple[str, ...]
    after: tuple[int, str] | None = None


class Leases(ABC):
    """Leases within a transaction."""

    __slots__ = ("wrote",)

    def __init__(self) -> None:
        # Whether a lease was written since this was last reset.
        self.wrote = False

    def is_live(self, lease: Lease) -> bool:
        """Whether a lease still counts: its time is not up and its holder not known dead."""
        if lease.expires_at <= self.now():
            return False
        return lease.is_keyed or self.holder_alive(lease.holder)

    @abstractmethod
    def get(self, run_id: str) -> Lease | None: ...

    @abstractmethod
    def of_worker(self, worker: str) -> list[Lease]:
        """All leases of a worker of this name, whether they count or not."""

    @abstractmethod
    def holders(self, now: int) -> list[str]:
        """The liveness locks that leases name whose time is not up at this moment."""

    @abstractmethod
    def put(self, lease: Lease) -> None: ...

    @abstractmethod
    def drop(self, run_id: str) -> None: ...

    @abstractmethod
    def holder_alive(self, holder: str) -> bool:
        """False only if the process that holds this liveness lock is known to be dead."""

    @abstractmethod
    def now(self) -> int:
        """Microseconds since 1970, by the store's clock."""


class TokenRow(NamedTuple):
    """An access token as stored, without its secret; times in microseconds since 1970."""

    token_id: str
    name: str
    role: str
    secret_hash: bytes
    created_at: int
    expires_at: int | None
    revoked_at: int | None


class Watermark(NamedTuple):
    """How far derived data was made: from all events up to `position`.

    `fingerprint` says what the rows mean, `state` is its maker's own text (a checksum, say).
    """

    fingerprint: str
    position: int
    state: str


class DerivedWriter(ABC):
    """Derived data within a transaction: rows of text by name and key, one watermark a name."""

    # Whether something was written since this was last reset.
    wrote = False

    @abstractmethod
    def watermark(self, name: str) -> Watermark | None:
        """A name's watermark, locked: no other writer changes it before the transaction ends."""

    @abstractmethod
    def set_watermark(self, name: str, watermark: Watermark | None) -> None:
        """Set a name's watermark, or remove it."""

    @abstractmethod
    def put(self, name: str, rows: Mapping[str, str | None]) -> None:
        """Write rows; None removes one."""

    @abstractmethod
    def clear(self, name: str) -> None:
        """Remove all rows of a name."""


class RedoError(Exception):
    """An optimistic transaction was wrong in what it relied on: run it again, carefully."""


class EventIdTakenError(RedoError):
    """An insert met an event id that is already there."""


class Transaction(ABC):
    """One transaction of a store. `careful` ones check ids first and keep savepoints."""

    __slots__ = ("_heads", "_wrote", "careful", "derived", "leases", "staged")

    derived: DerivedWriter
    leases: Leases

    def __init__(self, heads: dict[str, RunRow], *, careful: bool) -> None:
        self._heads = heads
        self.careful = careful
        self._wrote = False
        # The heads of runs that this transaction has moved: the store's to remember if it commits.
        self.staged: dict[str, RunRow] = {}

    def head(self, run_id: str) -> tuple[RunRow | None, bool]:
        """A run's row in the index, and whether that was read just now rather than remembered."""
        row = self.staged.get(run_id) if self.staged else None
        row = row or self._heads.get(run_id)
        if row is not None:
            return row, False
        return self.run(run_id), True

    def flush(self) -> None:  # noqa: B027
        """Write what was held back until now; RedoError may turn up only here."""

    def wrote(self) -> bool:
        """Whether anything was written since the last call."""
        wrote = self._wrote or self.derived.wrote or self.leases.wrote
        self._wrote = self.derived.wrote = self.leases.wrote = False
        return wrote

    # --- what a store implements ---

    @abstractmethod
    def advance(
        self,
        before: RunRow | None,
        after: RunRow,
        rows: Sequence[NewColumns],
        blobs: Mapping[str, bytes],
    ) -> list[int] | None:
        """Write rows and the run's new row in the index, if that still is `before`.

        What goes through is noted in `staged`.

        Args:
            before: The run as the decision saw it; None if it is new.
            after: The run with these rows.
            rows: What to write, in order.
            blobs: Content that the rows name.

        Returns:
            The rows' positions, which may come only with the commit, or None if the run has
            moved on.
        """

    @abstractmethod
    def begin(self) -> None: ...

    @abstractmethod
    def commit(self) -> None: ...

    @abstractmethod
    def rollback(self) -> None: ...

    @abstractmethod
    def savepoint(self) -> None: ...

    @abstractmethod
    def release_savepoint(self) -> None: ...

    @abstractmethod
    def rollback_to_savepoint(self) -> None: ...

    @abstractmethod
    def run(self, run_id: str) -> RunRow | None:
        """A run's row in the index, with what this transaction wrote."""

    @abstractmethod
    def find_work(self, query: WorkQuery) -> tuple[int, str] | None:
        """The oldest run that is left to be worked on: its start and id, its place in the order.

        Its status is running, it has the tag of one of the agents and none of UNQUEUED_TAGS, it
        is not a fork that was never run, and no lease of it counts. Where several transactions
        write at once, a run that another one has locked is passed over, and this one is locked.
        """

    @abstractmethod
    def row_at(self, run_id: str, version: int) -> Row | None: ...

    @abstractmethod
    def rows_by_id(self, event_ids: Sequence[str]) -> list[Row]:
        """The recorded ones of these events, in any order."""

    @abstractmethod
    def has_blob(self, name: str) -> bool: ...

    @abstractmethod
    def token(self, token_id: str) -> TokenRow | None: ...

    @abstractmethod
    def put_token(self, row: TokenRow) -> None:
        """Write an access token, or replace the one with its id."""

    @abstractmethod
    def rebuild_index(self, fold: IndexFold) -> RebuiltIndex:
        """Replace the run index by what `fold` makes of all rows, in order, and of the old index.

        The rows of runs that it keeps are not touched.

        No other writer may come in between.
        """
