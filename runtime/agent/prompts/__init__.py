"""Prompts: templates, sections, rendering, structured output."""

from turnledger.runtime.agent.prompts.open_sections_tool import OPEN_SECTIONS, OpenSections
from turnledger.runtime.agent.prompts.output import OutputSpec
from turnledger.runtime.agent.prompts.override_texts import OverrideTexts, PromptOverridesStore
from turnledger.runtime.agent.prompts.prompt import Prompt
from turnledger.runtime.agent.prompts.render import RenderedPrompt, ShownSection
from turnledger.runtime.agent.prompts.sections import MarkdownSection, Section
from turnledger.runtime.agent.prompts.template import PromptTemplate

__all__ = [
    "MarkdownSection",
    "OPEN_SECTIONS",
    "OpenSections",
    "OutputSpec",
    "OverrideTexts",
    "Prompt",
    "PromptOverridesStore",
    "PromptTemplate",
    "RenderedPrompt",
    "Section",
    "ShownSection",
]
