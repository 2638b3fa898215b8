"""The store interface: what memory, SQLite and PostgreSQL implement, and group-committed writing.

Everything that decides (checks, digests, claims) is written once, over these.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from threading import Lock
from typing import Any, ClassVar, TypeVar
from weakref import WeakSet

import msgspec

from turnledger.ledger.errors import LedgerClosedError, StoreUnavailableError
from turnledger.ledger.runs.index import RunRow
from turnledger.ledger.runs.record import Columns, RawRow, Row, as_row
from turnledger.ledger.runs.transaction import Lease, RedoError, TokenRow, Transaction
from turnledger.ledger.stores.derived_data import DerivedReader
from turnledger.ledger.stores.group_commit import GroupCommit, Job

T = TypeVar("T")
PAGE = 500
CACHED_HEADS = 4096


class RunQuery(msgspec.Struct, frozen=True, kw_only=True):
    """Which runs to list, newest first; `before` is the key of the last one seen.

    `prompts` is None for all rows, False for runs, True for the streams of prompts. `ends` are
    the beginning and the end that a run's id may have: one of them is enough.
    """

    status: str | None = None
    prompt: str | None = None
    prompts: bool | None = None
    tags: tuple[tuple[str, str | None], ...] = ()
    since: int | None = None
    until: int | None = None
    before: tuple[int, str] | None = None
    ends: tuple[str, str] | None = None
    parent: str | None = None
    limit: int = PAGE


class Store(ABC):
    """A store of events, runs, blobs, leases and access tokens.

    Writing is group-committed, reading in pages.
    """

    # How many seconds a committing thread waits at most for the threads that it committed
    # for last time: well below what a commit costs.
    gather_seconds: ClassVar[float] = 0.0002
    # Whether it is the store of a server, which is only read through it.
    is_served: ClassVar[bool] = False
    derived: DerivedReader
    # False for a ledger of an older format that could not be upgraded: it is only read here, or
    # this role may make no tables. Then there are no access tokens, and none can be made.
    has_tokens = True

    def __init__(self) -> None:
        # The rows of runs that were written last: an append then needs no read. They may be out
        # of date (another process wrote): every write checks the version that it goes on from.
        self._heads: dict[str, RunRow] = {}
        # One thread of this process writes at a time.
        self._write_lock = Lock()
        self._group = GroupCommit[Transaction](
            self._commit_alone, self._commit_group, self.gather_seconds
        )
        # Why it can't be used any more; empty while it is open.
        self._closed = ""
        _open_stores.add(self)

    # --- open, closed, forked ---

    @property
    def is_closed(self) -> bool:
        """Whether it can't be used any more."""
        return bool(self._closed)

    def _check_open(self) -> None:
        if self._closed:
            raise LedgerClosedError(self._closed)

    def before_fork(self) -> None:  # noqa: B027
        """Before a fork: close what would harm a child, as far as no thread uses it."""

    def after_fork_in_child(self) -> None:
        """In a forked child: give up connections, locks and threads, which are the parent's."""
        self._closed = (
            "This ledger was opened by the process that forked this one, and does not survive "
            "a fork. Open it again in this process."
        )

    # --- writing ---

    def write(self, work: Callable[[Transaction], T]) -> T:
        """Run work in a transaction that is durable when this returns.

        Work may be run more than once before it is committed, and must come to the same result
        each time: appends carry their ids.
        """
        if self._closed:
            raise LedgerClosedError(self._closed)
        result: T = self._group.run(work)
        return result

    def write_all(self, jobs: Sequence[Job[Transaction]]) -> None:
        """Run jobs as `write` does, in one transaction; the outcome of each is in the job."""
        if self._closed:
            raise LedgerClosedError(self._closed)
        self._group.run_all(jobs)

    def _commit_alone(self, work: Callable[[Transaction], Any]) -> Any:
        """Commit one job: the short way, while no other thread writes.

        Optimistic first. If the work raises after it wrote, or relied on something that is not
        so, it is run again in a careful transaction, which can tell what was wrong.
        """
        with self._write_lock:
            try:
                self._begin_group()
                tx = self._transaction(careful=False)
                tx.begin()
                try:
                    result = work(tx)
                    tx.flush()
                except BaseException as error:
                    tx.rollback()
                    redo = isinstance(error, RedoError) or tx.wrote()
                    if not (redo and isinstance(error, Exception)):
                        raise
                    self._heads.clear()
                    job = Job(work)
                    self._run_group(self._transaction(careful=True), [job])
                    if job.error is not None:
                        raise job.error from None
                    return job.result
                tx.commit()
                self._remember(tx)
                return result
            except BaseException:
                # Whether it was committed may be unknown, and so are the heads.
                self._heads.clear()
                raise
            finally:
                try:
                    self._end_group()
                except BaseException:
                    # An interrupt came just then: it may be repeated (see group_commit.py).
                    self._end_group()
                    raise

    def _commit_group(self, jobs: list[Job[Transaction]]) -> None:
        """Commit several jobs in one transaction; the outcome of each is in the job."""
        try:
            with self._write_lock:
                try:
                    self._begin_group()
                    try:
                        self._run_group(self._transaction(careful=False), jobs)
                    except RedoError:
                        self._heads.clear()
                        self._run_group(self._transaction(careful=True), jobs)
                finally:
                    try:
                        self._end_group()
                    except BaseException:
                        self._end_group()
                        raise
        except (StoreUnavailableError, LedgerClosedError) as error:
            self._heads.clear()
            # One each: an exception that is raised by several threads mixes up their tracebacks.
            for job in jobs:
                job.error = type(error)(*error.args)
        except BaseException:
            self._heads.clear()
            raise

    def _run_group(self, tx: Transaction, jobs: list[Job[Transaction]]) -> None:
        tx.begin()
        try:
            for job in jobs:
                job.error = None
                self._run_job(tx, job)
            tx.flush()
        except BaseException:
            tx.rollback()
            raise
        tx.commit()
        self._remember(tx)

    def _remember(self, tx: Transaction) -> None:
        if len(self._heads) > CACHED_HEADS:
            self._heads.clear()
        self._heads.update(tx.staged)

    def _run_job(self, tx: Transaction, job: Job[Transaction]) -> None:
        """Run one job of a group: what it refuses is its own outcome, and fails no other.

        An optimistic transaction has no savepoints. A job that fails after it wrote can't be
        taken back alone there, so the whole group is run again carefully.
        """
        if tx.careful:
            tx.savepoint()
        tx.wrote()
        try:
            job.result = job.work(tx)
        except RedoError as error:
            if not tx.careful:
                raise
            raise StoreUnavailableError(
                "Another writer is recording the same event ids at this moment. "
                "Append the same events again."
            ) from error
        except StoreUnavailableError:
            raise
        except Exception as error:
            if tx.careful:
                tx.rollback_to_savepoint()
                tx.staged.clear()
                self._heads.clear()
            elif tx.wrote():  # since the call above
                raise RedoError from error
            job.error = error
        if tx.careful:
            tx.release_savepoint()

    # --- what a store implements ---

    @abstractmethod
    def _begin_group(self) -> None:
        """Before a group: keep other processes out, as far as the store needs it."""

    @abstractmethod
    def _end_group(self) -> None:
        """After a group, whatever became of it, also if `_begin_group` failed. May be repeated.

        What was written may be looked for now.
        """

    @abstractmethod
    def _transaction(self, *, careful: bool) -> Transaction: ...

    @abstractmethod
    def rows(
        self, run_id: str, after: int, until: int | None, *, backwards: bool, limit: int
    ) -> list[Columns]:
        """A page of a run's own rows, without those that a fork shares with its parent.

        Args:
            run_id: The run, in the canonical spelling of its id.
            after: Rows with a higher version than this.
            until: Rows with this version at most; None is the run's end.
            backwards: From the highest version down.
            limit: How many rows at most.
        """

    def rows_as_found(self, run_id: str, after: int, until: int, *, limit: int) -> list[Columns]:
        """Like rows, but damaged text does not hide the rest of its page: it is given as bytes."""
        return self.rows(run_id, after, until, backwards=False, limit=limit)

    @abstractmethod
    def rows_after(self, position: int, limit: int, until: int | None = None) -> list[Columns]:
        """A page of all rows of the ledger in the order of their positions.

        Never gives a row when one with a lower position can still appear, so a reader that goes
        on after the last position it was given misses none.

        Args:
            position: Rows with a higher position than this.
            limit: How many rows at most.
            until: Rows with this position at most; None is the ledger's end.
        """

    @abstractmethod
    def rows_before(self, position: int, limit: int) -> list[Columns]:
        """A page of all rows of the ledger with a lower position than this, the highest first.

        A row with a position in such a page may still appear: it is for looking back, not for
        following.
        """

    def confirmed_rows_after(
        self, position: int, limit: int, until: int | None = None
    ) -> list[Columns]:
        """Like rows_after, but only rows that a synchronous standby has confirmed."""
        return self.rows_after(position, limit, until)

    @abstractmethod
    def last_position(self) -> int | None:
        """The highest position that `rows_after` would give; None in an empty ledger."""

    @abstractmethod
    def wait_for_more(self, position: int, seconds: float) -> None:
        """Return when there may be rows after `position`, or when the time is up.

        Only writers of this process wake it early: callers ask for rows again in any case.
        """

    @abstractmethod
    def run(self, run_id: str) -> RunRow | None:
        """A run's row in the index."""

    def row_at(self, run_id: str, version: int) -> Row | None:
        """The row of one of a run's own events."""
        found = self.rows(run_id, version - 1, version, backwards=False, limit=1)
        return as_row(found[0]) if found else None

    def row_by_id(self, event_id: str) -> Row | None:
        """The row of an event by its id."""
        found = self.write(lambda tx: tx.rows_by_id([event_id]))
        return found[0] if found else None

    @abstractmethod
    def list_runs(self, query: RunQuery) -> list[RunRow]:
        """Rows of the index, newest run first."""

    @abstractmethod
    def blob(self, name: str) -> bytes | None: ...

    @abstractmethod
    def blob_names(self) -> Iterator[str]: ...

    @abstractmethod
    def lease(self, run_id: str) -> Lease | None: ...

    @abstractmethod
    def token(self, token_id: str) -> TokenRow | None:
        """An access token by its id."""

    @abstractmethod
    def tokens(self) -> list[TokenRow]:
        """All access tokens, oldest first."""

    @abstractmethod
    def holder(self) -> str:
        """The name of this store's liveness lock, which is taken here and free once we are dead."""

    @abstractmethod
    def written_catalogue(self) -> int | None:
        """The highest event catalogue that ever wrote here."""

    @abstractmethod
    def raw_run_ids(self) -> Iterator[Any]:
        """Every run id in the events, as stored, and how many events it has."""

    @abstractmethod
    def raw_rows(self, run_id: Any, first: int | None = None) -> Iterator[RawRow]:
        """A run's rows as stored, text as undecoded bytes, by version; all, or from one on."""

    @abstractmethod
    def raw_tags(self) -> Iterator[tuple[Any, Any, Any]]:
        """Run, key and value of every tag that listings go by, as stored."""

    def own_findings(self) -> Iterator[str]:
        """Damage that the database itself finds in its files."""
        return iter(())

    @abstractmethod
    def diagnostics(self) -> dict[str, str]:
        """Settings and state of the store for `doctor`, by name, as text."""

    def rebase(self) -> bool:
        """Make new positions follow the stored ones after a restored dump; whether they did not."""
        return False

    @abstractmethod
    def close(self) -> None: ...


_open_stores: WeakSet[Store] = WeakSet()


def _before_fork() -> None:
    for store in list(_open_stores):
        if not store._closed:
            store.before_fork()


def _after_fork() -> None:
    for store in list(_open_stores):
        # One that was closed has nothing left: its file descriptors may be others' by now.
        if not store._closed:
            store.after_fork_in_child()


os.register_at_fork(before=_before_fork, after_in_child=_after_fork)
