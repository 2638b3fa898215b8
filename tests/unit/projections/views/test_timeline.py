"""Given beginnings and ends, when they are folded, then spans of time and the gaps between."""

from __future__ import annotations

from msgspec.structs import replace

from tests.unit.projections.given import (
    asks,
    calls_model,
    completes,
    continues,
    doubts,
    fails,
    folded,
    forks,
    moment,
    records,
    replies,
    said,
    starts,
    system,
)
from turnledger.ledger import MessageAppended, ModelCalled, ModelCallFailed, RunStarted
from turnledger.projections import RunState
from turnledger.projections.views.timeline import Gap, Span

MODEL_FAILED = ModelCallFailed(
    evaluation_id="e1", turn=1, error_type="Timeout", error_message="slow"
)


def test_a_model_call_is_a_span_from_the_request_to_the_reply() -> None:
    """Named by its model, else by its adapter, else just so."""
    (span,) = folded(RunStarted(), calls_model(), replies()).timeline.spans
    assert span == Span("model", "m", 2, moment(2), 3, moment(3), "ok")
    by_adapter = ModelCalled(evaluation_id="e1", turn=1, request_digest="r", adapter="openai")
    unnamed = ModelCalled(evaluation_id="e1", turn=2, request_digest="r")
    names = [span.name for span in folded(by_adapter, unnamed).timeline.spans]
    assert names == ["openai", "model"]


def test_how_a_span_ended_is_its_outcome() -> None:
    """What has not ended is running."""
    spans = folded(
        calls_model(),
        MODEL_FAILED,
        starts("c1"),
        fails("c1"),
        starts("c2"),
        doubts("c2"),
        starts("c3"),
        completes("c3"),
        starts("c4"),
    ).timeline.spans
    assert [span.outcome for span in spans] == ["failed", "failed", "in_doubt", "ok", "running"]


def test_each_attempt_is_a_span_of_its_own() -> None:
    """A request that was sent again, a tool that ran again."""
    spans = list(
        folded(
            calls_model(),
            MODEL_FAILED,
            calls_model(attempt=2),
            replies(),
            starts(),
            doubts(),
            starts("c1", 2),
            completes(),
        ).timeline.spans
    )
    assert [(span.attempt, span.outcome) for span in spans] == [
        (1, "failed"),
        (2, "ok"),
        (1, "in_doubt"),
        (2, "ok"),
    ]


def test_tools_that_run_side_by_side_end_in_any_order() -> None:
    """Spans stand in the order in which they began."""
    spans = folded(starts("c1"), starts("c2"), completes("c2"), completes("c1")).timeline.spans
    assert [(span.from_version, span.to_version) for span in spans] == [(1, 4), (2, 3)]


def test_an_end_replaces_its_span_in_every_later_state_only() -> None:
    """Also a span of long ago, among hundreds that began since; the states before it stay."""
    many = [event for n in range(400) for event in (starts(f"d{n}"), completes(f"d{n}"))]
    all_records = records([starts("c1"), *many, completes("c1")])
    before = RunState.initial().after(all_records[:-1])
    after = before.after(all_records[-1:])
    assert [state.timeline.spans[0].outcome for state in (before, after)] == ["running", "ok"]
    assert before.timeline.spans[1:] == after.timeline.spans[1:]
    assert after.timeline.spans[0].to_version == len(all_records)


def test_an_end_without_a_beginning_is_no_span() -> None:
    """Arguments that were wrong: the call failed and was never started. Nor does it end twice."""
    timeline = folded(fails("c1"), replies(), starts("c2"), completes("c2"), fails("c2")).timeline
    assert [span.outcome for span in timeline.spans] == ["ok"]


def test_a_gap_is_where_nothing_was_under_way() -> None:
    """Overlapping spans leave none; what has not ended covers its beginning only."""
    timeline = folded(starts("c1"), starts("c2"), completes("c1"), completes("c2"))
    assert timeline.timeline.gaps() == ()
    events = (starts("c1"), completes("c1"), replies(9), starts("c2"), completes("c2"))
    (gap,) = folded(*events).timeline.gaps()
    assert gap == Gap(moment(2), moment(4))
    assert gap.seconds == 2.0
    unended = (starts("c1"), replies(9), starts("c2"))
    assert folded(*unended).timeline.gaps() == (Gap(moment(1), moment(3)),)


def test_a_fork_keeps_the_spans_and_what_was_under_way_is_in_doubt() -> None:
    """It ends in the parent, if it ends; a late end here means nothing."""
    begin = (RunStarted(), starts("c1"), completes("c1"), starts("c2"), calls_model())
    timeline = folded(*begin, forks(5), completes("c2")).timeline
    assert [span.outcome for span in timeline.spans] == ["ok", "in_doubt", "in_doubt"]


def test_a_continuation_begins_a_new_timeline() -> None:
    """It keeps the slices only."""
    assert len(folded(RunStarted(), starts("c1"), continues(2)).timeline.spans) == 0


def test_the_json_has_spans_and_gaps() -> None:
    """With each span's outcome, also while it is the default."""
    shown = folded(starts("c1"), completes("c1"), replies(9), starts("c2")).to_json()["timeline"]
    assert [span["outcome"] for span in shown["spans"]] == ["ok", "running"]
    assert [gap["seconds"] for gap in shown["gaps"]] == [2.0]


def test_spans_and_messages_are_in_the_step_of_the_message_before() -> None:
    """S1-7: within one evaluation, and the digests know nothing of it."""
    story = [
        RunStarted(),
        system(),
        calls_model(),
        said("user", "one", 1, step_num=4),
        calls_model(2),
        asks(2, "c1"),
        starts("c1"),
        said("user", "two", 3, step_num=5),
        calls_model(3),
        said("user", "other", 0, evaluation_id="e2"),
        ModelCalled(evaluation_id="e2", turn=1, request_digest="r"),
        starts("c2"),
    ]
    state = folded(*story)
    groups = [(step, len(spans)) for step, spans in state.timeline.steps()]
    assert groups == [(None, 1), (4, 2), (5, 1), (None, 2)]
    steps = [entry.step_num for entry in state.conversation.messages]
    assert steps == [None, 4, 4, 5, None]
    assert state.to_json()["timeline"]["spans"][1]["step_num"] == 4
    one_by_one = RunState.initial()
    for one in records(story):
        one_by_one = one_by_one.after([one])
    assert one_by_one.timeline.steps() == state.timeline.steps()
    without = [
        replace(e, message=replace(e.message, step_num=None)) if type(e) is MessageAppended else e
        for e in story
    ]
    assert folded(*without).state_digest == state.state_digest
