"""`output_retries`: an output that can't be parsed goes back to the model with what is wrong."""

from __future__ import annotations

from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest

from tests.agent import Crash, says
from tests.unit.runtime.clocks import StandingClock
from tests.unit.runtime.loops import Answer, Goal, Planner, asks, call, tags
from turnledger.ledger import (
    EvaluationFinished,
    InvalidInputError,
    Ledger,
    MessageAppended,
    ModelCalled,
    OutputRejected,
    RunFailed,
    new_run_id,
)
from turnledger.projections import TextBlock
from turnledger.runtime import (
    Budget,
    MainLoopConfig,
    PromptEvaluationError,
    Reply,
    replay,
)

BAD, GOOD = says('{"steps": "many"}'), says('{"steps": 3}')
WORDS = 'steps: expected a whole number, got text "many"'


def planner(ledger: Ledger, replies: Any, retries: int, **limits: Any) -> Planner:
    config = MainLoopConfig(output_retries=retries, **limits)
    return Planner(replies, ledger=ledger, config=config)


def events(ledger: Ledger, run: UUID, kind: type) -> list[Any]:
    return [record.event for record in ledger.read(run) if isinstance(record.event, kind)]


def replayed(ledger: Ledger, run: UUID, retries: int = 0) -> None:
    """Replay it with another setting: the record says how often the model was asked."""
    with Ledger.open("memory://") as nowhere:
        found = replay(ledger, run, loop=planner(nowhere, [], retries))
    assert found.divergence is None, str(found.divergence)
    assert found.version == ledger.head(run)


def test_a_bad_output_is_asked_for_again_with_what_is_wrong(ledger: Ledger) -> None:
    """The model gets a message with path, expected and got; it is recorded, and so is why."""
    run, seen = new_run_id(), []

    def model(request: Any) -> Reply:
        seen.append(request.history.to_list())
        return BAD if len(seen) == 1 else GOOD

    response, _ = planner(ledger, model, 1).execute(Goal(), run_id=run)
    assert response.output == Answer(3)
    (rejected,) = events(ledger, run, OutputRejected)
    assert rejected.error == WORDS
    asked = next(
        event.message
        for event in events(ledger, run, MessageAppended)
        if event.message.message_id == rejected.asked_id
    )
    assert asked.role == "user"
    assert asked.content == (
        f"Your answer is not the JSON object that was asked for: {WORDS}. "
        "Answer again with the corrected JSON object and nothing else."
    )
    said, told = seen[1][-2:]
    assert (said.role, told.role) == ("assistant", "user")
    assert told.blocks == (TextBlock(asked.content),)
    assert tags(ledger, run).count("output.rejected") == 1
    replayed(ledger, run)


def test_what_a_provider_parsed_is_rejected_alike(ledger: Ledger) -> None:
    """Native structured output is JSON data and no text; the same words come of it."""
    run = new_run_id()
    replies = [says("", parsed={"steps": "many"}), says("", parsed={"steps": 3})]
    response, _ = planner(ledger, replies, 1).execute(Goal(), run_id=run)
    assert response.output == Answer(3)
    assert [one.error for one in events(ledger, run, OutputRejected)] == [WORDS]
    replayed(ledger, run)


@pytest.mark.parametrize("retries", [0, 1, 2])
def test_after_so_many_times_the_run_fails_as_it_always_did(ledger: Ledger, retries: int) -> None:
    """S4-3: with 0, the default, at the first bad output; the error's words stay the same."""
    run = new_run_id()
    with pytest.raises(PromptEvaluationError, match="that was asked for") as caught:
        planner(ledger, [BAD] * 3, retries).execute(Goal(), run_id=run)
    assert caught.value.phase == "response"
    assert len(events(ledger, run, OutputRejected)) == retries
    (failed,) = events(ledger, run, RunFailed)
    assert failed.cause == "OutputParseError"
    assert len(events(ledger, run, ModelCalled)) == retries + 1
    replayed(ledger, run)


def test_rejections_are_counted_over_the_evaluation(ledger: Ledger) -> None:
    """Tool calls in between do not begin the count again."""
    run = new_run_id()
    with pytest.raises(PromptEvaluationError, match="that was asked for"):
        planner(ledger, [BAD, asks(call("c1")), BAD, GOOD], 1).execute(Goal(), run_id=run)
    assert len(events(ledger, run, OutputRejected)) == 1
    replayed(ledger, run)


def test_a_recovered_run_has_what_is_left_of_its_retries(ledger: Ledger) -> None:
    """The count is folded from the record, and the question that was asked is not asked again."""

    def dies(request: Any) -> Reply:
        if request.turn == 1:
            return BAD
        raise Crash

    for replies, output in (([BAD, GOOD], Answer(3)), ([BAD, BAD, GOOD], None)):
        run = new_run_id()
        with pytest.raises(Crash):
            planner(ledger, dies, 1).execute(Goal(), run_id=run)
        loop = planner(ledger, replies, 1)
        if output is None:
            with pytest.raises(PromptEvaluationError, match="that was asked for"):
                loop.recover(run)
        else:
            assert loop.recover(run)[0].output == output
        assert len(events(ledger, run, OutputRejected)) == 1
        replayed(ledger, run)


@pytest.mark.parametrize(
    "limits",
    [
        {"max_turns": 1},
        {"budget": Budget(max_total_tokens=13)},
        {"deadline": timedelta(seconds=60)},
    ],
)
def test_limits_hold_for_the_further_request(
    ledger: Ledger, clock: StandingClock, limits: dict[str, Any]
) -> None:
    """A retry is a turn like any other: no limit is passed by it."""
    run = new_run_id()

    def slow(request: Any) -> Reply:
        clock.advance(timedelta(seconds=59 if request.turn == 1 else 2))
        return BAD if request.turn < 3 else GOOD

    config = MainLoopConfig(output_retries=5, **limits)
    with pytest.raises(PromptEvaluationError) as caught:
        Planner(slow, ledger=ledger, config=config, clock=clock).execute(Goal(), run_id=run)
    assert type(caught.value.__cause__).__name__.endswith("ExceededError")
    assert len(events(ledger, run, ModelCalled)) == (2 if "deadline" in limits else 1)
    assert not events(ledger, run, EvaluationFinished)
    replayed(ledger, run)


def test_an_output_type_that_takes_what_was_rejected_is_a_divergence(ledger: Ledger) -> None:
    """The record says that it was refused; the cause is the type."""

    class Lenient(Planner):
        def create_prompt(self, request: Goal) -> Any:
            prompt = super().create_prompt(request)
            output = prompt.template.output
            assert output is not None
            # The prompt is the same, as its schema is; only the parser is another.
            output.__dict__["parse"] = lambda text: Answer(3)
            return prompt

    run = new_run_id()
    planner(ledger, [BAD, GOOD], 1).execute(Goal(), run_id=run)
    with Ledger.open("memory://") as nowhere:
        found = replay(ledger, run, loop=Lenient([], ledger=nowhere))
    assert found.divergence is not None
    assert (found.divergence.tag, found.divergence.cause) == (
        "output.rejected",
        "output type changed",
    )


@pytest.mark.parametrize("retries", [-1, True, 1.5, None])
def test_output_retries_is_a_count(retries: Any) -> None:
    """Anything else is an error when the loop is made, not at the first bad output."""
    with pytest.raises(InvalidInputError, match="output_retries"):
        MainLoopConfig(output_retries=retries)
