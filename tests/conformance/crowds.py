"""Threads that act at the same moment, or commit in the same group."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier, Event, Thread
from typing import Any

from turnledger.ledger import Ledger, TurnledgerError


def together(count: int, act: Callable[[int], Any]) -> list[Any]:
    """Let as many threads begin at the same moment; what each gave back or raised."""
    barrier = Barrier(count)

    def run(number: int) -> Any:
        barrier.wait(30)
        try:
            return act(number)
        except TurnledgerError as error:
            return error

    with ThreadPoolExecutor(count) as pool:
        return list(pool.map(run, range(count), timeout=120))


def grouped(ledger: Ledger, *acts: Callable[[], Any]) -> list[Any]:
    """Make the acts commit in one group: they queue while a first write is held back."""
    entered, leave = Event(), Event()

    def hold(tx: object) -> None:
        entered.set()
        assert leave.wait(30)

    holder = Thread(target=lambda: ledger.store.write(hold))
    holder.start()
    assert entered.wait(30)
    outcomes: list[Any] = [None] * len(acts)

    def run(place: int) -> None:
        try:
            outcomes[place] = acts[place]()
        except TurnledgerError as error:
            outcomes[place] = error

    threads = [Thread(target=run, args=(place,)) for place in range(len(acts))]
    group = ledger.store._group
    for place, thread in enumerate(threads):
        thread.start()
        while len(group._waiting) <= place:
            thread.join(0.0005)
    leave.set()
    for thread in [holder, *threads]:
        thread.join(60)
        assert not thread.is_alive()
    return outcomes
