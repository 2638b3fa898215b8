"""A workspace for agents: files, a sandbox, a plan and a digest, as sections of a prompt."""

from turnledger.runtime.agent.plan import Plan, PlanStep
from turnledger.runtime.workspace.digest import (
    OptimizationResult,
    OptimizationScope,
    WorkspaceDigest,
    WorkspaceDigestSection,
    clear_workspace_digest,
    latest_workspace_digest,
    set_workspace_digest,
)
from turnledger.runtime.workspace.mounts import HostMount
from turnledger.runtime.workspace.planning import PlanningStrategy, PlanningToolsSection
from turnledger.runtime.workspace.sections import VfsToolsSection, WorkspaceSection

__all__ = [
    "HostMount",
    "OptimizationResult",
    "OptimizationScope",
    "Plan",
    "PlanStep",
    "PlanningStrategy",
    "PlanningToolsSection",
    "VfsToolsSection",
    "WorkspaceDigest",
    "WorkspaceDigestSection",
    "WorkspaceSection",
    "clear_workspace_digest",
    "latest_workspace_digest",
    "set_workspace_digest",
]
