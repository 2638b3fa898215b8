"""A prompt with everything in it, for tests of rendering here and in other processes."""

from __future__ import annotations

from dataclasses import dataclass, field

import msgspec

from tests.unit.runtime.kinds import PointDataclass, ShapeDataclass
from turnledger.runtime import (
    MarkdownSection,
    Prompt,
    PromptTemplate,
    SectionVisibility,
    Tool,
    ToolContext,
    ToolResult,
)


@dataclass(frozen=True)
class Task:
    goal: str
    labels: frozenset[str] = frozenset({"red", "green", "blue"})
    weights: dict[str, int] = field(default_factory=dict)


class Style(msgspec.Struct, frozen=True):
    tone: str = "plain"
    strict: bool = False


def search(params: PointDataclass, *, context: ToolContext) -> ToolResult[int]:
    return ToolResult("found", value=params.x)


def look(*, context: ToolContext) -> str:
    return "seen"


SEARCH = Tool[PointDataclass, int](name="search", description="Searches.", handler=search)
LOOK = Tool[None, str](name="look", description="Looks.", handler=look)
READ = Tool[None, str](name="read", description="Reads.", handler=look)

TEMPLATE = PromptTemplate[ShapeDataclass](
    ns="tests/drawing",
    key="draw",
    name="Drawing",
    sections=[
        MarkdownSection[Task](
            title="Task",
            key="task",
            template="""
                Reach ${goal}.
                Labels: ${labels}
            """,
            tools=[SEARCH],
            children=[
                MarkdownSection[Style](
                    title="Style", key="style", template="Be ${tone}.", default_params=Style()
                ),
                MarkdownSection[Style](
                    title="Rules",
                    key="rules",
                    template="No mistakes.",
                    enabled=lambda style: style.strict,
                    default_params=Style(),
                    tools=[READ],
                ),
            ],
        ),
        MarkdownSection[Task](
            title="Reference",
            key="reference",
            template="All about ${goal}.",
            summary="How to reach ${goal}.",
            visibility=SectionVisibility.SUMMARY,
            tools=[LOOK],
            children=[
                MarkdownSection(
                    title="Details",
                    key="details",
                    template="Many.",
                    summary="Some.",
                    visibility=SectionVisibility.SUMMARY,
                )
            ],
        ),
    ],
)
PROMPT = Prompt(TEMPLATE).bind(Task("the top", weights={"b": 1, "a": 2}))
