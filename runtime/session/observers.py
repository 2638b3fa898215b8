"""Who wants to know when a slice has changed: told once per commit, when it is on disk.

An observer that fails keeps nothing from being recorded and no other from being told: what it
raised goes to the log.
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
    """The observers of a session's slices, by name."""

    def __init__(self) -> None:
        self._lock = Lock()
        # A tuple is replaced, never changed, so that telling goes on over the one it took.
        self._by_name: dict[str, tuple[Observer, ...]] = {}
        # What was told of slices that the present run is yet to be handed.
        self._told: dict[str, Slice[Any]] = {}

    def add(self, name: str, observer: Observer) -> Callable[[], None]:
        """Tell this one of a slice's changes; what is given back ends it."""
        with self._lock:
            self._by_name[name] = (*self._by_name.get(name, ()), observer)

        def remove() -> None:
            with self._lock:
                left = list(self._by_name.get(name, ()))
                if observer in left:
                    left.remove(observer)
                self._by_name[name] = tuple(left)

        return remove

    def move(self, told: SlicesState, there: SlicesState) -> None:
        """The session goes on in another run: what it brings along is no news there."""
        self._told = {name: one for name, one in told.slices.items() if name not in there.slices}

    def tell(self, before: SlicesState, now: SlicesState) -> None:
        """Call the observers of what has changed."""
        for name, observers in tuple(self._by_name.items()):
            new = now.slices.get(name)
            old = before.slices.get(name)
            if old is None and new is not None:
                old = self._told.pop(name, None)
            if not observers or _same(old, new):
                continue
            values = [shown(name, one.all() if one is not None else ()) for one in (old, new)]
            for observer in observers:
                try:
                    observer(*values)
                except Exception:
                    # The values stay out of the log: they may hold what is secret.
                    logger.exception("An observer of %s failed", name)


def _same(old: Slice[Any] | None, new: Slice[Any] | None) -> bool:
    if old is new:
        return True
    if old is None or new is None:
        return not len((old or new).items)  # type: ignore[union-attr]
    return len(old.items) == len(new.items) and old.items.digest == new.items.digest
