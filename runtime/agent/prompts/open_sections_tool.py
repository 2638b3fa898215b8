"""The `open_sections` tool: lets a model open sections that are shown as a summary.

It is offered with every prompt that shows a summary. Opening ends the evaluation with
`VisibilityExpansionRequired`; the loop sets the overrides and evaluates again. Its texts are part
of the prompt's digest, or are recorded: a changed text makes recorded runs diverge.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

from turnledger.runtime.agent.tools.tool import Tool, ToolResult
from turnledger.runtime.agent.visibility import SectionVisibility, VisibilityExpansionRequired

OPEN_SECTIONS_NAME = "open_sections"


@dataclass(frozen=True)
class OpenSections:
    """Which sections to open, and why."""

    section_keys: list[str] = field(
        metadata={"description": "The keys of the summarised sections to read in full."}
    )
    reason: str = field(metadata={"description": "What they are needed for."})


def hint(path: str) -> str:
    """Return the line that is rendered below a summary."""
    return (
        f"(Only a summary. To read this section in full, call `{OPEN_SECTIONS_NAME}` "
        f'with section_keys ["{path}"].)'
    )


class _Rendered(Protocol):
    @property
    def shown(self) -> tuple[str, ...]: ...

    @property
    def summarised(self) -> tuple[str, ...]: ...


class _Context(Protocol):
    """What the handler needs of a ToolContext, which is defined above prompts."""

    @property
    def rendered_prompt(self) -> _Rendered | None: ...


def open_sections(params: OpenSections, *, context: _Context) -> ToolResult[None]:
    """Handler of the tool; a key that can't be opened is a failed result."""
    rendered = context.rendered_prompt
    closed = rendered.summarised if rendered is not None else ()
    wanted = tuple(dict.fromkeys(params.section_keys))
    wrong = [key for key in wanted if key not in closed]
    if wanted and not wrong:
        raise VisibilityExpansionRequired(
            dict.fromkeys(wanted, SectionVisibility.FULL),
            section_keys=wanted,
            reason=params.reason,
        )
    shown = rendered.shown if rendered is not None else ()
    problems = [
        f"{key!r} is open already" if key in shown else f"there is no section {key!r}"
        for key in wrong
    ] or ["name at least one section"]
    valid = ", ".join(repr(path) for path in closed) or "none"
    return ToolResult(
        f"Nothing was opened: {'; '.join(problems)}. Sections that can be opened: {valid}.",
        success=False,
    )


OPEN_SECTIONS = Tool[OpenSections, None](
    name=OPEN_SECTIONS_NAME,
    description=(
        "Show sections of the instructions in full of which only a summary is shown. "
        "The conversation begins again with them open."
    ),
    handler=open_sections,
)
