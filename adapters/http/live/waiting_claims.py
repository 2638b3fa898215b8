"""Workers that wait for a run: one look into the queue serves all who wait for the same agents.

No thread is held while a worker waits, and how often the ledger is asked does not grow with their
number.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Final, NamedTuple
from uuid import UUID

from turnledger.adapters.http.work import Work
from turnledger.ledger import Claim, Ledger, TurnledgerError
from turnledger.ledger.errors import error_message
from turnledger.ledger.redaction.safe_logging import logger_of

log: Final = logger_of("turnledger.http.queue")
# Seconds between two looks into the queue, at first and at most.
SHORTEST_NAP, LONGEST_NAP = 0.01, 0.25
# How many runs are given out at once: their claims share a commit.
AT_ONCE = 16


class Asked(NamedTuple):
    """What a worker asks for; those with the same agents and exceptions are served together."""

    agents: tuple[str, ...]
    exclude: tuple[UUID, ...]
    worker: str
    ttl: timedelta
    key: str

    @property
    def group(self) -> tuple[tuple[str, ...], tuple[UUID, ...]]:
        return self.agents, self.exclude


class _Waiter(NamedTuple):
    asked: Asked
    given: asyncio.Future[Claim]
    is_gone: Callable[[], Awaitable[bool]]


class WaitingClaims:
    """Gives the next run to workers that ask for one, at once or when there is one.

    Args:
        ledger: The ledger.
        work: Runs its calls.
    """

    def __init__(self, ledger: Ledger, work: Work) -> None:
        self._ledger = ledger
        self._work = work
        self._groups: dict[object, deque[_Waiter]] = {}
        self._looking: asyncio.Task[None] | None = None

    async def next(
        self, asked: Asked, wait: float, is_gone: Callable[[], Awaitable[bool]]
    ) -> Claim | None:
        """Claim the next run; None if there is none after so many seconds.

        Args:
            asked: What is asked for.
            wait: How many seconds to wait.
            is_gone: Whether the worker has hung up: then nothing is claimed for it.
        """
        claim = await self._work.append(lambda: self._claim(asked))
        if claim is not None or wait <= 0:
            return claim
        waiter = _Waiter(asked, asyncio.get_running_loop().create_future(), is_gone)
        self._groups.setdefault(asked.group, deque()).append(waiter)
        if self._looking is None or self._looking.done():
            self._looking = asyncio.create_task(self._look())
        try:
            return await asyncio.wait_for(waiter.given, wait)
        except TimeoutError:
            return None

    def _claim(self, asked: Asked) -> Claim | None:
        return self._ledger.claim_next(
            asked.agents,
            worker=asked.worker,
            ttl=asked.ttl,
            key=asked.key,
            exclude=asked.exclude,
            on_damage=_name,
        )

    async def _look(self) -> None:
        """Look into the queue as long as somebody waits."""
        nap = SHORTEST_NAP
        while self._groups:
            await asyncio.sleep(nap)
            found = [await self._serve(group) for group in list(self._groups)]
            nap = SHORTEST_NAP if any(found) else min(nap * 2, LONGEST_NAP)

    async def _serve(self, group: object) -> bool:
        """Give runs to the workers of a group, the longest waiting first; whether there was one.

        One is tried first: if there is nothing for it, there is nothing for the others.
        """
        found, at_once = False, 1
        while waiters := await self._waiting(group, at_once):
            given = await asyncio.gather(*map(self._give, waiters))
            found = found or any(given)
            if not all(given):
                break
            at_once = AT_ONCE
        return found

    async def _waiting(self, group: object, count: int) -> list[_Waiter]:
        """The first so many that still wait; the others are forgotten."""
        queue = self._groups.get(group, deque())
        found: list[_Waiter] = []
        while queue and len(found) < count:
            waiter = queue.popleft()
            if not waiter.given.done() and await waiter.is_gone():
                waiter.given.cancel()
            if not waiter.given.done():
                found.append(waiter)
        queue.extendleft(reversed(found))
        if not queue:
            self._groups.pop(group, None)
        return found

    async def _give(self, waiter: _Waiter) -> bool:
        """Claim a run for a worker; whether there was one."""
        try:
            claim = await self._work.append(lambda: self._claim(waiter.asked))
        except TurnledgerError as error:
            if not waiter.given.done():
                waiter.given.set_exception(error)
            return False
        if claim is None:
            return False
        if waiter.given.done():  # its time was up meanwhile
            await self._work.append(claim.release)
        else:
            waiter.given.set_result(claim)
        return True


def _name(run: str, error: Exception) -> None:
    log.warning("run %s is damaged, and not given to workers: %s", run, error_message(error))
