"""What may be in a session: values that come back as they went in, and nothing else."""

from __future__ import annotations

from dataclasses import dataclass, field
from decimal import Decimal
from types import MappingProxyType
from typing import Any

import msgspec
import pydantic
import pytest
from hypothesis import given

from tests.unit.runtime.kinds import MixedDataclass, PointModel, PointStruct, any_shape
from tests.unit.runtime.states import Counter, Plan, Step, on_disk, slices
from turnledger.ledger import InnerMessage, InvalidInputError, LimitExceededError, TurnledgerError
from turnledger.projections import RunState
from turnledger.runtime import DataDecodeError, DataEncodeError, Session, SnapshotRestoreError


class SpecialStep(Step, frozen=True):
    more: int = 0


class Holder(msgspec.Struct, frozen=True):
    anything: Any = None


@dataclass(frozen=True)
class Checked:
    value: int

    def __post_init__(self) -> None:
        if self.value < 0:
            raise RuntimeError("negative")


@dataclass(frozen=True)
class Lossy:
    """Gives up what it was made with."""

    seen: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.seen.append("again")


@pydantic.dataclasses.dataclass(frozen=True)
class Positive:
    value: int = pydantic.Field(gt=0)


def unchanged(session: Session, version: int) -> None:
    assert session.journal.known.version == version
    assert not session.journal.has_pending


@given(any_shape)
def test_values_of_every_kind_come_back_equal(shape: Any) -> None:
    """From the session, and from a fold of what it recorded."""
    session = Session()
    session[type(shape)].append(shape)
    session[type(shape)].seed([shape, shape])
    assert session[type(shape)].all() == (shape, shape)
    assert slices(on_disk(session)) == slices(session.state)
    assert on_disk(session).state_digest == session.state.state_digest


def test_models_within_dataclasses_come_back_and_have_a_digest() -> None:
    """Whichever library reads the outer one."""
    value = MixedDataclass(PointStruct(1), PointModel(x=2), [PointModel(x=3)], PointModel(x=4))
    session = Session()
    session[MixedDataclass].append(value)
    assert session[MixedDataclass].latest() == value
    assert session.state.state_digest == on_disk(session).state_digest


def test_pydantic_dataclasses_are_checked_by_pydantic() -> None:
    """When they are read, too."""
    session = Session()
    session[Positive].append(Positive(3))
    assert session[Positive].latest() == Positive(3)
    broken = Positive(1)
    object.__setattr__(broken, "value", -1)
    with pytest.raises(DataDecodeError, match=r"Positive\.value"):
        session[Positive].append(broken)


@pytest.mark.parametrize(
    ("kind", "value", "path"),
    [
        (Holder, Holder(float("nan")), "Holder.anything"),
        (Holder, Holder({"deep": [1, b"bytes"]}), "Holder.anything.deep[1]"),
        (Holder, Holder({1: "key"}), "Holder.anything"),
        (Holder, Holder(object()), "Holder.anything"),
        (Holder, Holder(2**64), "Holder.anything"),
        (Holder, Holder("\ud800"), "Holder.anything"),
        (Holder, Holder({1, 2}), None),
        (Lossy, Lossy(), "Lossy.seen[1]"),
        (Holder, Holder(Decimal("1.5")), None),
    ],
)
def test_what_is_no_json_is_refused_and_nothing_is_recorded(
    kind: Any, value: Any, path: str | None
) -> None:
    """The error names the place; what JSON can say in other words is taken."""
    session = Session()
    session.install(kind)
    before = session.journal.known.version
    for attempt in (session[kind].append, lambda one: session[kind].seed([one])):
        if path is None:
            attempt(value)
            continue
        with pytest.raises(DataEncodeError) as caught:
            attempt(value)
        assert caught.value.path == path
        unchanged(session, before)


@pytest.mark.parametrize(
    ("kind", "value", "path"),
    [
        (Step, {"name": "a"}, "Step"),
        (Step, None, "Step"),
        (Step, SpecialStep("a"), "Step"),
        (Step, Step(5), "Step.name"),  # type: ignore[arg-type]
        (Plan, Plan(("a", 5)), "Plan.steps[1]"),  # type: ignore[arg-type]
        (Plan, Plan(notes={"n": "one"}), "Plan.notes[...]"),  # type: ignore[dict-item]
        (InnerMessage, Step("a"), "InnerMessage"),
    ],
)
def test_what_is_not_of_the_slices_type_is_refused_and_nothing_is_recorded(
    kind: Any, value: Any, path: str
) -> None:
    """In either spelling; the error names the place."""
    session = Session()
    session.install(kind)
    before = session.journal.known.version
    for attempt in (
        session[kind].append,
        session.mutate(kind).append,
        lambda one: session[kind].seed([one]),
    ):
        with pytest.raises(DataDecodeError) as caught:
            attempt(value)
        assert caught.value.path == path
        unchanged(session, before)


def test_a_slice_may_hold_values_of_another_class() -> None:
    """S2-24: all of one class, also in clones and snapshots, and before it is declared."""
    session = Session()
    session[Plan].append(Step("a"))
    assert session[Plan].all() == session.clone()[Plan].all() == (Step("a"),)
    for other in (Plan(("x",)), Counter(1)):
        with pytest.raises(DataDecodeError, match="expected a Step, as the values before it"):
            session[Plan].append(other)
    twin = Session()
    twin.install(Plan)
    with pytest.raises(SnapshotRestoreError, match="Step"):
        twin.restore(session.snapshot())
    twin.restore(session.snapshot(), undeclared="keep")
    (plain,) = twin[Plan].all()
    assert (plain.name, plain["done"]) == ("a", False)  # type: ignore[index, attr-defined]
    with pytest.raises(AttributeError, match="no 'steps'"):
        _ = plain.steps
    twin[Plan].append(Step("b"))  # and with it the class is declared
    assert twin[Plan].all() == (Step("a"), Step("b"))
    twin[Plan].clear()
    twin[Plan].append(Plan(("x",)))
    assert twin[Plan].all() == (Plan(("x",)),)


def test_a_slice_with_reducers_takes_what_they_reduce() -> None:
    """`append` applies the reducer for the value's class; other classes are refused."""
    session = Session()
    session[Plan].register(Step, lambda values, event, *, context: (*values, Plan((event.name,))))
    session[Plan].append(Step("a"))
    assert session[Plan].all() == (Plan(("a",)),)
    with pytest.raises(DataDecodeError, match="expected a Plan, got a Counter"):
        session[Plan].append(Counter(1))


def test_what_a_types_own_code_raises_is_told() -> None:
    """As an error of the value."""
    value = Checked(1)
    object.__setattr__(value, "value", -1)
    with pytest.raises(DataDecodeError, match="RuntimeError: negative"):
        Session()[Checked].append(value)


def test_a_type_that_json_can_not_hold_is_refused_when_a_value_of_it_is() -> None:
    """It can be named, and has no values."""

    class Opaque:
        pass

    session = Session()
    assert session[Opaque].all() == ()
    with pytest.raises(DataEncodeError):
        session[Opaque].append(Opaque())


@pytest.mark.parametrize("kind", [list[int], "Plan", 5, None, []])
def test_a_slice_is_named_by_a_class(kind: Any) -> None:
    """Not by a generic alias, nor by text."""
    with pytest.raises(InvalidInputError):
        Session()[kind]


def test_a_value_that_is_too_large_or_too_deep_is_refused() -> None:
    """By the ledger's limits; the session goes on."""
    session = Session()
    with pytest.raises(LimitExceededError):
        session[Holder].append(Holder("x" * 9_000_000))
    deep: Any = []
    for _ in range(100):
        deep = [deep]
    with pytest.raises(TurnledgerError):
        session[Holder].append(Holder(deep))
    session[Holder].append(Holder(1))
    assert session[Holder].all() == (Holder(1),)


def test_mappings_that_only_look_like_json_are_refused_from_reducers() -> None:
    """What has no digest can't be checkpointed."""
    session = Session()

    def wrapping(values: Any, event: Holder, *, context: Any) -> Any:
        return (Holder(MappingProxyType({"a": 1})),)

    session[Holder].register(Holder, wrapping)
    with pytest.raises(TurnledgerError, match="wrapping"):
        session[Holder].append(Holder(1))
    assert isinstance(session.state, RunState)
    assert session[Holder].all() == ()
