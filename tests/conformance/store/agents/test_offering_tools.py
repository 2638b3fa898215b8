"""What a model was offered is on record: the schema and the description of each tool."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any
from uuid import UUID

import pytest
from msgspec.structs import replace

from tests.unit.runtime.loops import ANSWER, Goal, Planner, asks, call, interrupted
from turnledger.ledger import NEW, EvaluationStarted, Ledger, RunStarted, new_run_id
from turnledger.runtime import (
    MarkdownSection,
    Prompt,
    PromptTemplate,
    Tool,
    ToolContext,
    ToolResult,
    replay,
)

SECRET = "sk-ant-api03-" + "a1B2" * 24 + "AA"


@dataclass(frozen=True)
class Amount:
    name: str
    cents: int = 0


class Described(Planner):
    """A planner whose one tool has another description, or other parameters."""

    def __init__(self, description: str, params: Any, ledger: Ledger) -> None:
        super().__init__([asks(call("c1")), ANSWER], ledger=ledger)
        self.description, self.params = description, params

    def create_prompt(self, request: Goal) -> Prompt[Any]:
        def handler(params: Any, *, context: ToolContext) -> ToolResult[Any]:
            return ToolResult("Done.")

        handler.__annotations__["params"] = self.params
        tool = Tool[self.params, Any](  # type: ignore[name-defined]
            name="step", description=self.description, handler=handler
        )
        section = MarkdownSection[Goal](title="Task", template="Go.", key="task", tools=[tool])
        return Prompt(PromptTemplate[Any](ns="tests", key="plan", sections=[section])).bind(request)


@dataclass(frozen=True)
class Named:
    name: str


def executed(ledger: Ledger, description: str = "Do a step.") -> UUID:
    run_id = new_run_id()
    Described(description, Named, ledger).execute(Goal(), run_id=run_id)
    return run_id


def offered(ledger: Ledger, run_id: UUID) -> EvaluationStarted:
    (event,) = [r.event for r in ledger.read(run_id) if isinstance(r.event, EvaluationStarted)]
    return event


def test_each_offered_tool_has_a_blob_with_its_schema(ledger: Ledger) -> None:
    """It is read by the name in the event, verified with it, and the same in another run."""
    first, second = executed(ledger), executed(ledger)
    (tool,) = offered(ledger, first).tools
    assert offered(ledger, second).tools == (tool,)
    spec = json.loads(ledger.blob(tool.spec))
    assert spec["description"] == "Do a step."
    assert spec["parameters"]["properties"]["name"] == {"type": "string"}
    assert ledger.verify(first).ok


def test_a_secret_in_a_description_is_not_in_the_blob(ledger: Ledger) -> None:
    """Blobs of tools are redacted like events, and a replay finds no difference."""
    run_id = executed(ledger, f"Use the key {SECRET}.")
    (tool,) = offered(ledger, run_id).tools
    assert SECRET.encode() not in ledger.blob(tool.spec)
    assert b"Use the key" in ledger.blob(tool.spec)
    same = Described(f"Use the key {SECRET}.", Named, Ledger.open("memory://"))
    assert replay(ledger, run_id, loop=same).divergence is None


@pytest.mark.parametrize(
    ("description", "params", "lines"),
    [
        ("Do a long step.", Named, ('-    "description": "Do a step."', "+    ")),
        ("Do a step.", Amount, ('+        "cents": {', '"type": "integer"')),
    ],
)
def test_a_changed_tool_schema_is_shown_as_a_diff(
    ledger: Ledger, description: str, params: Any, lines: tuple[str, ...]
) -> None:
    """What was offered then, and what is offered now; not the digests of both."""
    run_id = executed(ledger)
    found = replay(ledger, run_id, loop=Described(description, params, Ledger.open("memory://")))
    assert found.divergence is not None
    assert (found.divergence.cause, found.divergence.detail) == ("tool schema changed", "step")
    assert all(line in found.divergence.diff for line in lines)
    assert "digest" not in found.divergence.diff


def test_a_run_of_an_earlier_program_has_no_such_blob(ledger: Ledger) -> None:
    """Verify looks for none, and a changed tool is found by its digest as before."""
    run_id, events = executed(ledger), []
    for record in ledger.read(run_id):
        event = record.event
        if isinstance(event, EvaluationStarted):
            event = replace(event, tools=tuple(replace(t, spec="") for t in event.tools))
        if isinstance(event, RunStarted):
            event = replace(event, catalogue=2, max_turns=None)
        events.append(event)
    old = new_run_id()
    # Without the claim, and so without checkpoints, whose digests cover it.
    left_out = ("run.claimed", "checkpoint.reached", "checkpoint.cleared")
    ledger.append(old, [event for event in events if event.tag not in left_out], NEW)
    assert ledger.verify(old).ok
    same = Described("Do a step.", Named, Ledger.open("memory://"))
    assert replay(ledger, old, loop=same).divergence is None
    found = replay(ledger, old, loop=Described("Other.", Named, Ledger.open("memory://")))
    assert found.divergence is not None
    assert found.divergence.cause == "tool schema changed"
    assert "digest" in found.divergence.diff


def test_a_recovered_run_offers_what_was_offered(ledger: Ledger) -> None:
    """An evaluation that goes on names its tools once."""
    run_id = interrupted(ledger)
    Planner(ledger=ledger).recover(run_id)
    assert all(tool.spec for tool in offered(ledger, run_id).tools)
