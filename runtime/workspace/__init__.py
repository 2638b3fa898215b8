"""A workspace for agents: files, a sandbox, a plan and a digest, as sections of a prompt."""

from turnledger.runtime.workspace.directory import WorkspaceError
from turnledger.runtime.workspace.mounts import HostMount
from turnledger.runtime.workspace.sandbox import (
    LIMITS,
    SandboxCommand,
    SandboxLimits,
    SandboxOutcome,
    SandboxRunner,
    SandboxUnavailableError,
    default_runner,
)
from turnledger.runtime.workspace.sandbox_section import PodmanSandboxSection
from turnledger.runtime.workspace.sections import VfsToolsSection, WorkspaceSection

__all__ = [
    "HostMount",
    "LIMITS",
    "PodmanSandboxSection",
    "SandboxCommand",
    "SandboxLimits",
    "SandboxOutcome",
    "SandboxRunner",
    "SandboxUnavailableError",
    "VfsToolsSection",
    "WorkspaceError",
    "WorkspaceSection",
    "default_runner",
]
