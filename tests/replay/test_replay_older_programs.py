"""Failures that a program before catalogue 2 recorded: in words alone, and they run again."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from uuid import UUID

import pytest
from msgspec.structs import replace

from tests.agent import says
from tests.replay.farm import Farm
from tests.replay.shepherd import DONE, Shepherd, asks, check_again
from turnledger.ledger import (
    CheckpointReached,
    Event,
    Ledger,
    ModelCallFailed,
    RunFailed,
    RunStarted,
    ToolCallFailed,
)
from turnledger.ledger.clock import SystemClock
from turnledger.ledger.events.blobs import blobs_named
from turnledger.ledger.events.types import CATALOGUE, as_of
from turnledger.ledger.runs.append import ANY_VERSION, AppendRequest, Entry, append
from turnledger.runtime import Budget, MainLoopConfig, PromptEvaluationError, Reply, replay
from turnledger.runtime.replaying.older_records import with_failure_fields


def _unencodable(self: Any, request: Any) -> Any:
    raise ValueError("no such picture")


def _refuses(made: Any) -> None:
    made.encode = lambda request: _unencodable(made, request)


_CASES: dict[str, dict[str, Any]] = {
    "no request": {"prepares": _refuses},
    "an empty reply": {"replies": [Reply()]},
    "an unreadable reply": {"replies": ["text"]},
    "a provider's error": {"replies": [ValueError("ValueError: oh")]},
    "no tokens left": {
        "replies": [says("ok")],
        "config": MainLoopConfig(budget=Budget(max_total_tokens=1)),
    },
}


def _retold(ledger: Ledger, run: UUID, change: Callable[[Event], Event | None]) -> Ledger:
    """The run in another ledger, each event changed or left out."""
    other, clock = Ledger.open("memory://"), SystemClock()
    for record in ledger.read(run):
        event = change(record.event)
        if event is None:
            continue
        tag, data = other.codec.encode(event)
        entry = Entry(str(record.event_id), tag, data, event)
        epoch = 1 if record.version > 2 else None
        blobs = {name: ledger.blob(name) for name in blobs_named(event)}
        request = AppendRequest(str(run), [entry], ANY_VERSION, epoch, blobs)
        other.store.write(lambda tx, request=request: append(tx, request, clock))
    return other


def _failed(farm: Farm, name: str) -> UUID:
    options = dict(_CASES[name])
    prepares = options.pop("prepares", None)
    if prepares is None:
        return farm.record(PromptEvaluationError, **options)
    make = farm.loop

    def loop(**changed: Any) -> Shepherd:
        made = make(**changed)
        prepares(made._adapter)
        return made

    farm.loop = loop  # type: ignore[method-assign]
    return farm.record(PromptEvaluationError, **options)


@pytest.mark.parametrize("name", _CASES)
def test_a_failure_in_words_alone_runs_again(farm: Farm, name: str) -> None:
    """The fields that its program did not know are read from its words, and not compared."""
    run = _failed(farm, name)
    farm.check(run, "run.failed")
    with _retold(farm.ledger, run, lambda event: as_of(event, 0)) as old:
        assert isinstance(old.record(run, 1).event, RunStarted)
        assert b"catalogue" not in old.record(run, 1).data.encode()
        check_again(old, run, farm.dead)


@pytest.mark.parametrize("name", _CASES)
def test_words_come_to_the_fields_that_todays_program_writes(farm: Farm, name: str) -> None:
    """One function reads them; of today's events it changes nothing."""
    run = _failed(farm, name)
    for event in farm.events(run):
        assert with_failure_fields(as_of(event, 0), 0) == replace_catalogue(event)
        assert with_failure_fields(event, CATALOGUE) is event


def replace_catalogue(event: Event) -> Event:
    """Without its number, and without fields that no words of older programs come to."""
    event = as_of(event, 2)
    return replace(event, catalogue=0) if isinstance(event, RunStarted) else event


@pytest.mark.parametrize(
    ("name", "kind", "changed"),
    [
        ("no request", RunFailed, {"step": ""}),
        ("an empty reply", ModelCallFailed, {"reply_error": "something else"}),
    ],
)
def test_a_field_that_its_program_knew_is_compared(
    farm: Farm, name: str, kind: type[Event], changed: dict[str, str]
) -> None:
    """Its words stay, and the field says otherwise: that is a divergence."""
    run = _failed(farm, name)

    def change(event: Event) -> Event:
        return replace(event, **changed) if isinstance(event, kind) else event

    with _retold(farm.ledger, run, change) as other:
        found = replay(other, run, loop=farm.dead())
        assert found.divergence is not None
        assert found.divergence.tag in (kind.tag, "run.failed")


_REWORDED: dict[str, tuple[list[Any], type[Event]]] = {
    "a run that failed": ([Reply()], RunFailed),
    "arguments that were refused": ([asks(("a", "count", "{")), DONE], ToolCallFailed),
}


@pytest.mark.parametrize("name", _REWORDED)
@pytest.mark.parametrize("older", [True, False])
def test_words_of_older_programs_are_not_compared(farm: Farm, name: str, older: bool) -> None:
    """What failed is compared by type, phase and cause; words of today's program too."""
    replies, kind = _REWORDED[name]
    fails = PromptEvaluationError if kind is RunFailed else None
    run = farm.record(fails, replies=replies)

    def change(event: Event) -> Event | None:
        if isinstance(event, CheckpointReached):
            return None  # it has the digest of the words of today
        if isinstance(event, RunFailed | ToolCallFailed):
            event = replace(event, error_message="as it was once worded")
        return as_of(event, 0 if older else CATALOGUE)

    with _retold(farm.ledger, run, change) as other:
        found = replay(other, run, loop=farm.dead())
        assert (found.divergence is None) is older, str(found.divergence)


def test_an_older_failure_of_another_type_is_a_divergence(farm: Farm) -> None:
    """The type of the error behind it is compared in records of all programs."""
    run = farm.record(PromptEvaluationError, replies=[Reply()])

    def change(event: Event) -> Event:
        event = replace(event, phase="tool") if isinstance(event, RunFailed) else event
        return as_of(event, 0)

    with _retold(farm.ledger, run, change) as other:
        found = replay(other, run, loop=farm.dead())
        assert found.divergence is not None
        assert found.divergence.cause == "failure changed"
