"""Fuses: a process that counts the moments where it can die, and is SIGKILLed at one of them."""

from __future__ import annotations

import gc
import importlib
import os
import signal
from collections.abc import Callable
from itertools import count
from typing import Any

from tests.crash.processes import Child, Crew, Voice
from turnledger.ledger import ANY, CustomEvent, Ledger, new_run_id


def warm_up() -> None:
    """Do once what each child would do when it first opens a ledger: they are forked after it.

    Only for those who die at moments that are counted, not by the clock.
    """
    importlib.import_module("turnledger.ledger.stores.sqlite.open")
    with Ledger.open("memory://") as ledger:
        ledger.append(new_run_id(), CustomEvent(kind="crash.first", data="token: none"), ANY)
    gc.freeze()


def fuse(voice: Voice, length: int) -> Callable[[str], None]:
    """Dies when it has burnt down; 0 never does."""
    passed = count(1)  # one thread at a time

    def point(name: str) -> None:
        if next(passed) == length:
            voice.say("died", name)
            os.kill(os.getpid(), signal.SIGKILL)

    return point


def lay(ledger: Ledger, point: Callable[[str], None]) -> None:
    """Before and after everything that is written to the ledger."""
    for name in ("begin", "append", "claim", "release"):
        whole = getattr(ledger, name)

        def counted(*args: Any, _whole: Any = whole, _name: str = name, **kwargs: Any) -> Any:
            point(f"before {_name}")
            found = _whole(*args, **kwargs)
            point(f"after {_name}")
            return found

        setattr(ledger, name, counted)


def last_words(crew: Crew, child: Child) -> list[Any]:
    """All that a child says until it ends or dies."""
    words = []
    while not child.ended:
        words += [message for one, message in crew.listen() if one is child]
    return words + crew.kill(child)
