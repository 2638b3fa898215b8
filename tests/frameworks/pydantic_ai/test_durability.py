"""`TurnledgerDurability`: what a run records of a pydantic-ai agent, and what a resume does."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from pydantic_ai import Agent
from pydantic_ai.capabilities import (
    SetToolMetadata,
)
from pydantic_ai.exceptions import ModelHTTPError, ModelRateLimitError

import turnledger
from tests.frameworks.pydantic_ai.scripted import (
    PAYS,
    Crash,
    Scripted,
    calls,
    events,
    paying,
    run,
    says,
)
from turnledger.ledger import (
    InvalidInputError,
    Ledger,
    ModelCalled,
    ToolCallInDoubt,
    run_id_for,
)
from turnledger.projections import Usage, fold, state_at
from turnledger.runtime import DecisionRequiredError
from turnledger.runtime.loop.perform.tool_in_doubt import UNKNOWN
from turnledger.runtime.steps import StepFailedError, UnrecordableResultError


class DeclinedError(Exception):
    """A tool's own error."""


def interrupted(ledger: Ledger, policy: str) -> list[int]:
    """A run that died inside of its tool, which has this policy; what the tool did."""
    done: list[int] = []
    scripted = Scripted(PAYS, says("Done."))
    agent = paying(scripted, done, dies=True, metadata={"on_interrupt": policy})
    with pytest.raises(Crash), run(ledger):
        agent.run_sync("Pay.")
    return done


# --- the record ---


def test_a_completed_run_answers_everything_from_its_record(ledger: Ledger) -> None:
    """The same lines a second time give the same output, and call neither model nor tool."""
    for expected in (2, 0):
        scripted, done = Scripted(PAYS, says("Done.")), []
        with run(ledger):
            result = paying(scripted, done).run_sync("Pay.")
        assert result.output == "Done."
        assert len(scripted.asked) == expected
        assert done == [120] * (expected // 2)
    with run(ledger, replay=True):
        assert paying(Scripted(), []).run_sync("Pay.").output == "Done."


def test_views_show_messages_calls_and_usage(ledger: Ledger) -> None:
    """Each message is recorded once, with the tool's result, and usage is that of the model."""
    with run(ledger):
        agent = paying(Scripted(PAYS, says("Done.")), [])
        result = agent.run_sync("Pay.")
    history = state_at(ledger, run_id_for("order")).history
    shown: list[Any] = [block for turn in history.to_list() for block in turn.blocks]
    assert [type(block).__name__ for block in shown] == [
        "TextBlock",
        "ToolUseBlock",
        "ToolResultBlock",
        "TextBlock",
    ]
    assert shown[2].content == "Paid 120."
    used = fold(ledger.read(run_id_for("order")), Usage()).total
    assert (used.input_tokens, used.output_tokens) == (
        result.usage.input_tokens,
        result.usage.output_tokens,
    )


def test_requests_are_recorded_as_what_they_add(ledger: Ledger) -> None:
    """The second request names the first, and holds only the messages that are new."""
    with run(ledger):
        paying(Scripted(PAYS, says("Done.")), []).run_sync("Pay.")
    first, second = events(ledger, ModelCalled)
    assert first.request["body"]["messages"][0]["parts"][0]["content"] == "Pay."
    assert second.request["since"] == first.call_id
    assert [one["kind"] for one in second.request["add"]] == ["response", "request"]


def test_outside_of_a_run_the_agent_is_as_it_was(ledger: Ledger) -> None:
    """The capability does nothing where there is no run."""
    done: list[int] = []
    assert paying(Scripted(PAYS, says("Done.")), done).run_sync("Pay.").output == "Done."
    assert done == [120]


# --- tools in doubt ---


def test_retry_calls_the_tool_again(ledger: Ledger) -> None:
    """By default a tool of which nobody knows how it ended is called again, and says so."""
    done = interrupted(ledger, "retry")
    with run(ledger):
        assert paying(Scripted(PAYS, says("Done.")), done).run_sync("Pay.").output == "Done."
    assert done == [120, 120]
    assert [one.call_id for one in events(ledger, ToolCallInDoubt)] == ["pay:call_1"]


def test_fail_tells_the_model_that_the_outcome_is_unknown(ledger: Ledger) -> None:
    """The tool is not called again, the model is told, and the run goes on."""
    done, scripted = interrupted(ledger, "fail"), Scripted(PAYS, says("I do not know."))
    with run(ledger):
        agent = paying(scripted, done, metadata={"on_interrupt": "fail"})
        assert agent.run_sync("Pay.").output == "I do not know."
    assert done == [120]
    assert scripted.told == [UNKNOWN]
    with run(ledger, replay=True):
        again = paying(Scripted(), [], metadata={"on_interrupt": "fail"})
        assert again.run_sync("Pay.").output == "I do not know."


def test_ask_waits_for_a_decision(ledger: Ledger) -> None:
    """DecisionRequiredError comes out of the agent's run, however often it is run again."""
    done = interrupted(ledger, "ask")
    for _ in range(2):
        with pytest.raises(DecisionRequiredError, match="pay:call_1"), run(ledger):
            paying(Scripted(), done, metadata={"on_interrupt": "ask"}).run_sync("Pay.")
    assert ledger.run(run_id_for("order")).status == "waiting"
    assert done == [120]


def test_unknown_policy_is_refused_before_the_tool_is_called(ledger: Ledger) -> None:
    """A typing error in the metadata is told, and does not pass for the default."""
    done: list[int] = []
    agent = paying(Scripted(PAYS, says("Done.")), done, metadata={"on_interrupt": "aks"})
    with pytest.raises(InvalidInputError, match="retry, fail, ask"), run(ledger):
        agent.run_sync("Pay.")
    assert done == []


def test_a_policy_can_be_set_for_tools_of_others(ledger: Ledger) -> None:
    """Metadata that a capability adds to tools counts as their own."""
    done: list[int] = []

    def agent() -> Agent[Any]:
        more = [SetToolMetadata(tools=["pay"], on_interrupt="ask")]
        made = Scripted(PAYS, says("Done.")).agent(capabilities=more)

        @made.tool_plain
        def pay(amount: int) -> str:
            done.append(amount)
            raise Crash

        return made

    with pytest.raises(Crash), run(ledger):
        agent().run_sync("Pay.")
    with pytest.raises(DecisionRequiredError), run(ledger):
        agent().run_sync("Pay.")
    assert done == [120]


# --- errors ---


def test_the_error_of_one_tool_waits_for_the_others(ledger: Ledger) -> None:
    """Tools beside one that fails end, and are on record: a second run calls none of them."""
    done: list[str] = []

    def agent(scripted: Scripted) -> Agent[Any]:
        made = scripted.agent()

        @made.tool_plain
        async def pay(amount: int) -> str:
            raise ValueError("no money")

        @made.tool_plain
        async def look() -> str:
            await asyncio.wait([one for one in asyncio.all_tasks() if one.get_name() == "pay"])
            for _ in range(9):  # a cancellation would come in one of these
                await asyncio.sleep(0)
            done.append("look")
            return "seen"

        return made

    async def caught(scripted: Scripted, *, replay: bool = False) -> None:
        async with run(ledger, replay=replay):
            with pytest.raises(ValueError, match="no money"):
                await agent(scripted).run("Pay.")

    both = calls(("pay", {"amount": 120}, "call_1"), ("look", {}, "call_2"))
    asyncio.run(caught(Scripted(both)))
    asyncio.run(caught(Scripted()))
    asyncio.run(caught(Scripted(), replay=True))
    assert done == ["look"]


def test_tools_run_one_after_the_other_where_the_program_says_so(ledger: Ledger) -> None:
    """The mode that a program has set is kept."""
    beside: list[int] = []
    scripted = Scripted(calls(("look", {}, "call_1"), ("look", {}, "call_2")), says("Done."))
    agent = scripted.agent()

    @agent.tool_plain
    async def look() -> str:
        beside.append(sum(one.get_name() == "look" for one in asyncio.all_tasks()))
        return "seen"

    with run(ledger), agent.parallel_tool_call_execution_mode("sequential"):
        agent.run_sync("Look.")
    assert beside == [1, 1]


def test_an_error_of_the_provider_is_raised_again_as_itself(ledger: Ledger) -> None:
    """Code that catches a rate limit takes the same way on a resume, which asks nothing."""
    body = {"error": "slow down"}
    limited = ModelHTTPError.for_category(
        ModelRateLimitError, status_code=429, model_name="m", body=body, retry_after=2.0
    )
    for expected in (1, 0):
        scripted = Scripted(limited)
        with run(ledger):
            with pytest.raises(ModelRateLimitError) as raised:
                scripted.agent().run_sync("Pay.")
            error: Any = raised.value
            assert isinstance(error, ModelHTTPError)
            assert (error.status_code, error.body, error.retry_after) == (429, body, 2.0)
        assert len(scripted.asked) == expected


def test_errors_of_tools_are_raised_again_by_their_names(ledger: Ledger) -> None:
    """Those in `raises` as themselves, others as StepFailedError; live and on a resume."""

    def agent(done: list[int], raises: Any) -> Agent[Any]:
        made = Scripted(PAYS).agent(raises=raises)

        @made.tool_plain
        def pay(amount: int) -> str:
            done.append(amount)
            raise DeclinedError("no money")

        return made

    done: list[int] = []
    for kind, raises in ((StepFailedError, ()), (DeclinedError, (DeclinedError,))):
        for _ in range(2):
            named = turnledger.run(kind.__name__, ledger=ledger)
            with named, pytest.raises(kind, match="no money"):
                agent(done, raises).run_sync("Pay.")
    assert done == [120, 120]


def test_a_result_that_is_not_json_happened(ledger: Ledger) -> None:
    """The tool is not called again, and its error is the same on a resume."""
    done: list[int] = []
    for _ in range(2):
        agent = Scripted(PAYS).agent()

        @agent.tool_plain
        def pay(amount: int) -> Any:
            done.append(amount)
            return object()

        with pytest.raises(UnrecordableResultError, match="pay:call_1"), run(ledger):
            agent.run_sync("Pay.")
    assert done == [120]
