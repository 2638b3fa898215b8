"""Sections of a prompt that give an agent a workspace: the resource named "workspace".

The resource is a `SnapshotableFilesystem`, so what a tool does to its files is recorded with its
result, undone if it fails, and restored by a recovery. `WorkspaceSection` has the file tools and
the mounts; a section that can do more adds its own tools and text to them:

    class PodmanSandboxSection(WorkspaceSection):
        def __init__(self, *, mounts=(), allowed_host_roots=(), key=..., title=..., runner=None):
            tools = [Tool[ShellExecute, None](name="shell_execute", ...)]
            super().__init__(
                mounts=mounts, allowed_host_roots=allowed_host_roots, key=key, title=title,
                tools=tools, text="Commands run in ...",
            )

Its handlers find the directory with `workspace_of(context.resources).root`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from copy import copy
from os import PathLike
from typing import Any, TypeVar

from turnledger.ledger.arguments import explain_methods
from turnledger.runtime.agent.prompts.sections import MarkdownSection
from turnledger.runtime.agent.tools.tool import Tool
from turnledger.runtime.workspace.file_tools import FILE_TOOLS, workspace_of
from turnledger.runtime.workspace.mounts import HostMount, checked_mounts, copy_mounts

SectionT = TypeVar("SectionT", bound="WorkspaceSection")

# Part of the prompt's digest: it names no path of the host, which may be another on a recovery.
_TEXT = """
You have a workspace: a directory of files. Every path begins at "/", which is the workspace
itself; nothing outside of it can be reached. Read a file before you change it.
"""


@explain_methods()
class WorkspaceSection(MarkdownSection[None]):
    """Base class of sections over the resource named "workspace": file tools and mounts."""

    def __init__(
        self,
        *,
        mounts: Iterable[HostMount] = (),
        allowed_host_roots: Iterable[str | PathLike[str]] = (),
        key: str = "workspace",
        title: str = "Workspace",
        tools: Iterable[Tool[Any, Any]] = (),
        text: str = "",
    ) -> None:
        """Make a section; nothing of the host is read before a run starts.

        Args:
            mounts: Files and directories of the host that are copied into the workspace when
                a run starts.
            allowed_host_roots: The directories that mounts may be in.
            key: The section's key; the resource is named "workspace" whatever it is.
            title: The heading.
            tools: Tools beside those for files.
            text: Markdown after the text about files.
        """
        self.mounts, self.allowed_host_roots = checked_mounts(mounts, allowed_host_roots)
        mounted = [f"- `{mount.target}`" for mount in self.mounts]
        copied = ["\n".join(["It has these copies of files:", "", *mounted])] if mounted else []
        super().__init__(
            title=title,
            key=key,
            template="\n\n".join(
                part.strip().replace("${", "$${") for part in (_TEXT, *copied, text) if part
            ),
            tools=(*FILE_TOOLS, *tools),
        )

    def clone(self: SectionT) -> SectionT:
        """Return an equal section, for another prompt."""
        return copy(self)

    def prepare(self, resources: Mapping[str, Any]) -> None:
        """Copy the mounts into the workspace; WorkspaceError if there is none, or one can't be."""
        copy_mounts(self.mounts, self.allowed_host_roots, workspace_of(resources))


@explain_methods()
class VfsToolsSection(WorkspaceSection):
    """A workspace with tools for its files: ls, read_file, write_file, edit_file, glob, grep, rm.

    `MainLoop(resources={"workspace": SnapshotableFilesystem(directory)})` provides the files.
    """

    def __init__(
        self,
        *,
        mounts: Iterable[HostMount] = (),
        allowed_host_roots: Iterable[str | PathLike[str]] = (),
        key: str = "workspace",
        title: str = "Workspace",
    ) -> None:
        """Make a section; the arguments are WorkspaceSection's."""
        super().__init__(mounts=mounts, allowed_host_roots=allowed_host_roots, key=key, title=title)
