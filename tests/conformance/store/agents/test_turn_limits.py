"""`max_turns`: how many replies of the model one run may have, and what a recovery does then."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest

from tests.unit.runtime.loops import (
    ANSWER,
    Answer,
    Crash,
    Goal,
    Planner,
    asks,
    call,
    crash_in,
    tags,
)
from turnledger.ledger import (
    NEW,
    EvaluationStarted,
    EvaluationSuperseded,
    Event,
    InvalidInputError,
    Ledger,
    ModelReplied,
    RunFailed,
    RunStarted,
    new_run_id,
)
from turnledger.projections import fold
from turnledger.runtime import (
    MainLoopConfig,
    PromptEvaluationError,
    Reply,
    TurnLimitExceededError,
    replay,
    replay_live,
)
from turnledger.runtime.journal.loop_progress import Progress

LIMIT = MainLoopConfig(max_turns=3)
MORE = [asks(call(f"c{turn}")) for turn in (1, 2, 3)]


def for_ever(request: Any) -> Reply:
    """A model that always calls a tool."""
    return asks(call(f"c{request.turn}"))


def failed_by_limit(ledger: Ledger, **options: Any) -> UUID:
    run_id = new_run_id()
    with pytest.raises(PromptEvaluationError, match="max_turns is 3"):
        Planner(for_ever, ledger=ledger, config=LIMIT, **options).execute(Goal(), run_id=run_id)
    return run_id


def replies(ledger: Ledger, run_id: UUID) -> int:
    return tags(ledger, run_id).count("model.replied")


def started(ledger: Ledger, run_id: UUID) -> RunStarted:
    event = next(iter(ledger.read(run_id))).event
    assert isinstance(event, RunStarted)
    return event


def test_a_model_that_always_calls_a_tool_is_ended_by_max_turns(ledger: Ledger) -> None:
    """It has 3 replies, the failure names the limit, and a replay ends there too."""
    run_id = failed_by_limit(ledger)
    assert (replies(ledger, run_id), started(ledger, run_id).max_turns) == (3, 3)
    (failed,) = [r.event for r in ledger.read(run_id) if isinstance(r.event, RunFailed)]
    assert failed.cause == "TurnLimitExceededError"
    assert f"turnledger recover {run_id}" in failed.error_message
    unlimited = Planner(for_ever, ledger=Ledger.open("memory://"))
    assert replay(ledger, run_id, loop=unlimited).divergence is None


def test_fifty_turns_are_the_default_and_none_is_no_limit(ledger: Ledger) -> None:
    """A loop without a config has a limit."""
    loop, run_id = Planner(ledger=ledger), new_run_id()
    loop.execute(Goal(), run_id=run_id)
    assert started(ledger, run_id).max_turns == 50
    free = new_run_id()
    Planner(ledger=ledger, config=MainLoopConfig(max_turns=None)).execute(Goal(), run_id=free)
    assert started(ledger, free).max_turns is None
    for wrong in (0, -1, True, 1.5):
        with pytest.raises(InvalidInputError, match="max_turns"):
            MainLoopConfig(max_turns=wrong)  # type: ignore[arg-type]


def test_a_recovery_without_a_higher_limit_says_so_and_counts_no_attempt(ledger: Ledger) -> None:
    """However often: nothing is written. With a higher one the run goes on."""
    run_id = failed_by_limit(ledger)
    head = ledger.head(run_id)
    loop = Planner([*MORE, asks(call("c4")), ANSWER], ledger=ledger)
    for lower in (None, None, None, None, 2, 3):
        with pytest.raises(TurnLimitExceededError, match="3 times"):
            loop.recover(run_id, max_turns=lower)
    assert ledger.head(run_id) == head
    with pytest.raises(PromptEvaluationError, match="max_turns is 4"):
        loop.recover(run_id, max_turns=4)
    assert loop.recover(run_id, max_turns=5)[0].output == Answer(3)
    fresh = Planner([*MORE, asks(call("c4")), ANSWER], ledger=Ledger.open("memory://"))
    assert replay(ledger, run_id, loop=fresh).divergence is None


def test_replies_of_earlier_attempts_count(ledger: Ledger) -> None:
    """A run that crashes in each turn has no more replies than one that does not."""
    run_id = new_run_id()
    with pytest.raises(Crash):
        Planner(for_ever, ledger=ledger, config=LIMIT, in_tool=crash_in("c2")).execute(
            Goal(), run_id=run_id
        )
    # The recorded limit counts, not that of the loop that recovers.
    with pytest.raises(PromptEvaluationError, match="max_turns is 3"):
        Planner(for_ever, ledger=ledger).recover(run_id)
    assert replies(ledger, run_id) == 3


def test_an_answer_in_the_last_turn_is_an_answer(ledger: Ledger) -> None:
    """The limit is on further replies: the third of three may be the answer."""
    loop = Planner([asks(call("c1")), asks(call("c2")), ANSWER], ledger=ledger, config=LIMIT)
    assert loop.execute(Goal())[0].output == Answer(3)


def test_a_fork_begins_at_0_with_the_limit_of_its_parent(ledger: Ledger) -> None:
    """Its own replies count, up to the recorded limit; the parent's do not."""
    run_id = failed_by_limit(ledger)
    fork = UUID(str(ledger.fork(run_id, ledger.head(run_id))))
    with pytest.raises(PromptEvaluationError, match=r"max_turns is 3, .* 3 times"):
        Planner(for_ever, ledger=ledger).recover(fork)
    assert replies(ledger, fork) == 6


def test_a_live_model_in_a_replay_has_the_limit(ledger: Ledger) -> None:
    """A replay with a live model is a fork, and ends by the limit too."""
    run_id = new_run_id()
    Planner(ledger=ledger, config=MainLoopConfig(max_turns=5)).execute(Goal(), run_id=run_id)
    loop = Planner(for_ever, ledger=ledger)
    found = replay_live(ledger, run_id, loop, live=("model", "tool:step"))
    assert "max_turns is 5" in str(found.error)


def test_a_run_without_a_recorded_limit_has_none(ledger: Ledger) -> None:
    """As runs of earlier versions: the limit of the loop that recovers does not count."""
    run_id, free = new_run_id(), MainLoopConfig(max_turns=None)
    with pytest.raises(Crash):
        Planner(ledger=ledger, config=free, in_tool=crash_in("c2")).execute(Goal(), run_id=run_id)
    strict = MainLoopConfig(max_turns=1)
    assert Planner(ledger=ledger, config=strict).recover(run_id)[0].output == Answer(3)


def test_replies_of_superseded_evaluations_count_and_those_of_a_parent_do_not(
    ledger: Ledger,
) -> None:
    """What was evaluated again was asked for; a continuation is a run of its own."""
    run_id = new_run_id()
    events: list[Event] = [RunStarted(max_turns=9)]
    for evaluation in ("e1", "e2"):
        events += [
            EvaluationStarted(
                evaluation_id=evaluation, prompt_ns="n", prompt_key="k", prompt_digest="d"
            ),
            ModelReplied(evaluation_id=evaluation, turn=1, message_id=new_run_id()),
            EvaluationSuperseded(evaluation_id=evaluation, reason="sections were opened"),
            # A reply that came after that is one of the run too.
            ModelReplied(evaluation_id="another", turn=1, message_id=new_run_id()),
        ]
    ledger.append(run_id, events, NEW)
    assert fold(ledger.read(run_id), Progress()).replies == 4
    child = ledger.continuation(run_id)
    assert fold(ledger.read(child), Progress()).replies == 0
