"""pydantic-ai with DBOS: one run of an agent; its replies and its tool's results are steps.

Loading is `DBOS.list_workflow_steps`; the run is resumed by running it again over its record.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from dbos import DBOS, SetWorkflowID
from pydantic_ai import Agent
from pydantic_ai.durable_exec.dbos import DBOSDurability
from pydantic_ai.messages import ModelResponse, TextPart, ToolCallPart, ToolReturnPart
from pydantic_ai.models.function import FunctionModel
from pydantic_ai.usage import RequestUsage, UsageLimits

from benchmarks.peers.dbos_steps import WORKFLOW, launch
from benchmarks.peers.peer import ASKED, NextText, NextTextOf, Peer
from benchmarks.peers.worker import die


class PydanticAIDbos(Peer):
    """A run of an agent in a workflow."""

    def begin(self, many: Sequence[str]) -> None:
        workflow = _conversation(NextTextOf(many, die))
        launch(self.where)
        with SetWorkflowID(WORKFLOW):
            workflow(ASKED)

    def go_on(self, next_text: NextText) -> None:
        _conversation(next_text)
        launch(self.where)
        DBOS.retrieve_workflow(WORKFLOW).get_result()

    def load(self) -> Sequence[object]:
        return [step["output"] for step in DBOS.list_workflow_steps(WORKFLOW)]

    def pay(self, tool: Callable[[], str]) -> None:
        workflow = _agent(_pay_once, tool)
        launch(self.where)
        with SetWorkflowID(WORKFLOW):
            workflow(ASKED)

    def recover(self, tool: Callable[[], str]) -> str:
        """It recovers by itself when it is launched."""
        _agent(_pay_once, tool)
        launch(self.where)
        return str(DBOS.retrieve_workflow(WORKFLOW).get_result())


def _conversation(next_text: NextText) -> Any:
    def reply(messages: list[Any], info: Any) -> ModelResponse:
        # Without usage the model of functions would estimate it, by splitting the whole history.
        usage = RequestUsage(input_tokens=100, output_tokens=100)
        return ModelResponse([TextPart(next_text()), ToolCallPart("pay", {})], usage=usage)

    return _agent(reply, next_text)


def _pay_once(messages: list[Any], info: Any) -> ModelResponse:
    last = messages[-1].parts[-1]
    if isinstance(last, ToolReturnPart):
        return ModelResponse([TextPart(str(last.content))])
    return ModelResponse([ToolCallPart("pay", {})])


def _agent(reply: Any, tool: Callable[[], str]) -> Any:
    agent = Agent(FunctionModel(reply), name="clerk", capabilities=[DBOSDurability()])

    @agent.tool_plain
    @DBOS.step()
    async def pay() -> str:
        """Pay the invoice."""
        return tool()

    @DBOS.workflow()
    def conversation(asked: str) -> str:
        return agent.run_sync(asked, usage_limits=UsageLimits(request_limit=None)).output

    return conversation
