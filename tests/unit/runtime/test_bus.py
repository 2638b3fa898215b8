"""Given subscriptions, when an event is published, then who is told and what came of it."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from threading import Barrier
from typing import Any

import pytest

from tests.unit.runtime.threads import side_by_side
from turnledger.ledger.errors import InvalidInputError, TurnledgerError
from turnledger.runtime.bus import (
    ControlBus,
    EventBus,
    HandlerFailure,
    InProcessEventBus,
    PublishError,
    PublishResult,
    format_publish_failures,
)
from turnledger.runtime.loop.events import MainLoopRequest


@dataclass(frozen=True)
class Happened:
    number: int = 0


@dataclass(frozen=True)
class HappenedBadly(Happened):
    pass


def failing(error: BaseException) -> Callable[[object], None]:
    def refuses(event: object) -> None:
        raise error

    return refuses


def test_an_event_goes_to_the_handlers_of_exactly_its_type() -> None:
    """S2-10: dispatch is by type(event); a base class's subscribers don't hear of it."""
    bus = InProcessEventBus()
    heard: list[Any] = []
    bus.subscribe(Happened, lambda event: heard.append(("happened", event)))
    bus.subscribe(HappenedBadly, lambda event: heard.append(("badly", event)))
    bus.subscribe(object, lambda event: heard.append(("object", event)))
    bus.publish(HappenedBadly(1))
    bus.publish(Happened(2))
    assert heard == [("badly", HappenedBadly(1)), ("happened", Happened(2))]


def test_a_subscripted_request_reaches_the_subscribers_of_the_plain_class() -> None:
    """S2-10: the subscript is for type checkers; at runtime the event is a MainLoopRequest."""
    bus = InProcessEventBus()
    heard: list[Any] = []
    bus.subscribe(MainLoopRequest, heard.append)
    bus.publish(MainLoopRequest[Happened](request=Happened(1)))
    bus.publish(MainLoopRequest(request=Happened(2)))
    assert [event.request.number for event in heard] == [1, 2]


@pytest.mark.parametrize("method", ["subscribe", "unsubscribe"])
def test_subscribing_to_a_subscript_is_refused(method: str) -> None:
    """Such a handler would never be called, and nobody would notice."""
    bus = InProcessEventBus()
    with pytest.raises(InvalidInputError, match=r"MainLoopRequest\[.*plain class"):
        getattr(bus, method)(MainLoopRequest[Happened], print)


def test_handlers_are_called_in_the_order_of_subscription() -> None:
    """One that is subscribed twice is called twice."""
    bus = InProcessEventBus()
    heard: list[Any] = []

    def first(event: Happened) -> None:
        heard.append("first")

    def second(event: Happened) -> None:
        heard.append("second")

    for handler in (first, second, first):
        bus.subscribe(Happened, handler)
    result = bus.publish(Happened())
    assert heard == ["first", "second", "first"]
    assert result.handlers_invoked == (first, second, first)


def test_the_result_says_what_the_handlers_did() -> None:
    """S2-10: the event, who was called, and that nothing went wrong."""
    bus = InProcessEventBus()
    bus.subscribe(Happened, print)
    result = bus.publish(Happened(3))
    assert result == PublishResult(Happened(3), (print,), ())
    assert (result.ok, result.handled_count) == (True, 1)
    result.raise_if_errors()


def test_an_event_without_subscribers_is_fine() -> None:
    """Nobody was told, and that is no error."""
    result = InProcessEventBus().publish(Happened())
    assert (result.ok, result.handled_count, result.errors) == (True, 0, ())


def test_a_failing_handler_keeps_no_other_from_being_called() -> None:
    """S2-10: its error is in the result, with the handler that raised it."""
    bus = InProcessEventBus()
    heard: list[Any] = []
    error = ValueError("no")
    refuses = failing(error)
    bus.subscribe(Happened, refuses)
    bus.subscribe(Happened, heard.append)
    result = bus.publish(Happened())
    assert heard == [Happened()]
    assert result.handled_count == 2
    assert not result.ok
    assert result.errors == (HandlerFailure(refuses, error),)


def test_everything_that_handlers_raised_can_be_raised_together() -> None:
    """Under the project's root, and `except*` picks what it knows."""
    bus = InProcessEventBus()
    for error in (ValueError("one"), KeyError("two"), ValueError("three")):
        bus.subscribe(Happened, failing(error))
    bus.subscribe(Happened, print)
    result = bus.publish(Happened())
    with pytest.raises(PublishError, match="3 of 4 handlers of Happened failed") as raised:
        result.raise_if_errors()
    assert isinstance(raised.value, TurnledgerError)
    matched, rest = raised.value.split(ValueError)
    assert isinstance(matched, PublishError)
    assert isinstance(rest, PublishError)
    assert [str(error) for error in matched.exceptions] == ["one", "three"]
    assert [str(error) for error in rest.exceptions] == ["'two'"]


def test_errors_of_handlers_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    """Who looks at no result finds them under turnledger.bus, without the event's content."""
    bus = InProcessEventBus()
    bus.subscribe(Happened, failing(ValueError("no")))
    with caplog.at_level(logging.ERROR, logger="turnledger.bus"):
        bus.publish(Happened(987654))
    (line,) = caplog.records
    assert (line.name, line.levelname) == ("turnledger.bus", "ERROR")
    assert "Happened" in line.getMessage()
    assert "refuses" in line.getMessage()
    assert line.exc_info is not None
    assert isinstance(line.exc_info[1], ValueError)
    assert "987654" not in caplog.text


def test_a_handler_without_a_name_is_logged_by_its_class(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Any callable may be a handler."""

    class Refuses:
        def __call__(self, event: object) -> None:
            raise ValueError("no")

    bus = InProcessEventBus()
    bus.subscribe(Happened, Refuses())
    assert not bus.publish(Happened()).ok
    assert "Refuses" in caplog.records[0].getMessage()


@pytest.mark.parametrize("error", [KeyboardInterrupt(), SystemExit(3)])
def test_what_ends_the_process_passes_on_at_once(error: BaseException) -> None:
    """It is nobody's failure, and nothing more is done."""
    bus = InProcessEventBus()
    heard: list[Any] = []
    bus.subscribe(Happened, failing(error))
    bus.subscribe(Happened, heard.append)
    with pytest.raises(type(error)):
        bus.publish(Happened())
    assert heard == []


def test_a_handler_may_publish() -> None:
    """The inner event is told at once, before the outer one's next handler."""
    bus = InProcessEventBus()
    heard: list[Any] = []

    def goes_on(event: Happened) -> None:
        heard.append(event.number)
        if event.number < 3:
            bus.publish(Happened(event.number + 1))

    bus.subscribe(Happened, goes_on)
    bus.subscribe(Happened, lambda event: heard.append(-event.number))
    bus.publish(Happened(1))
    assert heard == [1, 2, 3, -3, -2, -1]


def test_a_handler_that_subscribes_another_has_it_called_from_the_next_event_on() -> None:
    """An event goes to those who were subscribed when it was published."""
    bus = InProcessEventBus()
    heard: list[Any] = []
    bus.subscribe(Happened, lambda event: bus.subscribe(Happened, heard.append))
    bus.publish(Happened(1))
    assert heard == []
    bus.publish(Happened(2))
    assert heard == [Happened(2)]


def test_a_handler_may_unsubscribe_itself_while_it_is_told() -> None:
    """The one after it is not skipped."""
    bus = InProcessEventBus()
    heard: list[Any] = []

    def once(event: Happened) -> None:
        heard.append("once")
        assert bus.unsubscribe(Happened, once)

    bus.subscribe(Happened, once)
    bus.subscribe(Happened, lambda event: heard.append("always"))
    bus.publish(Happened())
    bus.publish(Happened())
    assert heard == ["once", "always", "always"]


def test_a_handler_that_is_unsubscribed_is_no_longer_called() -> None:
    """One subscription at a time, the latest first; False when there is none left."""
    bus = InProcessEventBus()
    heard: list[Any] = []
    handler = heard.append
    for subscribed in (handler, print, handler):
        bus.subscribe(Happened, subscribed)
    assert bus.unsubscribe(Happened, handler)
    assert bus.publish(Happened()).handlers_invoked == (handler, print)
    assert bus.unsubscribe(Happened, handler)
    assert not bus.unsubscribe(Happened, handler)
    assert not bus.unsubscribe(HappenedBadly, print)
    assert bus.publish(Happened()).handlers_invoked == (print,)


def test_a_method_can_be_unsubscribed_by_its_name() -> None:
    """Python makes a new bound method with each look at it; they are equal."""

    class Listener:
        def __init__(self) -> None:
            self.heard = 0

        def hear(self, event: Happened) -> None:
            self.heard += 1

    bus, one, other = InProcessEventBus(), Listener(), Listener()
    bus.subscribe(Happened, one.hear)
    bus.subscribe(Happened, other.hear)
    assert bus.unsubscribe(Happened, one.hear)
    bus.publish(Happened())
    assert (one.heard, other.heard) == (0, 1)


def test_subscriptions_of_many_threads_are_all_kept() -> None:
    """None overwrites another's."""
    bus = InProcessEventBus()
    bus.subscribe(Happened, print)

    def come_and_go() -> None:
        for _ in range(6000):
            bus.subscribe(HappenedBadly, repr)
            assert bus.unsubscribe(HappenedBadly, repr)
        bus.subscribe(HappenedBadly, id)

    side_by_side(*[come_and_go] * 8)
    assert bus.publish(HappenedBadly()).handlers_invoked == (id,) * 8
    assert bus.publish(Happened()).handlers_invoked == (print,)


def test_events_of_many_threads_all_arrive() -> None:
    """Also when handlers come and go meanwhile."""
    bus = InProcessEventBus()
    heard: list[Any] = []
    bus.subscribe(Happened, heard.append)

    def publish_many(begin: int) -> None:
        for number in range(begin, begin + 200):
            assert bus.publish(Happened(number)).ok

    def come_and_go() -> None:
        for _ in range(200):
            bus.subscribe(Happened, id)
            assert bus.unsubscribe(Happened, id)

    side_by_side(*(lambda n=n: publish_many(n * 200) for n in range(6)), come_and_go, come_and_go)
    assert sorted(event.number for event in heard) == list(range(1200))


def test_threads_that_publish_into_each_others_handlers_do_not_block() -> None:
    """No lock is held while a handler runs: both are inside at the same time."""
    bus, meeting = InProcessEventBus(), Barrier(2)

    def waits_for_the_other(event: Happened) -> None:
        meeting.wait(timeout=30)
        bus.subscribe(HappenedBadly, id)
        bus.publish(HappenedBadly())

    bus.subscribe(Happened, waits_for_the_other)
    results: list[PublishResult] = []
    side_by_side(*[lambda: results.append(bus.publish(Happened()))] * 2)
    assert [result.ok for result in results] == [True, True]


def test_the_in_process_bus_is_both_kinds_of_bus() -> None:
    """A loop takes a ControlBus, an adapter an EventBus; the type checker agrees."""
    control: ControlBus = InProcessEventBus()
    events: EventBus = control
    assert events.publish(Happened()).ok


def test_publish_failures_read_as_one_line() -> None:
    """S4-16: the aggregated errors, in order; the same words in each process."""
    failures = [
        HandlerFailure(print, ValueError("no such plan")),
        HandlerFailure(print, KeyError()),
    ]
    assert format_publish_failures(failures) == "Not accepted: ValueError: no such plan; KeyError"
    assert format_publish_failures([]) == ""


def test_a_failure_that_can_not_be_written_is_named_all_the_same() -> None:
    """The line becomes a tool's message: it is text that a store can hold."""

    class SpeechlessError(Exception):
        def __str__(self) -> str:
            raise RuntimeError("no words")

    failures = [HandlerFailure(print, error) for error in (SpeechlessError(), ValueError("\ud800"))]
    said = format_publish_failures(failures)
    assert said == "Not accepted: SpeechlessError (it can't say why); ValueError: ?"
