"""Changed code over a recorded run of a pydantic-ai agent: the first difference is found, at its
event, and nothing is performed; what changes by itself is not a difference."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic_ai import Agent
from pydantic_ai.capabilities import PrepareTools, ProcessHistory
from pydantic_ai.messages import (
    ModelMessage,
    ModelRequest,
    ModelResponse,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.models.function import FunctionModel

import turnledger
from tests.frameworks.pydantic_ai.scripted import Scripted, calls, says
from turnledger.adapters.frameworks.pydantic_ai.projection import MADE_UP_ID
from turnledger.ledger import Ledger, run_id_for
from turnledger.pydantic_ai import TurnledgerDurability
from turnledger.runtime.replaying.replay import ReplayDivergedError

FIRST, SECOND = "shop.model#1", "shop.model#2"
# What the code of a run is made of; a change replaces some of it.
Parts = dict[str, Any]


class Crash(BaseException):
    """The process ends here, as far as the run can tell."""


def code(ledger: Ledger, done: list[str], *, replay: bool = False, **changed: Any) -> None:
    """A run of two agent runs, with a tool in the first one."""
    parts: Parts = {
        "prompt": "Pay.",
        "name": "shop",
        "doc": "Pays.",
        "default": 1,
        "result": "Paid.",
        "times": 2,
        "more": {"instructions": "Be brief.", "model_settings": {"temperature": 0.0}},
        "model": "scripted",
        **changed,
    }
    replies = [calls(("pay", {"amount": 120}, "call_1")), says("Done.")]

    def reply(messages: list[ModelMessage], info: Any) -> ModelResponse:
        done.append("asked")
        turn = sum(isinstance(one, ModelResponse) for one in messages)
        return ModelResponse(parts=list(replies[turn].parts))

    model = FunctionModel(reply, model_name=parts["model"])
    capabilities = [TurnledgerDurability(), *parts.get("capabilities", ())]
    agent = Agent(model, name=parts["name"], capabilities=capabilities, **parts["more"])
    default = parts["default"]

    def pay(amount: int, times: int = default) -> str:
        done.append("paid")
        if parts.get("dies"):
            raise Crash
        return str(parts["result"])

    agent.tool_plain(pay, description=parts["doc"], name=parts.get("tool", "pay"))
    with turnledger.run("order", ledger=ledger, replay=replay):
        for _ in range(parts["times"]):
            agent.run_sync(parts["prompt"])


def brief(messages: list[ModelMessage]) -> list[ModelMessage]:
    return [*messages[:-1], ModelRequest(parts=[UserPromptPart("Briefly.")])]


CHANGES: dict[str, tuple[Parts, str, str]] = {
    "prompt": ({"prompt": "Pay now."}, FIRST, "step arguments changed"),
    "instructions": ({"more": {"instructions": "Be long."}}, FIRST, "step arguments changed"),
    "settings": (
        {"more": {"instructions": "Be brief.", "model_settings": {"temperature": 1.0}}},
        FIRST,
        "step arguments changed",
    ),
    "tool's description": ({"doc": "Pays a lot."}, FIRST, "step arguments changed"),
    "tool's name": ({"tool": "pay_out"}, FIRST, "step arguments changed"),
    "tool's parameters": ({"default": 2}, FIRST, "step arguments changed"),
    "model": ({"model": "another"}, FIRST, "step arguments changed"),
    "history processor": (
        {"capabilities": [ProcessHistory(brief)]},
        FIRST,
        "step arguments changed",
    ),
    "agent's name": ({"name": "store"}, FIRST, "step changed"),
    "one run less": ({"times": 1}, "shop.model#3", "step removed"),
    "one run more": ({"times": 3}, "", "step added"),
}


@pytest.mark.parametrize("replay", [False, True])
@pytest.mark.parametrize("change", CHANGES)
def test_a_change_is_found_at_its_event(change: str, replay: bool, ledger: Ledger) -> None:
    """A replay and a second run name the step, its version and the cause, and do nothing."""
    code(ledger, [])
    recorded = {
        getattr(record.event, "call_id", ""): record.version
        for record in reversed(list(ledger.read(run_id_for("order"))))
    }
    parts, step, cause = CHANGES[change]
    done: list[str] = []
    with pytest.raises(ReplayDivergedError) as raised:
        code(ledger, done, replay=replay, **parts)
    found = raised.value.divergence
    assert (found.cause, found.version) == (cause, recorded[step] if step else found.version)
    assert done == []
    assert step in str(found)


def test_a_change_after_a_crash_performs_nothing(ledger: Ledger) -> None:
    """A resume of an interrupted run stops before the model or the tool is called again."""
    with pytest.raises(Crash):
        code(ledger, [], dies=True)
    done: list[str] = []
    with pytest.raises(ReplayDivergedError) as raised:
        code(ledger, done, prompt="Pay now.")
    assert "Pay now." in raised.value.divergence.diff
    assert done == []


def test_changed_arguments_of_a_tool_are_found(ledger: Ledger) -> None:
    """A default that is filled in otherwise changes the call, where the model is told nothing."""

    def as_before(context: Any, tools: list[Any]) -> list[Any]:
        for tool in tools:
            tool.parameters_json_schema["properties"]["times"]["default"] = 1
        return tools

    code(ledger, [])
    with pytest.raises(ReplayDivergedError) as raised:
        code(ledger, [], default=2, capabilities=[PrepareTools(as_before)])
    assert raised.value.divergence.recorded == {"amount": 120, "times": 1}
    assert raised.value.divergence.found == {"amount": 120, "times": 2}


def test_a_changed_result_is_no_difference_of_a_replay(ledger: Ledger) -> None:
    """What a tool would return now is not asked for."""
    code(ledger, [])
    code(ledger, [], replay=True, result="Refused.")


def test_times_and_made_up_ids_are_no_difference(ledger: Ledger) -> None:
    """A history that the code makes itself has new times, and ids that pydantic-ai makes up."""
    for expected in (1, 0):
        scripted = Scripted(says("-"), says("Done."))
        call = ToolCallPart("pay", {"amount": 1})
        assert call.tool_call_id.startswith(MADE_UP_ID)
        history: list[ModelMessage] = [
            ModelRequest(parts=[UserPromptPart("Look.")]),
            ModelResponse(parts=[call]),
            ModelRequest(parts=[ToolReturnPart("pay", "Paid.", tool_call_id=call.tool_call_id)]),
        ]
        with turnledger.run("order", ledger=ledger):
            result = scripted.agent().run_sync("Pay.", message_history=history)
        assert result.output == "Done."
        assert len(scripted.asked) == expected
