"""Progressive disclosure in a main loop: the seed's example, and how often a section is opened."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from tests.unit.runtime.test_main_loop_examples import (
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
    VisibilityOverrides,
)

# --- With progressive disclosure -------------------------------------------------------


class DisclosingLoop(CodeReviewLoop):
    def create_prompt(self, request: ReviewRequest) -> Prompt[ReviewResult]:
        return Prompt(
            PromptTemplate[ReviewResult](
                ns="agent",
                key="task",
                sections=[
                    MarkdownSection[ReviewParams](
                        title="Reference",
                        template="All there is to know about ${path}.",
                        summary="Reference available.",
                        visibility=SectionVisibility.SUMMARY,
                        key="reference",
                    ),
                ],
            )
        ).bind(ReviewParams.from_request(request))


def opens(times: int, tool: str = "open_sections") -> Any:
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


def test_progressive_disclosure() -> None:
    """S2-8: the model opens a section; the same prompt is evaluated again in the same session."""
    seen: list[str] = []
    ask = opens(1)

    def reply(request: Any) -> Reply:
        seen.append(request.system)
        answer: Reply = ask(request)
        return answer

    loop = DisclosingLoop(adapter=ScriptedAdapter(reply), bus=InProcessEventBus())
    response, session = loop.execute(ReviewRequest("a.py"))
    assert response.output == ReviewResult("good")
    assert "Reference available." in seen[0]
    assert "All there is to know about a.py." in seen[1]
    shown = session[VisibilityOverrides].latest()
    assert shown is not None
    assert dict(shown.overrides) == {"reference": SectionVisibility.FULL}


class Stubborn(DisclosingLoop):
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
