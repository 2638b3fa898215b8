"""A workspace for agents: files, a sandbox, a plan and a digest, as sections of a prompt."""

from turnledger.runtime.workspace.directory import WorkspaceError
from turnledger.runtime.workspace.mounts import HostMount
from turnledger.runtime.workspace.sections import VfsToolsSection, WorkspaceSection

__all__ = ["HostMount", "VfsToolsSection", "WorkspaceError", "WorkspaceSection"]
