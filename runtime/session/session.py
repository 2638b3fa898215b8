"""Session: the typed state and the conversation of an agent; each change of it is an event.

    session[Plan].append(Plan(steps=("read", "write")))
    session[Plan].latest()
    session[Plan].register(StepDone, reducer)
    session[Plan].apply(StepDone("read"))

A session always has a run to record in. By itself it keeps one in memory (or in a ledger that
it is given), and a change is recorded when the call returns. A loop attaches it to its own run:
then changes are pending until the loop's next commit, or `session.commit()`, and are visible at
once. What a tool changes is the tool's own until its result is recorded (see
`runtime.session.overlay`). A change is checked (a reducer, JSON, the declared type) before
anything is recorded. Values that are read are the fold's own: do not mutate them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from threading import RLock, get_ident
from types import MappingProxyType
from typing import Any, Generic, TypeVar, overload
from uuid import UUID

import msgspec

from turnledger.ledger import (
    NEW,
    AppendRefusedError,
    Clock,
    Event,
    InnerMessage,
    InvalidInputError,
    Ledger,
    RunStarted,
    SystemClock,
)
from turnledger.ledger.arguments import explain_arguments, explain_methods
from turnledger.ledger.errors import short_repr
from turnledger.ledger.runs.append_request import canonical_id
from turnledger.projections import Declarations, RunState, inner_message_append
from turnledger.runtime.bus import EventBus, InProcessEventBus
from turnledger.runtime.errors import ScopeClosedError
from turnledger.runtime.journal.journal import Journal
from turnledger.runtime.journal.known import Known
from turnledger.runtime.session import changes
from turnledger.runtime.session.changes import Change, Undeclared
from turnledger.runtime.session.observers import Observers
from turnledger.runtime.session.overlay import Overlay, Scope, entered, scope_of
from turnledger.runtime.session.snapshot import Snapshot, shown
from turnledger.runtime.session.types import MESSAGES, SliceTypes

T = TypeVar("T")
E = TypeVar("E")


@explain_methods()
class Session:
    """The state of an agent, by type: `session[Plan].latest()`."""

    def __init__(
        self,
        *,
        bus: EventBus | None = None,
        tags: Mapping[str, str] | None = None,
        session_id: UUID | None = None,
        ledger: Ledger | None = None,
        clock: Clock | None = None,
    ) -> None:
        """Make a session that records in a run of its own until a loop attaches it.

        Args:
            bus: Gets the events of the session's evaluations; by default one of its own.
            tags: Text by text, recorded with each run.
            session_id: By default a new one.
            ledger: Holds the session's own runs; by default one in memory.
            clock: Gives times and ids; by default the system's.
        """
        for key, value in dict(tags or {}).items():
            if not isinstance(key, str) or not isinstance(value, str):
                raise InvalidInputError(
                    f"Invalid tag {short_repr(key)}={short_repr(value)}: expected text."
                )
        self.clock: Clock = clock or SystemClock()
        self.session_id = session_id or UUID(canonical_id(self.clock.new_id(), "id of the clock"))
        self.tags: Mapping[str, str] = MappingProxyType(dict(tags or {}))
        self.bus: EventBus = bus if bus is not None else InProcessEventBus()
        self.types = SliceTypes()
        self._observers = Observers()
        self._lock = RLock()
        self._own_ledger = ledger
        self._journal: Journal | None = None
        self._stop_listening: Callable[[], None] = lambda: None
        # The thread of the loop that attached the session; None while it is by itself.
        self._loop: int | None = None
        self._scopes: list[Scope] = []
        # What was added to an attached run from outside of tools, by event id.
        self._added: dict[str, Event] = {}
        # The messages as they were last read, and the same with the calls' statuses.
        self._shown: tuple[tuple[Any, ...], tuple[Any, ...]] = ((), ())

    def __repr__(self) -> str:
        return f"<Session {self.session_id}>"

    @property
    def event_bus(self) -> EventBus:
        """The bus that the events of this session's evaluations are published to."""
        return self.bus

    @property
    def declarations(self) -> Declarations:
        """The declared types and reducers, for folds of the session's runs."""
        return self.types.declarations

    @property
    def journal(self) -> Journal:
        """The journal of the run that the session records in; begins one if there is none."""
        with self._lock:
            return self._journal or self.begin_run()

    @property
    def known(self) -> Known:
        """The folded state of the run; within a tool, with that tool's changes."""
        scope = scope_of(self)
        return scope.overlay.known if scope is not None else self.journal.known

    @property
    def state(self) -> RunState:
        return self.known.run

    # --- reading ---

    def __getitem__(self, kind: type[T]) -> SliceView[T]:
        return SliceView(self, kind)

    def select_all(self, kind: type[T], /) -> tuple[T, ...]:
        """Return the values of a slice, the oldest first."""
        name = self.install(kind)
        values = self.known.run.slices.all(name)
        return self._with_statuses(values) if name == MESSAGES else values

    def select_latest(self, kind: type[T], /) -> T | None:
        """Return the last value of a slice; None if it is empty."""
        name = self.install(kind)
        if name == MESSAGES:
            return next(reversed(self.select_all(kind)), None)
        found = self.known.run.slices.slices.get(name)
        return found.latest if found is not None else None

    def snapshot(self, tag: str | None = None) -> Snapshot:
        """Return the state of all slices as a value that can be stored."""
        return Snapshot.of_slices(self.known.run.slices, self.declarations, tag=tag)

    def observe(
        self, kind: type[T], observer: Callable[[tuple[T, ...], tuple[T, ...]], object]
    ) -> Callable[[], None]:
        """Call `observer(old, new)` after each commit that changed a slice.

        Returns a function that removes the observer. Exceptions of observers are logged.
        """
        return self._observers.add(self.install(kind), observer)

    @contextmanager
    def unobserved(self) -> Iterator[None]:
        """Call no observers of the session within this `with` block."""
        observers, self._observers = self._observers, Observers()
        try:
            yield
        finally:
            self._observers = observers

    def clone(self, *, bus: EventBus | None = None) -> Session:
        """Return an independent session with the same state, conversation, types and tags."""
        scope = scope_of(self)
        source: Journal | Overlay = scope.overlay if scope is not None else self.journal
        known = source.known
        twin = Session(bus=bus, tags=self.tags, clock=self.clock)
        twin.types = self.types.copy()
        messages = changes.conversation_in(source.records()) if known.session.messages.size else []
        twin.change(lambda _: [*messages, *changes.state_of(known, messages=False)])
        if twin.state.slices.all(MESSAGES) != known.run.slices.all(MESSAGES):
            twin.change(lambda _: changes.state_of(known))
        return twin

    def _with_statuses(self, values: tuple[Any, ...]) -> tuple[Any, ...]:
        raw, result = self._shown
        if raw is not values:
            result = shown(MESSAGES, values)
            self._shown = (values, result)
        return result

    # --- changing ---

    @overload
    def mutate(self) -> SessionMutation: ...

    @overload
    def mutate(self, kind: type[T]) -> SliceMutation[T]: ...

    def mutate(self, kind: type[T] | None = None) -> SessionMutation | SliceMutation[T]:
        """Return the operations on one slice, or on all of them."""
        return SessionMutation(self) if kind is None else SliceMutation(self, kind)

    def restore(self, snapshot: Snapshot, *, undeclared: Undeclared = "refuse") -> None:
        """Restore a snapshot; SnapshotRestoreError, and no change, if it does not fit.

        Messages are never removed; those that the conversation lacks are appended. A slice
        with an undeclared type is refused, or kept as JSON until the type is declared ("keep").
        """
        self.change(changes.restored(self.types, snapshot, undeclared=undeclared))

    def change(self, change: Change) -> None:
        """Record the events that a change makes of the present state: all of them or none."""
        scope = scope_of(self)
        if scope is not None:
            overlay = scope.writable()
            with overlay.lock:
                overlay.add(*change(overlay.known))
            return
        self._refuse_other_threads()
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
        """Commit pending changes now, before the loop's next commit."""
        if scope_of(self) is not None:
            raise ScopeClosedError("A tool's changes are committed with its result, by the loop.")
        self.journal.commit()

    @contextmanager
    def scope(self, overlay: Overlay) -> Iterator[Overlay]:
        """Read and change the session through an overlay within this `with` block.

        This holds for code that runs in a copy of the context, in any thread. A change after
        the block has ended is a ScopeClosedError.
        """
        scope = Scope(self, overlay)
        self._scopes.append(scope)
        try:
            with entered(scope):
                yield overlay
        finally:
            self._scopes.remove(scope)

    def _refuse_other_threads(self) -> None:
        """ScopeClosedError for a thread that a tool started without its context.

        Its changes would not be the tool's, and would stay if the tool fails.
        """
        if self._loop in (None, get_ident()):
            return
        if any(not scope.overlay.is_closed for scope in tuple(self._scopes)):
            raise ScopeClosedError(
                "A tool is running, and this thread belongs neither to it nor to the loop. "
                "Start threads in tools with contextvars.copy_context().run, so that what they "
                "change is the tool's."
            )

    # --- declaring types and reducers ---

    def install(self, kind: type) -> str:
        """Declare a slice's type, with the reducers that it marks by `@reducer`; its name.

        `session[kind]` does so too; a snapshot with an undeclared slice can't be restored.
        """
        if not self.types.knows(kind):
            self._declare(lambda: self.types.install(kind), lambda: self.types.uninstall(kind))
        return self.types.install(kind)

    def declare(self, kind: type, *, name: str) -> None:
        """Declare a type under a name in the ledger that is not its class's."""
        self.types.declare(kind, name)

    def register(self, slice_type: type, event_type: type, reducer: Any) -> None:
        """Register the reducer of a slice for events of a type; see `session[T].register`."""
        self.install(slice_type)
        before = self.types.registered(slice_type, event_type)
        self._declare(
            lambda: self.types.register(slice_type, event_type, reducer),
            lambda: self.types.unregister(slice_type, event_type, before),
        )

    def _declare(self, declare: Callable[[], object], undo: Callable[[], object]) -> None:
        """Change the declarations; undo it if the run can't be folded with them."""
        declare()
        try:
            if self._journal is not None:
                _ = self._journal.known, self.known
        except Exception:
            undo()
            raise

    # --- from run to run (for loops) ---

    @property
    def was_attached(self) -> bool:
        """Whether a loop has attached the session."""
        return self._loop is not None

    def run_in(self, ledger: Ledger) -> UUID | None:
        """Return the run of this ledger that the session was last in, to be continued."""
        journal = self._journal
        if journal is None or journal.ledger is not ledger or not journal.committed.version:
            return None
        return journal.run_id

    def attach(self, journal: Journal) -> tuple[Event, ...]:
        """Continue in the run of this journal, in this thread's loop.

        What the session recorded so far is added to the journal as pending, if the run lacks
        it: all of it in a new run, what was changed since in one that continues the session's
        last run. A run that was begun before has its own record: then nothing is added, and
        the events are returned, to be compared with those that the run began with.
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

        Changes are committed at once there, without a loop.
        """
        with self._lock:
            if self._own_ledger is None:
                self._own_ledger = Ledger.open("memory://")
            event = started or RunStarted(session_id=self.session_id, tags=dict(self.tags))
            parent = self.run_in(self._own_ledger)
            if parent is not None and self._journal is not None:
                at = self._journal.committed.version
                event = msgspec.structs.replace(event, parent=parent, at=at, kind="continuation")
            run_id = UUID(canonical_id(self.clock.new_id(), "id of the clock"))
            self._own_ledger.append(run_id, event, expected_version=NEW)
            journal = Journal(
                self._own_ledger, run_id, declarations=self.declarations, clock=self.clock
            )
            self._move_to(journal)
            self._loop = None
            journal.commit()
            return journal

    def take_recorded(self) -> list[Event]:
        """Return the events that the session recorded and its next run does not have yet.

        For a session by itself that is everything but RunStarted. After an attached run it is
        what is still pending, which is withdrawn from that run.
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
        """Record in this journal from now on; returns the events that its run did not need."""
        last, started = self._journal, journal.progress.started
        if last is journal:
            return ()
        parent = started.parent if started is not None else None
        follows = last is not None and last.run_id in (journal.run_id, parent)
        lacks_them = follows or (parent is None and not journal.known.session.begun)
        recorded = self._take_pending() if follows else self._carried_over()
        if lacks_them:
            journal.add(*recorded)
        if last is not None:
            self._observers.move(last.committed.run.slices, journal.committed.run.slices)
        self._stop_listening()
        self._stop_listening = journal.on_commit(self._committed)
        self._journal = journal
        return () if lacks_them else tuple(recorded)

    def _carried_over(self) -> list[Event]:
        """The events with which a run that has nothing of this session yet continues it."""
        if self._loop is None or self._journal is None:
            return self.take_recorded()
        return changes.state_of(self._journal.known)

    def _committed(self, before: Known, now: Known) -> None:
        journal = self._journal
        if journal is not None and not journal.has_pending:
            self._added = {}
        self._observers.notify(before.run.slices, now.run.slices)


@explain_arguments
def enable_inner_message_recording(session: Session) -> None:
    """Keep the session's messages as a slice, `session[InnerMessage]`; idempotent."""
    if not session.types.records_messages:
        session.register(InnerMessage, InnerMessage, inner_message_append)


class _Slice(Generic[T]):
    """The operations of `session[T]` and `session.mutate(T)`."""

    def __init__(self, session: Session, kind: type[T]) -> None:
        self._session = session
        self._kind = kind
        self._types = session.types
        self._name = session.install(kind)

    def append(self, value: object) -> None:
        """Apply a value; without a reducer for its type, it is appended.

        Values may be of another class than the slice's own, if it has no reducers: then all of
        them are. A program that reads them before it appends one gets JSON with attributes;
        `session.install(TheClass)` gives it the class.
        """
        self._session.change(changes.appended(self._types, self._kind, value))

    def seed(self, values: Iterable[T]) -> None:
        """Replace all values."""
        self._session.change(changes.seeded(self._types, self._kind, values))

    def clear(self) -> None:
        """Remove all values."""
        self._session.change(changes.cleared(self._types, self._kind))

    def register(self, event_type: type[E], reducer: Callable[..., Iterable[T]]) -> None:
        """Register the reducer for events of a type, in place of an earlier one.

        Events that were recorded before are folded again with it. If that fails, the reducer
        is not registered.
        """
        self._session.register(self._kind, event_type, reducer)


class SliceView(_Slice[T]):
    """`session[T]`: one slice of a session."""

    def all(self) -> tuple[T, ...]:
        """Return the values, the oldest first."""
        return self._session.select_all(self._kind)

    def latest(self) -> T | None:
        """Return the last value; None if the slice is empty."""
        return self._session.select_latest(self._kind)

    def where(self, predicate: Callable[[T], object]) -> tuple[T, ...]:
        """Return the values for which a predicate is true."""
        return tuple(value for value in self.all() if predicate(value))

    def apply(self, event: object) -> None:
        """Apply an event with the reducer that is registered for its type."""
        self._session.change(changes.applied(self._types, self._kind, event))

    def __repr__(self) -> str:
        return f"<slice {self._name} of {self._session!r}>"


class SliceMutation(_Slice[T]):
    """`session.mutate(T)`: the operations on one slice."""

    def dispatch(self, event: object) -> None:
        """Apply an event with the reducer that is registered for its type."""
        self._session.change(changes.applied(self._types, self._kind, event))


class SessionMutation:
    """`session.mutate()`: the operations on all slices."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def rollback(self, snapshot: Snapshot) -> None:
        """Restore a snapshot; see `Session.restore`."""
        self._session.restore(snapshot)

    def reset(self) -> None:
        """Remove the values of all slices. The conversation stays."""
        self._session.change(changes.reset())
