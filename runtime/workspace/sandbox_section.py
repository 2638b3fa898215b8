"""PodmanSandboxSection: a workspace whose files are also reached by commands in a sandbox.

A command that fails is a failed result, so the loop undoes what it did to the files. The texts
are part of the prompt's digest: changing one makes recorded runs diverge.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from os import PathLike
from typing import Any

from turnledger.ledger.arguments import explain_methods
from turnledger.ledger.errors import InvalidInputError
from turnledger.runtime.agent.tool_context import ToolContext
from turnledger.runtime.agent.tools.tool import Tool, ToolResult
from turnledger.runtime.workspace.directory import WorkspaceError
from turnledger.runtime.workspace.file_tools import workspace_of
from turnledger.runtime.workspace.mounts import HostMount
from turnledger.runtime.workspace.sandbox import (
    SandboxCommand,
    SandboxOutcome,
    SandboxRunner,
    default_runner,
)
from turnledger.runtime.workspace.sections import WorkspaceSection

_TEXT = """
Commands run in a sandbox, without a network. Their working directory is the workspace: what the
tools for files call "/notes.txt" is "notes.txt" there, or "/workspace/notes.txt". Everything
else is read-only or gone after the command.
"""


@dataclass(frozen=True)
class ShellExecute:
    """A command."""

    command: str = field(metadata={"description": "For `sh -c`; at most 4096 characters."})
    timeout_seconds: int = field(
        default=30, metadata={"description": "When it is stopped: 1 to 120 seconds."}
    )


@dataclass(frozen=True)
class EvaluatePython:
    """A program."""

    code: str = field(metadata={"description": "For `python3`; at most 4096 characters."})


@explain_methods()
class PodmanSandboxSection(WorkspaceSection):
    """A workspace with tools for its files, and shell_execute and evaluate_python in a sandbox.

    Nothing is executed without a sandbox: where none works, both tools fail and say why.
    """

    def __init__(
        self,
        *,
        mounts: Iterable[HostMount] = (),
        allowed_host_roots: Iterable[str | PathLike[str]] = (),
        key: str = "workspace",
        title: str = "Workspace",
        runner: SandboxRunner | None = None,
    ) -> None:
        """Make a section; the other arguments are WorkspaceSection's.

        Args:
            mounts: See WorkspaceSection.
            allowed_host_roots: See WorkspaceSection.
            key: See WorkspaceSection.
            title: See WorkspaceSection.
            runner: Executes the commands. By default podman if it works and has the image, else
                bubblewrap; which of them is found out at the first call.
        """
        self.runner = runner
        tools: list[Tool[Any, Any]] = [
            Tool[ShellExecute, None](
                name="shell_execute",
                description="Execute a shell command in the workspace; returns its output.",
                handler=self._shell_execute,
            ),
            Tool[EvaluatePython, None](
                name="evaluate_python",
                description="Execute a Python program in the workspace; returns what it prints.",
                handler=self._evaluate_python,
            ),
        ]
        super().__init__(
            mounts=mounts,
            allowed_host_roots=allowed_host_roots,
            key=key,
            title=title,
            tools=tools,
            text=_TEXT,
        )

    def _shell_execute(self, params: ShellExecute, *, context: ToolContext) -> ToolResult[None]:
        argv = ("sh", "-c", params.command)
        return self._run(context, argv=argv, timeout_seconds=params.timeout_seconds)

    def _evaluate_python(self, params: EvaluatePython, *, context: ToolContext) -> ToolResult[None]:
        return self._run(context, argv=("python3", "-B", "-"), stdin=params.code)

    def _run(self, context: ToolContext, **command: Any) -> ToolResult[None]:
        try:
            wanted = SandboxCommand(**command)
            directory = workspace_of(context.resources).root
        except (InvalidInputError, WorkspaceError) as error:
            return ToolResult(str(error), success=False)
        outcome = (self.runner or default_runner()).run(directory, wanted)
        succeeded = outcome.exit_code == 0 and not outcome.stopped
        return ToolResult(_text(outcome), success=succeeded)


def _text(outcome: SandboxOutcome) -> str:
    ending = f"Exit code {outcome.exit_code}."
    if outcome.stopped:
        ending = f"Stopped: more than {outcome.stopped}."
    parts = [
        ending,
        f"Output:\n{outcome.stdout}" if outcome.stdout else "No output.",
        f"Errors:\n{outcome.stderr}" if outcome.stderr else "",
        "(There was more output: only its beginning is here.)" if outcome.truncated else "",
    ]
    return "\n\n".join(part.rstrip("\n") for part in parts if part)
