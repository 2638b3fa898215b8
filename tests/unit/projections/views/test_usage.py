"""Given model replies, when they are folded, then what they used together."""

from __future__ import annotations

from tests.unit.projections.given import continues, folded, forks, records, replies
from turnledger.ledger import ModelCallFailed, RunStarted
from turnledger.projections import RunState, Usage
from turnledger.projections.views.usage import Tokens

FAILED = ModelCallFailed(evaluation_id="e1", turn=1, error_type="Timeout", error_message="slow")
# The digest of one reply with one input token, from before there were estimates.
BEFORE_ESTIMATES = "740f07dbf592536d34e965b6a8921bd0178033ed8b4b5de763d0f27617e927f4"


def test_usage_adds_up() -> None:
    """It is never replaced by the last one (X25), in one fold or in one for each reply."""
    events = records(
        [
            RunStarted(),
            replies(1, input_tokens=10, output_tokens=5, cached_tokens=2),
            replies(2, input_tokens=20, output_tokens=7, reasoning_tokens=3),
        ]
    )
    at_once = one_by_one = RunState.initial()
    for event in events:
        one_by_one = one_by_one.after([event])
    for state in (at_once.after(events), one_by_one):
        assert state.usage.total == Tokens(2, 30, 12, 2, 3)
        assert state.usage.total.total_tokens == 42


def test_usage_is_known_by_model() -> None:
    """In the order in which the models were first used; a model may have no name."""
    usage = folded(
        replies(1, "small", input_tokens=1),
        replies(2, "large", input_tokens=2),
        replies(3, "small", input_tokens=4),
        replies(4, ""),
    ).usage
    assert list(usage.by_model.items()) == [
        ("small", Tokens(2, 5)),
        ("large", Tokens(1, 2)),
        ("", Tokens(1)),
    ]


def test_a_sum_says_how_many_calls_are_estimated() -> None:
    """In all, by model and by turn; the digest of a run without estimates stays what it was."""
    replied = [replies(1, "m", input_tokens=1), replies(2, "m", input_tokens=2, estimated=True)]
    usage = folded(*replied).to_json()["usage"]
    assert usage["total"]["estimated_calls"] == usage["by_model"]["m"]["estimated_calls"] == 1
    assert [turn["estimated_calls"] for turn in usage["turns"]] == [0, 1]
    assert Usage().digest(folded(replied[0]).usage).hex() == BEFORE_ESTIMATES


def test_usage_is_known_by_turn() -> None:
    """Each reply as it was."""
    usage = folded(replies(1, input_tokens=1), replies(2, output_tokens=2)).usage
    assert [(turn.turn, turn.usage.input_tokens) for turn in usage.turns] == [(1, 1), (2, 0)]


def test_calls_that_failed_are_counted_apart() -> None:
    """They brought no reply."""
    usage = folded(FAILED, replies(1, input_tokens=1), FAILED).usage
    assert (usage.failed_calls, usage.total.calls) == (2, 1)


def test_a_run_that_begins_has_used_nothing() -> None:
    """What its parent used is its parent's."""
    for begins in (forks(2), continues(2)):
        usage = folded(RunStarted(), replies(1, input_tokens=9), FAILED, begins).usage
        assert (usage.total, len(usage.by_model), len(usage.turns)) == (Tokens(), 0, 0)
        assert usage.failed_calls == 0


def test_the_json_has_the_sums() -> None:
    """Also those that are worked out."""
    shown = folded(replies(1, input_tokens=10, output_tokens=5)).to_json()["usage"]
    tokens = {
        "calls": 1,
        "input_tokens": 10,
        "output_tokens": 5,
        "cached_tokens": 0,
        "reasoning_tokens": 0,
        "estimated_calls": 0,
        "total_tokens": 15,
    }
    assert shown == {
        "total": tokens,
        "by_model": {"m": tokens},
        "turns": [{"evaluation_id": "e1", "turn": 1, "model": "m", **tokens}],
        "failed_calls": 0,
    }
