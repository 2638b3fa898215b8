"""Runs things side by side, with threads that take turns as often as they can."""

from __future__ import annotations

import sys
from collections.abc import Callable
from threading import Barrier, Thread


def side_by_side(*works: Callable[[], object]) -> None:
    """Run all at once, and see that each comes to its end and raises nothing."""
    barrier = Barrier(len(works))
    raised: list[BaseException] = []

    def run(work: Callable[[], object]) -> None:
        try:
            barrier.wait(timeout=30)
            work()
        except BaseException as error:
            raised.append(error)

    threads = [Thread(target=run, args=(work,)) for work in works]
    interval = sys.getswitchinterval()
    # As it is, a thread does hundreds of steps before another's turn: a lock that is
    # missing would hardly ever be missed.
    sys.setswitchinterval(1e-6)
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(timeout=60)
    finally:
        sys.setswitchinterval(interval)
    assert not any(thread.is_alive() for thread in threads)
    assert raised == []
