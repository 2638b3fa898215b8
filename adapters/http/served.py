"""What the routes of one application share: the ledger, its threads, and what is kept warm."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from threading import Event as Flag
from typing import Any, TypeVar

from starlette.requests import Request

from turnledger.adapters.http.live.broadcast import Broadcast
from turnledger.adapters.http.live.slots import StreamSlots
from turnledger.adapters.http.observe import Metrics
from turnledger.adapters.http.protocol.access import Caller
from turnledger.adapters.http.protocol.sessions import Sessions
from turnledger.adapters.http.work import ClientGoneError, Work
from turnledger.ledger import InvalidTokenError, Ledger, Record, Tokens
from turnledger.projections import Moments, Shapes
from turnledger.runtime.session.types import SliceTypes

R = TypeVar("R")
OWN = SliceTypes().declarations


class Served:
    """A ledger that is served.

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
        """Who has this token; None if it is not valid."""
        try:
            found = await self.work.read(lambda: self._tokens.check(token))
        except InvalidTokenError:
            return None
        return Caller(found.id, found.role)

    async def fold(self, request: Request, call: Callable[[Ledger], R]) -> R:
        """A call that may read a whole run; its ledger stops reading when the client has gone."""
        return await self.work.fold(request, lambda gone: call(_Watched(self.ledger, gone)))


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
