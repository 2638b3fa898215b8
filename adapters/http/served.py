"""State that the routes of an application share: ledger, threads, caches, sessions, metrics."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from threading import Event as Flag
from typing import Any, TypeVar
from uuid import UUID

from starlette.requests import Request

from turnledger.adapters.http.live.broadcast import Broadcast
from turnledger.adapters.http.live.slots import StreamSlots
from turnledger.adapters.http.observe import Metrics
from turnledger.adapters.http.protocol.access import Caller
from turnledger.adapters.http.protocol.sessions import Sessions
from turnledger.adapters.http.work import ClientGoneError, Work
from turnledger.ledger import InvalidTokenError, Ledger, Record, Tokens
from turnledger.projections import FoldCancelledError, Moments, RunState, Shapes
from turnledger.runtime.session.types import SliceTypes

R = TypeVar("R")
OWN = SliceTypes().declarations


class Served:
    """A served ledger, and what its routes share.

    Args:
        ledger: The ledger.
    """

    def __init__(self, ledger: Ledger) -> None:
        self.ledger = ledger
        self.work = Work()
        self.broadcast = Broadcast(ledger)
        self.slots = StreamSlots()
        self.metrics = Metrics()
        self.sessions = Sessions(time.monotonic)
        self.shapes = Shapes(ledger)
        # With the reducers of the package's own slices, such as plans.
        self.declarations = OWN
        self.moments = Moments(ledger, declarations=OWN)
        self._tokens = Tokens(ledger)

    async def caller(self, token: str) -> Caller | None:
        """The caller with this token; None if the token is invalid."""
        return await self.work.read(lambda: self.caller_of(token))

    def caller_of(self, token: str) -> Caller | None:
        """The same, in a thread of the ledger's calls."""
        try:
            found = self._tokens.check(token)
        except InvalidTokenError:
            return None
        return Caller(found.id, found.role)

    async def fold(self, request: Request, call: Callable[[Ledger], R]) -> R:
        """A call that may read a whole run; reading stops when the client disconnects."""
        return await self.work.fold(request, lambda gone: call(_Watched(self.ledger, gone)))

    async def cancellable(self, request: Request, call: Callable[[Flag], R]) -> R:
        """A call that folds with moments; its flag says that the client has gone."""
        try:
            return await self.work.fold(request, call)
        except FoldCancelledError:
            raise ClientGoneError from None

    async def state(self, request: Request, run: UUID, at: int | None) -> RunState:
        """A run's state at a version, or at its last one."""
        return await self.cancellable(
            request, lambda gone: self.moments.at(run, at, cancelled=gone.is_set)
        )


class _Watched(Ledger):
    """The same ledger for one request: reading ends when a flag is set."""

    def __init__(self, ledger: Ledger, gone: Flag) -> None:
        super().__init__(ledger.store, codec=ledger.codec, clock=ledger.clock)
        self._gone = gone

    def read(self, *args: Any, **options: Any) -> Iterator[Record]:
        records = super().read(*args, **options)
        return self._until_gone(records)

    def _until_gone(self, records: Iterator[Record]) -> Iterator[Record]:
        gone = self._gone.is_set
        for record in records:
            if gone():
                raise ClientGoneError
            yield record
