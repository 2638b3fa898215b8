"""Given changes of session state, when they are folded, then the slices by type."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import msgspec
import pytest

from tests.unit.projections.given import (
    RUN,
    START,
    answers,
    asks,
    changes,
    continues,
    folded,
    forks,
    ident,
    inner,
    moment,
    records,
    restores,
    said,
    system,
)
from turnledger.ledger import InnerMessage, RunStarted, SliceEventApplied, StateRestored
from turnledger.projections import (
    Declarations,
    ReducerContext,
    RunState,
    SessionSlices,
    append_all,
    fold,
    inner_message_append,
    reducer,
    replace_latest,
    replace_latest_by,
    upsert_by,
)
from turnledger.projections.projection import as_json


class Step(msgspec.Struct, frozen=True):
    name: str
    done: bool = False


@dataclass(frozen=True)
class SentEmail:
    to: str


class Added(msgspec.Struct, frozen=True):
    by: int


class Doubled(msgspec.Struct, frozen=True):
    pass


class Counter(msgspec.Struct, frozen=True):
    value: int = 0

    @reducer(on=Added)
    def add(self, event: Added) -> Counter:
        return Counter(self.value + event.by)

    @reducer(on=Doubled)
    def double(self, event: Doubled) -> Counter:
        return Counter(self.value * 2)


class Model:
    """What a pydantic model looks like to the fold."""

    def __init__(self, text: str) -> None:
        self.text = text

    @classmethod
    def model_validate(cls, payload: Any) -> Self:
        if not isinstance(payload, dict) or not isinstance(payload.get("text"), str):
            raise ValueError("text")
        return cls(payload["text"])

    def model_dump(self, *, mode: str, by_alias: bool) -> dict[str, str]:
        assert (mode, by_alias) == ("json", True)
        return {"text": self.text}


def declared(*reducers: tuple[type, type, Any]) -> Declarations:
    declarations = Declarations()
    for slice_type, event_type, one in reducers:
        declarations.register(slice_type, event_type, one)
    return declarations


def operation(name: str, operation: Any, payload: Any = None, item: str = "") -> SliceEventApplied:
    return SliceEventApplied(
        slice=name, event_type=item or name, operation=operation, payload=payload
    )


# --- undeclared ----------------------------------------------------------------------


def test_slices_that_nobody_declared_are_folded_as_json() -> None:
    """A run can be looked at without its code."""
    state = folded(
        changes("Plan", {"n": 1}), operation("Plan", "append", 2), operation("Log", "seed", ["a"])
    )
    assert state.slices.all("Plan") == ({"n": 1}, 2)
    assert state.to_json()["slices"] == {"Log": ["a"], "Plan": [{"n": 1}, 2]}
    assert state.slices.all("nobody") == ()


def test_an_event_without_a_reducer_is_counted_and_changes_nothing() -> None:
    """Which change it would make only its program knows."""
    state = folded(changes("Plan", 1), changes("Plan", {"by": 2}, "Added")).slices
    assert state.all("Plan") == (1,)
    assert state.unapplied == 1


def test_a_slice_of_values_of_another_type_takes_no_others() -> None:
    """They are decoded as their own type if it is declared; others are counted."""
    events = (
        operation("Sent", "append", {"to": "ann"}, item="SentEmail"),
        operation("Sent", "append", {"to": "bob"}),
        changes("Sent", {"to": "bob"}),
        operation("Sent", "append", {"to": "cid"}, item="SentEmail"),
    )
    state = folded(*events).slices
    assert [value.to for value in state.all("Sent")] == ["ann", "cid"]
    assert state.unapplied == 2
    declarations = Declarations()
    declarations.declare(SentEmail)
    known = folded(*events, declarations=declarations).slices
    assert known.all("Sent") == (SentEmail("ann"), SentEmail("cid"))
    assert SessionSlices().digest(known) == SessionSlices().digest(state)


def test_a_registered_append_takes_events_of_several_types() -> None:
    """It is the program's own reducer: nothing is checked."""
    declarations = declared((Step, Step, append_all), (Step, SentEmail, append_all))
    events = (changes("Step", {"name": "a"}), changes("Step", {"to": "ann"}, "SentEmail"))
    state = folded(*events, declarations=declarations).slices
    assert state.all("Step") == (Step("a"), SentEmail("ann"))
    assert state.unapplied == 0


def test_seed_replaces_and_clear_empties() -> None:
    """An empty slice is there all the same; seeding with nothing empties too."""
    begin = (changes("Plan", 1), operation("Plan", "seed", [7, 8]))
    assert folded(*begin).slices.all("Plan") == (7, 8)
    assert folded(*begin, operation("Plan", "clear")).to_json()["slices"] == {"Plan": []}
    assert folded(*begin, operation("Plan", "seed")).slices.all("Plan") == ()


@pytest.mark.parametrize("payload", [5, "text", {"a": 1}, True])
def test_a_seed_that_is_no_list_changes_nothing(payload: Any) -> None:
    """It is counted."""
    state = folded(changes("Plan", 1), operation("Plan", "seed", payload)).slices
    assert (state.all("Plan"), state.unapplied) == ((1,), 1)


# --- declared ------------------------------------------------------------------------


def test_declared_types_are_what_the_slice_holds() -> None:
    """Structs, dataclasses, and whatever validates like pydantic."""
    declarations = declared((Step, Step, append_all), (SentEmail, SentEmail, append_all))
    declarations.declare(Model)
    state = folded(
        changes("Step", {"name": "a"}),
        changes("SentEmail", {"to": "ann"}),
        changes("Model", {"text": "x"}),
        declarations=declarations,
    )
    assert state.slices.all("Step") == (Step("a"),)
    assert state.slices.all("SentEmail") == (SentEmail("ann"),)
    assert state.slices.all("Model")[0].text == "x"
    assert state.to_json()["slices"]["Model"] == [{"text": "x"}]


def test_the_digest_of_declared_values_is_that_of_their_json() -> None:
    """Whatever their types are; so a run's digest needs its content only."""
    declarations = Declarations()
    declarations.declare(Model)
    events = (changes("Model", {"text": "x"}), changes("Model", {"text": "y"}))
    assert folded(*events, declarations=declarations).state_digest == folded(*events).state_digest


@pytest.mark.parametrize(
    "event",
    [
        changes("Step", {"nam": 1}),
        changes("Step", None),
        operation("Step", "append", {"name": 1}),
        operation("Step", "seed", [{"name": "ok"}, 5]),
        changes("Model", {"text": 5}),
    ],
)
def test_a_payload_that_does_not_fit_its_type_changes_nothing(event: SliceEventApplied) -> None:
    """The type changed since: the fold goes on, counts it, and the digest tells."""
    declarations = declared((Step, Step, append_all))
    declarations.declare(Model)
    first = changes("Step", {"name": "a"})
    before = folded(first, declarations=declarations)
    after = folded(first, event, declarations=declarations)
    assert after.slices.all("Step") == (Step("a"),)
    assert after.slices.unapplied == 1
    assert after.state_digest != before.state_digest


def test_a_reducers_own_error_is_not_hidden() -> None:
    """It is a fault of the program, and its author wants to see it."""

    def broken(values: Any, event: Any, *, context: ReducerContext) -> Any:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        folded(changes("Step", {"name": "a"}), declarations=declared((Step, Step, broken)))


def test_reducers_keep_one_value_or_one_for_each_key() -> None:
    """replace_latest, upsert_by at its place, replace_latest_by at the end."""
    events = [
        changes("Step", {"name": name, "done": done})
        for name, done in (("a", False), ("b", False), ("a", True))
    ]

    def with_reducer(one: Any) -> tuple[Any, ...]:
        return folded(*events, declarations=declared((Step, Step, one))).slices.all("Step")

    a, b, done = Step("a"), Step("b"), Step("a", True)
    assert with_reducer(append_all) == (a, b, done)
    assert with_reducer(replace_latest) == (done,)
    assert with_reducer(upsert_by(lambda step: step.name)) == (done, b)
    assert with_reducer(replace_latest_by(lambda step: step.name)) == (b, done)


def test_a_class_declares_its_reducers() -> None:
    """`@reducer(on=...)`: from the latest value, or a fresh one, to the new one."""
    declarations = Declarations()
    declarations.register_class(Counter)
    state = folded(
        changes("Counter", {"by": 3}, "Added"),
        changes("Counter", {}, "Doubled"),
        changes("Counter", {"by": 1}, "Added"),
        declarations=declarations,
    )
    assert state.slices.all("Counter") == (Counter(7),)


def test_a_reducer_knows_where_in_the_ledger_its_event_stands() -> None:
    """Run, version and time; never a clock."""
    seen: list[ReducerContext] = []

    def watching(values: Any, event: Any, *, context: ReducerContext) -> Any:
        seen.append(context)
        return values

    folded(
        RunStarted(), changes("Step", {"name": "a"}), declarations=declared((Step, Step, watching))
    )
    assert seen == [ReducerContext(run_id=RUN, version=2, recorded_at=moment(2))]


def test_registering_again_replaces_the_reducer() -> None:
    """The latest one counts."""
    declarations = declared((Step, Step, replace_latest), (Step, Step, append_all))
    events = (changes("Step", {"name": "a"}), changes("Step", {"name": "b"}))
    assert len(folded(*events, declarations=declarations).slices.all("Step")) == 2


def test_a_name_means_one_type() -> None:
    """Another type under the same name is refused; the same one again is harmless."""
    declarations = Declarations()
    assert declarations.declare(Step) == "Step"
    assert declarations.declare(Step) == "Step"
    with pytest.raises(ValueError, match="'Step' is declared already"):
        declarations.declare(Counter, name="Step")


def test_a_type_that_was_given_a_name_is_registered_under_it() -> None:
    """Names in data are the declared ones."""
    declarations = Declarations()
    declarations.declare(Step, name="plan.step")
    declarations.register(Step, Step, replace_latest)
    events = (changes("plan.step", {"name": "a"}), changes("plan.step", {"name": "b"}))
    state = folded(*events, declarations=declarations).slices
    assert state.all("plan.step") == (Step("b"),)
    assert state.all("Step") == ()


# --- messages as a slice -------------------------------------------------------------

RECORDING = declared((InnerMessage, InnerMessage, inner_message_append))


def sequences(state: RunState) -> list[tuple[str, int]]:
    return [(m.evaluation_id, m.sequence) for m in state.slices.all("InnerMessage")]


def test_messages_are_a_slice_only_when_that_is_registered() -> None:
    """Recording is opt-in for a session; the ledger always records (X11)."""
    events = (system(), said("user", "Hi", 1))
    assert folded(*events).slices.all("InnerMessage") == ()
    state = folded(*events, declarations=RECORDING)
    assert state.slices.all("InnerMessage") == tuple(event.message for event in events)


def test_a_message_that_is_there_is_ignored_and_order_is_kept() -> None:
    """Within its evaluation, whatever other evaluations said in between."""
    events = [
        said("user", "a", 2),
        said("user", "b", 5, evaluation_id="e2"),
        said("user", "c", 4),
        said("user", "c again", 4),
        said("user", "d", 3),
        said("user", "e", 1, evaluation_id="e2", message_id=ident(50)),
        said("user", "f", 6),
    ]
    state = folded(*events, declarations=RECORDING)
    assert sequences(state) == [
        ("e1", 2),
        ("e2", 1),
        ("e2", 5),
        ("e1", 3),
        ("e1", 4),
        ("e1", 6),
    ]
    values: tuple[InnerMessage, ...] = ()
    for event in events:
        values = inner_message_append(values, event.message, context=ReducerContext())
    assert state.slices.all("InnerMessage") == values


def test_messages_handed_to_the_slice_itself_are_messages_too() -> None:
    """`dispatch` of an InnerMessage, as JSON."""
    payload = as_json(inner("user", "Hi", 0))
    state = folded(changes("InnerMessage", payload), said("user", "Hi", 0), declarations=RECORDING)
    assert state.slices.all("InnerMessage") == (inner("user", "Hi", 0),)


def test_messages_after_the_slice_was_seeded_are_compared_with_what_is_there() -> None:
    """However the slice came about."""
    seed = operation("InnerMessage", "seed", [as_json(inner("user", "Hi", 3))])
    events = (seed, said("user", "Hi", 3), said("user", "early", 1), said("user", "late", 4))
    assert sequences(folded(*events, declarations=RECORDING)) == [("e1", 1), ("e1", 3), ("e1", 4)]


# --- restoring -----------------------------------------------------------------------


def test_state_goes_back_to_a_snapshot() -> None:
    """Slices that the snapshot lacks are gone; types are looked up by name, not imported."""
    declarations = declared((Step, Step, append_all))
    state = folded(
        changes("Step", {"name": "a"}),
        changes("Log", "x"),
        restores(Step=[{"name": "b"}]),
        changes("Step", {"name": "c"}),
        declarations=declarations,
    )
    assert state.slices.all("Step") == (Step("b"), Step("c"))
    assert "Log" not in state.slices.slices


def test_restoring_never_removes_messages() -> None:
    """State rolls back, the conversation does not (X16)."""
    events = (system(), said("user", "Hi", 1), changes("Step", {"name": "a"}), restores())
    state = folded(*events, declarations=RECORDING)
    assert sequences(state) == [("e1", 0), ("e1", 1)]
    assert list(state.slices.slices) == ["InnerMessage"]


def test_restoring_appends_the_messages_that_are_missing() -> None:
    """Each once, in its place, with the status that it had (X16)."""
    kept = asks(1, "c1").message
    completed = msgspec.structs.replace(
        kept,
        message_id=ident(77),
        sequence=0,
        tool_calls=(msgspec.structs.replace(kept.tool_calls[0], status="completed"),),
    )
    snapshot = restores(
        InnerMessage=[as_json(kept), as_json(completed), as_json(answers(2, "c1").message)]
    )
    state = folded(RunStarted(), asks(1, "c1"), snapshot, declarations=RECORDING)
    assert sequences(state) == [("e1", 0), ("e1", 1), ("e1", 2)]
    assert state.slices.all("InnerMessage")[0] == completed


@pytest.mark.parametrize(
    "snapshot",
    [
        None,
        5,
        [],
        {},
        {"slices": None},
        {"slices": 5},
        {"slices": [1, None, "x"]},
        {"slices": [{"slice_type": 5}]},
        {"slices": [{"slice_type": "m:Step", "items": 5}]},
        {"slices": [{"slice_type": "m:Step", "items": [{"nam": 1}]}]},
        {"slices": [{"slice_type": "m:InnerMessage", "items": [{"role": "nobody"}]}]},
    ],
)
def test_restoring_nonsense_is_no_error(snapshot: Any) -> None:
    """A fold is total: what can't be read restores nothing."""
    declarations = declared((Step, Step, append_all))
    declarations.register(InnerMessage, InnerMessage, inner_message_append)
    events = (said("user", "Hi", 0), changes("Step", {"name": "a"}))
    state = folded(*events, StateRestored(snapshot=snapshot), declarations=declarations)
    assert state.slices.all("Step") == ()
    assert sequences(state) == [("e1", 0)]
    assert state.state_digest


# --- descending ----------------------------------------------------------------------


def test_forks_and_continuations_keep_the_slices() -> None:
    """A session goes on in the next run, with its messages; a run of its own begins empty."""
    events = (RunStarted(), said("user", "Hi", 0), changes("Plan", 1))
    for begins in (forks(3), continues(3)):
        state = folded(*events, begins, declarations=RECORDING)
        assert state.slices.all("Plan") == (1,)
        assert sequences(state) == [("e1", 0)]
    assert folded(*events, RunStarted()).slices.all("Plan") == ()


def test_the_outcome_is_the_values_without_the_messages() -> None:
    """Messages have ids and times; a slice's values are what a recovered run must share."""
    view = SessionSlices(RECORDING)
    one = fold(records([said("user", "Hi", 0), changes("Plan", 1)]), view)
    two = fold(
        records([said("user", "Hi", 0, message_id=ident(9), created_at=START), changes("Plan", 1)]),
        view,
    )
    assert view.outcome(one) == view.outcome(two)
    assert view.digest(one) != view.digest(two)
    restored = fold(records([changes("Plan", 2), restores(Plan=[1])]), view)
    assert view.outcome(restored) == view.outcome(one)
