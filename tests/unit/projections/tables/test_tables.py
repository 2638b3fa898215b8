"""Given events, what they add to tables; and what is refused."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.step_runs import asks_model, refuses
from tests.tables import (
    Notes,
    breaks,
    calls,
    completes,
    doubts,
    fails,
    note,
    replies,
    starts,
)
from turnledger.ledger import NEW, CustomEvent, Event, InvalidInputError, Ledger, Record, new_run_id
from turnledger.ledger.clock import SystemClock, to_micros
from turnledger.projections import Table, ToolStatistics, UsageByDay, catch_up, table_rows
from turnledger.projections.digests import canonical
from turnledger.projections.tables.table import Additions, added

numbers: st.SearchStrategy[Any] = st.integers(-5, 2**70)
values = st.recursive(
    numbers, lambda inner: st.dictionaries(st.sampled_from("abc"), inner, max_size=3), max_leaves=5
)


class SetClock(SystemClock):
    """Shows the time that it was set to, in seconds after a day's beginning."""

    start = datetime(2026, 1, 31, tzinfo=UTC)
    seconds = 0.0

    def micros(self) -> int:
        return to_micros(self.start) + int(self.seconds * 1_000_000)


def table_of(table: Table[Any], *runs: Iterable[tuple[float, Event]]) -> dict[str, Any]:
    """The rows of runs whose events are recorded at given seconds."""
    clock = SetClock()
    with Ledger.open("memory://", clock=clock) as ledger:
        for events in runs:
            run = new_run_id()
            for version, (seconds, event) in enumerate(events):
                clock.seconds = seconds
                ledger.append(run, [event], version or NEW)
        catch_up(ledger, table)
        return table_rows(ledger, table).rows


# --- merging ------------------------------------------------------------------------


def test_numbers_add_up_and_objects_field_by_field() -> None:
    """Fields that only one part has stay as they are, and equal text too."""
    assert added(2, 3) == 5
    old, new = {"a": 1, "b": {"c": 2}, "unit": "s"}, {"b": {"c": 3, "d": 4}, "unit": "s"}
    assert added(old, new) == {"a": 1, "b": {"c": 5, "d": 4}, "unit": "s"}
    assert old == {"a": 1, "b": {"c": 2}, "unit": "s"}


@pytest.mark.parametrize(
    ("old", "new"),
    [(1.5, 1.5), (1, 1.0), ("a", "b"), ([1], [2]), ({"a": 1}, 1), (True, False), ({"a": 0.5},) * 2],
)
def test_what_can_not_be_added_is_refused(old: Any, new: Any) -> None:
    """Floats come to another sum in another order; the error says what to do instead."""
    with pytest.raises(InvalidInputError, match="whole numbers"):
        added(old, new)


@given(values, values, values)
def test_adding_is_associative_and_commutative(a: Any, b: Any, c: Any) -> None:
    """In whatever order and portions: the same sum, or a refusal each time."""
    ways = [
        way
        for x, y, z in ((a, b, c), (b, c, a), (c, a, b))
        for way in (partial(_left, x, y, z), partial(_right, x, y, z))
    ]
    assert len({_outcome(way) for way in ways}) == 1


def _left(a: Any, b: Any, c: Any) -> Any:
    return added(added(a, b), c)


def _right(a: Any, b: Any, c: Any) -> Any:
    return added(a, added(b, c))


def _outcome(way: Callable[[], Any]) -> bytes:
    try:
        return canonical(way())
    except InvalidInputError:
        return b"refused"


def test_a_table_says_what_an_event_adds() -> None:
    """One that says nothing is a mistake that shows at its first event."""

    class Silent(Table[None]):
        name = "test.silent"
        reads = (CustomEvent,)

    with pytest.raises(NotImplementedError, match="Silent"):
        table_of(Silent(), [(0, note())])
    assert table_of(Notes(), [(0, note()), (1, note("test.other"))]) == {
        "all": {"count": 2},
        "test.note": 1,
        "test.other": 1,
    }


@pytest.mark.parametrize("value", [(1, 2), {1: 2}, {"a": {1}}, float("nan"), "\ud800", object()])
def test_what_json_would_change_is_refused(value: Any) -> None:
    """What is read back in the next batch must be what was there in this one."""

    class Odd(Table[Any]):
        name = "test.odd"
        reads = (CustomEvent,)

        def adds(self, record: Record) -> Iterable[tuple[str, Any]]:
            yield "key", value

    class OddCarry(Odd):
        def step(self, carry: Any, record: Record) -> tuple[Any, Iterable[tuple[str, Any]]]:
            return value, ()

    for table in (Odd(), OddCarry()):
        with pytest.raises(InvalidInputError, match="JSON"):
            table_of(table, [(0, note())])


def test_additions_take_a_carry_and_give_one() -> None:
    """What is remembered of a run goes in, and comes out as it is afterwards."""
    with Ledger.open("memory://") as ledger:
        run = new_run_id()
        ledger.append(run, [starts("a"), completes("a"), starts("b")], NEW)
        records = list(ledger.tail())
    first = Additions()
    first.add(ToolStatistics(), records[:1])
    assert list(first.carries) == [str(run)]
    second = Additions(carries=first.carries)
    second.add(ToolStatistics(), records[1:2])
    assert second.carries == {str(run): None}
    assert second.rows["search"]["timed"] == 1


# --- the tables that come with the package -------------------------------------------


def test_tool_statistics() -> None:
    """Starts, ends and times by tool; only what has both a start and an end was timed."""
    rows = table_of(
        ToolStatistics(),
        [(0, starts("a")), (2.5, completes("a")), (3, starts("b")), (4, fails("b"))],
        [(0, starts("a")), (1, starts("p", "pay")), (2, completes("a")), (7, doubts("p", "pay"))],
        [(0, fails("never started")), (1, starts("left open"))],
    )
    assert rows == {
        "pay": {
            "started": 1,
            "completed": 0,
            "failed": 0,
            "in_doubt": 1,
            "timed": 0,
            "total_micros": 0,
            "longest_micros": 0,
        },
        "search": {
            "started": 4,
            "completed": 2,
            "failed": 2,
            "in_doubt": 0,
            "timed": 3,
            "total_micros": 5_500_000,
            "longest_micros": 2_500_000,
        },
    }


def test_a_call_that_is_repeated_is_timed_from_its_last_start() -> None:
    """The time of a call that was in doubt in between is unknown."""
    rows = table_of(
        ToolStatistics(), [(0, starts("a")), (50, doubts("a")), (60, starts("a")), (61, fails("a"))]
    )
    assert (rows["search"]["started"], rows["search"]["total_micros"]) == (2, 1_000_000)


@pytest.mark.parametrize(
    ("events", "started"),
    [
        ([completes("a")], 1),
        ([doubts("a"), completes("a")], 1),
        ([starts("a"), doubts("a"), completes("a")], 1),
        ([starts("a"), doubts("a"), starts("a"), completes("a")], 2),
        ([starts("a"), completes("a"), completes("a")], 2),
        ([starts("a", "pay"), completes("a")], 1),
    ],
)
def test_no_more_calls_are_completed_than_started(events: list[Event], started: int) -> None:
    """A call whose start is in another run, or that was decided, counts as started once."""
    rows = table_of(ToolStatistics(), list(enumerate(events)))
    assert rows["search"]["started"] == started
    assert all(row["completed"] <= row["started"] for row in rows.values())


def test_usage_by_day() -> None:
    """By the day on which the reply was recorded, in UTC, and by model."""
    day = 86_400.0
    rows = table_of(
        UsageByDay(),
        [
            (0, calls(1)),
            (day - 0.000001, replies(1, input_tokens=7, output_tokens=1, cached_tokens=3)),
            (day, calls(2, "large")),
            (day, breaks(2)),
            (day, calls(2, "large")),
            (day, replies(2, "large-0131", output_tokens=5, reasoning_tokens=4)),
            (day, breaks(9)),
        ],
        [(1, replies(1, input_tokens=1))],
    )
    nothing = {
        "calls": 0,
        "failed_calls": 0,
        "input_tokens": 0,
        "output_tokens": 0,
        "cached_tokens": 0,
        "reasoning_tokens": 0,
        "estimated_calls": 0,
    }
    small = {"calls": 2, "input_tokens": 8, "output_tokens": 1, "cached_tokens": 3}
    assert rows == {
        "2026-01-31 small": {**nothing, **small},
        "2026-02-01 ": {**nothing, "failed_calls": 1},
        "2026-02-01 large": {**nothing, "failed_calls": 1},
        "2026-02-01 large-0131": {**nothing, "calls": 1, "output_tokens": 5, "reasoning_tokens": 4},
    }


def test_usage_by_day_tells_steps_side_by_side_apart() -> None:
    """They have neither evaluation nor turn; an attempt that is tried again is the model's too."""
    rows = table_of(
        UsageByDay(),
        [
            (0, asks_model("m:1", model="small")),
            (0, asks_model("m:2", model="large")),
            (0, refuses("m:1", final=False)),
            (0, refuses("m:1", final=True)),
            (0, refuses("m:2", final=True)),
        ],
    )
    failed = {key: row["failed_calls"] for key, row in rows.items()}
    assert failed == {"2026-01-31 small": 2, "2026-01-31 large": 1}


def test_a_table_of_ones_own_takes_under_twenty_lines() -> None:
    """The first one on the page, which another test runs, imports included."""
    page = Path(__file__).parents[4] / "docs" / "how-to" / "write-a-table.md"
    first = page.read_text().partition("```python\n")[2].partition("```")[0]
    assert "Table[" in first
    assert len(first.splitlines()) < 20
