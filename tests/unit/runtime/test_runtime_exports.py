"""The public names of `turnledger.runtime`, and of its sub-packages."""

from __future__ import annotations

import inspect

from turnledger import runtime

NAMED = {
    "MarkdownSection",
    "Prompt",
    "PromptEvaluationError",
    "PromptOverridesStore",
    "PromptTemplate",
    "SectionVisibility",
    "SetVisibilityOverride",
    "Tool",
    "ToolContext",
    "ToolResult",
    "VisibilityExpansionRequired",
    "VisibilityOverrides",
    "tool_to_spec",
}


def test_the_runtime_has_at_most_100_names() -> None:
    """What only experts need is in the sub-packages."""
    assert len(runtime.__all__) <= 100


def test_the_runtime_has_the_names_of_the_design() -> None:
    """Those of prompts and tools."""
    assert set(runtime.__all__) >= NAMED


def test_every_public_class_and_function_of_the_runtime_says_what_it_is_for() -> None:
    """In a docstring of its own."""
    for name in runtime.__all__:
        value = getattr(runtime, name)
        if inspect.isclass(value) or inspect.isfunction(value):
            assert value.__doc__, name
