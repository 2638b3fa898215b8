"""Windows: slices of a state's lists, which together are the whole."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.long_events import declarations as long_declarations
from benchmarks.long_events import long_run
from tests.unit.projections.forked_runs import Branch, branches, events, recorded
from tests.unit.projections.given import records
from tests.unit.projections.random_runs import declarations
from turnledger.ledger import Event, InvalidInputError, Ledger, PromptOverrideSet
from turnledger.projections import RunState, state_at, window
from turnledger.projections.digests import canonical


def put_together(state: RunState, view: str, limit: int) -> Any:
    """A view of windows of at most so many items."""
    outline = window(state, view, limit=0)
    lists = {name: items_of(state, name, limit) for name in outline.lists}
    if outline.lists == (view,):
        return lists[view]
    names = {name: name.split("/")[1].replace("~1", "/").replace("~0", "~") for name in lists}
    return {**outline.rest, **{names[name]: items for name, items in lists.items()}}


def items_of(state: RunState, name: str, limit: int) -> list[Any]:
    items: list[Any] = []
    while True:
        found = window(state, name, len(items), limit)
        assert (found.name, found.start, found.version) == (name, len(items), state.version)
        assert len(found.items) == min(limit, found.total - found.start)
        items += found.items
        if len(items) >= found.total:
            return items


@settings(max_examples=60)
@given(events, branches, st.integers(1, 7), st.data())
def test_all_windows_of_a_view_are_the_view(
    first: list[Event], others: list[Branch], limit: int, data: st.DataObject
) -> None:
    """Of every view at any version of a family of runs, in windows of any size."""
    with Ledger.open("memory://") as ledger:
        for run in recorded(ledger, first, others):
            version = data.draw(st.integers(0, ledger.head(run)))
            state = state_at(ledger, run, version, declarations=declarations())
            for view, whole in state.to_json().items():
                assert canonical(put_together(state, view, limit)) == canonical(whole)


def test_a_view_with_several_lists_has_a_first_one() -> None:
    """Others are named, and the fields besides them come with each."""
    state = RunState.initial(long_declarations()).after(records(long_run(500)))
    for view, name in {
        "history": "history/turns",
        "tools": "tools",
        "usage": "usage/turns",
        "checkpoints": "checkpoints/entries",
        "timeline": "timeline/spans",
        "slices": "slices/InnerMessage",
        "summary": "",
    }.items():
        assert window(state, view, limit=3).name == name
    found = window(state, "history/messages", 10, 3)
    whole = state.to_json()["history"]
    assert found.items == tuple(whole["messages"][10:13])
    assert found.total == len(whole["messages"])
    assert found.lists == ("history/turns", "history/superseded", "history/messages")
    assert found.rest == {name: whole[name] for name in ("evaluation_id", "system")}
    assert window(state, "summary").rest == state.to_json()["summary"]
    assert window(state, "tools", 10**9).items == ()
    last = window(state, "history/messages", -3)
    assert (last.start, last.items) == (found.total - 3, tuple(whole["messages"][-3:]))
    assert window(state, "history/messages", -1_000).start == max(found.total - 1_000, 0)


def test_a_prompts_stream_has_its_view() -> None:
    """And a run has none."""
    override = PromptOverrideSet(prompt_ns="a", prompt_key="b", path="p", body="t", replaces="")
    state = RunState.initial().after(records([override]))
    assert window(state, "prompt").rest == state.to_json()["prompt"]
    with pytest.raises(InvalidInputError, match="Unknown view 'prompt'"):
        window(RunState.initial(), "prompt")


@pytest.mark.parametrize(
    ("view", "start", "limit", "told"),
    [
        ("nothing", 0, 1, "Unknown view 'nothing'"),
        ("", 0, 1, "Unknown view ''"),
        ("/tools", 0, 1, "Unknown view ''"),
        ("history/nothing", 0, 1, "there are history/turns"),
        ("history/system", 0, 1, "there are history/turns"),
        ("history/turns/0", 0, 1, "there are history/turns"),
        ("summary/tags", 0, 1, "there are none"),
        ("tools/~2", 0, 1, "Invalid JSON Pointer"),
        ("tools", -1_001, 1, "Invalid start: got -1001"),
        ("tools", 2**63, 1, "Invalid start"),
        ("tools", 0, -1, "Invalid limit: got -1"),
        ("tools", 0, 1_001, "expected 0 to 1000"),
    ],
)
def test_a_window_that_cannot_be_is_an_error(view: str, start: int, limit: int, told: str) -> None:
    """It says what there is."""
    with pytest.raises(InvalidInputError, match=told):
        window(RunState.initial(), view, start, limit)
