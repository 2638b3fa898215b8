"""Progress of a loop whose tools have steps: those are no calls and no turns of the loop."""

from __future__ import annotations

from tests.step_runs import answers, asks_model, begins, ends
from tests.unit.projections.given import asks, calls_model, evaluation, records, replies, starts
from turnledger.ledger import Event, RunStarted
from turnledger.projections import fold
from turnledger.runtime.journal.loop_progress import Progress, ProgressState


def progress(*events: Event) -> ProgressState:
    return fold(records(events), Progress())


def test_steps_inside_of_a_tool_are_not_counted_as_the_loops_own() -> None:
    """Neither against the limit of turns nor as completed calls; they are progress, though."""
    turn = (RunStarted(), evaluation(), calls_model(), asks(1, "c1"), replies(), starts("c1"))
    inner = (
        *(begins("c1/pay#1", parent="c1"), ends("c1/pay#1")),
        *(asks_model("c1/m:1", parent="c1"), answers("c1/m:1")),
    )
    before, after = progress(*turn), progress(*turn, *inner)
    assert (after.replies, after.tool_calls_completed) == (1, 0)
    assert after.evaluation == before.evaluation
    assert after.steps == before.steps + 2
