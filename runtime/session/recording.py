"""Where a session records: the run that it is in, and how it moves from one to the next.

Here is everything that a loop needs of a session; what people call is `runtime.session.session`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from threading import RLock, get_ident
from types import MappingProxyType
from uuid import UUID

import msgspec

from turnledger.ledger import (
    NEW,
    AppendRefusedError,
    Clock,
    Event,
    InvalidInputError,
    Ledger,
    RunStarted,
    SystemClock,
)
from turnledger.projections import Declarations, RunState
from turnledger.runtime.errors import ScopeClosedError
from turnledger.runtime.journal.journal import Journal, Known
from turnledger.runtime.session import changes
from turnledger.runtime.session.changes import Change
from turnledger.runtime.session.observers import Observers
from turnledger.runtime.session.overlay import Overlay, Scope, entered, scope_of
from turnledger.runtime.session.types import SliceTypes


class SessionRecords:
    """A session's journal, its types, and the scopes of tools."""

    def __init__(
        self,
        *,
        tags: Mapping[str, str] | None = None,
        session_id: UUID | None = None,
        ledger: Ledger | None = None,
        clock: Clock | None = None,
    ) -> None:
        for key, value in dict(tags or {}).items():
            if not isinstance(key, str) or not isinstance(value, str):
                raise InvalidInputError(f"Tags are text by text, not {key!r}: {value!r}.")
        self.clock: Clock = clock or SystemClock()
        self.session_id = session_id or UUID(self.clock.new_id())
        self.tags: Mapping[str, str] = MappingProxyType(dict(tags or {}))
        self.types = SliceTypes()
        self._observers = Observers()
        self._lock = RLock()
        self._own_ledger = ledger
        self._journal: Journal | None = None
        self._stop_listening: Callable[[], None] = lambda: None
        # The thread of the loop that the session is attached by; None if it is by itself.
        self._loop: int | None = None
        self._scopes: list[Scope] = []
        # What was added to an attached run from outside of tools, by event id.
        self._added: dict[str, Event] = {}

    def __repr__(self) -> str:
        return f"<Session {self.session_id}>"

    # --- what is known ---

    @property
    def was_attached(self) -> bool:
        """Whether a loop has had it."""
        return self._loop is not None

    @property
    def declarations(self) -> Declarations:
        """The types and reducers that the session knows, for folds of its runs."""
        return self.types.declarations

    @property
    def journal(self) -> Journal:
        """The run that the session records in; one of its own if it is in no other."""
        with self._lock:
            return self._journal or self.begin_run()

    @property
    def known(self) -> Known:
        """All that is known of the run; within a tool, with that tool's changes."""
        scope = scope_of(self)
        return scope.overlay.known if scope is not None else self.journal.known

    @property
    def state(self) -> RunState:
        return self.known.run

    def run_in(self, ledger: Ledger) -> UUID | None:
        """The run of this ledger that the session was last in: the next one continues it."""
        journal = self._journal
        if journal is None or journal.ledger is not ledger or not journal.committed.version:
            return None
        return journal.run_id

    # --- changing it ---

    def change(self, change: Change) -> None:
        """Record what a change makes of what is known: all of its events or none."""
        scope = scope_of(self)
        if scope is not None:
            overlay = scope.writable()
            with overlay.lock:
                overlay.add(*change(overlay.known))
            return
        self._refuse_strays()
        journal = self.journal
        with journal.lock:
            events = change(journal.known)
            ids = journal.add(*events)
            if self._loop is not None:
                self._added.update(zip(ids, events, strict=True))
                return
            try:
                journal.write()
            except (AppendRefusedError, InvalidInputError):
                journal.discard()
                raise
        journal.tell()

    def commit(self) -> None:
        """Put what is pending on record now, and not only with the loop's next commit."""
        if scope_of(self) is not None:
            raise ScopeClosedError("A tool's changes are committed with its result, by the loop.")
        self.journal.commit()

    @contextmanager
    def scope(self, overlay: Overlay) -> Iterator[Overlay]:
        """Within it, this code reads and changes the session through an overlay.

        So does whatever runs in a copy of its context, in whatever thread, until it is over:
        what would be changed later than that is refused (ScopeClosedError).
        """
        scope = Scope(self, overlay)
        self._scopes.append(scope)
        try:
            with entered(scope):
                yield overlay
        finally:
            self._scopes.remove(scope)

    def _refuse_strays(self) -> None:
        """A thread that a tool started without its context would write past the tool."""
        if self._loop in (None, get_ident()):
            return
        if any(not scope.overlay.is_closed for scope in tuple(self._scopes)):
            raise ScopeClosedError(
                "A tool is running, and this thread belongs neither to it nor to the loop. "
                "Start threads in tools with contextvars.copy_context().run, so that what they "
                "change is the tool's."
            )

    # --- from run to run ---

    def attach(self, journal: Journal) -> tuple[Event, ...]:
        """Go on in the run of this journal, with this thread's loop.

        What was recorded so far is added to it as pending, if the run lacks it: a new run has
        all of it handed over, one that continues the session's last run what was changed since.
        A run that somebody has begun already has its own: then nothing is added, and what
        would have been is given back, to be compared with the run's `changes.opening`.
        """
        if journal.declarations is not self.declarations:
            raise InvalidInputError(
                "The journal folds other types than the session's: make it with "
                "Journal(..., declarations=session.declarations)."
            )
        if scope_of(self) is not None:
            raise ScopeClosedError("A session can't move to another run from within a tool.")
        with self._lock:
            left_out = self._move_to(journal)
            self._loop = get_ident()
            return left_out

    def begin_run(self, started: RunStarted | None = None) -> Journal:
        """Begin a run in the session's own ledger: its first, or a continuation of its last.

        Changes are on record at once there, without a loop's commit.
        """
        with self._lock:
            if self._own_ledger is None:
                self._own_ledger = Ledger.open("memory://")
            event = started or RunStarted(session_id=self.session_id, tags=dict(self.tags))
            parent = self.run_in(self._own_ledger)
            if parent is not None and self._journal is not None:
                at = self._journal.committed.version
                event = msgspec.structs.replace(event, parent=parent, at=at, kind="continuation")
            run_id = UUID(self.clock.new_id())
            self._own_ledger.append(run_id, event, expected_version=NEW)
            journal = Journal(
                self._own_ledger, run_id, declarations=self.declarations, clock=self.clock
            )
            self._move_to(journal)
            self._loop = None
            journal.commit()
            return journal

    def take_recorded(self) -> list[Event]:
        """What the session recorded and its next run is yet to have.

        By itself that is everything but RunStarted. After an attached run it is what was
        changed since and is still pending: it is taken out of that run.
        """
        with self._lock:
            if self._journal is not None and self._loop is None:
                return changes.recorded_by_session(self._journal.records())
            return self._take_pending()

    def _take_pending(self) -> list[Event]:
        journal, added = self._journal, self._added
        self._added = {}
        if journal is None:
            return []
        left = {key: event for key, event in added.items() if journal.is_pending(key)}
        journal.withdraw(left)
        return list(left.values())

    def _move_to(self, journal: Journal) -> tuple[Event, ...]:
        """Record in this journal from now on; what the run did not have to be handed."""
        last, started = self._journal, journal.progress.started
        if last is journal:
            return ()
        parent = started.parent if started is not None else None
        follows = last is not None and last.run_id in (journal.run_id, parent)
        lacks_it = follows or (parent is None and not journal.known.session.begun)
        recorded = self._take_pending() if follows else self._brought_along()
        if lacks_it:
            journal.add(*recorded)
        if last is not None:
            self._observers.move(last.committed.run.slices, journal.committed.run.slices)
        self._stop_listening()
        self._stop_listening = journal.on_commit(self._committed)
        self._journal = journal
        return () if lacks_it else tuple(recorded)

    def _brought_along(self) -> list[Event]:
        """What a run that has nothing of this session yet needs to go on with it."""
        if self._loop is None or self._journal is None:
            return self.take_recorded()
        return changes.state_of(self._journal.known)

    def _committed(self, before: Known, now: Known) -> None:
        journal = self._journal
        if journal is not None and not journal.has_pending:
            self._added = {}
        self._observers.tell(before.run.slices, now.run.slices)
