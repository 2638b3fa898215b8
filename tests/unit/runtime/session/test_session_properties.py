"""Whatever is done to a session, in and out of tools: what it says is what the ledger folds to.

A plain model of what each change means goes along, and a session of every sort: by itself or
attached, in memory or in a file.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.runtime.states import (
    Added,
    Counter,
    Email,
    Plan,
    Step,
    StepDone,
    message,
    new_run,
    on_disk,
    prepared,
)
from tests.unit.runtime.states import slices as all_slices
from turnledger.ledger import InnerMessage, Ledger
from turnledger.projections import (
    ReducerContext,
    RunState,
    get_inner_messages,
    inner_message_append,
)
from turnledger.runtime import Session, Snapshot, enable_inner_message_recording
from turnledger.runtime.journal.journal import Journal
from turnledger.runtime.session import Overlay


def slices(state: RunState) -> dict[str, tuple[Any, ...]]:
    """The slices that have values: an empty one is read like none."""
    return {name: found for name, found in all_slices(state).items() if found}


names = st.sampled_from(["a", "b", "c"])
steps = st.builds(Step, names, st.booleans())
plans = st.builds(
    Plan,
    st.lists(names, max_size=2).map(tuple),
    st.dictionaries(names, st.integers(0, 3), max_size=2),
)
emails = st.builds(
    lambda to, copies: Email(to=to, copies=tuple(copies)), names, st.lists(names, max_size=2)
)
values = {Step: steps, Plan: plans, Email: emails}
kinds = st.sampled_from([Step, Plan, Email])
spelled = st.sampled_from(["item", "mutate"])

appends = kinds.flatmap(
    lambda kind: st.tuples(st.just("append"), spelled, st.just(kind), values[kind])
)
seeds = kinds.flatmap(
    lambda kind: st.tuples(
        st.just("seed"), spelled, st.just(kind), st.lists(values[kind], max_size=3)
    )
)
clears = st.tuples(
    st.just("clear"), spelled, st.sampled_from([Step, Plan, Email, Counter, InnerMessage])
)
applies = st.tuples(
    st.just("apply"), spelled, st.just(Step), st.builds(StepDone, names)
) | st.tuples(st.just("apply"), spelled, st.just(Counter), st.builds(Added, st.integers(-3, 3)))
says = st.tuples(st.just("say"), spelled, st.integers(0, 5), st.integers(0, 3))
whole = st.sampled_from([("reset",), ("keep",), ("back",)])
small = appends | seeds | clears | applies | says | whole
tools = st.tuples(st.just("tool"), st.lists(small, max_size=4), st.booleans())
changes = st.lists(small | tools | st.just(("commit",)), max_size=12)


class Model:
    """What a session should say."""

    def __init__(self) -> None:
        self.slices: dict[str, tuple[Any, ...]] = {}
        self.said: frozenset[UUID] = frozenset()
        self.kept: tuple[dict[str, tuple[Any, ...]], str] | None = None

    def copy(self) -> Model:
        twin = Model()
        twin.slices, twin.said, twin.kept = dict(self.slices), self.said, self.kept
        return twin

    def of(self, kind: Any) -> tuple[Any, ...]:
        return self.slices.get(kind.__name__, ())

    def put(self, kind: Any, found: tuple[Any, ...]) -> None:
        self.slices.pop(kind.__name__, None)
        self.slices |= {kind.__name__: found} if found else {}

    def say(self, one: InnerMessage) -> None:
        if one.message_id not in self.said:
            self.said |= {one.message_id}
            self.put(InnerMessage, inserted(self.of(InnerMessage), one))

    def restore(self, found: dict[str, tuple[Any, ...]]) -> None:
        messages = found.get("InnerMessage", ())
        mine = self.slices.get("InnerMessage")
        self.slices = {name: all_ for name, all_ in found.items() if name != "InnerMessage"}
        if mine is not None:
            self.slices["InnerMessage"] = mine
        here = {one.message_id for one in self.of(InnerMessage)}
        for one in messages:
            if one.message_id in self.said and one.message_id not in here:
                self.put(InnerMessage, inserted(self.of(InnerMessage), one))
        for one in messages:
            self.say(one)


def inserted(found: tuple[InnerMessage, ...], one: InnerMessage) -> tuple[InnerMessage, ...]:
    return inner_message_append(found, one, context=ReducerContext())


def said(number: int, sequence: int) -> InnerMessage:
    return message("user", f"words {number}", sequence, number=number)


def do(session: Session, model: Model, change: Any) -> None:
    """One change, to the session and to the model."""
    match change:
        case ("append", how, kind, value):
            changing(session, kind, how).append(value)
            model.put(kind, (*model.of(kind), value))
        case ("seed", how, kind, found):
            changing(session, kind, how).seed(found)
            model.put(kind, tuple(found))
        case ("clear", how, kind):
            changing(session, kind, how).clear()
            model.put(kind, ())
        case ("apply", how, kind, event):
            if how == "item":
                session[kind].apply(event)
            else:
                session.mutate(kind).dispatch(event)
            model.put(kind, reduced(model.of(kind), event))
        case ("say", how, number, sequence):
            changing(session, InnerMessage, how).append(said(number, sequence))
            model.say(said(number, sequence))
        case ("reset",):
            session.mutate().reset()
            model.restore({})
        case ("keep",):
            model.kept = (dict(model.slices), session.snapshot().to_json())
        case ("back",) if model.kept is not None:
            found, text = model.kept
            session.mutate().rollback(Snapshot.from_json(text))
            model.restore(found)


def changing(session: Session, kind: Any, how: str) -> Any:
    return session[kind] if how == "item" else session.mutate(kind)


def reduced(found: tuple[Any, ...], event: Any) -> tuple[Any, ...]:
    if isinstance(event, Added):
        return (Counter((found[-1].value if found else 0) + event.by),)
    return tuple(Step(s.name, True) if s.name == event.name else s for s in found)


def in_tool(session: Session, model: Model, tool: Any) -> tuple[Overlay, Model]:
    """The changes of a tool, which only it sees."""
    before = slices(session.state)
    mine = model.copy()
    overlay = Overlay(session.journal, "c1")
    with session.scope(overlay):
        for change in tool:
            do(session, mine, change)
            assert slices(session.state) == mine.slices
    assert slices(session.state) == before
    return overlay, mine


def keep(session: Session, overlay: Overlay) -> None:
    """The tool succeeded."""
    events = overlay.close()
    session.change(lambda known: events)


def play(session: Session, script: list[Any]) -> Model:
    """All changes; after each, the session is as the model says."""
    model = Model()
    for change in script:
        if change[0] == "tool":
            overlay, after = in_tool(session, model, change[1])
            if change[2]:
                keep(session, overlay)
                model = after
            overlay.close()
        elif change[0] == "commit":
            session.commit()
        else:
            do(session, model, change)
        assert slices(session.state) == model.slices
    return model


@contextmanager
def a_session(sort: str) -> Iterator[Session]:
    with tempfile.TemporaryDirectory() as folder:
        url = "memory://" if "memory" in sort else str(Path(folder) / "runs.db")
        with Ledger.open(url) as ledger:
            session = prepared(Session(ledger=ledger))
            enable_inner_message_recording(session)
            if "attached" in sort:
                session.attach(new_run(ledger, session))
            yield session


SORTS = [("memory", 150), ("attached memory", 150), ("sqlite", 15), ("attached sqlite", 15)]


@pytest.mark.parametrize(("sort", "examples"), SORTS)
def test_live_state_is_the_fold_of_the_ledger(sort: str, examples: int) -> None:
    """S0-22: digest by digest, and as the model says."""

    @settings(max_examples=examples)
    @given(changes)
    def check(script: list[Any]) -> None:
        with a_session(sort) as session:
            model = play(session, script)
            session.commit()
            found = on_disk(session)
            assert slices(found) == model.slices
            assert found.state_digest == session.state.state_digest
            session.journal.refold()
            assert session.state.state_digest == found.state_digest

    check()


@pytest.mark.parametrize(("sort", "examples"), SORTS)
def test_state_comes_back_from_a_snapshots_json(sort: str, examples: int) -> None:
    """S0-9, X16: in a session that knows the types, and in the one that it is of."""

    @settings(max_examples=examples)
    @given(changes, st.lists(small, max_size=5))
    def check(script: list[Any], more: list[Any]) -> None:
        with a_session(sort) as session:
            model = play(session, script)
            text = session.snapshot().to_json()
            fresh = prepared(Session())
            enable_inner_message_recording(fresh)
            fresh.restore(Snapshot.from_json(text))
            expected = dict(model.slices)
            ordered: tuple[InnerMessage, ...] = ()
            for one in expected.pop("InnerMessage", ()):
                ordered = inserted(ordered, one)
            found = slices(fresh.state)
            assert found.pop("InnerMessage", ()) == ordered
            assert found == expected
            assert fresh.state.state_digest == on_disk(fresh).state_digest
            before = slices(session.state)
            for change in more:
                do(session, model, change)
            session.restore(Snapshot.from_json(text))
            after = slices(session.state)
            there = {one.message_id for one in after.pop("InnerMessage", ())}
            assert there >= {one.message_id for one in before.pop("InnerMessage", ())}
            assert after == before

    check()


@given(changes, changes)
def test_a_clone_is_equal_and_independent(script: list[Any], more: list[Any]) -> None:
    """Whatever is done to either."""
    with a_session("memory") as session:
        model = play(session, script)
        twin = session.clone()
        assert slices(twin.state) == model.slices
        assert get_inner_messages(twin) == get_inner_messages(session)
        mine = model.copy()
        for change in more:
            if change[0] not in ("tool", "commit"):
                do(twin, mine, change)
        assert slices(twin.state) == mine.slices
        assert slices(session.state) == model.slices
        assert slices(on_disk(twin)) == mine.slices


@given(changes, st.lists(small, max_size=6))
def test_an_overlay_that_is_dropped_leaves_the_digest_as_it_was(
    script: list[Any], tool: list[Any]
) -> None:
    """Of the state and of the ledger's run."""
    with a_session("attached memory") as session:
        model = play(session, script)
        session.commit()
        before = session.state.state_digest
        overlay, _ = in_tool(session, model, tool)
        overlay.close()
        session.commit()
        assert session.state.state_digest == before == on_disk(session).state_digest


adding = st.lists(appends | applies, max_size=4)


@given(changes, adding, adding, st.booleans())
def test_two_tools_side_by_side_are_merged_in_either_order(
    script: list[Any], one: list[Any], other: list[Any], swapped: bool
) -> None:
    """What each did happens to the state that it is added to."""
    with a_session("attached memory") as session:
        model = play(session, script)
        made: list[tuple[Overlay, list[Any]]] = []
        for tool in (one, other):
            overlay, _ = in_tool(session, model, tool)
            made.append((overlay, tool))
        for overlay, tool in reversed(made) if swapped else made:
            session.journal.add(*overlay.close())
            for change in tool:
                apply_to_model(model, change)
        assert slices(session.state) == model.slices
        session.commit()
        assert slices(on_disk(session)) == model.slices


def apply_to_model(model: Model, change: Any) -> None:
    if change[0] == "append":
        model.put(change[2], (*model.of(change[2]), change[3]))
    else:
        model.put(change[2], reduced(model.of(change[2]), change[3]))


late: list[Callable[[Session], None]] = [
    lambda session: enable_inner_message_recording(session),
    lambda session: session[Step].register(StepDone, mark_nothing),
    lambda session: session.install(Counter),
    lambda session: session.install(Plan),
]


def mark_nothing(found: Any, event: Any, *, context: Any) -> Any:
    return found


@given(changes, st.permutations(range(len(late))))
def test_it_does_not_matter_when_types_and_reducers_are_declared(
    script: list[Any], order: list[int]
) -> None:
    """Before everything was recorded, or after it: the fold is the same."""
    with a_session("memory") as session:
        play(session, script)
        ledger, run_id = session.journal.ledger, session.journal.run_id
        early, after = Session(), Session()
        for number in order:
            late[number](early)
        folded = Journal(ledger, run_id, declarations=early.declarations)
        looking = Journal(ledger, run_id, declarations=after.declarations)
        after.attach(looking)
        early.attach(folded)
        for number in order:
            late[number](after)
        assert after.state.state_digest == early.state.state_digest
        assert slices(after.state) == slices(early.state)
