"""What a program declares of its session state: names, types, and values in and out of JSON."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass
from typing import Any

import pydantic
import pytest

from tests.unit.projections.given import changes, folded
from turnledger.ledger import InvalidInputError
from turnledger.projections import Declarations, append_all, replace_latest
from turnledger.projections.session.declarations import dumped, plain, written


class Tagged(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(strict=True)

    labels: frozenset[str] = frozenset()
    groups: dict[str, list[set[str]]] = {}
    pair: tuple[int, int] = (0, 0)


class Renamed(pydantic.BaseModel):
    inner: int = pydantic.Field(alias="outer")


@dataclass(frozen=True)
class Holding:
    model: Renamed
    many: tuple[Tagged, ...] = ()


@pydantic.dataclasses.dataclass(frozen=True)
class Positive:
    value: int = pydantic.Field(gt=0)


@dataclass(frozen=True)
class Picky:
    value: int

    def __post_init__(self) -> None:
        raise RuntimeError("never")


LABELS = {f"label {number}" for number in range(20)}


@pytest.mark.parametrize(
    ("kind", "payload", "value"),
    [
        (Renamed, {"outer": 3}, Renamed(outer=3)),
        (Tagged, {"labels": ["a"], "pair": [1, 2]}, Tagged(labels=frozenset("a"), pair=(1, 2))),
        (Holding, {"model": {"outer": 1}, "many": [{}]}, Holding(Renamed(outer=1), (Tagged(),))),
        (Positive, {"value": 1}, Positive(1)),
    ],
)
def test_payloads_become_values_of_the_declared_type(kind: Any, payload: Any, value: Any) -> None:
    """Models read JSON as JSON, however strict, also within dataclasses; and it is so again."""
    declared = Declarations()
    name = declared.declare(kind)
    found = declared.value(name, payload)
    assert found == value
    assert declared.value(name, plain(found)) == value


@pytest.mark.parametrize(
    ("kind", "payload"),
    [
        (Renamed, {"inner": 3}),
        (Holding, {"model": {"outer": "x"}}),
        (Positive, {"value": -1}),
        (Picky, {"value": 1}),
        (object, 5),
    ],
)
def test_what_does_not_fit_is_a_value_error_whatever_the_type_raises(
    kind: Any, payload: Any
) -> None:
    """So that a fold counts it and goes on."""
    declared = Declarations()
    name = declared.declare(kind)
    with pytest.raises(ValueError):
        declared.value(name, payload)
    assert folded(changes(name, payload), declarations=declared).slices.unapplied == 1


def test_a_models_json_has_its_sets_in_one_order() -> None:
    """At any depth; lists stay as they are."""
    found = dumped(Tagged(labels=frozenset(LABELS), groups={"x": [LABELS, set("cab")]}))
    assert found["labels"] == sorted(LABELS)
    assert found["groups"] == {"x": [sorted(LABELS), ["a", "b", "c"]]}
    assert dumped(Tagged(pair=(2, 1)))["pair"] == [2, 1]


def test_a_class_may_fix_its_name_in_the_ledger() -> None:
    """So that two classes of one name go together; a subclass is another type and needs its own."""

    class Plan:
        __ledger_name__ = "ours.Plan"

    ours, theirs = Plan, type("Plan", (Plan,), {})
    declared = Declarations()
    assert [declared.declare(ours), declared.declare(theirs)] == ["ours.Plan", "Plan"]
    assert declared.declare(ours, name="ours.Other") == "ours.Other"


@pytest.mark.parametrize("name", ["module:Plan", 5])
def test_a_fixed_name_that_a_snapshot_could_not_hold_is_refused(name: Any) -> None:
    """A snapshot spells types "module:Class"."""
    kind = type("Plan", (), {"__ledger_name__": name})
    with pytest.raises(InvalidInputError, match="expected text without ':'"):
        Declarations().declare(kind)


DIGEST = """
from turnledger.projections import Declarations
from tests.unit.projections.given import changes, folded
from tests.unit.projections.session.test_declarations import LABELS, Tagged
declared = Declarations()
declared.declare(Tagged)
print(folded(changes("Tagged", {"labels": sorted(LABELS)}), declarations=declared).state_digest)
"""


@pytest.mark.process
def test_digests_do_not_depend_on_the_order_of_hashes() -> None:
    """Another process has another, and must come to the same state."""
    digests = {
        subprocess.run(
            [sys.executable, "-c", DIGEST],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2", "3")
    }
    assert len(digests) == 1


def test_digests_are_of_the_json_that_is_on_disk() -> None:
    """With the names that it has there."""
    declared = Declarations()
    declared.declare(Renamed)
    event = changes("Renamed", {"outer": 3})
    assert folded(event, declarations=declared).state_digest == folded(event).state_digest


def test_a_value_that_is_no_json_has_no_digest() -> None:
    """TypeError says what it is."""
    with pytest.raises(TypeError, match="object is not JSON"):
        written(object())


def test_declarations_are_copied_and_go_their_own_way() -> None:
    """Types, names and reducers."""
    first = Declarations()
    first.declare(Renamed, name="renamed")
    first.register(Tagged, Tagged, append_all)
    twin = first.copy()
    assert twin.declared() == {"renamed": Renamed, "Tagged": Tagged}
    assert (twin.name_of(Renamed), twin.type_of("renamed")) == ("renamed", Renamed)
    assert twin.changes == first.changes
    assert twin.reducer("Tagged", "Tagged") is append_all
    twin.register(Tagged, Tagged, replace_latest)
    twin.declare(Positive)
    assert first.reducer("Tagged", "Tagged") is append_all
    assert first.type_of("Positive") is None


def test_what_changes_the_meaning_of_a_name_is_noted() -> None:
    """Once for a type, each time for a reducer; taking one back too."""
    declared = Declarations()
    declared.declare(Tagged)
    declared.declare(Tagged)
    assert declared.changes == ["Tagged"]
    declared.register(Tagged, Positive, append_all)
    declared.register(Tagged, Positive, None)
    assert declared.changes == ["Tagged", "Positive", "Tagged", "Tagged"]
    assert declared.reducer("Tagged", "Positive") is None
    declared.register(Tagged, Positive, None)
    with pytest.raises(InvalidInputError):
        declared.declare(Positive, name="Tagged")
