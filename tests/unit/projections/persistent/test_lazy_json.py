"""Parts of a state, made without the whole: they are what the whole says."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice, pairwise
from typing import Any
from uuid import UUID

import jsonpatch
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.long_events import declarations, long_run
from tests.unit.projections.given import asks, records, starts
from tests.unit.projections.random_runs import beginnings, small_world
from turnledger.adapters.cli.shared.output import pieces, pretty_json, to_json
from turnledger.ledger import (
    ANY,
    CustomEvent,
    EvaluationSuperseded,
    Event,
    Ledger,
    MessageAppended,
    Record,
    RunStarted,
    ToolCallInDoubt,
    ToolMessageAmended,
    new_run_id,
)
from turnledger.projections import Conversation, RunState, blame, diff, fold, state_at
from turnledger.projections.comparison.runs import compare_states
from turnledger.projections.digests import canonical
from turnledger.projections.persistent.lazy_json import unchanged
from turnledger.projections.run_state import blame as blaming_module
from turnledger.projections.run_state.changes import state_changes
from turnledger.projections.run_state.json_diff import changes
from turnledger.projections.run_state.state import built_in
from turnledger.projections.views.one_conversation import (
    OneConversation,
    _latest,
    _superseded,
    evaluations_before,
    one_conversation,
)

EVENTS = 330


@pytest.fixture
def run(ledger: Ledger) -> UUID:
    """A fork of a run of three evaluations, in which things of old were changed."""
    parent = new_run_id()
    events = list(long_run(EVENTS))
    for start in range(0, EVENTS, 7):
        ledger.append(parent, events[start : start + 7], ANY)
    said = [e.message for e in events if isinstance(e, MessageAppended)]
    results = [message for message in said if message.role == "tool"]
    child = ledger.fork(parent, 210)
    ledger.append(child, events[210:300], ANY)
    ledger.append(
        child,
        [
            ToolMessageAmended(message_id=results[3].message_id, content="otherwise"),
            EvaluationSuperseded(evaluation_id=said[-1].evaluation_id),
            ToolCallInDoubt(
                evaluation_id=results[-1].evaluation_id, call_id="call_new", name="note"
            ),
        ],
        ANY,
    )
    return child


def _pointers(value: Any, path: str = "") -> Iterator[str]:
    """Every place in a JSON value."""
    yield path
    if isinstance(value, dict):
        for name, inner in value.items():
            yield from _pointers(inner, f"{path}/{name}")
    elif isinstance(value, list):
        for place, inner in enumerate(value):
            yield from _pointers(inner, f"{path}/{place}")


def _slowly_blamed(records: list[Record], texts: list[dict[str, bytes]], pointer: str) -> int:
    """The version that blame is to find: by looking at everything at every version.

    `texts` are the values at all pointers before the first record, after it, and so on.
    """
    view = pointer.split("/")[1]
    (projection,) = (p for p in built_in(declarations()) if p.name == view)
    tags = {kind.tag for kind in projection.reads}
    read = [place for place, record in enumerate(records, 1) if record.tag in tags]
    for earlier, place in reversed(list(pairwise(read))):
        if texts[earlier].get(pointer) != texts[-1][pointer]:
            return records[place - 1].version
    return records[read[0] - 1].version


def test_blame_finds_what_looking_at_every_state_finds(
    ledger: Ledger, run: UUID, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Protects the way back in pages, with its shortcuts, from passing over a change."""
    monkeypatch.setattr(blaming_module, "PAGE", 40)
    records = list(ledger.read(run))
    state, texts = RunState.initial(declarations()), []
    for record in (None, *records):
        state = state if record is None else state.after((record,))
        texts.append({p: canonical(v) for p, v in _values(state.to_json())})
    pointers = [p for p in _pointers(state.to_json()) if p.count("/") > 1]
    chosen = list(islice(pointers, 0, None, 29))
    assert len(chosen) > 80
    wrong = {
        pointer: (found.version, expected)
        for pointer in chosen
        if (found := blame(ledger, run, pointer, declarations=declarations())).version
        != (expected := _slowly_blamed(records, texts, pointer))
    }
    assert not wrong


def _values(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    yield path, value
    inner = value.items() if isinstance(value, dict) else ()
    if isinstance(value, list):
        inner = enumerate(value)  # type: ignore[assignment]
    for name, one in inner:
        yield from _values(one, f"{path}/{name}")


@pytest.mark.parametrize(("a", "b"), [(0, 303), (150, 151), (200, 303), (303, 120), (299, 303)])
def test_a_diff_is_the_patch_between_the_whole_states(
    ledger: Ledger, run: UUID, a: int, b: int
) -> None:
    """Protects diff: that lists are not made in full changes none of its operations."""
    head = ledger.head(run)
    b = min(b, head)
    a = min(a, head)
    first, last = (state_at(ledger, run, v, declarations=declarations()) for v in (a, b))
    found = state_changes(ledger, run, a, b, declarations=declarations())
    assert found == list(changes(first.to_json(), last.to_json()))
    patch = diff(ledger, run, a, b, declarations=declarations())
    assert jsonpatch.apply_patch(first.to_json(), patch) == last.to_json()


def test_a_continuation_has_lost_what_its_parent_had_under_way(ledger: Ledger) -> None:
    """Protects diff and compare_states where neither state has anything that is over: what only
    the first had is told."""
    parent = new_run_id()
    begun = (asks(1, "c1"), starts("c1"))
    ledger.append(parent, [RunStarted(), *begun], ANY)
    child = ledger.continuation(parent, at=3)
    removed = {one["path"] for one in diff(ledger, child, 3, 4) if one["op"] == "remove"}
    assert {"/tools/0", "/timeline/spans/0"} <= removed
    other = new_run_id()
    ledger.append(other, [RunStarted(), CustomEvent(kind="acme.other", data=1)], ANY)
    paths = {one.path for one in compare_states(ledger, parent, 3, other, 2).changes}
    assert {"/tools/0", "/timeline/spans/0"} <= paths


def test_an_outline_is_printed_as_the_whole_is(ledger: Ledger, run: UUID) -> None:
    """Protects `state`: printed item by item, it is the same text, on one line and on many."""
    for version in (0, 1, 2, 60, None):
        state = state_at(ledger, run, version)
        assert b"".join(pieces(state.lazy_json(), 2)) == pretty_json(state.to_json())
        assert b"".join(pieces(state.lazy_json(), 0)) == to_json(state.to_json())


def test_one_conversation_is_what_folding_all_of_them_gives(ledger: Ledger, run: UUID) -> None:
    """Protects `messages`: passing over the others changes neither a history nor the names."""
    for until in (None, 1, 5, 120, 250, 303):
        whole = fold(ledger.read(run, until=until), Conversation())
        one = one_conversation(ledger, run, until=until)
        assert one.evaluation_id == whole.latest
        assert one.history == whole.history()
        assert one.history.repairs == whole.history().repairs
        names = [name for name in (*whole.earlier, whole.evaluation_id) if name]
        assert list(one.evaluations) == names
        assert one.superseded == set(whole.superseded)
        for name in names:
            chosen = one_conversation(ledger, run, name, until=until)
            assert chosen.history == whole.history(name)


# A run that is begun again, as a fork or a continuation is, forgets what it had.
any_events = st.lists(small_world | beginnings, min_size=1, max_size=25)


@given(any_events, st.data())
def test_what_is_said_to_be_unchanged_is_unchanged(
    events: list[Event], data: st.DataObject
) -> None:
    """Protects the shortcuts of diff and blame in runs of any shape: none may say so wrongly."""
    all_records = records(events)
    early = data.draw(st.integers(0, len(events)))
    late = data.draw(st.integers(early, len(events)))
    before = RunState.initial().after(all_records[:early])
    after = before.after(all_records[early:late])
    _check_shortcuts(before, after)
    _check_shortcuts(after, before)


@settings(max_examples=50)
@given(st.lists(small_world, max_size=12), st.lists(small_world, max_size=12))
def test_states_of_two_runs_differ_in_all_in_which_they_do(
    events: list[Event], others: list[Event]
) -> None:
    """Protects `compare_states`: two runs may both have nothing of a kind, and are none the
    more the same for it."""
    _check_shortcuts(*(RunState.initial().after(records(one)) for one in (events, others)))


def _check_shortcuts(before: RunState, after: RunState) -> None:
    old, new = dict(_values(before.to_json())), dict(_values(after.to_json()))
    for pointer in {*old, *new}:
        parts = pointer.split("/")[1:]
        if unchanged(before.lazy_json(), after.lazy_json(), parts):
            assert pointer in old
            assert pointer in new
            assert canonical(old[pointer]) == canonical(new[pointer])
    found = list(changes(before.lazy_json(), after.lazy_json()))
    assert found == list(changes(before.to_json(), after.to_json()))


@given(any_events)
def test_one_conversation_of_any_run_is_what_folding_all_gives(events: list[Event]) -> None:
    """Protects the fold that passes other evaluations over, however they are mixed."""
    all_records = records(events)
    whole = fold(all_records, Conversation())
    superseded = _superseded(all_records)
    assert _latest(reversed(all_records), superseded) == whole.latest
    for name in {whole.latest, *whole.earlier, whole.evaluation_id}:
        before = evaluations_before(name, all_records)
        one = OneConversation(name, before).fold(all_records)
        assert one.history == whole.history(name)
        names = [known for known in (*whole.earlier, whole.evaluation_id) if known]
        assert list(one.evaluations) == names
        assert one.superseded == set(whole.superseded)
