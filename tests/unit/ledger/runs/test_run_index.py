"""The fold of the run index."""

from __future__ import annotations

from uuid import UUID

import pytest

from tests.conformance.samples import note, one_of_each, started
from turnledger.ledger import (
    ApprovalDecided,
    Codec,
    EvaluationStarted,
    Event,
    RunAbandoned,
    RunClaimed,
    RunCompleted,
    RunFailed,
    RunParked,
    RunResumed,
    RunStarted,
    RunWaiting,
    ToolCallDecided,
    new_run_id,
)
from turnledger.ledger.events.chain import GENESIS
from turnledger.ledger.events.types import EVENT_TYPES
from turnledger.ledger.runs.index import (
    INDEXED_TAGS,
    RunRow,
    advance,
    child_of,
    describe,
    evolve,
    fold_index,
)

RUN = str(new_run_id())
ROW = RunRow(RUN)


@pytest.mark.parametrize(
    ("event", "changes"),
    [
        (RunStarted(tags={"b": "2", "a": "1"}), {"tags": '{"a":"1","b":"2"}', "status": "running"}),
        (RunClaimed(worker="w", epoch=4), {"epoch": 4}),
        (RunResumed(attempt=1, from_version=2), {"status": "running"}),
        (RunWaiting(reason="?"), {"status": "waiting"}),
        (RunCompleted(), {"status": "completed"}),
        (RunFailed(error_type="", error_message=""), {"status": "failed"}),
        (RunParked(reason=""), {"status": "parked"}),
        (RunAbandoned(), {"status": "abandoned"}),
        (
            EvaluationStarted(evaluation_id="", prompt_ns="n", prompt_key="k", prompt_digest=""),
            {"prompt": "n/k"},
        ),
    ],
)
def test_an_event_changes_its_own_fields_and_no_others(
    event: Event, changes: dict[str, object]
) -> None:
    """Whatever the row was before."""
    for status in ("running", "waiting", "failed"):
        row = RunRow(RUN, version=3, epoch=2, status=status, prompt="p/q")  # type: ignore[arg-type]
        after = evolve(row, event)
        for name in row.__struct_fields__:
            assert getattr(after, name) == changes.get(name, getattr(row, name)), name


def test_a_decision_lets_a_waiting_run_go_on_and_no_other() -> None:
    """A late decision does not wake a run that ended."""
    for decided in (
        ToolCallDecided(call_id="c", decision="retry"),
        ApprovalDecided(call_id="c", decision="denied"),
    ):
        for status in ("running", "completed", "failed", "parked", "abandoned"):
            row = RunRow(RUN, status=status)  # type: ignore[arg-type]
            assert evolve(row, decided) == row
        assert evolve(RunRow(RUN, status="waiting"), decided).status == "running"


def test_every_kind_that_the_index_reads_can_be_folded() -> None:
    """The tags and the fold agree."""
    for event in [started(), RunClaimed(worker="w", epoch=1), *one_of_each()]:
        if event.tag in INDEXED_TAGS:
            evolve(ROW, event)
    assert set(EVENT_TYPES) >= INDEXED_TAGS


def test_a_commit_moves_version_digest_and_times() -> None:
    """started_at is the first commit's, and stays."""
    first = advance(ROW, [RunStarted()], 2, b"1" * 32, 1000)
    second = advance(first, [], 5, b"2" * 32, 2000)
    assert (first.version, first.digest, first.recorded_at, first.started_at) == (
        2,
        b"1" * 32,
        1000,
        1000,
    )
    assert (second.version, second.recorded_at, second.started_at) == (5, 2000, 1000)


def test_a_child_stands_where_it_left_its_parent() -> None:
    """With nothing of its parent's status, epoch, prompt or tags."""
    parent = new_run_id()
    begin = RunStarted(parent=parent, at=7, kind="fork")
    row = child_of(RUN, b"d" * 32, 500, begin)
    assert row == RunRow(
        RUN,
        version=7,
        digest=b"d" * 32,
        recorded_at=500,
        kind="fork",
        parent=str(parent),
        parent_version=7,
    )


def test_the_whole_index_is_a_fold_of_all_records() -> None:
    """Runs that alternate, a fork, and events that do not matter."""
    codec, other = Codec(), str(new_run_id())
    parent_begin = RunStarted(tags={"t": "v"})
    child_begin = RunStarted(parent=UUID(RUN), at=2, kind="fork")
    story: list[tuple[str, int, Event, int]] = [
        (RUN, 1, parent_begin, 10),
        (RUN, 2, note(), 10),
        (other, 3, child_begin, 20),
        (RUN, 3, RunWaiting(reason="?"), 30),
        (other, 4, RunCompleted(), 40),
    ]
    rows = []
    for position, (run, version, event, at) in enumerate(story, 1):
        tag, data = codec.encode(event)
        rows.append((position, run, version, tag, "id", at, bytes([position]) * 32, data.decode()))
    decoded: list[str] = []

    def decode(tag: str, data: str) -> Event:
        decoded.append(tag)
        return codec.decode(tag, data)

    index = fold_index(rows, decode, unreadable := {})
    assert unreadable == {}
    assert index[RUN] == RunRow(RUN, 3, bytes([4]) * 32, 30, 0, "waiting", 10, tags='{"t":"v"}')
    assert index[other] == RunRow(
        other, 4, bytes([5]) * 32, 40, 0, "completed", 20, "", "fork", RUN, 2
    )
    assert "custom" not in decoded


def test_a_later_beginning_is_not_taken_for_the_origin_of_a_run() -> None:
    """A fork's first record, copied into its parent, makes the parent no child of itself."""
    codec, rows = Codec(), []
    for version, event in (
        (1, RunStarted()),
        (2, note()),
        (3, RunStarted(parent=UUID(RUN), at=2, kind="fork")),
    ):
        tag, data = codec.encode(event)
        rows.append((version, RUN, version, tag, "id", 10, bytes(32), data.decode()))
    row = fold_index(rows, codec.decode, {})[RUN]
    assert (row.parent, row.parent_version, row.kind, row.version) == (None, 0, "run", 3)


def test_a_run_started_with_its_first_own_record_whatever_its_time() -> None:
    """Also at 0, which is no sign that the run has not begun."""
    child = child_of(RUN, GENESIS, 7, RunStarted(parent=new_run_id(), at=4, kind="fork"))
    for row in (ROW, child):
        first = advance(row, (), row.version + 1, GENESIS, 0)
        assert advance(first, (), row.version + 2, GENESIS, 9).started_at == 0


def test_a_row_is_described_in_the_types_that_users_work_with() -> None:
    """Ids, times and tags."""
    info = describe(RunRow(RUN, 1, GENESIS, 5, 0, "running", 3, "p/q", tags='{"a":"b"}'))
    assert str(info.run_id) == RUN
    assert info.digest == "00" * 32
    assert info.tags == {"a": "b"}
    assert info.parent is None
    assert (info.started_at.timestamp(), info.updated_at.timestamp()) == (3e-6, 5e-6)
