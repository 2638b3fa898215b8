"""The run index: what each event changes in it, and that the events alone rebuild it.

Also here: that the database itself refuses to change an event or a blob.
"""

from __future__ import annotations

import pytest

from tests.conformance.ledger_like import LedgerLike
from tests.conformance.samples import message, note, one_of_each
from tests.matrices import cells
from turnledger.ledger import (
    ANY,
    NEW,
    ApprovalDecided,
    EvaluationStarted,
    Event,
    RunAbandoned,
    RunCompleted,
    RunFailed,
    RunParked,
    RunResumed,
    RunStarted,
    RunWaiting,
    ToolCallDecided,
    new_run_id,
)

DECIDED = ToolCallDecided(call_id="c", decision="retry")
APPROVED = ApprovalDecided(call_id="c", decision="approved")
STATUSES: list[tuple[list[Event], str]] = [
    ([RunStarted()], "running"),
    ([note()], "running"),
    ([RunStarted(), RunWaiting(reason="?")], "waiting"),
    ([RunStarted(), RunWaiting(reason="?"), note(), message()], "waiting"),
    ([RunStarted(), RunWaiting(reason="?"), DECIDED], "running"),
    ([RunStarted(), RunWaiting(reason="?"), APPROVED], "running"),
    ([RunStarted(), RunCompleted(), APPROVED], "completed"),
    ([RunStarted(), RunWaiting(reason="?"), RunResumed(attempt=1, from_version=1)], "running"),
    ([RunStarted(), RunCompleted()], "completed"),
    ([RunStarted(), RunCompleted(), DECIDED], "completed"),
    ([RunStarted(), RunFailed(error_type="E", error_message="m")], "failed"),
    (
        [
            RunStarted(),
            RunFailed(error_type="E", error_message="m"),
            RunResumed(attempt=1, from_version=1),
        ],
        "running",
    ),
    ([RunStarted(), RunParked(reason="r")], "parked"),
    ([RunStarted(), RunParked(reason="r"), DECIDED], "parked"),
    ([RunStarted(), RunAbandoned()], "abandoned"),
]


@pytest.mark.parametrize(("case", "at_once"), cells(STATUSES, [True, False]))
def test_events_set_the_status_of_their_run(
    ledger: LedgerLike, case: tuple[list[Event], str], at_once: bool
) -> None:
    """In one batch or one by one, the status is that of the last event that has one."""
    events, status = case
    run = new_run_id()
    for batch in [events] if at_once else [[event] for event in events]:
        ledger.append(run, batch, ANY)
    assert ledger.run(run).status == status
    assert [info.run_id for info in ledger.runs(status=status)] == [run]  # type: ignore[arg-type]


def test_a_claim_sets_the_epoch_and_not_the_status(ledger: LedgerLike) -> None:
    """Each claim of a run is one more."""
    run = new_run_id()
    ledger.append(run, [RunStarted(), RunWaiting(reason="?")], NEW)
    for epoch in (1, 2, 3):
        with ledger.claim(run) as claim:
            assert claim.epoch == ledger.run(run).epoch == epoch
    assert ledger.run(run).status == "waiting"


def test_the_prompt_is_the_one_evaluated_last(ledger: LedgerLike) -> None:
    """Namespace and key, with a slash between."""
    run = new_run_id()
    assert ledger.append(run, note(), NEW)
    assert ledger.run(run).prompt == ""
    for key in ("a", "b"):
        ledger.append(
            run,
            EvaluationStarted(evaluation_id="e", prompt_ns="x/y", prompt_key=key, prompt_digest=""),
            ANY,
        )
        assert ledger.run(run).prompt == f"x/y/{key}"


def test_tags_come_back_as_they_were_given(ledger: LedgerLike) -> None:
    """Empty ones, long ones, quotes and emoji included."""
    run = new_run_id()
    tags = {"": "", "k" * 512: "v" * 512, "🦜": 'a"b\\c', "z": "1", "a": "2", "é": "\n\t"}
    ledger.append(run, RunStarted(tags=tags), NEW)
    assert ledger.run(run).tags == tags
    for key, value in tags.items():
        assert [info.run_id for info in ledger.runs(tags={key: value})] == [run]


def test_a_refused_append_leaves_the_index_alone(ledger: LedgerLike) -> None:
    """The index is written in the append's own transaction, or not at all."""
    run, other = new_run_id(), new_run_id()
    ledger.append(run, RunStarted(tags={"a": "b"}), NEW)
    before = list(ledger.runs())
    with pytest.raises(Exception, match="expected"):
        ledger.append(run, RunCompleted(), 7)
    with pytest.raises(Exception, match="blob"):
        ledger.append(other, one_of_each(), NEW)
    assert list(ledger.runs()) == before
