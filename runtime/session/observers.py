"""Observers of a session's slices: called once per commit that changed a slice, after it.

An observer that fails keeps nothing from being recorded and no other from being called: its
exception is logged.
"""

from __future__ import annotations

from collections.abc import Callable
from threading import Lock
from typing import Any, TypeAlias

from turnledger.ledger.redaction.safe_logging import logger_of
from turnledger.projections.session.slices import Slice, SlicesState
from turnledger.runtime.session.snapshot import shown

Observer: TypeAlias = Callable[[tuple[Any, ...], tuple[Any, ...]], object]

logger = logger_of("turnledger.session")


class Observers:
    """The observers of a session's slices, by the slice's name."""

    def __init__(self) -> None:
        self._lock = Lock()
        # Tuples are replaced, never changed: `notify` iterates over its own.
        self._by_name: dict[str, tuple[Observer, ...]] = {}
        # Slices that observers know from the last run and the present one does not have yet.
        self._carried: dict[str, Slice[Any]] = {}

    def add(self, name: str, observer: Observer) -> Callable[[], None]:
        """Add an observer of a slice; returns the function that removes it."""
        with self._lock:
            self._by_name[name] = (*self._by_name.get(name, ()), observer)

        def remove() -> None:
            with self._lock:
                left = list(self._by_name.get(name, ()))
                if observer in left:
                    left.remove(observer)
                self._by_name[name] = tuple(left)

        return remove

    def move(self, last: SlicesState, new: SlicesState) -> None:
        """The session continues in another run: slices that it carries over are no changes."""
        self._carried = {name: one for name, one in last.slices.items() if name not in new.slices}

    def notify(self, before: SlicesState, now: SlicesState) -> None:
        """Call the observers of slices that have changed."""
        for name, observers in tuple(self._by_name.items()):
            new = now.slices.get(name)
            old = before.slices.get(name)
            if old is None and new is not None:
                old = self._carried.pop(name, None)
            if not observers or _same(old, new):
                continue
            values = [shown(name, one.all() if one is not None else ()) for one in (old, new)]
            for observer in observers:
                try:
                    observer(*values)
                except Exception:
                    # The values stay out of the log: they may hold secrets.
                    logger.exception("An observer of %s failed", name)


def _same(old: Slice[Any] | None, new: Slice[Any] | None) -> bool:
    if old is new:
        return True
    if old is None or new is None:
        return not len((old or new).items)  # type: ignore[union-attr]
    return len(old.items) == len(new.items) and old.items.digest == new.items.digest
