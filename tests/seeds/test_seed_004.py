"""Seed 004, adapters: its code blocks as printed, but for import paths.

It prints three signatures and one call of a client; the rest is prose, which the tests of
`runtime.loop` and of the providers protect. Here every printed name is used once.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Generic, TypeVar

import pytest

from tests.agent import calls, says
from tests.seeds.printed import assert_callable_as, assert_same_fields
from tests.unit.runtime.evaluations import Heard, Scripted, Sum, prompt_of, tool
from turnledger.adapters import OpenAIAdapter
from turnledger.ledger import Ledger
from turnledger.runtime import (
    Deadline,
    EventBus,
    ExecutionState,
    InProcessEventBus,
    MarkdownSection,
    Prompt,
    PromptEvaluationError,
    PromptResponse,
    PromptTemplate,
    ProviderAdapter,
    Session,
    SnapshotableFilesystem,
    ToolInvoked,
)
from turnledger.runtime.agent.overrides import LedgerOverridesStore
from turnledger.runtime.workspace import (
    OptimizationResult,
    OptimizationScope,
    VfsToolsSection,
    WorkspaceDigestSection,
    clear_workspace_digest,
    latest_workspace_digest,
    set_workspace_digest,
)

OutputT = TypeVar("OutputT")


class Printed:
    """The seed's own classes."""

    class ProviderAdapter(ABC):
        @abstractmethod
        def evaluate(
            self,
            prompt: Prompt[OutputT],
            *params: Any,
            parse_output: bool = True,
            bus: EventBus,
            session: Any,
            deadline: Deadline | None = None,
            overrides_store: Any = None,
            overrides_tag: str = "latest",
        ) -> PromptResponse[OutputT]: ...

    @dataclass(slots=True)
    class PromptResponse(Generic[OutputT]):
        prompt_name: str
        text: str | None
        output: OutputT | None
        tool_results: tuple[ToolInvoked, ...]
        provider_payload: dict[str, Any] | None = None

    @dataclass(slots=True)
    class OptimizationResult:
        response: PromptResponse[Any]
        digest: str
        scope: OptimizationScope
        section_key: str


def test_the_signatures_are_as_printed() -> None:
    """S4-1, S4-2, S4-23: parameters and fields by name, with their defaults."""
    assert_callable_as(Printed.ProviderAdapter.evaluate, ProviderAdapter.evaluate)
    assert_same_fields(Printed.PromptResponse, PromptResponse)
    assert_same_fields(Printed.OptimizationResult, OptimizationResult)


@dataclass(frozen=True)
class Who:
    name: str


def test_evaluate_takes_all_that_is_printed_at_once() -> None:
    """S4-1, S4-2, S4-5, S4-24: params, an override by tag, and the very events of the bus."""
    section = MarkdownSection[Who](
        title="Task", key="task", template="Greet ${name}.", tools=[tool()]
    )
    prompt: Prompt[Any] = Prompt(PromptTemplate(ns="tests", key="greet", sections=[section]))
    bus = InProcessEventBus()
    heard = Heard().listen(bus)
    adapter = Scripted([calls(("a", "add", '{"n": 1}')), says("Hi.", payload={"id": "r1"})])
    with Ledger.open("memory://") as ledger:
        store = LedgerOverridesStore(ledger)
        store.set_section_override(prompt, tag="loud", path="task", body="SHOUT at ${name}.")
        response = adapter.evaluate(
            prompt,
            Who("Ann"),
            parse_output=True,
            bus=bus,
            session=Session(bus=bus),
            deadline=None,
            overrides_store=store,
            overrides_tag="loud",
        )
    assert "SHOUT at Ann." in adapter.requests[0].system
    assert response.tool_results == tuple(heard.of(ToolInvoked))
    assert (response.text, response.provider_payload) == ("Hi.", {"id": "r1"})
    assert heard.names == ["PromptRendered", "ToolInvoked", "PromptExecuted"]


def test_the_client_is_called_as_printed() -> None:
    """S4-18, S4-19: `client.chat.completions.create` with the five arguments, and no other."""
    asked: list[dict[str, Any]] = []

    def create(
        *, model: Any, messages: Any, tools: Any, tool_choice: Any, response_format: Any
    ) -> Any:
        asked.append({"model": model, "tool_choice": tool_choice, "format": response_format})
        message = SimpleNamespace(content='{"total": 3}', tool_calls=None)
        return SimpleNamespace(choices=[SimpleNamespace(message=message)])

    client = SimpleNamespace(chat=SimpleNamespace(completions=SimpleNamespace(create=create)))
    adapter: OpenAIAdapter[Any] = OpenAIAdapter(model="m", client=client)
    response = adapter.evaluate(prompt_of(tool(), output=Sum), session=Session())
    assert response.output == Sum(3)
    (sent,) = asked
    assert (sent["model"], sent["tool_choice"]) == ("m", "auto")
    assert sent["format"]["type"] == "json_schema"


# --- Optimization Workflow ---------------------------------------------------------------


def reviewed(*sections: Any) -> Prompt[Any]:
    task = MarkdownSection[None](title="Task", template="Do it.", key="task")
    return Prompt(PromptTemplate(ns="reviews", key="review", sections=[task, *sections]))


WHOLE = (VfsToolsSection(), WorkspaceDigestSection())


def test_the_optimization_workflow_runs(tmp_path: Path) -> None:
    """S4-23: SESSION sets the session's digest; GLOBAL stores it, and clears the session's."""
    prompt, adapter = reviewed(*WHOLE), Scripted([says("One file.")])
    (tmp_path / "a.py").write_text("x = 1\n")
    files = SnapshotableFilesystem(tmp_path)
    state = ExecutionState(session=Session(), resources={"workspace": files})
    result = adapter.optimize(prompt, store_scope=OptimizationScope.SESSION, execution_state=state)
    assert (result.digest, result.scope) == ("One file.", OptimizationScope.SESSION)
    assert result.section_key == "workspace-digest"
    assert result.response.prompt_name == "reviews.optimization/review-workspace-digest"
    found = latest_workspace_digest(state.session)
    assert found is not None
    assert found.body == "One file."

    with Ledger.open("memory://") as ledger:
        store = LedgerOverridesStore(ledger)
        adapter.optimize(
            prompt,
            store_scope=OptimizationScope.GLOBAL,
            execution_state=state,
            overrides_store=store,
            overrides_tag="latest",
        )
        assert latest_workspace_digest(state.session) is None
        shown = prompt.render(overrides_store=store, overrides_tag="latest").text
        assert "One file." in shown


def test_a_digest_is_set_and_cleared_by_hand() -> None:
    """S4-23: by the two printed helpers."""
    session = Session()
    set_workspace_digest(session, "workspace-digest", "By hand.")
    assert latest_workspace_digest(session) is not None
    clear_workspace_digest(session, "workspace-digest")
    assert latest_workspace_digest(session) is None


@pytest.mark.parametrize(
    ("sections", "answer", "options", "phase"),
    [
        (WHOLE[:1], "One file.", {}, "request"),
        (WHOLE[1:], "One file.", {}, "request"),
        (WHOLE, "One file.", {"store_scope": OptimizationScope.GLOBAL}, "request"),
        (WHOLE, " \n", {}, "response"),
    ],
)
def test_an_optimization_that_can_not_be_fails_in_its_phase(
    sections: tuple[Any, ...], answer: str, options: dict[str, Any], phase: str
) -> None:
    """S4-23: a missing section or store before anything runs, an empty answer after."""
    adapter = Scripted([says(answer)])
    with pytest.raises(PromptEvaluationError) as failed:
        adapter.optimize(reviewed(*sections), session=Session(), **options)
    assert failed.value.phase == phase
    assert bool(adapter.requests) is (phase == "response")
