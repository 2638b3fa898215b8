"""A workspace for agents: files, a sandbox, a plan and a digest, as sections of a prompt."""

from turnledger.runtime.agent.plan import Plan, PlanStep
from turnledger.runtime.workspace.planning import PlanningStrategy, PlanningToolsSection

__all__ = ["Plan", "PlanStep", "PlanningStrategy", "PlanningToolsSection"]
