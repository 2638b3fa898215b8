"""Tells listeners what happens: events go to those who subscribed to exactly their type.

Bus events are news for this process and are gone when told; facts are in the ledger. A
listener that fails keeps no other from being told. What it raised is in the result, so that
a publisher can take it as a veto, and in the log, so that it is seen when nobody looks.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from threading import Lock
from typing import Any, Protocol, TypeAlias, TypeVar

from turnledger.ledger.errors import InvalidInputError, TurnledgerError, error_text
from turnledger.ledger.redaction.safe_logging import logger_of

EventT = TypeVar("EventT")
EventHandler: TypeAlias = Callable[[Any], object]

logger = logger_of("turnledger.bus")


@dataclass(frozen=True, slots=True)
class HandlerFailure:
    """A handler that raised, and what."""

    handler: EventHandler
    error: Exception


class PublishError(TurnledgerError, ExceptionGroup[Exception]):
    """Handlers of an event failed; `except*` can pick among what they raised."""

    def derive(self, excs: Sequence[Exception], /) -> PublishError:  # type: ignore[override]
        return PublishError(self.message, excs)


@dataclass(frozen=True, slots=True)
class PublishResult:
    """What became of an event: who was told, in order, and who failed."""

    event: object
    handlers_invoked: tuple[EventHandler, ...] = ()
    errors: tuple[HandlerFailure, ...] = ()

    @property
    def ok(self) -> bool:
        return not self.errors

    @property
    def handled_count(self) -> int:
        """How many handlers were called, those that failed among them."""
        return len(self.handlers_invoked)

    def raise_if_errors(self) -> None:
        """Raise everything that handlers raised, together."""
        if self.errors:
            raise PublishError(
                f"{len(self.errors)} of {self.handled_count} handlers of "
                f"{type(self.event).__name__} failed",
                [failure.error for failure in self.errors],
            )


class EventBus(Protocol):
    """Where events are told and listened to."""

    def subscribe(self, event_type: type[EventT], handler: Callable[[EventT], object]) -> None:
        """Have a handler called with every event whose type is exactly this one."""
        ...

    def unsubscribe(self, event_type: type[EventT], handler: Callable[[EventT], object]) -> bool:
        """Take one subscription back; False if there was none."""
        ...

    def publish(self, event: object) -> PublishResult:
        """Call the handlers of the event's type, one after the other, and say how it went."""
        ...


class ControlBus(EventBus, Protocol):
    """A bus that also carries requests: whoever publishes one has work done by it.

    It promises no other methods. The name says what a `MainLoop` does with its bus, and an
    `EventBus` that only carries news need not be one.
    """


class InProcessEventBus:
    """A bus within one process; any thread may subscribe and publish.

    Handlers run in the publisher's thread, in the order of subscription. An event goes to
    those who were subscribed when it was published: a handler may subscribe, unsubscribe
    and publish, and what it changes counts from the next event on.
    """

    def __init__(self) -> None:
        self._lock = Lock()
        # A tuple is replaced, never changed, so a dispatch goes on over the one it took.
        self._handlers: dict[type[object], tuple[EventHandler, ...]] = {}

    def subscribe(self, event_type: type[EventT], handler: Callable[[EventT], object]) -> None:
        """Have a handler called with every event whose type is exactly this one.

        Subscribed twice, it is called twice.
        """
        _require_class(event_type)
        with self._lock:
            self._handlers[event_type] = (*self._handlers.get(event_type, ()), handler)

    def unsubscribe(self, event_type: type[EventT], handler: Callable[[EventT], object]) -> bool:
        """Take the handler's latest subscription back; False if there was none."""
        _require_class(event_type)
        with self._lock:
            handlers = self._handlers.get(event_type, ())
            for place in reversed(range(len(handlers))):
                if handlers[place] == handler:
                    self._handlers[event_type] = handlers[:place] + handlers[place + 1 :]
                    return True
            return False

    def publish(self, event: object) -> PublishResult:
        """Call the handlers of the event's type, one after the other, and say how it went.

        What a handler raises is collected and logged. A KeyboardInterrupt or SystemExit
        passes on at once.
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
                # The event itself stays out of the log: it may hold what is secret.
                logger.exception(
                    "A handler of %s failed: %s", type(event).__name__, _name_of(handler)
                )
        return PublishResult(event, handlers, tuple(failures))


def format_publish_failures(failures: Sequence[HandlerFailure]) -> str:
    """What handlers raised, as one line of text that a model or a person can read."""
    texts = [error_text(failure.error) for failure in failures]
    return "Not accepted: " + "; ".join(texts) if texts else ""


def _require_class(event_type: object) -> None:
    # A subscript such as MainLoopRequest[Review] equals no event's type: a handler that is
    # subscribed to it would never be called, and nobody would know.
    if not isinstance(event_type, type):
        raise InvalidInputError(
            f"Events are told by their class, and {event_type!r} is none. Subscribe to the "
            "plain class, and look at the event in the handler."
        )


def _name_of(handler: EventHandler) -> str:
    return getattr(handler, "__qualname__", None) or type(handler).__qualname__
