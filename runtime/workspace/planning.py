"""Planning: a prompt section with six tools by which a model keeps a plan in the session.

    PromptTemplate(ns="reviews", key="review", sections=[task, PlanningToolsSection()])

The plan is the slice `Plan`: recorded, recovered and replayed with the rest of the session.
Invalid input is a failed result that tells the model what to do. The texts are part of the
prompt's digest: a changed text makes recorded runs diverge.
"""

from __future__ import annotations

from enum import Enum
from typing import Any

from turnledger.ledger.arguments import explain_methods
from turnledger.ledger.errors import short_repr
from turnledger.runtime.agent.plan import AddStep, MarkStep, NewStep, Plan, SetupPlan, UpdateStep
from turnledger.runtime.agent.prompts import MarkdownSection
from turnledger.runtime.agent.tool_context import ToolContext
from turnledger.runtime.agent.tools import Tool, ToolResult
from turnledger.runtime.errors import PromptDefinitionError, ReducerFailedError


class PlanningStrategy(Enum):
    """How a model is told to plan."""

    PLAIN = "plain"
    GOAL_DECOMPOSE_ROUTE_SYNTHESISE = "goal-decompose-route-synthesise"


_PLAIN = """
Keep a plan for work that takes more than two steps. Begin it with `planning_setup_plan`, mark a
step as in_progress when you begin it and as done when it is done, and add the steps that turn out
to be needed. `planning_read_plan` shows the plan.
"""
_GOAL_DECOMPOSE_ROUTE_SYNTHESISE = """
Work in four phases, and keep them in a plan:

1. Goal: say in one sentence what is wanted and how you will know that it is reached. That is the
   objective of `planning_setup_plan`.
2. Decompose: split the goal into steps that can each be checked on their own, in the order in
   which they depend on each other. Add those that turn up later with `planning_add_step`.
3. Route: decide for each step which tool, file or section answers it, and write that into its
   details. Then take one step at a time: mark it as in_progress, do it, and mark it as done with a
   note of what was found. Mark a step that can't be done as blocked, one that is not needed as
   skipped, and say why.
4. Synthesise: when no step is left, call `planning_read_plan` and make the answer from the notes
   of all steps. Name what stayed blocked or skipped.
"""
_TEXTS = {
    PlanningStrategy.PLAIN: _PLAIN,
    PlanningStrategy.GOAL_DECOMPOSE_ROUTE_SYNTHESISE: _GOAL_DECOMPOSE_ROUTE_SYNTHESISE,
}


@explain_methods()
class PlanningToolsSection(MarkdownSection[None]):
    """The section "planning": how to plan, and the tools for it."""

    def __init__(self, *, strategy: PlanningStrategy = PlanningStrategy.PLAIN) -> None:
        """Make the section with the text of a strategy; its tools are the same for all."""
        if not isinstance(strategy, PlanningStrategy):
            raise PromptDefinitionError(
                f"Invalid strategy {short_repr(strategy)}: expected a PlanningStrategy."
            )
        self.strategy = strategy
        super().__init__(title="Planning", key="planning", template=_TEXTS[strategy], tools=_TOOLS)


def _setup_plan(params: SetupPlan, *, context: ToolContext) -> ToolResult[None]:
    return _applied(context, params)


def _add_step(params: NewStep, *, context: ToolContext) -> ToolResult[None]:
    step_id = (context.session[Plan].latest() or Plan()).next_id
    return _applied(context, AddStep(step_id, params), f"Added {step_id}: {params.title}")


def _update_step(params: UpdateStep, *, context: ToolContext) -> ToolResult[None]:
    return _applied(context, params, f"Updated {params.step_id}.")


def _mark_step(params: MarkStep, *, context: ToolContext) -> ToolResult[None]:
    return _applied(context, params, f"{params.step_id} is {params.status}.")


def _clear_plan(*, context: ToolContext) -> ToolResult[None]:
    context.session[Plan].clear()
    return ToolResult("There is no plan now.")


def _read_plan(*, context: ToolContext) -> ToolResult[None]:
    plan = context.session[Plan].latest()
    return ToolResult(plan.to_text() if plan is not None else "There is no plan yet.")


def _applied(context: ToolContext, event: object, said: str = "") -> ToolResult[None]:
    """Apply an event to the plan, and say so or show it; a refused one is a failed result."""
    plans = context.session[Plan]
    try:
        plans.apply(event)
    except ReducerFailedError as error:
        return ToolResult(str(error.__cause__), success=False)
    return ToolResult(said or plans.latest().to_text())


_TOOLS: tuple[Tool[Any, Any], ...] = (
    Tool(
        name="planning_setup_plan",
        description="Begin a plan: an objective, and its first steps if they are known.",
        handler=_setup_plan,
    ),
    Tool(
        name="planning_add_step",
        description="Add a step at the end of the plan.",
        handler=_add_step,
    ),
    Tool(
        name="planning_update_step",
        description="Change the title or the details of a step.",
        handler=_update_step,
    ),
    Tool(
        name="planning_mark_step",
        description="Set the status of a step, with a note of what was found.",
        handler=_mark_step,
    ),
    Tool(
        name="planning_clear_plan",
        description="Remove the plan, to begin another one.",
        handler=_clear_plan,
    ),
    Tool(
        name="planning_read_plan",
        description="Show the plan: its objective, its steps, their status and notes.",
        handler=_read_plan,
    ),
)
