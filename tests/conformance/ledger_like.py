"""LedgerLike: the methods of a Ledger that every surface has to have."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from threading import Event as Flag
from typing import Any, Literal, Protocol, Self
from uuid import UUID

from turnledger.ledger import Appended, Claim, Draft, Record, Report, RunInfo, RunStarted
from turnledger.ledger.ledger import DEFAULT_TTL
from turnledger.ledger.runs.append import Entry
from turnledger.ledger.runs.append_request import Appendable, Expected, Known, RunId
from turnledger.ledger.runs.index import RunStatus
from turnledger.ledger.stores.base import PAGE


class LedgerLike(Protocol):
    """The public surface of a Ledger: what a test in tests/conformance/ledger may use.

    These methods count, with the parameters, results and errors that they have in `Ledger`:

    - writing: append, fork, continuation
    - reading: read, record, head, run, runs, tail, blob
    - claims: claim, begin, worker_of, heartbeat, release, and those of a Claim
    - the queue: enqueue, claim_next
    - verify
    - close, and `with`

    What iterates checks its arguments and the run by its first item at the latest. What keeps the
    whole ledger (verify_all, rebuild_index, rebase), what is for the process that has the store
    (prepare, checked, read_known, derived_data, store, codec) and `on_damage` are not a part.
    """

    def append(
        self,
        run_id: RunId,
        events: Appendable | Iterable[Appendable],
        expected_version: int | Expected,
        epoch: int | None = None,
        *,
        blobs: Iterable[bytes] = (),
        known: Known = "refuse",
    ) -> Appended: ...

    def fork(
        self,
        run_id: RunId,
        at: int,
        *,
        child: RunId | None = None,
        tags: Mapping[str, str] | None = None,
    ) -> UUID: ...

    def continuation(
        self,
        run_id: RunId,
        *,
        at: int | None = None,
        child: RunId | None = None,
        tags: Mapping[str, str] | None = None,
    ) -> UUID: ...

    def read(
        self,
        run_id: RunId,
        after: int = 0,
        until: int | None = None,
        *,
        backwards: bool = False,
        page_size: int = PAGE,
    ) -> Iterator[Record]: ...

    def record(self, run_id: RunId, version: int) -> Record: ...

    def head(self, run_id: RunId) -> int: ...

    def run(self, run_id: RunId) -> RunInfo: ...

    def runs(
        self,
        *,
        status: RunStatus | None = None,
        tags: Mapping[str, str | None] | None = None,
        prompt: str | None = None,
        agent: str | None = None,
        id_part: str | None = None,
        parent: UUID | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        before: RunInfo | None = None,
        limit: int | None = None,
        page_size: int = PAGE,
        kind: Literal["run", "prompt"] = "run",
    ) -> Iterator[RunInfo]: ...

    def tail(
        self,
        after: int = 0,
        *,
        follow: bool = False,
        stop: Flag | None = None,
        page_size: int = PAGE,
    ) -> Iterator[Record]: ...

    def blob(self, name: str) -> bytes: ...

    def claim(
        self,
        run_id: RunId,
        *,
        worker: str | None = None,
        ttl: timedelta = DEFAULT_TTL,
        key: str | None = None,
    ) -> Claim: ...

    def begin(
        self,
        run_id: RunId,
        started: RunStarted | Draft | Entry,
        *,
        worker: str | None = None,
        ttl: timedelta = DEFAULT_TTL,
        key: str | None = None,
        blobs: Iterable[bytes] = (),
    ) -> Claim: ...

    def enqueue(
        self,
        agent: str,
        input: Any,  # noqa: A002 - as Ledger has it
        *,
        run_id: RunId | None = None,
        tags: Mapping[str, str] | None = None,
    ) -> UUID: ...

    def claim_next(
        self,
        agents: Sequence[str],
        *,
        worker: str | None = None,
        ttl: timedelta = DEFAULT_TTL,
        key: str | None = None,
        wait: float = 0.0,
        exclude: Collection[RunId] = (),
    ) -> Claim | None: ...

    def worker_of(self, run_id: RunId) -> str | None: ...

    def heartbeat(self, claim: Claim) -> None: ...

    def release(self, claim: Claim) -> None: ...

    def verify(self, run_id: RunId) -> Report: ...

    def close(self) -> None: ...

    def __enter__(self) -> Self: ...

    def __exit__(self, *raised: object) -> None: ...


METHODS = frozenset(name for name in vars(LedgerLike) if not name.startswith("_"))
