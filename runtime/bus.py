"""Event bus: publishes in-process events to the handlers subscribed to exactly their type.

Bus events are notifications within one process and are not stored; what happened in a run is in
the ledger. A handler that fails does not keep the others from being called. What it raised is in
the PublishResult, so that a publisher can treat it as a veto, and in the log.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from threading import Lock
from typing import Any, Protocol, TypeAlias, TypeVar

from turnledger.ledger.errors import InvalidInputError, TurnledgerError, error_text, short_repr
from turnledger.ledger.redaction.safe_logging import logger_of

EventT = TypeVar("EventT")
EventHandler: TypeAlias = Callable[[Any], object]

logger = logger_of("turnledger.bus")


@dataclass(frozen=True, slots=True)
class HandlerFailure:
    """A handler that raised, and its exception."""

    handler: EventHandler
    error: Exception


class PublishError(TurnledgerError, ExceptionGroup[Exception]):
    """Handlers of an event failed; `except*` selects among their exceptions."""

    def derive(self, excs: Sequence[Exception], /) -> PublishError:  # type: ignore[override]
        return PublishError(self.message, excs)


@dataclass(frozen=True, slots=True)
class PublishResult:
    """The handlers that an event was published to, in order, and those that failed."""

    event: object
    handlers_invoked: tuple[EventHandler, ...] = ()
    errors: tuple[HandlerFailure, ...] = ()

    @property
    def ok(self) -> bool:
        return not self.errors

    @property
    def handled_count(self) -> int:
        """How many handlers were called, including those that failed."""
        return len(self.handlers_invoked)

    def raise_if_errors(self) -> None:
        """Raise the handlers' exceptions as one PublishError."""
        if self.errors:
            raise PublishError(
                f"{len(self.errors)} of {self.handled_count} handlers of "
                f"{type(self.event).__name__} failed",
                [failure.error for failure in self.errors],
            )


class EventBus(Protocol):
    """Publish and subscribe, by the events' class."""

    def subscribe(self, event_type: type[EventT], handler: Callable[[EventT], object]) -> None:
        """Call a handler with every event whose type is exactly this one."""
        ...

    def unsubscribe(self, event_type: type[EventT], handler: Callable[[EventT], object]) -> bool:
        """Remove one subscription; False if there was none."""
        ...

    def publish(self, event: object) -> PublishResult:
        """Call the handlers of the event's type, one after the other."""
        ...


class ControlBus(EventBus, Protocol):
    """A bus that also carries requests: a MainLoop subscribed to it runs them.

    It has no further methods; the name says what a `MainLoop` needs its bus for.
    """


class InProcessEventBus:
    """An event bus within one process; any thread may subscribe and publish.

    Handlers run in the publisher's thread, in the order of subscription. An event goes to the
    handlers that were subscribed when it was published: a handler may subscribe, unsubscribe
    and publish, which takes effect from the next event on.
    """

    def __init__(self) -> None:
        self._lock = Lock()
        # Tuples are replaced, never changed: a publish in progress iterates over its own.
        self._handlers: dict[type[object], tuple[EventHandler, ...]] = {}

    def subscribe(self, event_type: type[EventT], handler: Callable[[EventT], object]) -> None:
        """Call a handler with every event whose type is exactly this one.

        A handler that is subscribed twice is called twice.
        """
        _require_class(event_type)
        with self._lock:
            self._handlers[event_type] = (*self._handlers.get(event_type, ()), handler)

    def unsubscribe(self, event_type: type[EventT], handler: Callable[[EventT], object]) -> bool:
        """Remove the handler's latest subscription; False if there was none."""
        _require_class(event_type)
        with self._lock:
            handlers = self._handlers.get(event_type, ())
            for place in reversed(range(len(handlers))):
                if handlers[place] == handler:
                    self._handlers[event_type] = handlers[:place] + handlers[place + 1 :]
                    return True
            return False

    def publish(self, event: object) -> PublishResult:
        """Call the handlers of the event's type, one after the other.

        Exceptions are collected and logged. A KeyboardInterrupt or SystemExit is raised at
        once.
        """
        # No lock is held while handlers run, so that they may use the bus themselves.
        with self._lock:
            handlers = self._handlers.get(type(event), ())
        failures: list[HandlerFailure] = []
        for handler in handlers:
            try:
                handler(event)
            except Exception as error:
                failures.append(HandlerFailure(handler, error))
                # The event itself stays out of the log: it may hold secrets.
                logger.exception(
                    "A handler of %s failed: %s", type(event).__name__, _name_of(handler)
                )
        return PublishResult(event, handlers, tuple(failures))


def format_publish_failures(failures: Sequence[HandlerFailure]) -> str:
    """Format the handlers' exceptions as one line, for a model or a person."""
    texts = [error_text(failure.error) for failure in failures]
    return "Not accepted: " + "; ".join(texts) if texts else ""


def _require_class(event_type: object) -> None:
    # A subscript such as MainLoopRequest[Review] is not the type of any event: its handler
    # would silently never be called.
    if not isinstance(event_type, type):
        raise InvalidInputError(
            f"Invalid event type {short_repr(event_type)}: expected a class. Subscribe to the "
            "plain class, and look at the event in the handler."
        )


def _name_of(handler: EventHandler) -> str:
    return getattr(handler, "__qualname__", None) or type(handler).__qualname__
