"""Overlay: the session changes of a running tool, visible to that tool only until it ends.

An overlay begins with the state at the tool's start, and collects events on top of it. The loop
adds them to the journal with the tool's result, or drops them. Code finds its overlay by its
context (`contextvars`), however it got the session. A thread that a tool starts belongs to the
tool if it runs in a copy of the tool's context.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from itertools import chain
from threading import RLock

import msgspec

from turnledger.ledger import Event, LimitExceededError, Record, SliceEventApplied
from turnledger.ledger.runs.append import Entry
from turnledger.projections import RunState
from turnledger.runtime.errors import ScopeClosedError
from turnledger.runtime.journal.journal import Changes, Journal
from turnledger.runtime.journal.known import Known

# The loop adds fewer events than this to a tool's changes in the same commit.
_ROOM_FOR_THE_RESULT = 50


class Overlay:
    """The changes of one tool call, on top of the state at its start."""

    def __init__(
        self, journal: Journal, call_id: str | None = None, *, known: Known | None = None
    ) -> None:
        """Begin with the journal's state, or with that at an earlier version, `known`."""
        self.journal = journal
        self.call_id = call_id
        # Held while it changes, and by callers that read the state before they add to it.
        self.lock = RLock()
        with journal.lock:
            # What the changes were folded on; the journal compares it with its own state.
            self._base = self._known = known or journal.known
            self._from = known.version if known is not None else journal.committed.version
            self._before = journal.pending_records() if known is None else []
            self._changes = len(journal.declarations.changes)
        self._entries: list[Entry] = []
        self._records: list[Record] = []
        self._blobs: list[bytes] = []
        self._closed = False

    @property
    def known(self) -> Known:
        """The state that the tool sees: that at its start, and its own changes."""
        with self.lock:
            changes = self.journal.declarations.changes
            if self._changes != len(changes):
                if self._known.is_outdated(changes[self._changes :]):
                    base = self._base.redeclared(self.journal.declarations, self._changes)
                    if base is None:
                        base = self.journal.folded(self._from, self._before)
                    self._base, self._known = base, base.after(self._records)
                self._changes = len(changes)
            return self._known

    @property
    def state(self) -> RunState:
        return self.known.run

    @property
    def events(self) -> tuple[Event, ...]:
        """The tool's changes, in order."""
        return tuple(record.event for record in self._records)

    @property
    def changes(self) -> Changes:
        """The same, encoded and folded: `Journal.add` takes it over as it is."""
        with self.lock:
            known = self.known
            return Changes(tuple(self._entries), tuple(self._records), self._base, known)

    @property
    def blobs(self) -> tuple[bytes, ...]:
        """The bytes of the blobs that its events name."""
        return tuple(self._blobs)

    @property
    def is_closed(self) -> bool:
        return self._closed

    def records(self) -> Iterator[Record]:
        """Iterate over all records that the tool sees, from the run's first event on."""
        read = self.journal.ledger.read(self.journal.run_id, until=self._from)
        return chain(read if self._from else (), self._before, tuple(self._records))

    def add(self, *events: Event, blobs: Iterable[bytes] = ()) -> None:
        """Add events to the tool's changes: all of them or none."""
        kept = list(blobs)
        with self.lock:
            if self._closed:
                raise ScopeClosedError(
                    f"The tool call {self.call_id or ''} has ended: a change of the session now "
                    "would not be part of its result."
                )
            entries = [self.journal.prepare(self._by_call(event)) for event in events]
            records, known = self.journal.folded_on(self.known, entries)
            self._check_size(len(self._records) + len(records))
            self._known = known
            self._entries += entries
            self._records += records
            self._blobs += kept

    def close(self) -> tuple[Event, ...]:
        """Accept no more changes, and return those that were made; idempotent."""
        with self.lock:
            self._closed = True
            return self.events

    def _by_call(self, event: Event) -> Event:
        if isinstance(event, SliceEventApplied) and event.call_id is None:
            return msgspec.structs.replace(event, call_id=self.call_id)
        return event

    def _check_size(self, count: int) -> None:
        most = self.journal.ledger.limits.max_batch_events
        if count > max(most - _ROOM_FOR_THE_RESULT, 1):
            raise LimitExceededError(
                f"Session changes of the tool call {self.call_id or ''}, which are one commit",
                limit=max(most - _ROOM_FOR_THE_RESULT, 1),
                found=count,
                setting="max_batch_events",
            )


class Scope:
    """The period in which code reads and changes a session through an overlay."""

    __slots__ = ("is_open", "overlay", "session")

    def __init__(self, session: object, overlay: Overlay) -> None:
        self.session = session
        self.overlay = overlay
        self.is_open = True

    def writable(self) -> Overlay:
        """Return the overlay; ScopeClosedError if the period has ended."""
        if not self.is_open:
            raise ScopeClosedError(
                f"The tool call {self.overlay.call_id or ''} has ended. What its handler left "
                "running can't change the session any more."
            )
        return self.overlay


# Several sessions may each have a scope: a tool may run an agent of its own.
_scopes: ContextVar[tuple[Scope, ...]] = ContextVar("turnledger_scopes", default=())


def scope_of(session: object) -> Scope | None:
    """Return the innermost scope of a session that this code runs in; None if there is none."""
    for scope in reversed(_scopes.get()):
        if scope.session is session:
            return scope
    return None


def innermost_scope() -> Scope | None:
    """Return the innermost scope of any session that this code runs in; None if there is none."""
    scopes = _scopes.get()
    return scopes[-1] if scopes else None


@contextmanager
def entered(scope: Scope) -> Iterator[None]:
    """Run the `with` block in a scope."""
    token = _scopes.set((*_scopes.get(), scope))
    try:
        yield
    finally:
        scope.is_open = False
        _scopes.reset(token)
