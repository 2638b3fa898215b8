"""Ledgers that agents are given by path or URL: opened once in a process, and shared."""

from __future__ import annotations

import atexit
import os
from threading import Lock

from turnledger.ledger import Ledger
from turnledger.ledger.ledger import absolute_url

_lock = Lock()
_opened: dict[str, Ledger] = {}


def shared_ledger(url: str | os.PathLike[str]) -> Ledger:
    """The ledger at a path or URL; opened if this process has not opened it, or has closed it."""
    place = absolute_url(os.fspath(url))
    with _lock:
        found = _opened.get(place)
        if found is None or found.is_closed:
            found = _opened[place] = Ledger.open(url)
        return found


def _close_all() -> None:
    for ledger in _opened.values():
        ledger.close()


def _renew_lock() -> None:
    """In a forked child: another thread of the parent's may have held it. Ledgers are closed."""
    global _lock
    _lock = Lock()


atexit.register(_close_all)
os.register_at_fork(after_in_child=_renew_lock)
