"""Ledgers that agents are given by path or URL: opened once in a process, and shared."""

from __future__ import annotations

import atexit
import os
from threading import Lock

from turnledger.ledger import Ledger
from turnledger.ledger.ledger import absolute_url

_lock = Lock()
# By place: the ledger, and the inode of its file; None if it is not a file's path.
_opened: dict[str, tuple[Ledger, int | None]] = {}


def shared_ledger(url: str | os.PathLike[str]) -> Ledger:
    """The ledger at a path or URL, opened once.

    It is opened again if it was closed, or if its file was removed or replaced since.
    """
    place = absolute_url(os.fspath(url))
    with _lock:
        ledger, inode = _opened.get(place, (None, None))
        if ledger is not None and inode != _inode(place):
            ledger.close()
        if ledger is None or ledger.is_closed:
            ledger = Ledger.open(url)
            _opened[place] = ledger, _inode(place)
        return ledger


def _inode(place: str) -> int | None:
    try:
        return os.stat(place).st_ino
    except OSError:
        return None


def _close_all() -> None:
    for ledger, _ in _opened.values():
        ledger.close()


def _renew_lock() -> None:
    """In a forked child: another thread of the parent's may have held it. Ledgers are closed."""
    global _lock
    _lock = Lock()


atexit.register(_close_all)
os.register_at_fork(after_in_child=_renew_lock)
