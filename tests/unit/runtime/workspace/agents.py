"""Agents with a workspace, and their tools called by hand."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.agent import ScriptedLoop, calls, says
from turnledger.runtime import (
    MarkdownSection,
    Prompt,
    PromptTemplate,
    Reply,
    SnapshotableFilesystem,
    Tool,
    ToolContext,
    ToolResult,
)
from turnledger.runtime.workspace import VfsToolsSection, WorkspaceSection

TOOLS = {tool.name: tool for tool in VfsToolsSection().tools}


def use(root: Path, name: str, **arguments: Any) -> ToolResult[Any]:
    """Call a tool on a directory."""
    tool = TOOLS[name]
    context = ToolContext(resources={"workspace": SnapshotableFilesystem(root)})
    result: ToolResult[Any] = tool.handler(tool.params_type(**arguments), context=context)
    return result


def uses(*asked: tuple[str, dict[str, Any]], answer: str = "Done.") -> list[Reply]:
    """Replies of a model that uses one tool after the other, and then answers."""
    named = [(f"c{place}", name, json.dumps(given)) for place, (name, given) in enumerate(asked, 1)]
    return [*(calls(one) for one in named), says(answer)]


@dataclass(frozen=True)
class Job:
    """What the agent is asked."""

    text: str = "tidy up"


class Clerk(ScriptedLoop[Job, str]):
    """An agent with one workspace section, and tools of its own beside it."""

    def __init__(
        self,
        replies: Sequence[Any] | Callable[[Any], Reply],
        root: Path | None,
        section: WorkspaceSection | None = None,
        *,
        tools: Iterable[Tool[Any, Any]] = (),
        **options: Any,
    ) -> None:
        self._section = section or VfsToolsSection()
        self._tools = list(tools)
        if root is not None:
            root.mkdir(exist_ok=True)
            options["resources"] = {"workspace": SnapshotableFilesystem(root)}
        super().__init__(replies, **options)

    def create_prompt(self, request: Job) -> Prompt[Any]:
        task = MarkdownSection[Job](title="Task", template="${text}", key="task", tools=self._tools)
        sections = [task, self._section]
        return Prompt(PromptTemplate(ns="tests", key="clerk", sections=sections)).bind(request)
