"""Progressive disclosure in a main loop: how often a section is opened."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from tests.seeds.test_seed_002 import (
    GOOD,
    CodeReviewLoop,
    ReviewParams,
    ReviewRequest,
    ReviewResult,
)
from turnledger.runtime import (
    InProcessEventBus,
    MarkdownSection,
    Prompt,
    PromptEvaluationError,
    PromptTemplate,
    Reply,
    ScriptedAdapter,
    SectionVisibility,
    Tool,
    ToolCall,
    ToolContext,
    ToolResult,
    VisibilityExpansionRequired,
)


def opens(times: int, tool: str) -> Any:
    """A model that asks for the section so many times, whatever it sees."""
    asked = 0

    def reply(request: Any) -> Reply:
        nonlocal asked
        asked += 1
        if asked > times:
            return GOOD
        arguments = '{"section_keys": ["reference"], "reason": "to know"}'
        return Reply(tool_calls=(ToolCall(f"o{asked}", tool, arguments),))

    return reply


class Stubborn(CodeReviewLoop):
    """Its model may ask for the section again although it is open."""

    def __init__(self, times: int) -> None:
        super().__init__(adapter=ScriptedAdapter(opens(times, "insist")), bus=InProcessEventBus())

    def create_prompt(self, request: ReviewRequest) -> Prompt[ReviewResult]:
        def open_sections(params: Any, *, context: ToolContext) -> ToolResult[None]:
            raise VisibilityExpansionRequired({"reference": SectionVisibility.FULL}, reason="again")

        @dataclass(frozen=True)
        class Wanted:
            section_keys: list[str]
            reason: str

        tool = Tool[Wanted, None](name="insist", description="Open.", handler=open_sections)
        section = MarkdownSection[ReviewParams](
            title="Reference", template="On ${path}.", key="reference", tools=[tool]
        )
        template = PromptTemplate[ReviewResult](ns="agent", key="task", sections=[section])
        return Prompt(template).bind(ReviewParams.from_request(request))


def test_at_most_ten_expansions() -> None:
    """S2-8: ten times a section may be asked for in one run; then it has failed."""
    assert Stubborn(10).execute(ReviewRequest("a.py"))[0].output == ReviewResult("good")
    with pytest.raises(PromptEvaluationError, match="more than 10 times"):
        Stubborn(11).execute(ReviewRequest("a.py"))
