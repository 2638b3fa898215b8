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

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Generic, TypeVar, overload
from uuid import UUID

from turnledger.ledger import Clock, InnerMessage, Ledger
from turnledger.projections import inner_message_append
from turnledger.runtime.bus import EventBus, InProcessEventBus
from turnledger.runtime.journal.journal import Journal
from turnledger.runtime.session import changes
from turnledger.runtime.session.changes import Undeclared
from turnledger.runtime.session.overlay import Overlay, scope_of
from turnledger.runtime.session.recording import SessionRecords
from turnledger.runtime.session.snapshot import Snapshot, shown
from turnledger.runtime.session.types import MESSAGES

T = TypeVar("T")
E = TypeVar("E")


class Session(SessionRecords):
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
        super().__init__(tags=tags, session_id=session_id, ledger=ledger, clock=clock)
        self.bus: EventBus = bus if bus is not None else InProcessEventBus()
        self._shown: tuple[tuple[Any, ...], tuple[Any, ...]] = ((), ())

    @property
    def event_bus(self) -> EventBus:
        """Where news of this session's evaluations is told."""
        return self.bus

    # --- reading ---

    def __getitem__(self, kind: type[T]) -> SliceView[T]:
        return SliceView(self, kind)

    def select_all(self, kind: type[T], /) -> tuple[T, ...]:
        """The values of a slice, the oldest first."""
        name = self.install(kind)
        values = self.known.run.slices.all(name)
        return self._with_statuses(values) if name == MESSAGES else values

    def select_latest(self, kind: type[T], /) -> T | None:
        """The last value of a slice; None if there is none."""
        name = self.install(kind)
        if name == MESSAGES:
            return next(reversed(self.select_all(kind)), None)
        found = self.known.run.slices.slices.get(name)
        return found.latest if found is not None else None

    def snapshot(self, tag: str | None = None) -> Snapshot:
        """The state of all slices, as a value that can be written down."""
        return Snapshot.of_slices(self.known.run.slices, self.declarations, tag=tag)

    def observe(
        self, kind: type[T], observer: Callable[[tuple[T, ...], tuple[T, ...]], object]
    ) -> Callable[[], None]:
        """Have `observer(old, new)` called when a slice has changed and the change is on record.

        Once for each commit that changed it, however many changes that held. What is given
        back ends it. What an observer raises is logged.
        """
        return self._observers.add(self.install(kind), observer)

    def clone(self, *, bus: EventBus | None = None) -> Session:
        """A session of its own with the same state, conversation, types and tags."""
        scope = scope_of(self)
        source: Journal | Overlay = scope.overlay if scope is not None else self.journal
        known = source.known
        twin = Session(bus=bus, tags=self.tags, clock=self.clock)
        twin.types = self.types.copy()
        said = changes.said_in(source.records()) if known.session.messages.size else []
        twin.change(lambda _: [*said, *changes.state_of(known, messages=False)])
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
        """The changes of a slice, or of all of them."""
        return SessionMutation(self) if kind is None else SliceMutation(self, kind)

    def restore(self, snapshot: Snapshot, *, undeclared: Undeclared = "refuse") -> None:
        """Go back to a snapshot; SnapshotRestoreError, and no change, if that can't be.

        Messages are never removed; those that the conversation lacks are appended. A slice
        that nobody declared is refused, or kept as JSON until somebody does ("keep").
        """
        self.change(changes.restored(self.types, snapshot, undeclared=undeclared))

    def install(self, kind: type) -> str:
        """Make a slice's type known, with the reducers that it declares by `@reducer`.

        `session[kind]` does so too; a snapshot with a slice that is not known can't be restored.
        """
        if not self.types.knows(kind):
            self._declare(lambda: self.types.install(kind), lambda: self.types.uninstall(kind))
        return self.types.install(kind)

    def declare(self, kind: type, *, name: str) -> None:
        """Have a type known to the ledger under a name that is not its class's."""
        self.types.declare(kind, name)

    def register(self, slice_type: type, event_type: type, reducer: Any) -> None:
        """Say what events of a type do to a slice; see `session[T].register`."""
        self.install(slice_type)
        before = self.types.given(slice_type, event_type)
        self._declare(
            lambda: self.types.register(slice_type, event_type, reducer),
            lambda: self.types.take_back(slice_type, event_type, before),
        )

    def _declare(self, declare: Callable[[], object], undo: Callable[[], object]) -> None:
        """Change what is declared, unless what was recorded can't be folded like that."""
        declare()
        try:
            if self._journal is not None:
                _ = self._journal.known, self.known
        except Exception:
            undo()
            raise


def enable_inner_message_recording(session: Session) -> None:
    """Have the session's messages as a slice, `session[InnerMessage]`; harmless twice."""
    if not session.types.records_messages:
        session.register(InnerMessage, InnerMessage, inner_message_append)


class _Slice(Generic[T]):
    """What both spellings have in common."""

    def __init__(self, session: Session, kind: type[T]) -> None:
        self._session = session
        self._kind = kind
        self._types = session.types
        self._name = session.install(kind)

    def append(self, value: T) -> None:
        """Hand a value of the slice's own type to its reducer; without one it is kept."""
        self._session.change(changes.appended(self._types, self._kind, value))

    def seed(self, values: Iterable[T]) -> None:
        """Have these values in place of those that there are."""
        self._session.change(changes.seeded(self._types, self._kind, values))

    def clear(self) -> None:
        """Have no values any more."""
        self._session.change(changes.cleared(self._types, self._kind))

    def register(self, event_type: type[E], reducer: Callable[..., Iterable[T]]) -> None:
        """Say what events of a type do to this slice; the latest counts.

        What was recorded before is folded again with it. If it fails on that, it is taken back.
        """
        self._session.register(self._kind, event_type, reducer)


class SliceView(_Slice[T]):
    """`session[T]`: one slice of a session."""

    def all(self) -> tuple[T, ...]:
        """Its values, the oldest first."""
        return self._session.select_all(self._kind)

    def latest(self) -> T | None:
        """The last of its values; None if there is none."""
        return self._session.select_latest(self._kind)

    def where(self, predicate: Callable[[T], object]) -> tuple[T, ...]:
        """Those of its values that a predicate is true of."""
        return tuple(value for value in self.all() if predicate(value))

    def apply(self, event: object) -> None:
        """Hand an event to the reducer that is registered for its type."""
        self._session.change(changes.applied(self._types, self._kind, event))

    def __repr__(self) -> str:
        return f"<slice {self._name} of {self._session!r}>"


class SliceMutation(_Slice[T]):
    """`session.mutate(T)`: the changes of one slice."""

    def dispatch(self, event: object) -> None:
        """Hand an event to the reducer that is registered for its type."""
        self._session.change(changes.applied(self._types, self._kind, event))


class SessionMutation:
    """`session.mutate()`: the changes of all slices at once."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def rollback(self, snapshot: Snapshot) -> None:
        """Go back to a snapshot. Messages are never removed; those that are lacking come back."""
        self._session.restore(snapshot)

    def reset(self) -> None:
        """Have no values in any slice. The conversation stays."""
        self._session.change(changes.reset())
