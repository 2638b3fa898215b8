"""The seeds' examples that need no loop, typed as they stand but for the import path."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from turnledger.runtime import (
    MarkdownSection,
    Prompt,
    PromptTemplate,
    SectionVisibility,
    SetVisibilityOverride,
    Tool,
    ToolContext,
    ToolResult,
    VisibilityExpansionRequired,
    VisibilityOverrides,
)
from turnledger.runtime.agent.tools import call_tool


@dataclass(frozen=True)
class Request:
    topic: str


@dataclass(frozen=True)
class Params:
    topic: str

    @classmethod
    def from_request(cls, request: Request) -> Params:
        return cls(request.topic)


@dataclass(frozen=True)
class Output:
    answer: str


@dataclass(frozen=True)
class WriteFileParams:
    path: str


@dataclass(frozen=True)
class WriteFileResult:
    size: int


def create_prompt(request: Request) -> Prompt[Output]:
    return Prompt(PromptTemplate[Output](
        ns="agent",
        key="task",
        sections=[
            MarkdownSection[Params](
                title="Reference",
                template="...",
                summary="Reference available.",
                visibility=SectionVisibility.SUMMARY,
                key="reference",
            ),
        ],
    )).bind(Params.from_request(request))  # fmt: skip


def test_the_progressive_disclosure_example_runs() -> None:
    """S2-11: summarised at first, and in full when it was opened."""
    prompt = create_prompt(Request("bees"))
    rendered = prompt.render()
    assert "Reference available." in rendered.text
    assert "..." not in rendered.text.split("Response format")[0]
    (tool,) = rendered.tools
    context = ToolContext(call_id="c1", prompt=prompt, rendered_prompt=rendered)
    overrides = VisibilityOverrides()
    try:
        call_tool(tool, '{"section_keys": ["reference"], "reason": "why not"}', context)
    except VisibilityExpansionRequired as e:
        for path, visibility in e.requested_overrides.items():
            event = SetVisibilityOverride(path=path, visibility=visibility)
            overrides = overrides.set_override(event)
    opened = prompt.render(visibility=overrides)
    assert opened.text.startswith("## Reference\n\n...")
    assert opened.tools == ()
    assert opened.output_type is Output


executed: dict[str, ToolResult[WriteFileResult]] = {}
was_already_executed: Callable[[str], bool] = executed.__contains__
cached_result: Callable[[str], ToolResult[WriteFileResult]] = executed.__getitem__


def write_file_handler(
    params: WriteFileParams,
    *,
    context: ToolContext,
) -> ToolResult[WriteFileResult]:
    call_id = context.call_id
    if was_already_executed(call_id):
        return cached_result(call_id)
    # ... execute and cache ...
    executed[call_id] = ToolResult("Written.", value=WriteFileResult(size=len(params.path)))
    return executed[call_id]


def test_the_idempotency_key_example_runs() -> None:
    """S0-19: a call that runs again has its old id."""
    executed.clear()
    tool = Tool[WriteFileParams, WriteFileResult](
        name="write_file", description="Writes it.", handler=write_file_handler
    )
    first = call_tool(tool, '{"path": "abc"}', ToolContext(call_id="c1"))
    again = call_tool(tool, '{"path": "other"}', ToolContext(call_id="c1", is_resume=True))
    assert first.text == again.text == 'Written.\n\n{"size":3}'
