"""Runs that were recovered by another provider or model, and run again by the last one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from uuid import UUID

import pytest

from tests.agent import Crash
from tests.replay.farm import Farm
from tests.replay.shepherd import DONE, Shepherd, calls
from turnledger.ledger import Ledger, ModelCalled
from turnledger.runtime import Reply, ScriptedAdapter
from turnledger.runtime.replaying.replay import Replayed, replay

ANSWERS = [calls("a1"), calls("a2", "a3"), DONE]


class Parrot(ScriptedAdapter[Any]):
    """Another provider."""

    name = "parrot"


class Owl(ScriptedAdapter[Any]):
    """A third one."""

    name = "owl"


def model(adapter: Any, name: str) -> dict[str, Any]:
    """The options of an agent with this provider and model."""
    return {"adapter": adapter, "adapter_options": {"model": name}}


SCRIPT = model(ScriptedAdapter, "script")
OTHERS = {
    "provider": model(Parrot, "squawk"),
    "provider with a model of the same name": model(Parrot, "script"),
    "model": model(ScriptedAdapter, "bard"),
}


def recovered(farm: Farm, *ways: dict[str, Any]) -> UUID:
    """A run that every one of these worked on, a turn each, and the last one to its end."""
    first, *others, last = ways
    run = farm.record(Crash, replies=turns(1), **first)
    for place, way in enumerate(others, 2):
        farm.recover(run, Crash, **{**way, "replies": turns(place)})
    farm.recover(run, **{**last, "replies": turns(len(ANSWERS))})
    return run


def turns(last: int) -> Callable[[Any], Reply]:
    """A model that answers up to this turn; then the process is gone."""

    def reply(request: Any) -> Reply:
        if request.turn > last:
            raise Crash
        return ANSWERS[request.turn - 1]

    return reply


def replayed(farm: Farm, run: UUID, way: dict[str, Any], until: int | None = None) -> Replayed:
    """The run again, by an agent with this provider and model."""
    loop = Shepherd(Ledger.open("memory://"), live=False, **way)
    found = replay(farm.ledger, run, loop=loop, until=until)
    assert (loop.called, loop.sent) == ([], 0)
    return found


def called_by(farm: Farm, run: UUID, way: dict[str, Any]) -> list[int]:
    """The versions of the calls that were made with an adapter and model."""
    wanted = (way["adapter"].name, way["adapter_options"]["model"])
    return [
        one.version
        for one in farm.ledger.read(run)
        if isinstance(one.event, ModelCalled) and (one.event.adapter, one.event.model) == wanted
    ]


@pytest.mark.parametrize("name", OTHERS)
def test_a_run_that_another_recovered_runs_again(farm: Farm, name: str) -> None:
    """By the last attempt's: the calls of the first are taken as recorded, and are listed."""
    other = OTHERS[name]
    run = recovered(farm, SCRIPT, other)
    found = replayed(farm, run, other)
    assert found.divergence is None, str(found.divergence)
    assert (found.version, found.attempts) == (farm.ledger.head(run), 2)
    listed = [one for one in found.taken if one.tag == "model.called"]
    assert [one.version for one in listed] == called_by(farm, run, SCRIPT)
    assert {(one.adapter, one.model) for one in listed} == {("scripted", "script")}
    begun = [one.adapter for one in found.taken if one.tag == "evaluation.started"]
    assert begun == (["scripted"] if other["adapter"] is Parrot else [])
    for until in range(1, farm.ledger.head(run) + 1):
        assert replayed(farm, run, other, until).divergence is None


@pytest.mark.parametrize("name", OTHERS)
def test_the_first_attempts_model_is_not_that_of_the_run(farm: Farm, name: str) -> None:
    """What differs from the last attempt's is a changed model, at its first call."""
    other = OTHERS[name]
    run = recovered(farm, SCRIPT, other)
    found = replayed(farm, run, SCRIPT)
    assert found.divergence is not None
    assert found.divergence.cause == "model changed"
    assert found.divergence.version == called_by(farm, run, other)[0]
    assert found.taken == ()


def test_a_model_that_no_attempt_had_is_changed_at_once(farm: Farm) -> None:
    """And it is said which one the run ended with."""
    run = recovered(farm, SCRIPT, OTHERS["provider"])
    found = replayed(farm, run, model(Owl, "hoot"))
    assert found.divergence is not None
    assert (found.divergence.cause, found.divergence.tag) == ("model changed", "evaluation.started")
    assert "the run's last call was by parrot squawk: replay with that" in found.divergence.detail
    assert found.taken == ()


def test_there_and_back_again(farm: Farm) -> None:
    """The first recovers what another went on with: only the other's calls are not compared."""
    other = OTHERS["provider"]
    run = recovered(farm, SCRIPT, other, SCRIPT)
    found = replayed(farm, run, SCRIPT)
    assert (found.divergence, found.attempts) == (None, 3)
    assert [one.version for one in found.taken] == called_by(farm, run, other)
    changed = replayed(farm, run, other).divergence
    assert changed is not None
    assert changed.cause == "model changed"


def test_all_else_of_an_earlier_attempt_is_compared(farm: Farm) -> None:
    """A prompt that was changed is found under another adapter too."""
    other = OTHERS["provider"]
    run = recovered(farm, SCRIPT, other)
    found = replayed(farm, run, {**other, "template": "Kindly ${text}."})
    assert found.divergence is not None
    assert (found.divergence.tag, found.divergence.cause) == (
        "evaluation.started",
        "prompt text changed",
    )


def test_a_model_that_changes_without_a_recovery_is_changed(farm: Farm) -> None:
    """Within one attempt every call is compared."""
    run = farm.record(replies=ANSWERS, **SCRIPT)
    found = replayed(farm, run, OTHERS["model"])
    assert found.divergence is not None
    assert (found.divergence.cause, found.divergence.tag) == ("model changed", "model.called")
